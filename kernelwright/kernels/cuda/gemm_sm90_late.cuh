// Results of gemm_sm90_half that leave late: while the next tile is multiplied.
//
// PyTorch rounds a 16-bit product, with its bias, before anything else is done to it. So the sums of a finished tile
// are settled: rounded, two to a register, they take half of the room that they had, and the next tile begins at once.
// Every few steps of k a piece of 16 columns of the last tile is finished and stored, while a step of this warpgroup
// and those of the other are under way. The tensor cores wait for the results of the last tile alone.
//
//   struct Epilogue {
//     template <int N> using Settled = ...;    // N neighbours along n as the Config's Type
//     template <int N> struct Early { ... };   // what settling needs: operands that all rows share
//     template <int N> struct Operands { ... };  // of the results one by one; those of rows and columns `finish` loads
//     template <int N> struct Results { ... };
//     using Index = ...;                       // int, or int64_t, in which places of results are counted
//     template <int N> static Early<N> load_early(const Args&, Index n);
//     template <int N> static void settle(const Early<N>&, float (&sums)[N]);  // but for the rounding
//     template <int N> static Operands<N> load(const Args&, Index m, Index n);
//     template <int N>
//     static Results<N> finish(const Args&, const Operands<N>&, const Settled<N>&, Index m, Index n);
//     template <int N> static void store(const Args&, const Results<N>&, Index m, Index n);
//   };
//
// which is `store` of gemm_epilogue.cuh in its steps.
#pragma once

#include "gemm_sm90_half.cuh"

namespace kw::gemm_sm90_late {

using namespace kw::gemm_sm90_half;
using namespace kw::ptx90;

// The epilogue of a product whose results leave late.
template <class Epilogue> struct Late {
    using Args = typename Epilogue::Args;
};

// What a thread has of a settled tile: two rows, of which pieces of 16 columns leave one after the other.
template <class Config, class Epilogue> struct Held {
    static constexpr int vector = Config::vector, parts = 4 / vector, pieces = Config::tile_n / 16;
    // Two neighbours are a word, a piece has four. Registers have no address, and the words of the widest tile would
    // spill; the ring leaves 26 to 34 KB of shared memory. So the first half waits there, where each piece is read from
    // its place, and the second half in registers, until the first has left and its places are free.
    static constexpr int words = pieces * 4, half = words / 2;
    static constexpr int four_bytes = 256 * 16, waiting_bytes = half / 4 * four_bytes;
    using Settled = typename Epilogue::template Settled<vector>;
    using Ahead = typename Epilogue::template Operands<vector>[2][parts];  // of a piece, by rows
    static_assert(pieces % 4 == 0, "each half leaves in pairs of pieces");
    static_assert(Sizes<Config>::smem_bytes + waiting_bytes + 16 * Sizes<Config>::stages <= 227 * 1024,
                  "half of a tile has room beside the ring and its barriers");
    static_assert(sizeof(typename Epilogue::template Settled<2>) == 4, "settled sums have 16 bits");

    const Problem& problem;
    const typename Epilogue::Args& args;
    uint32_t second[half];      // [eight columns][row], as wgmma leaves them
    uint32_t wait;              // where this thread's next four words are; those after them are `four_bytes` on
    Ahead ahead[2];             // of the next two pieces
    typename Epilogue::Index first;  // the thread's first row in the flattened result
    // Its two rows, as far as they are in the result. What is loaded beyond that is what lies at its end: no load asks for
    // a condition.
    typename Epilogue::Index upper, lower;
    int m, n, left = 0;         // the first row in its batch; the next column; pieces that have not left

    // `room`: where this thread's first four words go. While none wait, `wait` is behind the last.
    KW_DEVICE Held(const Problem& problem, const typename Epilogue::Args& args, uint32_t room)
        : problem(problem), args(args), wait(room + waiting_bytes) {}

    KW_DEVICE typename Epilogue::Index row_inside(int r) const { return r == 0 ? upper : lower; }
    KW_DEVICE int column_inside(int column) const { return min(column, problem.n - vector); }
    KW_DEVICE void load_ahead(Ahead& operands, int r, int column) const {
#pragma unroll
        for (int i = 0; i < parts; i++)
            operands[r][i] = Epilogue::template load<vector>(args, row_inside(r), column_inside(column + i * vector));
    }

    template <class Settling> KW_DEVICE void settle(const Settling& settling, const float (&sum)[words * 2]) {
        wait -= waiting_bytes;
#pragma unroll
        for (int i = 0; i < words; i += 4) {
            uint32_t word[4];
            settling.settle(word, sum, i);
            if (i < half) {
                store_shared(wait + i / 4 * four_bytes, word);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) second[(i + j) % half] = word[j];
            }
        }
    }

