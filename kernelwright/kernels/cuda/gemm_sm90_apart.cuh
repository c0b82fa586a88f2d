// gemm_sm90_half with long epilogues apart: warps of their own run them while the tensor cores go on.
//
//   warp 0         one thread fills a ring of stages: 128 x 32 of A and 256 x 32 of W
//   warps 1 to 3   finish tiles: the rest of the epilogue, while the next tile is multiplied
//   2 warpgroups   multiply 64 rows of a tile each. What the sums are rounded to, 16 bits, they leave in shared memory
//
// The last tile of a block has no next one: all eleven warps finish it. With a warpgroup more, a thread would begin with
// 128 registers, which a product of 256 columns does not fit.
//
// Why this and not tiles for each warpgroup (`own_tiles`): the copies into shared memory and what the tensor cores read
// of it are 128 bytes a clock at the full rate for a tile of 128 x 256, which is what shared memory has; for 128 x 128 or
// 64 x 256 they are 160. Why 16 bits: a tile in float32 is 128 KB, which leaves no room for a ring. PyTorch rounds a
// product (with its bias) to 16 bits before anything else is done to it, so nothing is lost. Why 32 of k in a stage: a
// ring of 144 KB then has four of six stages on their way, and not one of three.
#pragma once

#include "gemm_sm90_half.cuh"

namespace kw::gemm_sm90_apart {

using namespace kw::ptx90;
using gemm_sm90_half::Cursor;
using gemm_sm90_half::Operands;
using gemm_sm90_half::Problem;
using gemm_sm90_half::Schedule;
using gemm_sm90_half::Work;
using gemm_sm90_half::tile_m;

// A build fixes these; the generated file writes such a struct.
struct DefaultConfig {
    using Type = __half;               // of both operands: __half or __nv_bfloat16
    static constexpr int cluster = 2;  // blocks that share W: 1 or 2
    static constexpr int raster = 16;  // tiles of a column strip that run together and share W through L2
    static constexpr int tile_n = 256, vector = 4;
};

constexpr int tile_n = 256, tile_k = 32;  // 32 halves: one row of the 64-byte swizzle
constexpr int threads = 384, finishers = 3;
constexpr int a_bytes = tile_m * 64, w_bytes = tile_n * 64, stage_bytes = a_bytes + w_bytes, stages = 6;
constexpr int left_bytes = tile_m * tile_n * 2;  // what a tile is rounded to
constexpr int smem_bytes = stages * stage_bytes + left_bytes + 1024;
constexpr int rows_of_piece = 8, columns_of_piece = 128;  // what a warp finishes at once
constexpr int pieces = tile_m / rows_of_piece * (tile_n / columns_of_piece);

// Named barriers of the threads that multiply or finish: a tile has been left, it has been taken.
constexpr int left = 1, taken = 2, members = 256 + finishers * 32;

// Rows of 64 bytes under the 64-byte swizzle: groups of 8 rows lie 512 bytes apart. The next 16 of k are at + 2.
KW_DEVICE uint64_t descriptor_64b(uint32_t address) {
    return (uint64_t)2 << 62 | (uint64_t)(512 >> 4) << 32 | (uint64_t)1 << 16 | (uint64_t)(address >> 4);
}

// --- 16-bit values, two in a word

KW_DEVICE uint32_t rounded(__half, float x, float y) {
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(y), "f"(x));
    return word;
}
KW_DEVICE uint32_t rounded(__nv_bfloat16, float x, float y) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(y), "f"(x));
    return word;
}
KW_DEVICE float2 widened(__half, uint32_t word) { return __half22float2(*reinterpret_cast<const __half2*>(&word)); }
KW_DEVICE float2 widened(__nv_bfloat16, uint32_t word) {
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

// Where columns lie in a row of 512 bytes. Sixteen bytes are exchanged with others by row, so that neither those who
// leave (8 rows at once) nor those who take (one row) meet in a bank.
KW_DEVICE uint32_t place(int row, int column) {
    return row * 512 + (((column >> 3) ^ (row & 7)) << 4) + (column & 7) * 2;
}

KW_DEVICE void store_word(uint32_t address, uint32_t word) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}
KW_DEVICE uint2 load_words(uint32_t address) {
    uint2 v;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
    return v;
}

// --- roles

template <class Config> KW_DEVICE void fill_ring(const Problem& problem, uint32_t data, uint32_t full, uint32_t empty) {
    constexpr int share = tile_n / Config::cluster;  // rows of W that this block loads
    const Schedule<Config> schedule(problem);
    Cursor at;
    for (int index = schedule.first(); index < schedule.count; index += schedule.step()) {
        const Work work = schedule[index];
        const int w_batch = problem.w_batches == 1 ? 0 : work.batch;
        for (int k = 0; k < problem.k; k += tile_k, at.advance<stages>()) {
            const uint32_t stage = data + at.stage * stage_bytes, arrived = full + at.stage * 8;
            barrier_wait(empty + at.stage * 8, at.phase ^ 1);
            barrier_arrive_and_expect(arrived, stage_bytes);
            load_box(stage, &problem.a_map, arrived, k, work.m, work.batch);
            if constexpr (Config::cluster == 1)
                load_box(stage + a_bytes, &problem.w_map, arrived, k, work.n, w_batch);
            else
                load_box_multicast(stage + a_bytes + schedule.rank * share * 64, &problem.w_map, arrived, k,
                                   work.n + schedule.rank * share, w_batch, 3);
        }
    }
}

