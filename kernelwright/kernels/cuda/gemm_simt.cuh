// C = Epilogue(A W^T) in IEEE float32 on the CUDA cores: any sizes, strides and batch; float32, float16 or bfloat16 in.
//
// The fallback of every other kernel and the fastest one for k under about 32. Tiles go through shared memory with k
// outermost; the next tile travels in registers while this one is multiplied.
#pragma once

#include "gemm_epilogue.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kw::gemm_simt {

// A build fixes these; the generated file writes such a struct.
struct DefaultConfig {
    using AType = float;
    using WType = float;
    static constexpr int tile_m = 128, tile_n = 128, tile_k = 8;
    static constexpr int thread_m = 8, thread_n = 8;  // results of one thread, a multiple of 4 each way
    static constexpr bool a_along_k = true;           // neighbours in memory are neighbours along k, else along m or n
    static constexpr bool w_along_k = true;
    static constexpr bool blocked = false;  // add up each tile_k products by themselves: less rounding error
    static constexpr int vector = 4;        // neighbours of one Epilogue::store: 4, 2 or 1; n is a multiple
};

struct Operand {  // element (row, k) of batch b at data[row * row_pitch + k * k_pitch + b * batch_pitch]
    const void* data;
    int64_t row_pitch, k_pitch, batch_pitch;
};

struct Problem {
    Operand a, w;
    int m, n, k, batches;
};

constexpr int threads = 256, raster = 16;

KW_DEVICE float as_float(float x) { return x; }
KW_DEVICE float as_float(__half x) { return __half2float(x); }
KW_DEVICE float as_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Tiles of one operand on their way from global to shared memory. A thread carries `count` elements of each: in one
// column of k with rows `step` apart, or in one row with k `step` apart, whichever makes a warp read neighbours.
template <class T, int Rows, int TileK, bool AlongK> struct Carrier {
    static constexpr int count = Rows * TileK / threads, step = AlongK ? threads / TileK : threads / Rows;
    static constexpr int pitch = Rows + 4;  // + 4: the stores of a warp fall into all banks
    static_assert(threads % TileK == 0 && threads % Rows == 0, "a thread stays in one column or one row");
    using Tile = float[TileK][pitch];

    const T* next;
    int64_t pitch_of_step, pitch_of_tile;
    int row, k, rows_left, k_left;  // row, k: of the thread's first element in a tile
    float held[count];

    KW_DEVICE Carrier(const Operand& operand, int batch, int first_row, int rows, int k_count) {
        row = AlongK ? threadIdx.x / TileK : threadIdx.x % Rows;
        k = AlongK ? threadIdx.x % TileK : threadIdx.x / Rows;
        rows_left = rows - first_row - row, k_left = k_count - k;
        next = (const T*)operand.data + batch * operand.batch_pitch + (first_row + row) * operand.row_pitch +
               k * operand.k_pitch;
        pitch_of_step = step * (AlongK ? operand.row_pitch : operand.k_pitch);
        pitch_of_tile = TileK * operand.k_pitch;
    }
    KW_DEVICE void fetch() {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const bool inside = AlongK ? i * step < rows_left && 0 < k_left : 0 < rows_left && i * step < k_left;
            held[i] = inside ? as_float(next[i * pitch_of_step]) : 0.f;
        }
        next += pitch_of_tile, k_left -= TileK;
    }
    KW_DEVICE void deliver(Tile& tile) const {
#pragma unroll
        for (int i = 0; i < count; i++) tile[AlongK ? k : k + i * step][AlongK ? row + i * step : row] = held[i];
    }
};

// A thread's rows (or columns) are groups of 4, spread so that a warp's 16-byte reads do not collide.
template <int Count, int Tile> KW_DEVICE int group_start(int group, int thread) {
    return group * (Tile / (Count / 4)) + thread * 4;
}

template <int Count, int Tile> KW_DEVICE void read(float (&values)[Count], const float* line, int thread) {
#pragma unroll
    for (int g = 0; g < Count / 4; g++) {
        const float4 v = *(const float4*)(line + group_start<Count, Tile>(g, thread));
        values[g * 4] = v.x, values[g * 4 + 1] = v.y, values[g * 4 + 2] = v.z, values[g * 4 + 3] = v.w;
    }
}