    // The tile at `work` has been settled, and may leave.
    KW_DEVICE void begin(const Work& work, int row, int lane) {
        m = work.m + row, n = work.n + gemm::first_of_four(lane);
        first = (typename Epilogue::Index)work.batch * problem.m + m;
        upper = first + min(0, problem.m - 1 - m), lower = first + min(8, problem.m - 1 - m);
        left = pieces;
#pragma unroll
        for (int i = 0; i < 4; i++) load_ahead(ahead[i / 2], i % 2, n + i / 2 * 16);
    }

    // The next piece leaves, and what the piece `distance` behind it needs is loaded into the same place.
    template <int distance> KW_DEVICE void leave(Ahead& operands, bool odd) {
        uint32_t word[4];
        load_shared(word, wait);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            // As gemm::trade, but two neighbours at once.
            const uint32_t left_two = word[r], right_two = word[2 + r];
            const uint32_t received = __shfl_xor_sync(~0u, odd ? left_two : right_two, 1);
            const uint32_t four[2] = {odd ? received : left_two, odd ? right_two : received};
            typename Epilogue::template Results<vector> results[parts];
#pragma unroll
            for (int i = 0; i < parts; i++) {
                Settled settled;
                __builtin_memcpy(&settled, (const char*)four + i * sizeof settled, sizeof settled);
                results[i] = Epilogue::template finish<vector>(args, operands[r][i], settled, row_inside(r),
                                                               column_inside(n + i * vector));
            }
            load_ahead(operands, r, left > distance ? n + distance * 16 : n);  // of no use for the last, but no branch
#pragma unroll
            for (int i = 0; i < parts; i++)
                if (m + 8 * r < problem.m && n + i * vector < problem.n)
                    Epilogue::template store<vector>(args, results[i], first + 8 * r, n + i * vector);
        }
        n += 16, left--, wait += four_bytes;
    }
    KW_DEVICE void leave_one(bool odd) {
        if (left % 2 == 0) {
            leave<2>(ahead[0], odd);
        } else {
            leave<2>(ahead[1], odd);
            follow();
        }
    }
    // Once the first half has left, the second takes its places.
    KW_DEVICE void follow() {
        if (left != pieces / 2) return;
        wait -= waiting_bytes;
#pragma unroll
        for (int i = 0; i < half; i += 4) {
            const uint32_t word[4] = {second[i], second[i + 1], second[i + 2], second[i + 3]};
            store_shared(wait + i / 4 * four_bytes, word);
        }
    }
    // The last tile, beside which nothing is multiplied: loads are four pieces ahead, in what were registers of sums.
    KW_DEVICE void leave_all(bool odd) {
        if (left == 0) return;
        Ahead behind[2];
#pragma unroll
        for (int i = 0; i < 4; i++) load_ahead(behind[i / 2], i % 2, n + 32 + i / 2 * 16);
#pragma unroll 1
        while (left > 0) {
            leave<4>(ahead[0], odd);
            leave<4>(ahead[1], odd);
            follow();
            leave<4>(behind[0], odd);
            leave<4>(behind[1], odd);
            follow();
        }
    }

    // The step beside which the next piece leaves: all have left by the last one, at even distances; the warpgroups
    // take turns. Found once for a piece, for steps are many.
    KW_DEVICE int next_due(int steps, int consumer) const {
        const int due = ((2 * (pieces - left) + 1 + consumer) * steps + 2 * pieces - 1) / (2 * pieces);
        return left == 0 ? steps : min(due, steps - 1);
    }
};

