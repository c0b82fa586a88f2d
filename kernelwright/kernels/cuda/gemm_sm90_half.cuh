// C = Epilogue(A W^T) for float16 and bfloat16 on Hopper's tensor cores: both operands through the copy engine, sums in
// float32.
//
//   warp 0       one thread fills a ring of stages: 128 x 64 of A and tile_n x 64 of W
//   2 warpgroups 64 rows of a tile each: m64 x tile_n x k16 products straight from shared memory. Or `own_tiles`: every
//                second tile each, so that one stores its results while the other multiplies
//
// A cluster of two blocks, one above the other, shares W: each loads half of it for both. Without that the copies from
// L2 (48 bytes a clock and multiprocessor at the full rate) would be the limit.
#pragma once

#include "gemm_epilogue.cuh"
#include "ptx90.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kw::gemm_sm90_half {

using namespace kw::ptx90;

// A build fixes these; the generated file writes such a struct.
struct DefaultConfig {
    using Type = __half;                // of both operands: __half or __nv_bfloat16
    static constexpr int tile_n = 256;  // columns of a tile: 64, 128, 192 or 256
    static constexpr int cluster = 2;   // blocks that share W: 1 or 2
    static constexpr bool own_tiles = false;  // of each warpgroup; up to 128 columns
    static constexpr int vector = 4;    // neighbours of one Epilogue::store: 4, 2 or 1; n is a multiple
    static constexpr int raster = 16;   // tiles of a column strip that run together and share W through L2
};

constexpr int tile_m = 128, tile_k = 64;  // 64 halves: one row of the 128-byte swizzle
constexpr int threads = 384;

template <class Config> struct Sizes {
    static constexpr int a_bytes = tile_m * tile_k * 2, w_bytes = Config::tile_n * tile_k * 2;
    static constexpr int stage_bytes = a_bytes + w_bytes;
    static constexpr int room = 223 * 1024;
    static constexpr int stages = room / stage_bytes < 8 ? room / stage_bytes : 8;
    // 1024: the swizzle repeats every 8 rows of 128 bytes
    static constexpr int smem_bytes = stages * stage_bytes + 1024;
    static constexpr int heights = Config::own_tiles ? 2 : 1;     // of 64 rows, of a warpgroup
    static constexpr int readers = Config::own_tiles ? 4 : 8;     // warps of a block that read a stage
    static_assert(Config::tile_n == 64 || Config::tile_n == 128 || Config::tile_n == 192 || Config::tile_n == 256,
                  "tile_n is 64, 128, 192 or 256");
    static_assert(Config::cluster == 1 || Config::cluster == 2, "cluster is 1 or 2");
    static_assert(!Config::own_tiles || Config::tile_n <= 128, "the sums of a wider tile do not fit one warpgroup");
};

struct Problem {
    TensorMap a_map, w_map;
    int m, n, k, batches, w_batches;
};

struct Cursor {
    int stage = 0;
    uint32_t phase = 0;

    template <int Stages> KW_DEVICE void advance() {
        if (++stage == Stages) stage = 0, phase ^= 1;
    }
    template <int Stages> KW_DEVICE void advance(int count) {
        const int next = stage + count, laps = next / Stages;
        stage = next - laps * Stages;
        phase ^= laps & 1;
    }
};

struct Work {
    int m, n, batch;  // first row and column of the tile
};

template <class Config> struct Schedule {
    int strips_m, tiles_n, per_batch, count, rank;  // in units of a cluster: `cluster` tiles, one above the other

    KW_DEVICE explicit Schedule(const Problem& problem) {
        constexpr int height = tile_m * Config::cluster;
        rank = Config::cluster > 1 ? (int)cluster_rank() : 0;
        strips_m = (problem.m + height - 1) / height;
        tiles_n = (problem.n + Config::tile_n - 1) / Config::tile_n;
        per_batch = strips_m * tiles_n;
        count = per_batch * problem.batches;
    }
    KW_DEVICE Work operator[](int index) const {
        constexpr int raster = Config::raster / Config::cluster;
        const int batch = index / per_batch, unit = index - batch * per_batch;
        const int strip = unit / (raster * tiles_n), inside = unit - strip * raster * tiles_n;
        const int height = min(raster, strips_m - strip * raster), column = inside / height;
        return {((strip * raster + inside - column * height) * Config::cluster + rank) * tile_m,
                column * Config::tile_n, batch};
    }
    KW_DEVICE static int first() { return blockIdx.x / Config::cluster; }
    KW_DEVICE static int step() { return gridDim.x / Config::cluster; }
};

