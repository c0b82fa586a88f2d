// gemm_sm90 whose results leave by the copy engine, so that the next tile is multiplied while they do.
//
// The end of a tile is then: scale, epilogue, write to shared memory, say so. Shared memory is the ring's: 64 rows and
// 64 columns of results fill a slot, and a warpgroup's of a tile of 128 x 256 take four. The thread that fills the ring
// lends them in its order: it waits until a slot is empty and declares it full, with nothing in it. Four warps write into
// it; another thread beside the one that fills asks the copy engine to take it. The other warpgroup is half a chunk
// behind: it gets the slots once their first results have been read, and they are given back when its own have.
//
// The first chunk of the next tile comes before the slots that are lent, so that it is there when this tile ends. These
// slots are the ones that held this tile's last chunks: empty when they are wanted, and not before. Most of the second chunk has room beside them.
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

constexpr int box_columns = 32, box_rows = 64, box_bytes = box_rows * 128;

// What the epilogue makes of sums is written where the copy engine finds it.
template <class Epilogue> struct Sent {
    struct Args {
        TensorMap map;
        typename Epilogue::Args of_sums;
    };
};

// Of a result in its slot: two boxes of 32 columns beside each other, whose rows are 128 bytes under the swizzle. The
// sixteen threads that one phase of an 8-byte store serves touch all 32 banks, whichever way sums lie (Roles).
KW_DEVICE uint32_t place(int y, int x) {
    return x / box_columns * box_bytes + y * 128 + ((x % box_columns / 4 ^ (y & 7)) << 4) + x % 4 * 4;
}

