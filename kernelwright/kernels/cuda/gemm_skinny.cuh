// C = Epilogue(A W^T) where one operand has few rows (1 to 16): at the speed of reading the other one, in IEEE float32.
//
// A warp takes `rows` rows of the many, reads them along k with 16-byte loads, and every row of the few beside them,
// which stay in cache. Lanes hold partial sums of all rows x few results; `k_warps` warps of a block share long rows.
#pragma once

#include "gemm_epilogue.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kw::gemm_skinny {

// A build fixes these; the generated file writes such a struct.
struct DefaultConfig {
    using Type = float;                     // of both operands: float, __half or __nv_bfloat16
    static constexpr int few = 8;           // rows of the operand with few rows, rounded up to 1, 2, 4, 8 or 16
    static constexpr bool few_is_a = true;  // else W has few rows
    static constexpr int rows = 4;          // rows of the many that a warp takes
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

constexpr int warps = 8;

template <class Config> struct Sizes {
    static constexpr int width = Config::load_bytes / (int)sizeof(typename Config::Type);  // elements of one load
    static constexpr int rows_of_block = warps / Config::k_warps * Config::rows;
    static constexpr int results = Config::rows * Config::few;
};

KW_DEVICE float as_float(float x) { return x; }
KW_DEVICE float as_float(__half x) { return __half2float(x); }
KW_DEVICE float as_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T, int Width> struct alignas(sizeof(T) * Width) Chunk {
    T values[Width];
};

template <class Config, class Epilogue>
__global__ void __launch_bounds__(warps * 32)
    multiply_kernel(const __grid_constant__ Problem problem, const __grid_constant__ typename Epilogue::Args args) {
    using S = Sizes<Config>;
    using T = typename Config::Type;
    using Load = Chunk<T, S::width>;
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, part = warp % Config::k_warps, batch = blockIdx.y;
    const int first = blockIdx.x * S::rows_of_block + warp / Config::k_warps * Config::rows;

    const T *many[Config::rows], *few[Config::few];  // rows beyond the last read the last: what they give is not stored
#pragma unroll
    for (int r = 0; r < Config::rows; r++)
        many[r] = (const T*)problem.many.data + batch * problem.many.batch_pitch +
                  min(first + r, problem.many_rows - 1) * problem.many.row_pitch;
#pragma unroll
    for (int f = 0; f < Config::few; f++)
        few[f] = (const T*)problem.few.data + batch * problem.few.batch_pitch +
                 min(f, problem.few_rows - 1) * problem.few.row_pitch;

    float sum[Config::rows][Config::few];
#pragma unroll
    for (int r = 0; r < Config::rows; r++)
#pragma unroll
        for (int f = 0; f < Config::few; f++) sum[r][f] = 0.f;
#pragma unroll 2
    for (int k = (part * 32 + lane) * S::width; k < problem.k; k += Config::k_warps * 32 * S::width) {
        Load x[Config::rows];
#pragma unroll
        for (int r = 0; r < Config::rows; r++) x[r] = *(const Load*)(many[r] + k);
#pragma unroll
        for (int f = 0; f < Config::few; f++) {
            const Load y = *(const Load*)(few[f] + k);
#pragma unroll
            for (int r = 0; r < Config::rows; r++)
#pragma unroll
                for (int i = 0; i < S::width; i++)
                    sum[r][f] = fmaf(as_float(x[r].values[i]), as_float(y.values[i]), sum[r][f]);
        }
    }

    // Result i of a warp ends in lane i % 32, as its own value number i / 32.
    constexpr int per_lane = (S::results + 31) / 32;
    float mine[per_lane];
#pragma unroll
    for (int i = 0; i < S::results; i++) {
        float value = sum[i / Config::few][i % Config::few];
#pragma unroll
        for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(~0u, value, step);
        if (lane == i % 32) mine[i / 32] = value;
    }
    if constexpr (Config::k_warps > 1) {
        __shared__ float parts[warps][per_lane][32];
#pragma unroll
        for (int i = 0; i < per_lane; i++) parts[warp][i][lane] = mine[i];
        __syncthreads();
        if (part != 0) return;
#pragma unroll
        for (int i = 0; i < per_lane; i++)
#pragma unroll
            for (int p = 1; p < Config::k_warps; p++) mine[i] += parts[warp + p][i][lane];
    }
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        const int result = i * 32 + lane, r = first + result / Config::few, f = result % Config::few;
        if (result >= S::results || r >= problem.many_rows || f >= problem.few_rows) continue;
        const float value[1] = {mine[i]};
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
    multiply_kernel<Config, Epilogue><<<grid, warps * 32, 0, stream>>>(problem, args);
    return cudaGetLastError();
}
#endif

}  // namespace kw::gemm_skinny
