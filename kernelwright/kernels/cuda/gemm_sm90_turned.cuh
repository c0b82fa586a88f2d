// gemm_sm90 with the operands' roles traded: what it calls W, and packs, has the rows of the result; what it calls A, and
// splits on its way to the tensor cores, has the columns, which lie side by side in memory (the second operand of a @ b).
//
// So of two activations the first one can be packed, if it is the smaller or the easier one, and no copy is needed of
// operands that both lie across k. A slot of A is 32 of k of up to 128 columns, in boxes of 32 columns: lines of k, each
// 128 bytes under the swizzle. A thread reads two neighbouring columns at a time, in k's own order, and so is W packed.
#pragma once

#include "gemm_sm90.cuh"

namespace kw::gemm_sm90_turned {

using namespace kw::ptx90;

constexpr int box_columns = 32, box_bytes = gemm_sm90::k_of_slot * 128;

struct Turned : split::InOrder {};

KW_DEVICE gemm_sm90::Corner corner(const Turned&, int batch, int n, int block) {
    return {block * 2 * gemm_sm90::k_of_slot, n, batch};
}

// Of a problem here, m are the columns of the result and n the rows.

// Adds Steps times 256 of k to four columns of a row, eight neighbours along k for each lane and step.
template <int Steps, class Problem>
KW_DEVICE void plain_steps(float (&sum)[4], const Problem& problem, const float* columns, int count, int batch, int row,
                           int position) {
    float x[Steps][8][4], value[Steps][8];
#pragma unroll
    for (int s = 0; s < Steps; s++) {
        const int k = position + s * 256;
        split::packed_values<split::InOrder>(value[s], problem.w.row(batch, row), k, problem.w.inverses(batch, k)[row]);
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                x[s][i][c] = k + i < problem.k && c < count ? columns[(k + i) * problem.a_row_pitch + c] : 0.f;
    }
#pragma unroll
    for (int s = 0; s < Steps; s++)
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int c = 0; c < 4; c++) sum[c] = fmaf(x[s][i][c], value[s][i], sum[c]);
}

// Elements (m, n) ... (m, n + 3) of the result in plain float32, by a whole warp, as split::plain_dots.
template <int Steps, class Problem>
KW_DEVICE void plain_dots(float (&sum)[4], const Problem& problem, int batch, int m, int n, int lane) {
    const int w_batch = problem.w.batch_of(batch), padded_k = problem.w.padded_k, count = problem.m - n;
    const float* columns = problem.a + batch * problem.a_batch_pitch + n;
#pragma unroll
    for (int c = 0; c < 4; c++) sum[c] = 0.f;
    int first = 0;
#pragma unroll 1
    for (; first + Steps * 256 <= padded_k && !split::all_are_nan(sum); first += Steps * 256)
        plain_steps<Steps>(sum, problem, columns, count, w_batch, m, first + lane * 8);
#pragma unroll 1
    for (; first < padded_k && !split::all_are_nan(sum); first += 256)
        if (first + lane * 8 < padded_k) plain_steps<1>(sum, problem, columns, count, w_batch, m, first + lane * 8);
#pragma unroll
    for (int c = 0; c < 4; c++)
#pragma unroll
        for (int step = 16; step; step >>= 1) sum[c] += __shfl_xor_sync(~0u, sum[c], step);
}

#ifndef __CUDACC_RTC__
// As gemm_sm90 asks of a W.
inline cudaError_t describe(Turned& w, TensorMap* map, const gemm_sm90::Operands& operands, int panels, int rows) {
    return gemm_sm90::describe(static_cast<split::Packed&>(w), map, operands, panels, rows);
}
#endif

}  // namespace kw::gemm_sm90_turned

