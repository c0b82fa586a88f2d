// C = Epilogue(A W^T) where one operand has few rows (1 to 16): at the speed of reading the other one, in IEEE float32.
//
// A warp takes `rows` rows of the many and reads them along k with 16-byte loads, the next ones on their way while these
// are multiplied. The few rows are read beside them: one or two straight from cache; more of them would be most of the
// traffic, so a block copies them to shared memory for all its warps. Lanes hold partial sums of all rows x few results;
// `k_warps` warps of a block share long rows.
#pragma once

#include "gemm_epilogue.cuh"
#include "ptx80.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kw::gemm_skinny {

using namespace kw::ptx80;

// A build fixes these; the generated file writes such a struct.
struct DefaultConfig {
    using Type = float;                     // of both operands: float, __half or __nv_bfloat16
    static constexpr int few = 8;           // rows of the operand with few rows, rounded up to 1, 2, 4, 8 or 16
    static constexpr bool few_is_a = true;  // else W has few rows
    static constexpr int rows = 4;          // rows of the many that a warp takes: 2 or 4
    static constexpr int k_warps = 1;       // warps that share a row: 1, 2, 4 or 8
    static constexpr int load_bytes = 16;   // 16, or the size of an element where rows are not 16-byte aligned
};

struct Operand {  // k contiguous
    const void* data;
    int64_t row_pitch, batch_pitch;
};

struct Problem {
    Operand few, many;
    int few_rows, many_rows, k, batches, m;  // m: rows of a batch of the result
};

constexpr int warps = 8, threads = warps * 32;
constexpr int stages = 3;  // one read, one there, one on its way: one barrier for each tile of k

template <class Config> struct Sizes {
    static constexpr int width = Config::load_bytes / (int)sizeof(typename Config::Type);  // elements of one load
    static constexpr int rows_of_block = warps / Config::k_warps * Config::rows;
    static constexpr int results = Config::rows * Config::few, per_lane = results > 32 ? results / 32 : 1;
    static constexpr int steps = 2;  // loads of a row in a tile; one travels while the other is multiplied
    static constexpr int k_of_part = 32 * width * steps, k_of_tile = k_of_part * Config::k_warps;
    static constexpr int loads_of_line = k_of_tile / width, loads_of_tile = Config::few * loads_of_line;
    // Where every warp has a piece of k to itself there is little to share. 4: the least that cp.async copies.
    static constexpr bool staged =
        Config::few >= 4 && Config::load_bytes >= 4 && Config::few * Config::k_warps <= (Config::k_warps == 1 ? 16 : 8);
    // On a multiprocessor; with more the sums and what travels would not fit the registers.
    static constexpr int blocks_at_once = Config::few <= 4 || (staged && Config::few == 8) ? 2 : 1;
};

KW_DEVICE float as_float(float x) { return x; }
KW_DEVICE float as_float(__half x) { return __half2float(x); }
KW_DEVICE float as_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T, int Width> struct alignas(sizeof(T) * Width) Load {
    T values[Width];
};

// --- sums of a warp

template <class Config> struct Sums {
    using Loaded = Load<typename Config::Type, Sizes<Config>::width>;
    float of[Config::rows][Config::few];

    KW_DEVICE Sums() {
#pragma unroll
        for (int r = 0; r < Config::rows; r++)
#pragma unroll
            for (int f = 0; f < Config::few; f++) of[r][f] = 0.f;
    }
    KW_DEVICE void add(const Loaded (&x)[Config::rows], const Loaded* few, int f) {
        const Loaded y = *few;
#pragma unroll
        for (int r = 0; r < Config::rows; r++)
#pragma unroll
            for (int i = 0; i < Sizes<Config>::width; i++)
                of[r][f] = fmaf(as_float(x[r].values[i]), as_float(y.values[i]), of[r][f]);
    }
};

