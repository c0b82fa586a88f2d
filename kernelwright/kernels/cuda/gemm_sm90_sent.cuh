// gemm_sm90 whose results leave by the copy engine, so that the next tile is multiplied while they do.
//
// The end of a tile is then: scale, epilogue, write to shared memory, say so. Shared memory is the ring's: 64 rows and
// 64 columns of results fill a slot, and a tile of 128 x 256 takes eight. The thread that fills the ring lends them in
// its order: it waits until a slot is empty and declares it full, with nothing in it. Four warps write into it; another
// thread beside the one that fills, one for each warpgroup, asks the copy engine to take it and gives it back once that
// has read it. Nobody who multiplies waits for a store.
//
// The first chunk of the next tile comes before the slots that are lent, so that it is there when this tile ends. These
// are then the ones that held this tile's last chunks: empty when they are wanted, and not before.
//
//   struct Epilogue {
//     struct Args { ... };
//     static constexpr int64_t rows, columns, pitch;  // of the result: of all batches together, and from row to row
//     static float* result(const Args&);              // its first element
//     template <int N>
//     static __device__ Vec<float, N> values(const Args&, const float (&sums)[N], int64_t m, int64_t n);
//   };
#pragma once

#include "gemm_sm90.cuh"

namespace kw::gemm_sm90_sent {

using namespace kw::ptx90;

constexpr int chunks_ahead = 1;  // of the next tile, before the slots of this one's results: 1, or 0
constexpr int box_columns = 32, box_rows = 64, box_bytes = box_rows * 128;

// What the epilogue makes of sums is written where the copy engine finds it.
template <class Epilogue> struct Sent {
    struct Args {
        TensorMap map;
        typename Epilogue::Args of_sums;
    };
};

// Of a result in its slot: two boxes of 32 columns beside each other, whose rows are 128 bytes under the swizzle. The
// eight threads that one phase of a 16-byte store serves touch all 32 banks, whichever way sums lie (Roles).
KW_DEVICE uint32_t place(int y, int x) {
    return x / box_columns * box_bytes + y * 128 + ((x % box_columns / 4 ^ (y & 7)) << 4);
}

// The same from there on, by multiples of 8 rows and of 16 columns. Of these, 16 columns are mixed with rows: a bit.
KW_DEVICE uint32_t further(uint32_t place, int y, int x) {
    return (place ^ x % box_columns * 4) + y * 128 + x / box_columns * box_bytes;
}

// Sums that were not finite, computed again by all lanes of a warp: four neighbours, to `address`.
template <class Epilogue> struct Again {
    const typename Epilogue::Args& args;
    uint32_t address;

    KW_DEVICE void take_from_all(const float (&sums)[4], int, int64_t m, int64_t n, int64_t, int) const {
        const int lane = threadIdx.x & 31;
        const float mine[1] = {lane & 2 ? (lane & 1 ? sums[3] : sums[2]) : (lane & 1 ? sums[1] : sums[0])};
        if (lane < 4) store_shared(address + lane * 4, Epilogue::template values<1>(args, mine, m, n + lane)[0]);
    }
};

}  // namespace kw::gemm_sm90_sent