// Rounds a warpgroup's sums, after what belongs to that (a bias), and leaves them.
template <class Config, class First, class Args>
KW_DEVICE void leave(const Problem& problem, const Args& args, const Work& work, uint32_t staged, int row, int lane,
                     const float (&sum)[tile_n / 2]) {
    const int64_t first_row = (int64_t)work.batch * problem.m + work.m + row;
    int first_column = work.n, to_row = row;
#pragma unroll
    for (int j = 0; j < tile_n / 8; j++) {
        // 64 columns at once: neither their operands nor their addresses are made before, for want of registers.
        if (j % 8 == 0) asm volatile("" : "+r"(first_column), "+r"(to_row)::"memory");
        const int column = j * 8 + (lane & 3) * 2;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float x[2] = {sum[j * 4 + 2 * r], sum[j * 4 + 2 * r + 1]};
            // Columns are a multiple of 4: both are inside of the result, or none.
            if (work.m + row + 8 * r < problem.m && first_column + column < problem.n)
                First::template apply<2>(args, x, first_row + 8 * r, first_column + column);
            store_word(staged + place(to_row + 8 * r, column), rounded(typename Config::Type(), x[0], x[1]));
        }
    }
}

// Pieces number `first`, first + step, ... of the tile that was left.
template <class Config, class Epilogue>
KW_DEVICE void finish(const Problem& problem, const typename Epilogue::Args& args, const Work& work, uint32_t staged,
                      int first, int step, int lane) {
    const bool tile_inside = work.m + tile_m <= problem.m && work.n + tile_n <= problem.n;
    gemm::Ending<Epilogue, rows_of_piece, 4> end(args);
    static_assert(!decltype(end)::keeps_rows, "rows are not reduced here");
#pragma unroll 1
    for (int piece = first; piece < pieces; piece += step) {
        const int row = piece / 2 * rows_of_piece, column = piece % 2 * columns_of_piece + lane * 4;
        const int64_t m = (int64_t)work.batch * problem.m + work.m + row;
        float v[rows_of_piece][4];
#pragma unroll
        for (int r = 0; r < rows_of_piece; r++) {
            const uint2 words = load_words(staged + place(row + r, column));
            const float2 low = widened(typename Config::Type(), words.x),
                         high = widened(typename Config::Type(), words.y);
            v[r][0] = low.x, v[r][1] = low.y, v[r][2] = high.x, v[r][3] = high.y;
        }
        if (tile_inside) {  // nothing to ask for each store: the compiler gathers the epilogue's loads
#pragma unroll
            for (int r = 0; r < rows_of_piece; r++) gemm::take_four(end, v[r], r, m + r, work.n + column);
        } else if (work.n + column < problem.n) {
#pragma unroll
            for (int r = 0; r < rows_of_piece; r++)
                if (work.m + row + r < problem.m) gemm::take_four(end, v[r], r, m + r, work.n + column);
        }
    }
}

template <class Config, class First, class Epilogue>
KW_DEVICE void consume(const Problem& problem, const typename Epilogue::Args& args, uint32_t data, uint32_t full,
                       uint32_t empty, uint32_t staged, int consumer) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
    const Schedule<Config> schedule(problem);
    Cursor at;
    for (int index = schedule.first(); index < schedule.count; index += schedule.step()) {
        float sum[tile_n / 2];
        int before = -1;
#pragma unroll 1
        for (int k = 0; k < problem.k; k += tile_k, at.advance<stages>()) {
            const uint32_t stage = data + at.stage * stage_bytes;
            const uint64_t a = descriptor_64b(stage + consumer * 64 * 64), w = descriptor_64b(stage + a_bytes);
            barrier_wait(full + at.stage * 8, at.phase);
            pin(sum);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < tile_k / 16; i++)
                gemm_sm90_half::multiply(typename Config::Type(), sum, a + i * 2, w + i * 2, k > 0 || i > 0);
            wgmma_commit();
            pin(sum);
            wgmma_wait<1>();  // the stage before this one has been read
            if (before >= 0) gemm_sm90_half::release<Config>(empty, before, lane);
            before = at.stage;
        }
        wgmma_wait<0>();
        pin(sum);
        gemm_sm90_half::release<Config>(empty, before, lane);
        const Work work = schedule[index];
        named_sync(taken, members);
        leave<Config, First>(problem, args, work, staged, consumer * 64 + warp * 16 + (lane >> 2), lane, sum);
        if (index + schedule.step() < schedule.count) {
            named_arrive(left, members);
        } else {
            named_sync(left, members);
            finish<Config, Epilogue>(problem, args, work, staged, consumer * 4 + warp, 8 + finishers, lane);
        }
    }
}