// Adds `values` over the lanes of a warp and deals them out: with Count values, lane l ends with those from
// l * Count / 32 on. A lane gives half of what it holds to its partner and takes the other half, so that 32 values take
// 31 shuffles and not 160.
template <int Step, int Count> KW_DEVICE void add_over_lanes(float (&values)[Count], int lane) {
    if constexpr (Step > 0) {
        constexpr int left = Count > 1 ? Count / 2 : 1;
        float kept[left];
        const bool upper = lane & Step;
#pragma unroll
        for (int i = 0; i < left; i++) {
            if constexpr (Count > 1)
                kept[i] = (upper ? values[i + left] : values[i]) +
                          __shfl_xor_sync(~0u, upper ? values[i] : values[i + left], Step);
            else
                kept[i] = values[i] + __shfl_xor_sync(~0u, values[i], Step);
        }
        add_over_lanes<Step / 2>(kept, lane);
#pragma unroll
        for (int i = 0; i < left; i++) values[i] = kept[i];
    }
}

// --- reading

// The rows of one operand that a thread reads; those beyond the last read the last: what they give is not stored.
template <class T, int Count> struct Rows {
    const T* at[Count];

    KW_DEVICE Rows(const Operand& operand, int batch, int first, int rows) {
#pragma unroll
        for (int i = 0; i < Count; i++)
            at[i] = (const T*)operand.data + batch * operand.batch_pitch + min(first + i, rows - 1) * operand.row_pitch;
    }
};

// The few rows straight from cache.
template <class Config> KW_DEVICE void sum_direct(Sums<Config>& sums, const Problem& problem, int first, int first_k) {
    using S = Sizes<Config>;
    using Loaded = typename Sums<Config>::Loaded;
    const Rows<typename Config::Type, Config::rows> many(problem.many, blockIdx.y, first, problem.many_rows);
    const Rows<typename Config::Type, Config::few> few(problem.few, blockIdx.y, 0, problem.few_rows);
#pragma unroll 2
    for (int k = first_k; k < problem.k; k += Config::k_warps * 32 * S::width) {
        Loaded x[Config::rows];
#pragma unroll
        for (int r = 0; r < Config::rows; r++) x[r] = *(const Loaded*)(many.at[r] + k);
#pragma unroll
        for (int f = 0; f < Config::few; f++) sums.add(x, (const Loaded*)(few.at[f] + k), f);
    }
}

// The few rows through shared memory: a ring of tiles of k.
template <class Config> KW_DEVICE void sum_staged(Sums<Config>& sums, const Problem& problem, int first, int part) {
    using S = Sizes<Config>;
    using T = typename Config::Type;
    using Loaded = typename Sums<Config>::Loaded;
    __shared__ __align__(16) T tile[stages][Config::few][S::k_of_tile];
    const Rows<T, Config::rows> many(problem.many, blockIdx.y, first, problem.many_rows);
    const int tiles = (problem.k + S::k_of_tile - 1) / S::k_of_tile, lane = threadIdx.x & 31;

    // A thread copies the same place of every tile: `copies` loads in lines `threads / loads_of_line` apart.
    constexpr int copies = S::loads_of_tile > threads ? S::loads_of_tile / threads : 1;
    const int line = threadIdx.x / S::loads_of_line, k_of_copy = threadIdx.x % S::loads_of_line * S::width;
    const T* source[copies];
#pragma unroll
    for (int i = 0; i < copies; i++)
        source[i] = (const T*)problem.few.data + blockIdx.y * problem.few.batch_pitch + k_of_copy +
                    min(line + i * (threads / S::loads_of_line), problem.few_rows - 1) * problem.few.row_pitch;
    auto copy_few = [&](int t, int stage) {
        const int k = t * S::k_of_tile;
        const bool there = k + k_of_copy < problem.k;
        if (line < Config::few) {
#pragma unroll
            for (int i = 0; i < copies; i++)
                copy_async<Config::load_bytes>(&tile[stage][line + i * (threads / S::loads_of_line)][k_of_copy],
                                               source[i] + (there ? k : 0), there);
        }
        copies_commit();  // an empty group beyond the last tile: the count of pending groups stays right
    };
    const int k_in_tile = part * S::k_of_part + lane * S::width;
    Loaded x[S::steps][Config::rows];
    auto load_many = [&](int t, int s) {
        const int k = t * S::k_of_tile + k_in_tile + s * 32 * S::width;
#pragma unroll
        for (int r = 0; r < Config::rows; r++) {
            x[s][r] = {};
            if (k < problem.k) x[s][r] = *(const Loaded*)(many.at[r] + k);
        }
    };
    copy_few(0, 0);
    copy_few(1, 1);
#pragma unroll
    for (int s = 0; s < S::steps; s++) load_many(0, s);
    int stage = 0;
#pragma unroll 1
    for (int t = 0; t < tiles; t++, stage = stage == stages - 1 ? 0 : stage + 1) {
        copies_wait<1>();
        __syncthreads();  // tile t is there for all, and tile t - 1 has been read by all
        copy_few(t + 2, stage == 0 ? stages - 1 : stage - 1);
#pragma unroll
        for (int s = 0; s < S::steps; s++) {
#pragma unroll
            for (int f = 0; f < Config::few; f++)
                sums.add(x[s], (const Loaded*)&tile[stage][f][k_in_tile + s * 32 * S::width], f);
            load_many(t + 1, s);
        }
    }
}

