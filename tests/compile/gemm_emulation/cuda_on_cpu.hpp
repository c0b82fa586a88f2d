// Runs a CUDA kernel on the CPU, a host thread for each of a block's threads, blocks one after the other. Slow and
// exact: it shows wrong indices, missing tails, races that a barrier should prevent, and barriers that never open.
#pragma once

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#define __CUDACC_RTC__ 1  // the headers leave out what launches
#undef __shared__
#define __shared__ static  // one block runs at a time
#undef __global__
#define __global__
#undef __device__
#define __device__
#undef __host__
#define __host__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

using std::isfinite;
using std::max;
using std::min;

struct Index {
    unsigned x, y, z;
};
static thread_local Index threadIdx, blockIdx;
static Index gridDim, blockDim;

namespace cpu {
constexpr int most_warps = 32;
static std::barrier<>* of_block;
static std::vector<std::unique_ptr<std::barrier<>>> of_warps;
static uint64_t box[most_warps][32];  // what the lanes of a warp show each other

inline int warp() { return threadIdx.x / 32 + threadIdx.y * blockDim.x / 32; }
inline int lane() { return threadIdx.x % 32; }

template <class Body> void run(dim3 grid, dim3 block, Body body) {
    const int count = block.x * block.y;
    gridDim = {grid.x, grid.y, grid.z}, blockDim = {block.x, block.y, 1};
    std::barrier<> all(count);
    of_block = &all;
    of_warps.clear();
    for (int i = 0; i < count / 32; i++) of_warps.push_back(std::make_unique<std::barrier<>>(32));
    std::vector<std::thread> threads;
    for (int t = 0; t < count; t++)
        threads.emplace_back([&, t] {
            threadIdx = {t % block.x, t / block.x, 0};
            for (unsigned z = 0; z < grid.z; z++)
                for (unsigned y = 0; y < grid.y; y++)
                    for (unsigned x = 0; x < grid.x; x++) {
                        blockIdx = {x, y, z};
                        body();
                        all.arrive_and_wait();
                    }
        });
    for (auto& thread : threads) thread.join();
}
}  // namespace cpu

inline void __syncthreads() { cpu::of_block->arrive_and_wait(); }
inline void __syncwarp() { cpu::of_warps[cpu::warp()]->arrive_and_wait(); }

template <class T> T __shfl_sync(unsigned, T value, int source) {
    std::memcpy(&cpu::box[cpu::warp()][cpu::lane()], &value, sizeof value);
    __syncwarp();
    T got;
    std::memcpy(&got, &cpu::box[cpu::warp()][source], sizeof got);
    __syncwarp();
    return got;
}
template <class T> T __shfl_xor_sync(unsigned all, T value, int mask) {
    return __shfl_sync(all, value, cpu::lane() ^ mask);
}
inline uint32_t __ballot_sync(unsigned, bool value) {
    cpu::box[cpu::warp()][cpu::lane()] = value;
    __syncwarp();
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++) bits |= (uint32_t)cpu::box[cpu::warp()][i] << i;
    __syncwarp();
    return bits;
}
inline bool __any_sync(unsigned all, bool value) { return __ballot_sync(all, value) != 0; }
inline bool __all_sync(unsigned all, bool value) { return __ballot_sync(all, value) == ~0u; }
inline uint32_t __float_as_uint(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
inline float __uint_as_float(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
inline int __ffs(uint32_t x) { return __builtin_ffs((int)x); }
template <class T> T __ldg(const T* pointer) { return *pointer; }
inline uint32_t atomicMax(uint32_t* to, uint32_t value) {
    uint32_t before = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (before < value && !__atomic_compare_exchange_n(to, &before, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return before;
}