template <class Config, class Epilogue>
KW_DEVICE void finish_tiles(const Problem& problem, const typename Epilogue::Args& args, uint32_t staged) {
    const int lane = threadIdx.x & 31, finisher = (threadIdx.x >> 5) - 1;
    const Schedule<Config> schedule(problem);
    for (int index = schedule.first(); index < schedule.count; index += schedule.step()) {
        const bool last = index + schedule.step() >= schedule.count;
        named_arrive(taken, members);
        named_sync(left, members);
        finish<Config, Epilogue>(problem, args, schedule[index], staged, last ? 8 + finisher : finisher,
                                 last ? 8 + finishers : finishers, lane);
    }
}

template <class Config, class First, class Epilogue>
__global__ void __launch_bounds__(threads, 1)
    multiply_kernel(const __grid_constant__ Problem problem, const __grid_constant__ typename Epilogue::Args args) {
    extern __shared__ uint8_t shared[];
    __shared__ __align__(8) uint64_t barriers[2 * stages];
    const uint32_t data = (shared_address(shared) + 1023) & ~1023u, full = shared_address(barriers),
                   empty = full + stages * 8, staged = data + stages * stage_bytes;
    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, 8 * Config::cluster);
        }
        barrier_init_fence();
    }
    if constexpr (Config::cluster > 1) cluster_sync();
    else __syncthreads();
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (warpgroup == 0) {
        registers_shrink_to<120>();
        if (threadIdx.x >= 32) finish_tiles<Config, Epilogue>(problem, args, staged);
        else if (threadIdx.x == 0) fill_ring<Config>(problem, data, full, empty);
    } else {
        registers_grow_to<192>();
        consume<Config, First, Epilogue>(problem, args, data, full, empty, staged, warpgroup - 1);
    }
    if constexpr (Config::cluster > 1) cluster_sync();  // no block leaves while the other may still write to it
}

// --- host

#ifndef __CUDACC_RTC__
// A matrix for each batch, read in boxes of 32 x `rows` that arrive under the 64-byte swizzle; zero outside.
inline cudaError_t encode_narrow(TensorMap* map, CUtensorMapDataType type, const void* base, int k, int count,
                                 int batches, int64_t row_pitch, int64_t batch_pitch, int rows) {
    const cuuint64_t row_bytes = (cuuint64_t)(count > 1 ? row_pitch * 2 : 128);
    const cuuint64_t sizes[3] = {(cuuint64_t)k, (cuuint64_t)count, (cuuint64_t)batches};
    const cuuint64_t strides[2] = {row_bytes, batches > 1 ? (cuuint64_t)(batch_pitch * 2) : row_bytes * sizes[1]};
    const cuuint32_t boxes[3] = {tile_k, (cuuint32_t)rows, 1}, steps[3] = {1, 1, 1};
    EncodeTiled encode = encode_tiled();
    if (!encode) return cudaErrorNotSupported;
    const CUresult result =
        encode((CUtensorMap*)map, type, 3, (void*)base, sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Enqueues the product; allocates nothing and waits for nothing. First::apply makes of neighbouring sums what is rounded;
// the epilogue gets what it was rounded to.
template <class Config, class First, class Epilogue>
cudaError_t launch(const Operands& operands, const typename Epilogue::Args& args, cudaStream_t stream) {
    static_assert(Config::tile_n == tile_n && Config::vector == 4, "tiles of 256 columns, in fours");
    if (operands.n % 4 != 0) return cudaErrorInvalidValue;
    Problem problem;
    problem.m = operands.m, problem.n = operands.n, problem.k = operands.k;
    problem.batches = operands.batches, problem.w_batches = operands.w_batches;
    const CUtensorMapDataType type = gemm_sm90_half::map_type(typename Config::Type());
    auto kernel = multiply_kernel<Config, First, Epilogue>;
    int count = 0;
    cudaError_t status = encode_narrow(&problem.a_map, type, operands.a, operands.k, operands.m, operands.batches,
                                       operands.a_row_pitch, operands.a_batch_pitch, tile_m);
    if (status == cudaSuccess)
        status = encode_narrow(&problem.w_map, type, operands.w, operands.k, operands.n, operands.w_batches,
                               operands.w_row_pitch, operands.w_batch_pitch, tile_n / Config::cluster);
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
    const int64_t blocks = (int64_t)((operands.m + height - 1) / height) * ((operands.n + tile_n - 1) / tile_n) *
                           operands.batches * Config::cluster;
    const int at_once = count / Config::cluster * Config::cluster;
    config.gridDim = dim3((unsigned)(blocks < at_once ? blocks : at_once));
    return cudaLaunchKernelEx(&config, kernel, problem, args);
}
#endif

}  // namespace kw::gemm_sm90_apart