template <int Count> KW_DEVICE void multiply(__half, float (&sum)[Count], uint64_t a, uint64_t w, int accumulate) {
    wgmma_f16_shared(sum, a, w, accumulate);
}
template <int Count>
KW_DEVICE void multiply(__nv_bfloat16, float (&sum)[Count], uint64_t a, uint64_t w, int accumulate) {
    wgmma_bf16_shared(sum, a, w, accumulate);
}

template <class Config> KW_DEVICE void produce(const Problem& problem, uint32_t data, uint32_t full, uint32_t empty) {
    using S = Sizes<Config>;
    constexpr int share = Config::tile_n / Config::cluster;  // rows of W that this block loads
    const Schedule<Config> schedule(problem);
    Cursor at;
    for (int index = schedule.first(); index < schedule.count; index += schedule.step()) {
        const Work work = schedule[index];
        const int w_batch = problem.w_batches == 1 ? 0 : work.batch;
        for (int k = 0; k < problem.k; k += tile_k, at.advance<S::stages>()) {
            const uint32_t stage = data + at.stage * S::stage_bytes, arrived = full + at.stage * 8;
            barrier_wait(empty + at.stage * 8, at.phase ^ 1);
            barrier_arrive_and_expect(arrived, S::stage_bytes);
            load_box(stage, &problem.a_map, arrived, k, work.m, work.batch);
            if constexpr (Config::cluster == 1)
                load_box(stage + S::a_bytes, &problem.w_map, arrived, k, work.n, w_batch);
            else
                load_box_multicast(stage + S::a_bytes + schedule.rank * share * 128, &problem.w_map, arrived, k,
                                   work.n + schedule.rank * share, w_batch, 3);
        }
    }
}

// Tells every block that writes into this stage that this warp has read it.
template <class Config> KW_DEVICE void release(uint32_t empty, int stage, int lane) {
    if constexpr (Config::cluster == 1) {
        if (lane == 0) barrier_arrive(empty + stage * 8);
    } else {
        if (lane < Config::cluster) barrier_arrive_in(empty + stage * 8, lane);
    }
}