// The same from there on, where no bit of y or x is set in both places that lie in the same 8 rows and 32 columns.
KW_DEVICE uint32_t further(uint32_t place, int y, int x) {
    return (place ^ x % box_columns * 4 ^ (y & 7) << 4) + y * 128 + x / box_columns * box_bytes;
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
    // Of 64 rows and columns, that a warpgroup's results come in: a slot each, for the first warpgroup and then the other.
    template <class Config> static constexpr int groups = Sizes<Config>::own_blocks * Sizes<Config>::wgmma_n / gathered;
    template <class Config> static constexpr int slots_of_tile = groups<Config>;

    // Who lends a slot, who writes to it and who sends it go through the ring in one order. Where do results come in
    // it: after this chunk, those of the tile before?
    template <class Config> KW_DEVICE static bool has_results_after(const Schedule<Config>& schedule, int index, int chunk) {
        return chunk == 0 && index >= schedule.step;
    }
    // Or after the last chunk of all tiles, its own?
    template <class Config> KW_DEVICE static bool has_results_at_end(const Schedule<Config>& schedule, int index) {
        return index + schedule.step >= schedule.count;
    }

    template <class Config> KW_DEVICE static Cursor lend(const Ring& ring, Cursor at) {
        static_assert(Config::splits == 1 && Config::vector == 4, "whole sums, four at a time");
        // What is lent held chunks of the tile itself, or of others before: they are read without waiting for results,
        // while the first chunk of the next tile is not.
        using S = Sizes<Config>;
        static_assert(S::chunk_slots + slots_of_tile<Config> <= slots, "results and a chunk fit the ring");
        // While a warp holds its last block, it waits for what comes after results: A of a chunk, and its first blocks.
        static_assert(S::same_rows || S::own_blocks == 1 || Config::under_way == 1 ||
                          slots_of_tile<Config> + S::k_slots * (2 + S::first_blocks) <= slots,
                      "results, a block that is read and what is awaited meanwhile fit the ring");
#pragma unroll 1
        for (int i = 0; i < slots_of_tile<Config>; i++, at = advance(at, 1)) {
            ring.wait_empty(at);
            barrier_arrive(ring.full + at.slot * 8);
        }
        return at;
    }

    // At the barrier of a slot the four warps arrive that have written to it, and one of them says to which place these
    // results belong. At a group's barrier the thread that sends says that it has been read, and the other warpgroup may
    // have the slot: once in a tile.
    static constexpr int words = 3 * slots + 4;
    KW_DEVICE static uint32_t written(const Ring& ring, int slot) { return ring.end() + slot * 8; }
    KW_DEVICE static uint32_t corner_of(const Ring& ring, int slot) { return ring.end() + slots * 8 + slot * 16; }
    KW_DEVICE static uint32_t first_left(const Ring& ring, int group) { return ring.end() + slots * 24 + group * 8; }
    KW_DEVICE static void begin(const Ring& ring) {
        for (int i = 0; i < slots; i++) barrier_init(written(ring, i), consumer_warps / 2);
        for (int i = 0; i < 4; i++) barrier_init(first_left(ring, i), 1);
    }

    // Those barriers order all that a warp did before one of its lanes arrives. compute-sanitizer's racecheck sees only what
    // that lane did, so that it is said once more at named barriers: by the second warpgroup, that it has read all of its
    // tile, which the first one hears before its third slot, that may have held A; by the first one, that it has written to
    // a slot, which the second one hears before it does. (What the first one has read, the second one knows from its turn.)
    //
    // Where a tile is one chunk, no turn keeps a warpgroup from saying something twice before the other has heard it once.
    // There the two meet, when the first one has written to all slots and before the second one does.
    template <class Config> KW_DEVICE static void has_read(int consumer) {
        if (consumer == 1 && !Config::one_chunk) named_arrive(3, 256);
    }
    template <class Config> KW_DEVICE static void await_first(int group) {
        if (!Config::one_chunk || group == 0) named_sync(4 + group, 256);
    }
    template <class Config> KW_DEVICE static void has_written(int consumer, int group) {
        if (consumer == 0 && !Config::one_chunk) named_arrive(4 + group, 256);
    }
    template <class Config> KW_DEVICE static void has_written_all(int consumer) {
        if (consumer == 0 && Config::one_chunk) named_sync(4, 256);
    }
    template <class Config>
    KW_DEVICE static void await_slot(const Ring& ring, Cursor at, int consumer, int group, uint32_t parity) {
        static_assert(groups<Config> <= 4, "as many barriers as groups");
        if (consumer == 0) {
            if (!Config::one_chunk && group == (groups<Config> > 2 ? 2 : 0)) named_sync(3, 256);
            ring.wait_full(at);
        } else {
            await_first<Config>(group);
            barrier_wait(first_left(ring, group), parity);
        }
    }
    template <class Config>
    KW_DEVICE static void hand_over(const Ring& ring, Cursor at, const Corner& corner, int consumer, int group) {
        has_written<Config>(consumer, group);
        fence_for_copy_engine();
        __syncwarp();
        if (threadIdx.x % 32 != 0) return;
        const uint32_t said[4] = {(uint32_t)corner.x, (uint32_t)corner.y, (uint32_t)corner.z, 0};
        if (threadIdx.x % 128 == 0) store_shared(corner_of(ring, at.slot), said);
        barrier_arrive(written(ring, at.slot));
    }

    // Writes pairs of results over that a slot holds, those whose bit is set: computed again, four neighbours of two lanes
    // at a time, by all lanes of a warp.
    template <class R, class Prologue, class W>
    KW_DEVICE static void take_again(const Problem<W>& problem, const typename Epilogue::Args& args,
                                     const typename Prologue::Args& made, int batch, uint32_t slot, uint32_t mine, int m,
                                     int n, uint32_t again) {
        again |= __shfl_xor_sync(~0u, again, R::lane_beside);
        if (threadIdx.x & R::lane_beside) again = 0;  // the other lane has the first two
#pragma unroll 1
        for (int source = 0; source < 32; source++) {
            const int first_m = __shfl_sync(~0u, m, source), first_n = __shfl_sync(~0u, n, source);
            const uint32_t place = __shfl_sync(~0u, mine, source);
#pragma unroll 1
            for (uint32_t left = __shfl_sync(~0u, again, source); left; left &= left - 1) {
                const int i = __ffs(left) - 1;
                const gemm_sm90_sent::Again<Epilogue> end = {args,
                                                             gemm_sm90_sent::further(place, R::y(i), R::x(i)) + slot};
                R::template take_plain<R::steps_again, Prologue>(end, 0, problem, made, batch, first_m + R::y(i),
                                                                 first_n + R::x(i), source);
            }
        }
        __syncwarp();
    }

    // A warpgroup's sums, of column blocks that begin at `columns`, to slots from `first` on. `parity`: of the block's tiles
    // before this one.
    template <class Config, class Prologue, class W>
    KW_DEVICE static void finish(const Problem<W>& problem, const Args& args, const typename Prologue::Args& made,
                                 const Work& work, int columns, int consumer, const Ring& ring, Cursor first,
                                 uint32_t parity,
                                 const float (&total)[Sizes<Config>::own_blocks][Sizes<Config>::wgmma_n / 2]) {
        using R = Roles<W>;
        constexpr int pairs = gathered / 4, per_block = Sizes<Config>::wgmma_n / 8;
        const int thread = anew(threadIdx.x), lane = thread & 31, warp = thread >> 5 & 3;
        const int rows = R::rows(problem), own_rows = work.m + (Sizes<Config>::same_rows ? 0 : consumer * 64);
        const int y = R::first_y(warp, lane), x = R::first_x(warp, lane);
        const auto corner = [=](int group) {
            const int there = columns + group * gathered;
            return R::groups_are_rows ? Corner{own_rows, there, work.batch} : Corner{there, own_rows, work.batch};
        };
        const int last_k = Config::panels ? problem.k - 1 : 0;
        const float* inverse = problem.w.inverses(problem.w.batch_of(work.batch), last_k) + columns +
                               (R::groups_are_rows ? y : x);
        const int64_t first_row = (int64_t)work.batch * rows;
        const uint32_t mine = gemm_sm90_sent::place(y, x);
        const auto row_of = [&](int group, int i) { return y + R::y(i) + corner(group).y; };
        const auto column_of = [&](int group, int i) { return x + R::x(i) + corner(group).x; };
        const auto sums_of = [&](int group, int i) {
            const int eight = group * (gathered / 8) + i / 2;
            return &total[eight / per_block][eight % per_block * 4];
        };
        typename R::Scales scales;
        R::load(scales, inverse);
        uint32_t withheld = 0;  // a bit for each group with sums that are not finite, of this warp
        uint64_t again = 0;     // and for each pair, those of the first group lowest, of this thread
#pragma unroll
        for (int group = 0; group < groups<Config>; group++) {
            float v[pairs][2], probe[2] = {0.f, 0.f};
#pragma unroll
            for (int i = 0; i < pairs; i++) {
                R::scaled(v[i], sums_of(group, i), scales, i);
#pragma unroll
                for (int c = 0; c < 2; c++) probe[c] = fmaf(v[i][c], 0.f, probe[c]);  // Inf * 0 and NaN * 0 are NaN
            }
            if (group + 1 < groups<Config>) R::load(scales, inverse + (group + 1) * gathered);
            const bool finite = __all_sync(~0u, probe[0] + probe[1] == 0.f);
            // Beyond the edges there are no operands. What is made there, of others, the copy engine leaves out.
#pragma unroll
            for (int i = 0; i < pairs; i++) {
                correct<Config>(v[i]);
                const int m = min(row_of(group, i), rows - 1), n = min(column_of(group, i), R::columns(problem) - 2);
                const auto result = Epilogue::template values<2>(args.of_sums, v[i], first_row + m, n);
#pragma unroll
                for (int c = 0; c < 2; c++) v[i][c] = result[c];
            }
            const Cursor at = advance(first, group);
            await_slot<Config>(ring, at, consumer, group, parity);
#pragma unroll
            for (int i = 0; i < pairs; i++)
                store_shared(gemm_sm90_sent::further(mine, R::y(i), R::x(i)) + ring.slot(at), v[i][0], v[i][1]);
            if (finite) {
                hand_over<Config>(ring, at, corner(group), consumer, group);
                continue;
            }
            withheld |= 1u << group;
            typename R::Scales of_group;
            R::load(of_group, inverse + group * gathered);
#pragma unroll
            for (int i = 0; i < pairs; i++) {
                float sums[2];
                R::scaled(sums, sums_of(group, i), of_group, i);
                if (row_of(group, i) < rows && column_of(group, i) < R::columns(problem) &&
                    !split::all_finite(sums))
                    again |= (uint64_t)1 << (group * pairs + i);
            }
        }
        if (withheld != 0) __syncwarp();  // before others write over what a lane wrote
#pragma unroll 1
        for (int group = 0; withheld >> group != 0; group++) {
            if (!(withheld >> group & 1)) continue;
            const Cursor at = advance(first, group);
            take_again<R, Prologue>(problem, args.of_sums, made, work.batch, ring.slot(at), mine, y + corner(group).y,
                                    x + corner(group).x, (uint32_t)(again >> group * pairs) & ((1u << pairs) - 1));
            hand_over<Config>(ring, at, corner(group), consumer, group);
        }
        has_written_all<Config>(consumer);
    }

    // A thread sends what has been written, tile after tile: all of the first warpgroup's, then all of the other's. It has 24
    // registers, and is told where that goes. What it sends has been read when the next has been sent, or soon after.
    template <class Config, class W>
    KW_DEVICE static void send(const Problem<W>& problem, const TensorMap& map, const Ring& ring) {
        constexpr int chunk_slots = Sizes<Config>::chunk_slots;
        const Schedule<Config> schedule(problem);
        uint32_t parities = 0;  // of the slots' barriers: they have a phase for each time that a slot is lent
        int slot = 0, chunks = schedule.chunks;  // of this tile, between results and results
#pragma unroll 1
        for (int index = schedule.first; index < schedule.count; index += schedule.step) {
            if (!has_results_at_end(schedule, index)) chunks++;
            slot = (slot + chunks * chunk_slots) % slots;
            chunks = schedule.chunks - 1;  // one is ahead
            const auto has_been_read = [&](int consumer, int group) {
                if (consumer == 0) barrier_arrive(first_left(ring, group));
                else ring.template release<consumer_warps>(advance({slot, 0}, group), true);
            };
#pragma unroll 1
            for (int number = 0; number < 2 * groups<Config>; number++) {
                const int consumer = number >= groups<Config>, group = number - consumer * groups<Config>;
                const Cursor at = advance({slot, 0}, group);
                barrier_wait(written(ring, at.slot), parities >> at.slot & 1);
                parities ^= 1u << at.slot;
                uint32_t corner[4];
                load_shared(corner, corner_of(ring, at.slot));
#pragma unroll
                for (int i = 0; i < 2; i++)
                    store_box(&map, ring.data + at.slot * slot_bytes + i * gemm_sm90_sent::box_bytes,
                              corner[0] + i * gemm_sm90_sent::box_columns, corner[1], corner[2]);
                send_commit();
                if (group > 0) {
                    send_wait<1>();
                    has_been_read(consumer, group - 1);
                }
                // The other warpgroup may hand nothing over before it has all slots (`withheld`).
                if (group == groups<Config> - 1) {
                    send_wait<0>();
                    has_been_read(consumer, group);
                }
            }
            slot += slots_of_tile<Config>;
        }
    }
};

}  // namespace kw::gemm_sm90

namespace kw::gemm_sm90_sent {

#ifndef __CUDACC_RTC__
// As gemm_sm90::launch; no workspace is needed.
template <class Config, class Epilogue, class Prologue = gemm::AsItLies, class W = split::Packed>
cudaError_t launch(const gemm_sm90::Operands& operands, const typename Epilogue::Args& args, cudaStream_t stream,
                   const typename Prologue::Args& made = {}) {
    // Else a named barrier could be arrived at twice before it is heard once (Leaving).
    if ((operands.k <= Config::promote) != Config::one_chunk) return cudaErrorInvalidValue;
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