namespace kw::gemm_sm90 {

template <class Epilogue> struct Leaving<gemm_sm90_sent::Sent<Epilogue>> {
    using Args = typename gemm_sm90_sent::Sent<Epilogue>::Args;
    static constexpr bool by_ring = true;
    // Slots of 64 rows and columns that a warpgroup's results take; and a tile's: the first one's, then the other's.
    template <class Config> static constexpr int groups = Sizes<Config>::own_blocks * Sizes<Config>::wgmma_n / gathered;
    template <class Config> static constexpr int slots_of_tile = 2 * groups<Config>;

    // Who lends a slot, who writes to it and who sends it go through the ring in one order. Where do results come in
    // it: after this chunk, those of the tile before?
    template <class Config> KW_DEVICE static bool has_results_after(const Schedule<Config>& schedule, int index, int chunk) {
        return gemm_sm90_sent::chunks_ahead == 1 && chunk == 0 && index >= schedule.step;
    }
    // Or after the last chunk of a tile, its own?
    template <class Config> KW_DEVICE static bool has_results_at_end(const Schedule<Config>& schedule, int index) {
        return gemm_sm90_sent::chunks_ahead == 0 || index + schedule.step >= schedule.count;
    }

    template <class Config> KW_DEVICE static Cursor lend(const Ring& ring, Cursor at) {
        static_assert(Config::splits == 1 && Config::vector == 4, "whole sums, four at a time");
        // What is lent held chunks of the tile itself, or of others before: they are read without waiting for results,
        // while the first chunk of the next tile is not.
        static_assert(Sizes<Config>::chunk_slots + slots_of_tile<Config> <= slots, "results and a chunk fit the ring");
#pragma unroll 1
        for (int i = 0; i < slots_of_tile<Config>; i++, at = advance(at, 1)) {
            ring.wait_empty(at);
            barrier_arrive(ring.full + at.slot * 8);
        }
        return at;
    }

    // The barrier at which the four warps of a warpgroup arrive that have written to a slot, and where one of them says
    // to which place its results belong. Each warpgroup has barriers of its own: who waits for one must not be a phase
    // ahead of it, as it could be where the other warpgroup had yet to write to the same slot.
    KW_DEVICE static uint32_t written(const Ring& ring, int slot, int consumer) {
        return ring.empty + ((1 + consumer) * slots + slot) * 8;
    }
    KW_DEVICE static uint32_t corner_of(const Ring& ring, int slot) { return ring.empty + 3 * slots * 8 + slot * 16; }
    KW_DEVICE static void hand_over(const Ring& ring, Cursor at, int consumer, const Corner& corner) {
        fence_for_copy_engine();
        __syncwarp();
        if (threadIdx.x % 32 != 0) return;
        const uint32_t said[4] = {(uint32_t)corner.x, (uint32_t)corner.y, (uint32_t)corner.z, 0};
        if (threadIdx.x % 128 == 0) store_shared(corner_of(ring, at.slot), said);
        barrier_arrive(written(ring, at.slot, consumer));
    }

    // A warpgroup's sums, of column blocks that begin at `columns`, to slots from `first` on.
    template <class Config, class Prologue, class W>
    KW_DEVICE static void finish(const Problem<W>& problem, const Args& args, const typename Prologue::Args& made,
                                 const Work& work, int columns, int consumer, const Ring& ring, Cursor first,
                                 const float (&total)[Sizes<Config>::own_blocks][Sizes<Config>::wgmma_n / 2]) {
        using R = Roles<W>;
        constexpr int vectors = gathered / 8;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
        const int rows = R::rows(problem), own_rows = work.m + (Sizes<Config>::same_rows ? 0 : consumer * 64);
        const int y = R::first_y(warp, lane), x = R::first_x(warp, lane);
        const auto corner = [=](int group) {
            const int there = columns + group * gathered;
            return R::groups_are_rows ? Corner{own_rows, there, work.batch} : Corner{there, own_rows, work.batch};
        };
        const int last_k = Config::panels ? problem.k - 1 : 0;
        const float* inverse = problem.w.inverses(problem.w.batches == 1 ? 0 : work.batch, last_k) + columns +
                               (R::groups_are_rows ? y : x);
        const int64_t first_row = (int64_t)work.batch * rows;
        const uint32_t mine = gemm_sm90_sent::place(y, x);
        first = advance(first, consumer * groups<Config>);
        uint32_t again = 0;
        typename R::Scales next;
        R::load(next, inverse);
#pragma unroll
        for (int group = 0; group < groups<Config>; group++) {
            typename R::Scales scales;
#pragma unroll
            for (int i = 0; i < (int)(sizeof(scales) / sizeof(scales[0])); i++) scales[i] = next[i];
            if (group + 1 < groups<Config>) R::load(next, inverse + (group + 1) * gathered);
            float v[vectors][4];
            R::template scaled<Config>(v, scales, group, lane, total);
            const auto row_of = [=](int i) { return y + R::y(i) + corner(group).y; };
            const auto column_of = [=](int i) { return x + R::x(i) + corner(group).x; };
            bool finite = true;
#pragma unroll
            for (int i = 0; i < vectors; i++) finite = finite && split::all_finite(v[i]);
            if (!__all_sync(~0u, finite)) {
#pragma unroll
                for (int i = 0; i < vectors; i++)
                    if (row_of(i) < rows && column_of(i) < R::columns(problem) && !split::all_finite(v[i]))
                        again |= 1u << (group * vectors + i);
            }
            // Beyond the edges there are no operands. What is made there, of others, the copy engine leaves out.
#pragma unroll
            for (int i = 0; i < vectors; i++) {
                correct<Config>(v[i]);
                const int m = min(row_of(i), rows - 1), n = min(column_of(i), R::columns(problem) - 4);
                const auto result = Epilogue::template values<4>(args.of_sums, v[i], first_row + m, n);
#pragma unroll
                for (int c = 0; c < 4; c++) v[i][c] = result[c];
            }
            const Cursor at = advance(first, group);
            ring.wait_full(at);
#pragma unroll
            for (int i = 0; i < vectors; i++)
                store_shared(gemm_sm90_sent::further(ring.slot(at) + mine, R::y(i), R::x(i)), v[i]);
            if (!__any_sync(~0u, again)) hand_over(ring, at, consumer, corner(group));
        }
        if (!__any_sync(~0u, again)) return;
        __syncwarp();  // before others write over what a lane wrote
        int withheld = groups<Config>;
#pragma unroll 1
        for (int source = 0; source < 32; source++) {
            const uint32_t bits = __shfl_sync(~0u, again, source);
            const int of_y = __shfl_sync(~0u, y, source), of_x = __shfl_sync(~0u, x, source);
            const uint32_t of_place = __shfl_sync(~0u, mine, source);
            if (bits) withheld = min(withheld, (__ffs(bits) - 1) / vectors);
#pragma unroll 1
            for (uint32_t left = bits; left; left &= left - 1) {
                const int group = (__ffs(left) - 1) / vectors, i = (__ffs(left) - 1) % vectors;
                const uint32_t slot = ring.slot(advance(first, group)) + of_place;
                const gemm_sm90_sent::Again<Epilogue> end = {args.of_sums,
                                                             gemm_sm90_sent::further(slot, R::y(i), R::x(i))};
                R::template take_plain<R::steps_again, Prologue>(end, 0, problem, made, work.batch,
                                                                 of_y + R::y(i) + corner(group).y,
                                                                 of_x + R::x(i) + corner(group).x, source);
            }
        }
#pragma unroll 1
        for (int group = withheld; group < groups<Config>; group++)
            hand_over(ring, advance(first, group), consumer, corner(group));
    }

    // A thread sends what its warpgroup has written, tile after tile. It has 24 registers, and is told where that goes.
    template <class Config, class W>
    KW_DEVICE static void send(const Problem<W>& problem, const TensorMap& map, const Ring& ring, int consumer) {
        constexpr int chunk_slots = Sizes<Config>::chunk_slots;
        const Schedule<Config> schedule(problem);
        uint32_t parities = 0;  // of its barriers: they have a phase for each time that a slot is lent to its warpgroup
        int slot = 0, chunks = schedule.chunks;  // of this tile, between results and results
#pragma unroll 1
        for (int index = schedule.first; index < schedule.count; index += schedule.step) {
            if (!has_results_at_end(schedule, index)) chunks++;
            slot = (slot + chunks * chunk_slots) % slots;
            chunks = schedule.chunks - gemm_sm90_sent::chunks_ahead;
            const Cursor first = advance({slot, 0}, consumer * groups<Config>);
#pragma unroll 1
            for (int group = 0; group < groups<Config>; group++) {
                const int from = advance(first, group).slot;
                barrier_wait(written(ring, from, consumer), parities >> from & 1);
                uint32_t corner[4];
                load_shared(corner, corner_of(ring, from));
#pragma unroll
                for (int i = 0; i < 2; i++)
                    store_box(&map, ring.data + from * slot_bytes + i * gemm_sm90_sent::box_bytes,
                              corner[0] + i * gemm_sm90_sent::box_columns, corner[1], corner[2]);
                send_commit();
            }
            give_back<groups<Config> - 1>(ring, first);
            const uint32_t lent = ((1u << groups<Config>) - 1) << first.slot;
            parities ^= (lent | lent >> slots) & ((1u << slots) - 1);
            slot += slots_of_tile<Config>;
        }
    }
    // In the order in which they were sent, the first of `Left + 1` that are to be read.
    template <int Left> KW_DEVICE static void give_back(const Ring& ring, Cursor at) {
        send_wait<Left>();
        ring.template release<consumer_warps>(at, 0);
        if constexpr (Left > 0) give_back<Left - 1>(ring, advance(at, 1));
    }
};

}  // namespace kw::gemm_sm90

namespace kw::gemm_sm90_sent {

#ifndef __CUDACC_RTC__
// As gemm_sm90::launch; no workspace is needed.
template <class Config, class Epilogue, class Prologue = gemm::AsItLies, class W = split::Packed>
cudaError_t launch(const gemm_sm90::Operands& operands, const typename Epilogue::Args& args, cudaStream_t stream,
                   const typename Prologue::Args& made = {}) {
    typename Sent<Epilogue>::Args sent;
    sent.of_sums = args;
    const int64_t rows = Epilogue::rows / operands.batches;
    const cudaError_t status = encode_map(&sent.map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, Epilogue::result(args),
                                          {Epilogue::columns, rows, operands.batches},
                                          {Epilogue::pitch, rows * Epilogue::pitch}, {box_columns, box_rows});
    if (status != cudaSuccess) return status;
    return gemm_sm90::launch<Config, Sent<Epilogue>, Prologue, W>(operands, nullptr, sent, stream, made);
}
#endif

}  // namespace kw::gemm_sm90_sent
