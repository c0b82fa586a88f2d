// C = Epilogue(A W^T) in IEEE float32 on the CUDA cores: any sizes, strides and batch; float32, float16 or bfloat16 in.
//
// The fallback of every other kernel and the fastest one for k under about 32. Tiles go through shared memory with k
// outermost. The next tile travels in registers while this one is multiplied, and the values of the next step of k are
// read from shared memory while those of this one are multiplied, also across the border between two tiles.
#pragma once

#include "gemm_epilogue.cuh"
#include "gemm_prologue.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kw::gemm_simt {

// A build fixes these; the generated file writes such a struct.
struct DefaultConfig {
    using AType = float;
    using WType = float;
    static constexpr int tile_m = 128, tile_n = 128, tile_k = 8;
    static constexpr bool a_along_k = true;  // neighbours in memory are neighbours along k, else along m or n
    static constexpr bool w_along_k = true;
    static constexpr int a_width = 4;       // elements of one load: 4 where rows are aligned to them, else 1
    static constexpr int w_width = 4;
    static constexpr bool blocked = false;  // add up every 8 products by themselves: less rounding error
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
constexpr int short_sum = 8;  // products that a `blocked` config adds up by themselves

// Warps lie 4 down and 2 across a tile, the lanes of a warp 4 down and 8 across: the 16-byte reads of a warp from one
// line of W are 128 bytes, and a warp stores whole lines of 128 bytes.
constexpr int warps_down = 4, lanes_down = 4, warps_across = 2, lanes_across = 8;

template <class Config> struct Sizes {
    static constexpr int thread_m = Config::tile_m / (warps_down * lanes_down);
    static constexpr int thread_n = Config::tile_n / (warps_across * lanes_across);
    // On a multiprocessor, to cover latency; more would spill.
    static constexpr int blocks_at_once = Config::blocked || thread_m * thread_n > 16 ? 2 : 3;
    static_assert(thread_m % 4 == 0 && thread_n % 4 == 0, "a thread's results are a multiple of 4 each way");
    static_assert(!Config::blocked || thread_m * thread_n <= 16, "short sums take as many registers again");
    static_assert(!Config::blocked || Config::tile_k % short_sum == 0, "a tile is whole short sums");
};

KW_DEVICE float as_float(float x) { return x; }
KW_DEVICE float as_float(__half x) { return __half2float(x); }
KW_DEVICE float as_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T, int Width> struct alignas(sizeof(T) * Width) Load {
    T values[Width];
};

// Tiles of one operand on their way from global to shared memory. A thread carries `count` loads of `Width` elements
// that are neighbours in memory, in rows (or steps of k) `step` apart.
template <class T, int Rows, int TileK, bool AlongK, int Width, class Prologue> struct Carrier {
    static constexpr int loads_of_line = (AlongK ? TileK : Rows) / Width;
    static constexpr int step = threads / loads_of_line, count = Rows * TileK / (threads * Width);
    static constexpr int pitch = Rows + 4;  // + 4: the stores of a warp fall into all banks
    static_assert(threads % loads_of_line == 0 && count >= 1, "a thread stays in one place of every line it loads");
    using Tile = float[TileK][pitch];

    const T* next;
    const typename Prologue::Args& made;
    int64_t first_row;  // the number of the thread's first row
    int64_t pitch_of_step, pitch_of_tile;
    int row, k, rows_left, k_left;  // row, k: of the thread's first element in a tile
    int k_count;
    float held[count][Width];

    KW_DEVICE Carrier(const Operand& operand, const typename Prologue::Args& made, int batch, int first, int rows,
                      int k_count)
        : made(made), k_count(k_count) {
        const int along = threadIdx.x % loads_of_line * Width, across = threadIdx.x / loads_of_line;
        row = AlongK ? across : along;
        k = AlongK ? along : across;
        rows_left = rows - first - row, k_left = k_count - k;
        first_row = (int64_t)(operand.batch_pitch == 0 ? 0 : batch) * rows + first + row;  // 0: all batches share it
        next = (const T*)operand.data + batch * operand.batch_pitch + (first + row) * operand.row_pitch +
               k * operand.k_pitch;
        pitch_of_step = step * (AlongK ? operand.row_pitch : operand.k_pitch);
        pitch_of_tile = TileK * operand.k_pitch;
    }
    KW_DEVICE void fetch() {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const bool inside = AlongK ? i * step < rows_left && 0 < k_left : 0 < rows_left && i * step < k_left;
            Load<T, Width> load = {};
            if (inside) load = *(const Load<T, Width>*)(next + i * pitch_of_step);
#pragma unroll
            for (int j = 0; j < Width; j++) held[i][j] = as_float(load.values[j]);
            if (inside) compute(held[i], first_row + (AlongK ? i * step : 0), k_count - k_left + (AlongK ? 0 : i * step));
        }
        next += pitch_of_tile, k_left -= TileK;
    }
    KW_DEVICE void compute(float (&x)[Width], int64_t at_row, int at_k) const {
        if constexpr (AlongK && Width == 4) {
            gemm::apply_four<Prologue>(made, x, at_row, at_k, k_count);
        } else {
#pragma unroll
            for (int j = 0; j < Width; j++)
                x[j] = gemm::applied<Prologue>(made, x[j], at_row + (AlongK ? 0 : j), at_k + (AlongK ? j : 0));
        }
    }
    KW_DEVICE void deliver(Tile& tile) const {
#pragma unroll
        for (int i = 0; i < count; i++) {
            if constexpr (AlongK) {
#pragma unroll
                for (int j = 0; j < Width; j++) tile[k + j][row + i * step] = held[i][j];
            } else {
#pragma unroll
                for (int j = 0; j < Width; j++) tile[k + i * step][row + j] = held[i][j];  // one store of 16 bytes
            }
        }
    }
};