template <class Config, class Epilogue>
__global__ void __launch_bounds__(threads, 1)
    multiply_kernel(const __grid_constant__ Problem problem, const __grid_constant__ typename Epilogue::Args args) {
    constexpr int TM = Config::thread_m, TN = Config::thread_n, across = Config::tile_n / TN;
    static_assert((Config::tile_m / TM) * across == threads, "one thread for each thread_m x thread_n results");
    using A = Carrier<typename Config::AType, Config::tile_m, Config::tile_k, Config::a_along_k>;
    using W = Carrier<typename Config::WType, Config::tile_n, Config::tile_k, Config::w_along_k>;
    __shared__ __align__(16) typename A::Tile a_tile[2];
    __shared__ __align__(16) typename W::Tile w_tile[2];

    const int tiles_m = (problem.m + Config::tile_m - 1) / Config::tile_m,
              tiles_n = (problem.n + Config::tile_n - 1) / Config::tile_n;
    const int strip_tiles = raster * tiles_n, strip = blockIdx.x / strip_tiles,
              inside = blockIdx.x - strip * strip_tiles;
    const int height = min(raster, tiles_m - strip * raster);
    const int first_n = inside / height * Config::tile_n, first_m = (strip * raster + inside % height) * Config::tile_m;
    const int x = threadIdx.x % across, y = threadIdx.x / across;

    for (int batch = blockIdx.y; batch < problem.batches; batch += gridDim.y) {
        A a(problem.a, batch, first_m, problem.m, problem.k);
        W w(problem.w, batch, first_n, problem.n, problem.k);
        float total[TM][TN];
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) total[i][j] = 0.f;
        a.fetch();
        w.fetch();
        __syncthreads();  // the last tile of the batch before has been read
        a.deliver(a_tile[0]);
        w.deliver(w_tile[0]);
        __syncthreads();
        int now = 0;
        for (int k = 0; k < problem.k; k += Config::tile_k, now ^= 1) {
            const bool more = k + Config::tile_k < problem.k;
            if (more) {
                a.fetch();
                w.fetch();
            }
            float sum[Config::blocked ? TM : 1][Config::blocked ? TN : 1];
#pragma unroll
            for (int step = 0; step < Config::tile_k; step++) {
                float row[TM], column[TN];
                read<TM, Config::tile_m>(row, a_tile[now][step], y);
                read<TN, Config::tile_n>(column, w_tile[now][step], x);
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++) {
                        if constexpr (!Config::blocked) total[i][j] = fmaf(row[i], column[j], total[i][j]);
                        else sum[i][j] = step == 0 ? row[i] * column[j] : fmaf(row[i], column[j], sum[i][j]);
                    }
            }
            if constexpr (Config::blocked) {
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++) total[i][j] += sum[i][j];
            }
            if (more) {
                a.deliver(a_tile[now ^ 1]);
                w.deliver(w_tile[now ^ 1]);
                __syncthreads();
            }
        }
#pragma unroll
        for (int i = 0; i < TM; i++) {
            const int m = first_m + group_start<TM, Config::tile_m>(i / 4, y) + i % 4;
            if (m >= problem.m) continue;
#pragma unroll
            for (int g = 0; g < TN / 4; g++) {
                const float v[4] = {total[i][g * 4], total[i][g * 4 + 1], total[i][g * 4 + 2], total[i][g * 4 + 3]};
                gemm::store_some<Config::vector, Epilogue>(args, v, (int64_t)batch * problem.m + m,
                                                           first_n + group_start<TN, Config::tile_n>(g, x), problem.n);
            }
        }
    }
}

#ifndef __CUDACC_RTC__
// Enqueues the product; allocates nothing and waits for nothing.
template <class Config, class Epilogue>
cudaError_t launch(const Problem& problem, const typename Epilogue::Args& args, cudaStream_t stream) {
    if (problem.n % Config::vector != 0) return cudaErrorInvalidValue;
    const int64_t tiles = (int64_t)((problem.m + Config::tile_m - 1) / Config::tile_m) *
                          ((problem.n + Config::tile_n - 1) / Config::tile_n);
    const dim3 grid((unsigned)tiles, problem.batches < 65535 ? problem.batches : 65535);
    multiply_kernel<Config, Epilogue><<<grid, threads, 0, stream>>>(problem, args);
    return cudaGetLastError();
}
#endif

}  // namespace kw::gemm_simt