template <class Config, class Epilogue>
KW_DEVICE void finish(const Problem& problem, const typename Epilogue::Args& args, const Work& work, int row, int lane,
                      const float (&sum)[Config::tile_n / 2]) {
    constexpr int gathered = 64;  // columns whose results are handled together
    const int m = work.m + row, n = work.n + gemm::first_of_four(lane);
    const int64_t first_row = (int64_t)work.batch * problem.m + m;
    const bool tile_inside = work.m + tile_m <= problem.m && work.n + Config::tile_n <= problem.n;
    gemm::Ending<Epilogue, 2, Config::vector> end(args);
#pragma unroll
    for (int r = 0; r < 2; r++) end.begin(r, first_row - m + min(m + 8 * r, problem.m - 1));
#pragma unroll
    for (int group = 0; group < Config::tile_n; group += gathered) {
        constexpr int vectors = gathered / 8;
        float v[vectors][4];  // [2 * sixteen columns + row]
#pragma unroll
        for (int i = 0; i < vectors; i++) {
            const float* left = &sum[(group / 8 + (i & ~1)) * 4 + 2 * (i & 1)];
            gemm::trade(v[i], left, left + 4, lane & 1);
        }
        if (tile_inside) {  // nothing to ask for each store: the compiler gathers the epilogue's loads
#pragma unroll
            for (int i = 0; i < vectors; i++)
                gemm::take_four(end, v[i], i & 1, first_row + 8 * (i & 1), n + group + (i >> 1) * 16);
        } else {
#pragma unroll
            for (int i = 0; i < vectors; i++)
                if (m + 8 * (i & 1) < problem.m)
                    gemm::take_some(end, v[i], i & 1, first_row + 8 * (i & 1), n + group + (i >> 1) * 16, problem.n);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        end.template leave<4>(r, first_row + 8 * r, m + 8 * r < problem.m, work.n / Config::tile_n);
}

// Waits for a stage and begins to multiply it. `known`: the sums so far count.
template <class Config, int heights, int Count>
KW_DEVICE void multiply_stage(float (&sum)[heights][Count], uint32_t data, uint32_t full, const Cursor& at,
                              int first_height, bool known) {
    using S = Sizes<Config>;
    constexpr int height_bytes = 64 * 128;
    const uint32_t stage = data + at.stage * S::stage_bytes;
    const uint64_t a = descriptor_128b(stage + first_height * height_bytes), w = descriptor_128b(stage + S::a_bytes);
    barrier_wait(full + at.stage * 8, at.phase);
#pragma unroll
    for (int h = 0; h < heights; h++) pin(sum[h]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < tile_k / 16; i++)
#pragma unroll
        for (int h = 0; h < heights; h++)
            multiply(typename Config::Type(), sum[h], a + h * (height_bytes >> 4) + i * 2, w + i * 2, known || i > 0);
    wgmma_commit();
#pragma unroll
    for (int h = 0; h < heights; h++) pin(sum[h]);
}

template <class Config, class Epilogue>
KW_DEVICE void consume(const Problem& problem, const typename Epilogue::Args& args, uint32_t data, uint32_t full,
                       uint32_t empty, int consumer) {
    using S = Sizes<Config>;
    const int lane = threadIdx.x & 31, first_height = Config::own_tiles ? 0 : consumer;
    const int row = first_height * 64 + (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
    const Schedule<Config> schedule(problem);
    // Warpgroups with tiles of their own take turns at the ring: a barrier tells the lap before from this one, but not
    // from the one before that, so that nobody may wait for a stage that is more than a lap ahead. Named barrier 1 + c
    // is the turn of consumer c.
    const int my_turn = 1 + consumer, next_turn = 2 - consumer;
    if (Config::own_tiles && consumer == 1) named_arrive(next_turn, 256);
    Cursor at;
    bool others_turn = consumer == 1;
    for (int index = schedule.first(); index < schedule.count; index += schedule.step()) {
        if constexpr (Config::own_tiles) {
            others_turn = !others_turn;
            if (!others_turn) {  // it was, of this tile
                at.advance<S::stages>((problem.k + tile_k - 1) / tile_k);
                continue;
            }
        }
        const Work work = schedule[index];
        float sum[S::heights][Config::tile_n / 2];
        int before = -1;
        if constexpr (Config::own_tiles) named_sync(my_turn, 256);
#pragma unroll 1
        for (int k = 0; k < problem.k; k += tile_k, at.advance<S::stages>()) {
            multiply_stage<Config>(sum, data, full, at, first_height, k > 0);
            wgmma_wait<1>();  // the stage before this one has been read
            if (before >= 0) release<Config>(empty, before, lane);
            before = at.stage;
        }
        if constexpr (Config::own_tiles) named_arrive(next_turn, 256);
        wgmma_wait<0>();
#pragma unroll
        for (int h = 0; h < S::heights; h++) pin(sum[h]);
        release<Config>(empty, before, lane);
#pragma unroll
        for (int h = 0; h < S::heights; h++)
            finish<Config, Epilogue>(problem, args, work, row + h * 64, lane, sum[h]);
    }
    if (Config::own_tiles && !others_turn) named_sync(my_turn, 256);  // the turn that is handed over last
}

// How a warpgroup goes from tile to tile, the registers that it has for that, and the shared memory beside the ring: as
// `consume` says. Another way is in gemm_sm90_late.cuh.
template <class Config, class Epilogue> struct Consumer {
    static constexpr int registers = 232, shared_bytes = 0;
    KW_DEVICE static void run(const Problem& problem, const typename Epilogue::Args& args, uint32_t data, uint32_t full,
                              uint32_t empty, int consumer) {
        consume<Config, Epilogue>(problem, args, data, full, empty, consumer);
    }
};

template <class Config, class Epilogue>
__global__ void __launch_bounds__(threads, 1)
    multiply_kernel(const __grid_constant__ Problem problem, const __grid_constant__ typename Epilogue::Args args) {
    using S = Sizes<Config>;
    extern __shared__ uint8_t shared[];
    __shared__ __align__(8) uint64_t barriers[2 * S::stages];
    const uint32_t data = (shared_address(shared) + 1023) & ~1023u, full = shared_address(barriers),
                   empty = full + S::stages * 8;
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::stages; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, S::readers * Config::cluster);
        }
        barrier_init_fence();
    }
    if constexpr (Config::cluster > 1) cluster_sync();
    else __syncthreads();
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (warpgroup == 0) {
        registers_shrink_to<3 * 168 - 2 * Consumer<Config, Epilogue>::registers>();  // of 168 that a thread begins with
        if (threadIdx.x == 0) produce<Config>(problem, data, full, empty);
    } else {
        registers_grow_to<Consumer<Config, Epilogue>::registers>();
        Consumer<Config, Epilogue>::run(problem, args, data, full, empty, warpgroup - 1);
    }
    if constexpr (Config::cluster > 1) cluster_sync();  // no block leaves while the other may still write to it
}

// --- operands that the copy engine cannot read (k not contiguous, rows off 16 bytes): a copy along k, rows padded