// A thread's rows (or columns) are groups of 4 that lie 4 * Lanes apart.
template <int Count, int Lanes> KW_DEVICE void read(float (&values)[Count], const float* line) {
#pragma unroll
    for (int g = 0; g < Count / 4; g++) {
        const float4 v = *(const float4*)(line + g * 4 * Lanes);
        values[g * 4] = v.x, values[g * 4 + 1] = v.y, values[g * 4 + 2] = v.z, values[g * 4 + 3] = v.w;
    }
}

// Sums of one thread. Where Blocked, every `short_sum` products are added up by themselves first.
template <int M, int N, bool Blocked> struct Sums {
    float total[M][N], part[Blocked ? M : 1][Blocked ? N : 1];

    KW_DEVICE Sums() {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) total[i][j] = 0.f;
    }
    KW_DEVICE void add(const float (&row)[M], const float (&column)[N], int step) {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                if constexpr (!Blocked) {
                    total[i][j] = fmaf(row[i], column[j], total[i][j]);
                } else {
                    part[i][j] = step % short_sum == 0 ? row[i] * column[j] : fmaf(row[i], column[j], part[i][j]);
                    if (step % short_sum == short_sum - 1) total[i][j] += part[i][j];
                }
            }
    }
};

template <class Config, class Epilogue, class OfA, class OfW>
__global__ void __launch_bounds__(threads, Sizes<Config>::blocks_at_once)
    multiply_kernel(const __grid_constant__ Problem problem, const __grid_constant__ typename Epilogue::Args args,
                    const __grid_constant__ typename OfA::Args of_a, const __grid_constant__ typename OfW::Args of_w) {
    constexpr int TM = Sizes<Config>::thread_m, TN = Sizes<Config>::thread_n, tile_k = Config::tile_k;
    using A = Carrier<typename Config::AType, Config::tile_m, tile_k, Config::a_along_k, Config::a_width, OfA>;
    using W = Carrier<typename Config::WType, Config::tile_n, tile_k, Config::w_along_k, Config::w_width, OfW>;
    __shared__ __align__(16) typename A::Tile a_tile[2];
    __shared__ __align__(16) typename W::Tile w_tile[2];

    const int tiles_m = (problem.m + Config::tile_m - 1) / Config::tile_m,
              tiles_n = (problem.n + Config::tile_n - 1) / Config::tile_n;
    const int strip_tiles = raster * tiles_n, strip = blockIdx.x / strip_tiles,
              inside = blockIdx.x - strip * strip_tiles;
    const int height = min(raster, tiles_m - strip * raster);
    const int first_n = inside / height * Config::tile_n, first_m = (strip * raster + inside % height) * Config::tile_m;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int x = warp % warps_across * lanes_across * TN + lane % lanes_across * 4;  // first column and row in the tile
    const int y = warp / warps_across * lanes_down * TM + lane / lanes_across * 4;

    for (int batch = blockIdx.y; batch < problem.batches; batch += gridDim.y) {
        A a(problem.a, of_a, batch, first_m, problem.m, problem.k);
        W w(problem.w, of_w, batch, first_n, problem.n, problem.k);
        Sums<TM, TN, Config::blocked> sums;
        float row[2][TM], column[2][TN];  // of this step of k and of the next
        a.fetch();
        w.fetch();
        __syncthreads();  // the last tile of the batch before has been read
        a.deliver(a_tile[0]);
        w.deliver(w_tile[0]);
        __syncthreads();
        read<TM, lanes_down>(row[0], &a_tile[0][0][y]);
        read<TN, lanes_across>(column[0], &w_tile[0][0][x]);
        int now = 0;
        for (int k = 0; k < problem.k; k += tile_k) {
            const bool more = k + tile_k < problem.k;
            if (more) {
                a.fetch();
                w.fetch();
            }
#pragma unroll
            for (int step = 0; step < tile_k; step++) {
                if (step == tile_k - 1 && more) {  // nobody reads the other tile any more
                    now ^= 1;
                    a.deliver(a_tile[now]);
                    w.deliver(w_tile[now]);
                    __syncthreads();
                }
                const int next = (step + 1) % tile_k;
                read<TM, lanes_down>(row[(step + 1) % 2], &a_tile[now][next][y]);
                read<TN, lanes_across>(column[(step + 1) % 2], &w_tile[now][next][x]);
                sums.add(row[step % 2], column[step % 2], step);
            }
        }
#pragma unroll
        for (int i = 0; i < TM; i++) {
            const int m = first_m + y + i / 4 * 4 * lanes_down + i % 4;
            const int64_t first_row = (int64_t)batch * problem.m;
            gemm::Ending<Epilogue, 1, Config::vector> end(args);
            end.begin(0, first_row + min(m, problem.m - 1));
            if (m < problem.m) {
#pragma unroll
                for (int g = 0; g < TN / 4; g++) {
                    const float(&t)[TN] = sums.total[i];
                    const float v[4] = {t[g * 4], t[g * 4 + 1], t[g * 4 + 2], t[g * 4 + 3]};
                    gemm::take_some(end, v, 0, first_row + m, first_n + x + g * 4 * lanes_across, problem.n);
                }
            }
            end.template leave<lanes_across>(0, first_row + m, m < problem.m,
                                             first_n / Config::tile_n * warps_across + warp % warps_across);
        }
    }
}

#ifndef __CUDACC_RTC__
// Enqueues the product; allocates nothing and waits for nothing.
template <class Config, class Epilogue, class OfA = gemm::AsItLies, class OfW = gemm::AsItLies>
cudaError_t launch(const Problem& problem, const typename Epilogue::Args& args, cudaStream_t stream,
                   const typename OfA::Args& of_a = {}, const typename OfW::Args& of_w = {}) {
    if (problem.n % Config::vector != 0) return cudaErrorInvalidValue;
    const int64_t tiles = (int64_t)((problem.m + Config::tile_m - 1) / Config::tile_m) *
                          ((problem.n + Config::tile_n - 1) / Config::tile_n);
    const dim3 grid((unsigned)tiles, problem.batches < 65535 ? problem.batches : 65535);
    multiply_kernel<Config, Epilogue, OfA, OfW><<<grid, threads, 0, stream>>>(problem, args, of_a, of_w);
    return cudaGetLastError();
}
#endif

}  // namespace kw::gemm_simt