KW_DEVICE uint32_t rounded_pair(__half, float first, float second) { return rounded_pair_f16(first, second); }
KW_DEVICE uint32_t rounded_pair(__nv_bfloat16, float first, float second) { return rounded_pair_bf16(first, second); }

// What settling the columns of a thread needs: of every eight, its two neighbours.
template <class Config, class Epilogue> struct Settling {
    static constexpr int vector = Config::vector < 2 ? 1 : 2, eights = Config::tile_n / 8;
    typename Epilogue::template Early<vector> early[eights][2 / vector];

    KW_DEVICE Settling(const typename Epilogue::Args& args, int n, int columns) {
#pragma unroll
        for (int i = 0; i < eights; i++)
#pragma unroll
            for (int j = 0; j < 2; j += vector)
                early[i][j / vector] =
                    Epilogue::template load_early<vector>(args, min(n + i * 8 + j, columns - vector));
    }
    // Words i to i + 3: two rows of 16 columns.
    KW_DEVICE void settle(uint32_t (&word)[4], const float (&sum)[eights * 4], int i) const {
#pragma unroll
        for (int w = 0; w < 4; w++) {
            float two[2];
#pragma unroll
            for (int j = 0; j < 2; j += vector) {
                float some[vector];
#pragma unroll
                for (int v = 0; v < vector; v++) some[v] = sum[(i + w) * 2 + j + v];
                Epilogue::template settle<vector>(early[(i + w) / 2][j / vector], some);
#pragma unroll
                for (int v = 0; v < vector; v++) two[j + v] = some[v];
            }
            word[w] = rounded_pair(typename Config::Type(), two[0], two[1]);
        }
    }
};

template <class Config, class Epilogue>
KW_DEVICE void consume_late(const Problem& problem, const typename Epilogue::Args& args, uint32_t data, uint32_t full,
                            uint32_t empty, int consumer) {
    using S = Sizes<Config>;
    using Results = Held<Config, Epilogue>;
    const int lane = threadIdx.x & 31, row = consumer * 64 + (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
    const int steps = (problem.k + tile_k - 1) / tile_k;
    const Schedule<Config> schedule(problem);
    const int thread = consumer * 128 + (threadIdx.x & 127);
    Results held(problem, args, data + S::stages * S::stage_bytes + thread * 16);
    Cursor at;
    for (int index = schedule.first(); index < schedule.count; index += schedule.step()) {
        const Work work = schedule[index];
        float sum[1][Config::tile_n / 2];
        int before = -1, due = held.next_due(steps, consumer);
#pragma unroll 1
        for (int step = 0; step < steps; step++, at.advance<S::stages>()) {
            multiply_stage<Config>(sum, data, full, at, consumer, step > 0);
            wgmma_wait<1>();
            if (before >= 0) release<Config>(empty, before, lane);
            before = at.stage;
#pragma unroll 1
            while (step >= due) {
                held.leave_one(lane & 1);
                due = held.next_due(steps, consumer);
            }
        }
        const Settling<Config, Epilogue> settling(args, work.n + (lane & 3) * 2, problem.n);
        wgmma_wait<0>();
        pin(sum[0]);
        release<Config>(empty, before, lane);
        held.settle(settling, sum[0]);
        held.begin(work, row, lane);
    }
    held.leave_all(lane & 1);
}

}  // namespace kw::gemm_sm90_late

namespace kw::gemm_sm90_half {

template <class Config, class Epilogue> struct Consumer<Config, gemm_sm90_late::Late<Epilogue>> {
    static_assert(!Config::own_tiles, "a tile of each warpgroup's own leaves while the other one multiplies");
    static constexpr int registers = 240, shared_bytes = gemm_sm90_late::Held<Config, Epilogue>::waiting_bytes;
    KW_DEVICE static void run(const Problem& problem, const typename Epilogue::Args& args, uint32_t data, uint32_t full,
                              uint32_t empty, int consumer) {
        gemm_sm90_late::consume_late<Config, Epilogue>(problem, args, data, full, empty, consumer);
    }
};

}  // namespace kw::gemm_sm90_half