template <class T, bool AlongK>
static __global__ void __launch_bounds__(256)
    copy_tile(const T* __restrict__ x, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k_count,
              T* __restrict__ out, int out_pitch) {
    __shared__ T tile[32][34];  // 34: 16-bit elements of a column fall into different banks
    const int first_row = blockIdx.x * 32, first_k = blockIdx.y * 32;
    const T* from = x + blockIdx.z * batch_pitch;
#pragma unroll
    for (int i = threadIdx.y; i < 32; i += 8) {
        const int r = AlongK ? i : threadIdx.x, c = AlongK ? threadIdx.x : i, row = first_row + r, k = first_k + c;
        tile[r][c] = row < rows && k < k_count ? from[row * row_pitch + k * k_pitch] : T(0.f);
    }
    __syncthreads();
#pragma unroll
    for (int i = threadIdx.y; i < 32; i += 8)
        if (first_row + i < rows && first_k + threadIdx.x < out_pitch)
            out[((int64_t)blockIdx.z * rows + first_row + i) * out_pitch + first_k + threadIdx.x] = tile[i][threadIdx.x];
}

#ifndef __CUDACC_RTC__
// Rows of `out_pitch` elements, a multiple of 8 and at least k, zero beyond it.
template <class T>
cudaError_t copy_rows(const void* x, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k,
                      int batches, int out_pitch, void* out, cudaStream_t stream) {
    const dim3 grid((rows + 31) / 32, (out_pitch + 31) / 32, batches), block(32, 8);
    if (k_pitch == 1)
        copy_tile<T, true><<<grid, block, 0, stream>>>((const T*)x, row_pitch, k_pitch, batch_pitch, rows, k, (T*)out, out_pitch);
    else
        copy_tile<T, false><<<grid, block, 0, stream>>>((const T*)x, row_pitch, k_pitch, batch_pitch, rows, k, (T*)out, out_pitch);
    return cudaGetLastError();
}

struct Operands {
    const void *a, *w;  // [batches][m][k] and [w_batches][n][k], k contiguous, rows 16-byte aligned
    int64_t a_row_pitch, a_batch_pitch, w_row_pitch, w_batch_pitch;
    int m, n, k, batches, w_batches;  // w_batches: 1 (shared) or batches
};

inline CUtensorMapDataType map_type(__half) { return CU_TENSOR_MAP_DATA_TYPE_FLOAT16; }
inline CUtensorMapDataType map_type(__nv_bfloat16) { return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16; }

template <class Config> cudaError_t encode(Problem* problem, const Operands& operands) {
    const CUtensorMapDataType type = map_type(typename Config::Type());
    const cudaError_t status =
        encode_map(&problem->a_map, type, 2, operands.a, {operands.k, operands.m, operands.batches},
                   {operands.a_row_pitch, operands.a_batch_pitch}, {tile_k, tile_m});
    if (status != cudaSuccess) return status;
    return encode_map(&problem->w_map, type, 2, operands.w, {operands.k, operands.n, operands.w_batches},
                      {operands.w_row_pitch, operands.w_batch_pitch}, {tile_k, Config::tile_n / Config::cluster});
}

// Enqueues the product; allocates nothing and waits for nothing.
template <class Config, class Epilogue>
cudaError_t launch(const Operands& operands, const typename Epilogue::Args& args, cudaStream_t stream) {
    constexpr int smem_bytes = Sizes<Config>::smem_bytes + Consumer<Config, Epilogue>::shared_bytes;
    if (operands.n % Config::vector != 0) return cudaErrorInvalidValue;
    Problem problem;
    problem.m = operands.m, problem.n = operands.n, problem.k = operands.k;
    problem.batches = operands.batches, problem.w_batches = operands.w_batches;
    auto kernel = multiply_kernel<Config, Epilogue>;
    int count = 0;
    cudaError_t status = encode<Config>(&problem, operands);
    if (status == cudaSuccess) status = allow_shared_memory(kernel, smem_bytes);
    if (status == cudaSuccess) status = multiprocessors(&count);
    if (status != cudaSuccess) return status;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = Config::cluster, attribute.val.clusterDim.y = 1, attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.blockDim = dim3(threads), config.dynamicSmemBytes = smem_bytes, config.stream = stream;
    config.attrs = &attribute, config.numAttrs = 1;
    constexpr int height = tile_m * Config::cluster;
    const int64_t units = (int64_t)((operands.m + height - 1) / height) *
                          ((operands.n + Config::tile_n - 1) / Config::tile_n) * operands.batches;
    // A pair shares two neighbouring multiprocessors, so all pairs run at once; were they not, they would run in turn.
    config.gridDim = dim3((unsigned)in_even_rounds(units, count / Config::cluster) * Config::cluster);
    return cudaLaunchKernelEx(&config, kernel, problem, args);
}
#endif

}  // namespace kw::gemm_sm90_half
