// C = Epilogue(A W^T) on the float16 tensor cores of Ampere and later with float32's accuracy: A [m, k] float32, W [n, k]
// packed.
//
// The scheme is gemm_sm90's: pairs hi + lo of float16 under power-of-two scales, three products of every chunk of 32 of k
// in one tensor-core sum, corrections first, and the sum added to a float32 register. What differs is the machine:
//
//   W   is copied to shared memory by cp.async, three chunks deep, as it was packed
//   A   travels in registers while the chunk before is multiplied; then each row's scale is found, and its pairs are
//       written to shared memory in the layout of W: every element is split once, and all warps read the pairs
//   8 warps, 2 down and 4 across the tile, feed mma from both with ldmatrix
//
// Inf, NaN and overflow are computed again in plain float32 by the warp that found them, as in gemm_sm90.
#pragma once

#include "gemm_epilogue.cuh"
#include "gemm_prologue.cuh"
#include "ptx80.cuh"
#include "split.cuh"

namespace kw::gemm_sm80 {

using namespace kw::ptx80;

// A build fixes these; the generated file writes such a struct.
struct DefaultConfig {
    static constexpr int tile_m = 128, tile_n = 128;  // rows and columns of a tile: 64 or 128 each
    static constexpr int vector = 4;                  // neighbours of one Epilogue::store: 4, 2 or 1; n is a multiple
};

constexpr int threads = 256, raster = 16;
constexpr int warps_down = 2, warps_across = 4;
constexpr int chunk = 32;  // of k; in shared memory a row of 128 bytes, 32 hi and 32 lo
constexpr int w_stages = 3, a_stages = 2;
constexpr int lo_pieces = 4;  // a row is 8 pieces of 16 bytes; lo begins with the fifth

template <class Config> struct Sizes {
    static constexpr int warp_m = Config::tile_m / warps_down, warp_n = Config::tile_n / warps_across;
    static constexpr int sixteens_m = warp_m / 16, sixteens_n = warp_n / 16;  // of a warp
    static constexpr int loads = Config::tile_m * chunk / 4 / threads;        // of A: 16 bytes each, for a thread
    static constexpr int copies = Config::tile_n * 8 / threads;               // of W: the same
    static constexpr int blocks_at_once = Config::tile_m * Config::tile_n > 64 * 64 ? 1 : 2;
    static_assert(Config::tile_m == 64 || Config::tile_m == 128, "tile_m is 64 or 128");
    static_assert(Config::tile_n == 64 || Config::tile_n == 128, "tile_n is 64 or 128");
};

struct Problem {
    const float* a;  // [batches][m][k], k contiguous, 16-byte aligned rows (else: split::pad)
    int64_t a_row_pitch, a_batch_pitch;
    split::Packed w;
    int m, n, k, batches;
};

// --- shared memory

struct Line {  // 32 of k of a row
    uint4 pieces[8];
};

template <class Config> struct Shared {
    Line w[w_stages][Config::tile_n];
    Line a[a_stages][Config::tile_m];
    float undo[a_stages][Config::tile_m];  // inverse scales of A's rows in this chunk
};

// Piece `piece` of row `row` of a tile lies among the eight pieces of its row at an exchanged place, so that the same
// piece of eight neighbouring rows falls into all banks.
KW_DEVICE uint4* piece_of(Line* tile, int row, int piece) { return &tile[row].pieces[piece ^ (row & 7)]; }

// --- W: to shared memory

template <class Config> struct WCopier {
    const __half *source, *valid;  // this thread's piece in its first row; what rows beyond the last point at
    int64_t pitch;                 // of `threads / 8` rows
    int row, piece, rows_left;

    KW_DEVICE WCopier(const Problem& problem, int batch, int first_n) {
        row = threadIdx.x / 8, piece = threadIdx.x % 8;
        source = problem.w.row(problem.w.batch_of(batch), first_n + row) + piece * 8;
        valid = problem.w.pairs;
        pitch = (int64_t)problem.w.padded_k * 2 * (threads / 8);
        rows_left = problem.n - first_n - row;
    }
    KW_DEVICE void copy(Line* tile, int chunk_index, bool any) const {
        if (any) {
#pragma unroll
            for (int i = 0; i < Sizes<Config>::copies; i++) {
                const bool inside = i * (threads / 8) < rows_left;
                const __half* from = source + i * pitch + (int64_t)chunk_index * 2 * chunk;
                copy_async<16>(piece_of(tile, row + i * (threads / 8), piece), inside ? from : valid, inside);
            }
        }
        copies_commit();  // an empty group beyond the last chunk: the count of pending groups stays right
    }
};

// --- A: to registers, split, to shared memory

template <class Config, class Prologue> struct ACarrier {
    const float* source;  // this thread's four neighbours of k in its first row
    const typename Prologue::Args& made;
    int64_t row_of_a;     // the number of that row
    int k;
    int64_t pitch;        // of `threads / 8` rows
    int row, four, rows_left, k_left;
    float4 held[Sizes<Config>::loads];

    KW_DEVICE ACarrier(const Problem& problem, const typename Prologue::Args& made, int batch, int first_m) : made(made) {
        row = threadIdx.x / 8, four = threadIdx.x % 8;
        row_of_a = (int64_t)batch * problem.m + first_m + row, k = four * 4;
        source = problem.a + batch * problem.a_batch_pitch + (first_m + row) * problem.a_row_pitch + four * 4;
        pitch = problem.a_row_pitch * (threads / 8);
        rows_left = problem.m - first_m - row, k_left = problem.k - four * 4;
    }
    KW_DEVICE void fetch() {
#pragma unroll
        for (int i = 0; i < Sizes<Config>::loads; i++) {
            const float* x = source + i * pitch;
            float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
            if (i * (threads / 8) < rows_left) {
                if (k_left >= 4) {
                    v = *(const float4*)x;
                } else {  // the end of k
                    if (k_left > 0) v.x = x[0];
                    if (k_left > 1) v.y = x[1];
                    if (k_left > 2) v.z = x[2];
                }
                float value[4] = {v.x, v.y, v.z, v.w};
                gemm::apply_four<Prologue>(made, value, row_of_a + i * (threads / 8), k, k + k_left);
                v = make_float4(value[0], value[1], value[2], value[3]);
            }
            held[i] = v;
        }
        source += chunk, k += chunk, k_left -= chunk;
    }
    // The eight threads of a row find its scale together.
    KW_DEVICE void deliver(Line* tile, float* undo) const {
#pragma unroll
        for (int i = 0; i < Sizes<Config>::loads; i++) {
            const float4 v = held[i];
            float largest = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
#pragma unroll
            for (int step = 1; step < 8; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
            const uint32_t bits = split::scale_bits(largest);
            const float scale = split::scale_of(bits);
            uint32_t hi[2], lo[2];
            split::to_pairs(v.x * scale, v.y * scale, hi[0], lo[0]);
            split::to_pairs(v.z * scale, v.w * scale, hi[1], lo[1]);
            const int y = row + i * (threads / 8);
#pragma unroll
            for (int j = 0; j < 2; j++) {  // W's order of k: the second pair lies 8 places after the first
                const int piece = four / 4 * 2 + j;
                ((uint32_t*)piece_of(tile, y, piece))[four % 4] = hi[j];
                ((uint32_t*)piece_of(tile, y, piece + lo_pieces))[four % 4] = lo[j];
            }
            if (four == 0) undo[y] = split::inverse_of(bits);
        }
    }
};

// --- the product of a chunk

// Sixteen rows of A or of W, sixteen of k: matrices of 8 x 8, in the order that mma wants them.
KW_DEVICE void load_a(uint32_t (&to)[4], Line* tile, int row, int piece, int lane) {
    load_matrices(to, piece_of(tile, row + lane % 16, piece + lane / 16));
}
KW_DEVICE void load_w(uint32_t (&to)[4], Line* tile, int row, int piece, int lane) {
    load_matrices(to, piece_of(tile, row + lane / 16 * 8 + lane % 8, piece + lane / 8 % 2));
}

template <class Config> struct Sums {  // [sixteen rows][sixteen columns][left or right eight][element]
    float of[Sizes<Config>::sixteens_m][Sizes<Config>::sixteens_n][2][4];
};

template <class Config> KW_DEVICE void clear(Sums<Config>& sums) {
    using S = Sizes<Config>;
#pragma unroll
    for (int i = 0; i < S::sixteens_m * S::sixteens_n * 8; i++) (&sums.of[0][0][0][0])[i] = 0.f;
}

// Adds A's hi or lo times W's hi or lo, 16 of k from piece `a_piece` and `w_piece` on.
template <class Config>
KW_DEVICE void multiply(Sums<Config>& sums, Line* a_tile, Line* w_tile, int a_piece, int w_piece, int y, int x,
                        int lane) {
    using S = Sizes<Config>;
    uint32_t a[S::sixteens_m][4], w[S::sixteens_n][4];
#pragma unroll
    for (int i = 0; i < S::sixteens_m; i++) load_a(a[i], a_tile, y + i * 16, a_piece, lane);
#pragma unroll
    for (int j = 0; j < S::sixteens_n; j++) load_w(w[j], w_tile, x + j * 16, w_piece, lane);
#pragma unroll
    for (int i = 0; i < S::sixteens_m; i++)
#pragma unroll
        for (int j = 0; j < S::sixteens_n; j++)
#pragma unroll
            for (int side = 0; side < 2; side++)
                mma_f16(sums.of[i][j][side], a[i], w[j][side * 2], w[j][side * 2 + 1]);
}

template <class Config>
KW_DEVICE void promote(Sums<Config>& total, const Sums<Config>& sums, const float* undo, int y, int lane) {
    using S = Sizes<Config>;
#pragma unroll
    for (int i = 0; i < S::sixteens_m; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float scale = undo[y + i * 16 + r * 8 + lane / 4];
#pragma unroll
            for (int j = 0; j < S::sixteens_n; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float& t = total.of[i][j][e / 2][r * 2 + e % 2];
                    t = fmaf(sums.of[i][j][e / 2][r * 2 + e % 2], scale, t);
                }
        }
}

// --- results

template <class Config, class Epilogue, class Prologue>
KW_DEVICE void finish(const Problem& problem, const typename Epilogue::Args& args,
                      const typename Prologue::Args& made, const Sums<Config>& total, int batch, int first_m,
                      int first_n, int lane) {
    using S = Sizes<Config>;
    const int m = first_m + lane / 4, n = first_n + gemm::first_of_four(lane);
    const float* inverse = problem.w.inverse + (problem.w.batches == 1 ? 0 : (int64_t)batch * problem.w.padded_rows);
    const int64_t first_row = (int64_t)batch * problem.m;
    gemm::Ending<Epilogue, S::sixteens_m * 2, Config::vector> end(args);
#pragma unroll
    for (int i = 0; i < S::sixteens_m * 2; i++) end.begin(i, first_row + min(m + i * 8, problem.m - 1));
    uint32_t again = 0;  // bit (i * 2 + r) * sixteens_n + j
#pragma unroll
    for (int j = 0; j < S::sixteens_n; j++) {
        const int column = n + j * 16;
        const float4 scale = __ldg((const float4*)(inverse + column));
#pragma unroll
        for (int i = 0; i < S::sixteens_m; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int row = m + i * 16 + r * 8;
                float v[4];
                gemm::trade(v, &total.of[i][j][0][r * 2], &total.of[i][j][1][r * 2], lane & 1);
                v[0] *= scale.x, v[1] *= scale.y, v[2] *= scale.z, v[3] *= scale.w;
                if (row >= problem.m || column >= problem.n) continue;
                if (split::all_finite(v)) {
#pragma unroll
                    for (int e = 0; e < 4; e++) v[e] = split::undo_truncation(v[e]);
                    gemm::take_some(end, v, i * 2 + r, first_row + row, column, problem.n);
                } else {
                    again |= 1u << ((i * 2 + r) * S::sixteens_n + j);
                }
            }
    }
    if (__any_sync(~0u, again)) {
#pragma unroll 1
        for (int source = 0; source < 32; source++)
#pragma unroll 1
            for (uint32_t left = __shfl_sync(~0u, again, source); left; left &= left - 1) {
                const int bit = __ffs(left) - 1, i_and_r = bit / S::sixteens_n;
                const int column = first_n + gemm::first_of_four(source) + bit % S::sixteens_n * 16;
                split::take_plain<2, Prologue>(end, i_and_r, problem, made, batch, first_m + source / 4 + i_and_r * 8,
                                               column, source);
            }
    }
#pragma unroll
    for (int i = 0; i < S::sixteens_m * 2; i++)
        end.template leave<4>(i, first_row + m + i * 8, m + i * 8 < problem.m, first_n / S::warp_n);
}

template <class Config, class Epilogue, class Prologue>
__global__ void __launch_bounds__(threads, Sizes<Config>::blocks_at_once)
    multiply_kernel(const __grid_constant__ Problem problem, const __grid_constant__ typename Epilogue::Args args,
                    const __grid_constant__ typename Prologue::Args made) {
    using S = Sizes<Config>;
    extern __shared__ uint4 dynamic[];
    Shared<Config>& shared = *(Shared<Config>*)dynamic;

    const int tiles_m = (problem.m + Config::tile_m - 1) / Config::tile_m,
              tiles_n = (problem.n + Config::tile_n - 1) / Config::tile_n;
    const int strip_tiles = raster * tiles_n, strip = blockIdx.x / strip_tiles,
              inside = blockIdx.x - strip * strip_tiles;
    const int height = min(raster, tiles_m - strip * raster);
    const int first_n = inside / height * Config::tile_n, first_m = (strip * raster + inside % height) * Config::tile_m;
    const int batch = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int y = warp / warps_across * S::warp_m, x = warp % warps_across * S::warp_n;
    const int chunks = (problem.k + chunk - 1) / chunk;

    const WCopier<Config> w(problem, batch, first_n);
    ACarrier<Config, Prologue> a(problem, made, batch, first_m);
    Sums<Config> total;
    clear(total);
    w.copy(shared.w[0], 0, true);
    w.copy(shared.w[1], 1, chunks > 1);
    a.fetch();
    a.deliver(shared.a[0], shared.undo[0]);
    a.fetch();
    int stage = 0;  // of W
#pragma unroll 1
    for (int c = 0; c < chunks; c++, stage = stage == w_stages - 1 ? 0 : stage + 1) {
        copies_wait<1>();
        __syncthreads();  // chunk c is there for all, and all have read chunk c - 1
        w.copy(shared.w[stage == 0 ? w_stages - 1 : stage - 1], c + 2, c + 2 < chunks);
        if (c + 1 < chunks) {
            a.deliver(shared.a[(c + 1) % a_stages], shared.undo[(c + 1) % a_stages]);
            a.fetch();
        }
        Line *a_tile = shared.a[c % a_stages], *w_tile = shared.w[stage];
        Sums<Config> sums;
        clear(sums);
#pragma unroll
        for (int piece = 0; piece < lo_pieces; piece += 2) {  // corrections first: they are cut at their own size
            multiply(sums, a_tile, w_tile, piece + lo_pieces, piece, y, x, lane);
            multiply(sums, a_tile, w_tile, piece, piece + lo_pieces, y, x, lane);
        }
#pragma unroll
        for (int piece = 0; piece < lo_pieces; piece += 2) multiply(sums, a_tile, w_tile, piece, piece, y, x, lane);
        promote(total, sums, shared.undo[c % a_stages], y, lane);
    }
    finish<Config, Epilogue, Prologue>(problem, args, made, total, batch, first_m + y, first_n + x, lane);
}

// --- host

#ifndef __CUDACC_RTC__
struct Operands {
    const float* a;  // [batches][m][k], k contiguous, 16-byte aligned rows (else: split::pad)
    int64_t a_row_pitch, a_batch_pitch;
    const void* w;                    // what split::pack wrote for [w_batches][n][k]
    int m, n, k, batches, w_batches;  // w_batches: 1 (shared) or batches
};

// Enqueues the product; allocates nothing and waits for nothing. batches is at most 65535.
template <class Config, class Epilogue, class Prologue = gemm::AsItLies>
cudaError_t launch(const Operands& operands, const typename Epilogue::Args& args, cudaStream_t stream,
                   const typename Prologue::Args& made = {}) {
    if (operands.n % Config::vector != 0) return cudaErrorInvalidValue;
    Problem problem;
    problem.a = operands.a, problem.a_row_pitch = operands.a_row_pitch, problem.a_batch_pitch = operands.a_batch_pitch;
    problem.w = split::packed_view(const_cast<void*>(operands.w), operands.n, operands.k, operands.w_batches);
    problem.m = operands.m, problem.n = operands.n, problem.k = operands.k, problem.batches = operands.batches;
    auto kernel = multiply_kernel<Config, Epilogue, Prologue>;
    const cudaError_t status = ptx90::allow_shared_memory(kernel, (int)sizeof(Shared<Config>));
    if (status != cudaSuccess) return status;
    const int64_t tiles = (int64_t)((problem.m + Config::tile_m - 1) / Config::tile_m) *
                          ((problem.n + Config::tile_n - 1) / Config::tile_n);
    kernel<<<dim3((unsigned)tiles, problem.batches), threads, sizeof(Shared<Config>), stream>>>(problem, args, made);
    return cudaGetLastError();
}
#endif

}  // namespace kw::gemm_sm80