template <class Config, class Epilogue>
__global__ void __launch_bounds__(threads, Sizes<Config>::blocks_at_once)
    multiply_kernel(const __grid_constant__ Problem problem, const __grid_constant__ typename Epilogue::Args args) {
    using S = Sizes<Config>;
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, part = warp % Config::k_warps, batch = blockIdx.y;
    const int first = blockIdx.x * S::rows_of_block + warp / Config::k_warps * Config::rows;
    Sums<Config> sums;
    if constexpr (S::staged) sum_staged<Config>(sums, problem, first, part);
    else sum_direct<Config>(sums, problem, first, (part * 32 + lane) * S::width);

    float values[S::results];
#pragma unroll
    for (int i = 0; i < S::results; i++) values[i] = sums.of[i / Config::few][i % Config::few];
    add_over_lanes<16>(values, lane);
    if constexpr (Config::k_warps > 1) {
        __shared__ float parts[warps][S::per_lane][32];
#pragma unroll
        for (int i = 0; i < S::per_lane; i++) parts[warp][i][lane] = values[i];
        __syncthreads();
        if (part != 0) return;
#pragma unroll
        for (int i = 0; i < S::per_lane; i++)
#pragma unroll
            for (int p = 1; p < Config::k_warps; p++) values[i] += parts[warp + p][i][lane];
    }
    constexpr int lanes_of_result = S::results < 32 ? 32 / S::results : 1;
    if (lane % lanes_of_result != 0) return;
#pragma unroll
    for (int i = 0; i < S::per_lane; i++) {
        const int result = lane / lanes_of_result * S::per_lane + i;
        const int r = first + result / Config::few, f = result % Config::few;
        if (r >= problem.many_rows || f >= problem.few_rows) continue;
        const float value[1] = {values[i]};
        Epilogue::template store<1>(args, value, (int64_t)batch * problem.m + (Config::few_is_a ? f : r),
                                    Config::few_is_a ? r : f);
    }
}

#ifndef __CUDACC_RTC__
// Enqueues the product; allocates nothing and waits for nothing. batches is at most 65535.
template <class Config, class Epilogue>
cudaError_t launch(const Problem& problem, const typename Epilogue::Args& args, cudaStream_t stream) {
    if (problem.few_rows > Config::few || problem.k % Sizes<Config>::width != 0) return cudaErrorInvalidValue;
    const dim3 grid((problem.many_rows + Sizes<Config>::rows_of_block - 1) / Sizes<Config>::rows_of_block,
                    problem.batches);
    multiply_kernel<Config, Epilogue><<<grid, threads, 0, stream>>>(problem, args);
    return cudaGetLastError();
}
#endif

}  // namespace kw::gemm_skinny