namespace kw::gemm_sm90 {

template <class W> struct Roles<W, true> {
    using Problem = gemm_sm90::Problem<W>;

    __host__ __device__ static int rows(const Problem& problem) { return problem.n; }
    __host__ __device__ static int columns(const Problem& problem) { return problem.m; }

    template <class Config>
    KW_DEVICE static void fill(const Ring& ring, Cursor at, const Problem& problem, const Work& work, int k) {
        ring.expect(at, Config::tile_m * 128);
#pragma unroll
        for (int box = 0; box < Config::tile_m / gemm_sm90_turned::box_columns; box++)
            load_box(ring.slot(at) + box * gemm_sm90_turned::box_bytes, &problem.a_map, ring.full + at.slot * 8,
                     work.m + box * gemm_sm90_turned::box_columns, k, work.batch);
    }
    // The fragment's rows g and g + 8 are neighbours.
    KW_DEVICE static int row_in_tile(int first, int warp, int lane) { return first + warp * 16 + (lane >> 2) * 2; }

    KW_DEVICE static uint32_t place(int row, int lane) {
        const int k = (lane & 3) * 2, column = row % gemm_sm90_turned::box_columns;
        return row / gemm_sm90_turned::box_columns * gemm_sm90_turned::box_bytes + k * 128 + ((column / 4 ^ k) << 4) +
               (column & 2) * 4;
    }
    // Both rows at 2 q, 2 q + 1 and 8 after these (q = lane % 4) of the first and of the second 16 of k. The sixteen
    // threads that one phase of an 8-byte load serves touch all 32 banks.
    KW_DEVICE static void read(float (&first)[2][4], float (&second)[2][4], uint32_t place) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t address = (place ^ (i & 1) * 16) + (i & 1) * 128 + (i >> 1) * 8 * 128;
            load_shared(first[0][i], first[1][i], address);
            load_shared(second[0][i], second[1][i], address + 16 * 128);
        }
    }

    template <int Steps, class Prologue, class End>
    KW_DEVICE static void take_plain(End& end, int which, const Problem& problem, const typename Prologue::Args&,
                                     int batch, int m, int n, int owner) {
        float sum[4];
        gemm_sm90_turned::plain_dots<Steps>(sum, problem, batch, m, n, threadIdx.x & 31);
        end.take_from_all(sum, which, (int64_t)batch * problem.n + m, n, problem.m, owner);
    }

    // As for other roles; but a warpgroup has 64 columns, by groups of 64 rows.
    static constexpr bool groups_are_rows = true;
    static constexpr int steps_again = 2;
    static constexpr int lane_beside = 4;
    using Scales = float2[gathered / 8];
    KW_DEVICE static int first_y(int warp, int lane) { return (lane & 3) * 2; }
    KW_DEVICE static int first_x(int warp, int lane) { return warp * 16 + (lane >> 2) * 2; }
    KW_DEVICE static constexpr int y(int i) { return i / 2 * 8 + i % 2; }
    KW_DEVICE static constexpr int x(int i) { return 0; }
    KW_DEVICE static void load(Scales& scales, const float* inverse) {
#pragma unroll
        for (int j = 0; j < gathered / 8; j++) scales[j] = load_two(inverse + j * 8);
    }
    KW_DEVICE static void scaled(float (&pair)[2], const float* eight, const Scales& scales, int i) {
        const float scale = i % 2 ? scales[i / 2].y : scales[i / 2].x;
        pair[0] = eight[i % 2] * scale, pair[1] = eight[i % 2 + 2] * scale;
    }

    // A thread has two columns of the result beside each other, in two rows of every eight. Lanes g and g ^ 1 (g = lane
    // / 4) trade: even ones take the upper row, odd ones the lower, four neighbours each.
    template <class Config, class Epilogue, class Prologue>
    KW_DEVICE static void finish(const Problem& problem, const typename Epilogue::Args& args,
                                 const typename Prologue::Args& made, const Work& work, int row, int first, int lane,
                                 int last_chunk,
                                 const float (&total)[Sizes<Config>::own_blocks][Sizes<Config>::wgmma_n / 2]) {
        using S = Sizes<Config>;
        using End = gemm::Ending<Epilogue, 1, Config::vector>;
        static_assert(!End::keeps_rows, "neighbours of a row of the result lie in other warps");
        constexpr int per_block = S::wgmma_n / 8, vectors = gathered / 8;
        const bool odd = lane & 4;
        const int m = first + (lane & 3) * 2 + odd, n = work.m + row - 2 * odd;
        const int last_k = Config::panels ? last_chunk * Config::promote : 0;
        const float* inverse = problem.w.inverses(problem.w.batch_of(work.batch), last_k) + m;
        const int64_t first_row = ((int64_t)work.split * problem.batches + work.batch) * problem.n + m;
        const bool tile_inside = work.m + Config::tile_m <= problem.m && work.n + Config::tile_n <= problem.n;
        End end(args);
        uint32_t again = 0;
        float next[vectors];
#pragma unroll
        for (int i = 0; i < vectors; i++) next[i] = load_constant(inverse + i * 8);
#pragma unroll
        for (int group = 0; group < S::own_blocks * S::wgmma_n; group += gathered) {
            float v[vectors][4];
            bool finite = true;
#pragma unroll
            for (int i = 0; i < vectors; i++) {
                const int eight = group / 8 + i;
                const float* sums = &total[eight / per_block][eight % per_block * 4];
                const float upper[2] = {sums[0], sums[2]}, lower[2] = {sums[1], sums[3]};
                gemm::trade<4>(v[i], upper, lower, odd);
#pragma unroll
                for (int c = 0; c < 4; c++) v[i][c] *= next[i];
                finite = finite && split::all_finite(v[i]);
            }
            if (group + gathered < S::own_blocks * S::wgmma_n) {  // before results are stored: behind them it would wait
#pragma unroll
                for (int i = 0; i < vectors; i++) next[i] = load_constant(inverse + group + gathered + i * 8);
            }
            if (tile_inside && __all_sync(~0u, finite)) {
#pragma unroll
                for (int i = 0; i < vectors; i++) {
                    correct<Config>(v[i]);
                    gemm::take_four(end, v[i], 0, first_row + group + i * 8, n);
                }
            } else {
#pragma unroll
                for (int i = 0; i < vectors; i++) {
                    if (m + group + i * 8 >= problem.n || n >= problem.m) continue;
                    if (Config::splits > 1 || split::all_finite(v[i])) {
                        correct<Config>(v[i]);
                        gemm::take_some(end, v[i], 0, first_row + group + i * 8, n, problem.m);
                    } else {
                        again |= 1u << (group / 8 + i);
                    }
                }
            }
        }
        if constexpr (Config::splits == 1) {
            if (!__any_sync(~0u, again)) return;
#pragma unroll 1
            for (int source = 0; source < 32; source++) {
                uint32_t left = __shfl_sync(~0u, again, source);
                const int first_m = __shfl_sync(~0u, m, source), first_n = __shfl_sync(~0u, n, source);
#pragma unroll 1
                for (; left; left &= left - 1)
                    take_plain<2, Prologue>(end, 0, problem, made, work.batch, first_m + (__ffs(left) - 1) * 8, first_n,
                                            source);
            }
        }
    }
#ifndef __CUDACC_RTC__
    template <class Config, class Operands> static cudaError_t describe_a(TensorMap* map, const Operands& operands) {
        return encode_map(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, operands.a,
                          {operands.m, operands.k, operands.batches}, {operands.a_row_pitch, operands.a_batch_pitch},
                          {gemm_sm90_turned::box_columns, k_of_slot});
    }
#endif
};

}  // namespace kw::gemm_sm90
