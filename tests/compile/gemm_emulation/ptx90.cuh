// Stands in for kernels/cuda/ptx90.cuh: mbarriers and named barriers are counters, the copy engine copies at once, and
// wgmma multiplies from the shared memory that its descriptor points at.
#pragma once

#include "../device/base.cuh"
#include <condition_variable>
#include <map>
#include <mutex>

namespace kw::ptx90 {

// Shared memory is static variables, whose addresses are counted from this one.
alignas(1024) static uint8_t anchor[1024];
constexpr uint32_t address_of_anchor = 1u << 30;

inline uint32_t shared_address(const void* pointer) {
    return address_of_anchor + (uint32_t)(int32_t)((const uint8_t*)pointer - anchor);
}
inline uint8_t* at(uint32_t address) { return anchor + (int32_t)(address - address_of_anchor); }
inline uint32_t swizzled(uint32_t address) { return address ^ (address >> 3 & 0x70); }  // 128-byte swizzle

inline void load_shared(float (&to)[4], uint32_t address) { std::memcpy(to, at(address), 16); }
inline float4 load_constants(const float* pointer) { return *(const float4*)pointer; }

// --- barriers

struct Barrier {
    int arrivals, pending, bytes;
    uint32_t phase;
};
struct NamedBarrier {
    int count = 0, generation = 0;
};
static std::mutex lock;
static std::condition_variable changed;
static std::map<uint32_t, Barrier> barriers;
static std::map<int, NamedBarrier> named;

inline void settle(Barrier& barrier) {
    if (barrier.pending < 0) std::printf("WRONG: a barrier got more arrivals than it waits for\n"), std::exit(1);
    if (barrier.pending > 0 || barrier.bytes != 0) return;
    barrier.phase ^= 1, barrier.pending = barrier.arrivals;
    changed.notify_all();
}
inline void barrier_init(uint32_t barrier, int arrivals) {
    std::lock_guard held(lock);
    barriers[barrier] = {arrivals, arrivals, 0, 0};
}
inline void barrier_init_fence() {}
template <int Count = 1> void barrier_arrive(uint32_t barrier) {
    std::lock_guard held(lock);
    barriers[barrier].pending -= Count;
    settle(barriers[barrier]);
}
inline void barrier_arrive_and_expect(uint32_t barrier, int bytes) {
    std::lock_guard held(lock);
    barriers[barrier].pending--, barriers[barrier].bytes += bytes;
    settle(barriers[barrier]);
}
inline void barrier_wait(uint32_t barrier, uint32_t parity) {
    std::unique_lock held(lock);
    changed.wait(held, [&] { return barriers[barrier].phase != parity; });
}
inline void named_arrive(int id, int threads) {
    std::lock_guard held(lock);
    if (++named[id].count < threads) return;
    named[id].count = 0, named[id].generation++;
    changed.notify_all();
}
inline void named_sync(int id, int threads) {
    std::unique_lock held(lock);
    const int generation = named[id].generation;
    if (++named[id].count == threads) {
        named[id].count = 0, named[id].generation++;
        changed.notify_all();
    } else {
        changed.wait(held, [&] { return named[id].generation != generation; });
    }
}

template <int Count> void registers_shrink_to() {}
template <int Count> void registers_grow_to() {}

// --- the copy engine

struct TensorMap {
    const void* base;
    int64_t count[3], pitch[2];
    int box[2], bytes;
};
inline void load_box(uint32_t destination, const TensorMap* map, uint32_t barrier, int x, int y, int z) {
    const int bytes = map->bytes;
    for (int j = 0; j < map->box[1]; j++)
        for (int i = 0; i < map->box[0]; i++) {
            uint8_t* to = at(swizzled(destination + j * 128 + i * bytes));
            const int64_t element = x + i + (y + j) * map->pitch[0] + z * map->pitch[1];
            if (x + i < map->count[0] && y + j < map->count[1] && z < map->count[2])
                std::memcpy(to, (const uint8_t*)map->base + element * bytes, bytes);
            else
                std::memset(to, 0, bytes);
        }
    std::lock_guard held(lock);
    barriers[barrier].bytes -= map->box[0] * map->box[1] * bytes;
    settle(barriers[barrier]);
}

// --- wgmma

inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int Pending> void wgmma_wait() { __syncwarp(); }
template <int N> void pin(float (&)[N]) {}
inline uint64_t descriptor_128b(uint32_t address) { return address >> 4; }

template <bool Accumulate, int Count> void wgmma_f16(float (&d)[Count], const uint32_t (&a)[4], uint64_t b) {
    static uint32_t as[cpu::most_warps][32][4];
    const int warp = cpu::warp(), lane = cpu::lane();
    std::memcpy(as[warp][lane], a, 16);
    __syncwarp();
    float rows[2][16];
    for (int r = 0; r < 2; r++)
        for (int k = 0; k < 16; k++) {
            __half halves[2];
            std::memcpy(halves, &as[warp][lane / 4 * 4 + k % 8 / 2][r + k / 8 * 2], 4);
            rows[r][k] = __half2float(halves[k % 2]);
        }
    __syncwarp();
    for (int i = 0; i < Count; i++) {
        const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        double sum = Accumulate ? d[i] : 0.0;
        for (int k = 0; k < 16; k++) {
            __half w;
            std::memcpy(&w, at(swizzled((uint32_t)(b << 4) + column * 128 + k * 2)), 2);
            sum += (double)rows[i / 2 % 2][k] * __half2float(w);
        }
        d[i] = (float)sum;
    }
}

// Both operands from shared memory: of A the rows of this lane, 16 for each warp of the warpgroup.
template <class T, int Count> void multiply_shared(float (&d)[Count], uint64_t a, uint64_t b, int accumulate) {
    const int lane = cpu::lane(), warp = cpu::warp() % 4;
    auto element = [](uint64_t tile, int row, int k) {
        T value;
        std::memcpy(&value, at(swizzled((uint32_t)(tile << 4) + row * 128 + k * 2)), 2);
        return (double)(float)value;
    };
    for (int i = 0; i < Count; i++) {
        const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        double sum = accumulate ? d[i] : 0.0;
        for (int k = 0; k < 16; k++) sum += element(a, row, k) * element(b, column, k);
        d[i] = (float)sum;
    }
}
template <int Count> void wgmma_f16_shared(float (&d)[Count], uint64_t a, uint64_t b, int accumulate) {
    multiply_shared<__half>(d, a, b, accumulate);
}
template <int Count> void wgmma_bf16_shared(float (&d)[Count], uint64_t a, uint64_t b, int accumulate) {
    multiply_shared<__nv_bfloat16>(d, a, b, accumulate);
}

// --- clusters: blocks run one after the other here, so that each is a cluster of its own

inline uint32_t cluster_rank() { return 0; }
inline void cluster_sync() {}
inline void barrier_arrive_in(uint32_t barrier, uint32_t) { barrier_arrive(barrier); }
inline void load_box_multicast(uint32_t to, const TensorMap* map, uint32_t barrier, int x, int y, int z, uint16_t) {
    load_box(to, map, barrier, x, y, z);
}

}  // namespace kw::ptx90
