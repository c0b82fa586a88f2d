// Rows that go through a ring in shared memory, woven into each other as in reduce_woven.cuh: the last phase of a row
// and the first of the next are one walk. A vector's place is free as soon as it is stored, and what takes it is sent for
// at once, by a copy that needs no registers: the first vectors of the next row come while the blocks of this one meet.
//
// A block may hold several rows: it tells what it has found of one, reads the next, and hears only then what the others
// have told of the first, which it stores while it reads the row after that. Nobody waits for who is late. Where a row has
// many blocks, one more warp may tell and hear, the block's clerk, while the others go on.
//
// Config: threads  of a block, all on one row            lanes     of a vector
//         vectors  places of a thread in shared memory   ahead     of them, for what is on its way
//         step     vectors a thread takes at a time      blocks    that share a row
//         holds    rows that a block has at a time       together  rows for which there are blocks at a time
//         clerks   threads that tell and hear            each      blocks of a multiprocessor
//
// Body: as in reduce_woven.cuh, with send, which copies a vector's operands to their place.
#pragma once

#include "reduce_woven.cuh"

namespace kw {

// kw: send
// Copies a vector to shared memory, past the registers; who sent for it waits for its group.
template <int N, typename T> KW_DEVICE void send(Vec<T, N>& place, const T* from) {
    constexpr int bytes = int(sizeof(place)), piece = bytes < 16 ? bytes : 16;
    static_assert(piece == 16 || piece == 8 || piece == 4, "what cp.async copies");
    const uint32_t to = uint32_t(__cvta_generic_to_shared(&place));
#pragma unroll
    for (int at = 0; at < bytes; at += piece) {
        const char* const source = reinterpret_cast<const char*>(from) + at;
        if constexpr (piece == 16)  // past the first cache: nothing is read twice
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at), "l"(source) : "memory");
        else
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to + at), "l"(source), "n"(piece) : "memory");
    }
}

// kw: sent
// Closes a group of copies; groups without any count.
KW_DEVICE void sent() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// kw: arrived_but
// Returns once all but the last `pending` groups of this thread are in their places.
template <int pending> KW_DEVICE void arrived_but() { asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"); }

// kw: RingSlots
// The places of a thread, `threads` vectors apart. A row has `slots` of them, one after the other around the ring.
template <typename Body, typename Config> struct RingSlots {
    using Place = ReducePlace<Body, Config>;
    using Operands = typename Body::template Operands<Config::lanes>;
    using Late = typename Body::template Late<Config::lanes>;
    static constexpr int all = Config::vectors, ahead = Config::ahead, step = Config::step;
    static constexpr int slots = (all - ahead) / Config::holds;
    static_assert(slots * Config::holds + ahead == all, "each row that is held has as many places");
    static_assert(Config::team == Config::threads && !Body::across && Place::rest == 0, "whole vectors along a row");
    static_assert(Body::phases == Body::reductions + 1, "what is kept is stored in the end");
    static_assert(slots % step == 0 && ahead % step == 0 && ahead <= slots, "steps do not cross the end of the ring");
    using Index = typename Body::Index;
    static_assert(Place::share <= Index(slots) * Config::threads, "the row does not fit");
    KW_DEVICE static Index first(const Place& place, int slot) { return place.begin() + Index(slot) * Config::threads; }
    KW_DEVICE static Operands* places() {
        extern __shared__ __align__(16) unsigned char kept_bytes[];
        return reinterpret_cast<Operands*>(kept_bytes) + threadIdx.x;
    }
    KW_DEVICE static int next(int place, int steps) { return place + steps < all ? place + steps : place + steps - all; }
};

// kw: ring_each
// Calls `take` for each vector of a thread that a step from its `slot`th on has of a row, with its column.
template <typename Body, typename Config, typename Take>
KW_DEVICE void ring_each(const ReducePlace<Body, Config>& place, int slot, Take take) {
    using Slots = RingSlots<Body, Config>;
    using Index = typename Body::Index;
    const Index first = Slots::first(place, slot), end = place.end();
    const bool whole = first + Slots::step * Config::threads <= end;
#pragma unroll
    for (int u = 0; u < Slots::step; ++u) {
        const Index at = first + u * Config::threads + threadIdx.x;
        if (whole || at < end) take(u, at * ReducePlace<Body, Config>::columns);
    }
}

// kw: ring_send
// Sends for a thread's vectors of a row, from its `slot`th on, to the places from `to` on: one group.
template <typename Body, typename Config>
KW_DEVICE void ring_send(const typename Body::Args& args, const ReducePlace<Body, Config>& place, int slot, int to) {
    auto* const places = RingSlots<Body, Config>::places();
    ring_each(place, slot, [&](int u, typename Body::Index column) {
        Body::template send<Config::lanes>(args, place.row(), column, places[(to + u) * Config::threads]);
    });
    sent();
}

// kw: ring_late
// Sends for what only the last phase wants of a thread's vectors of a row, from its `slot`th on.
template <typename Body, typename Config, typename Late>
KW_DEVICE void ring_late(const typename Body::Args& args, const ReducePlace<Body, Config>& place, int slot, Late& late) {
    ring_each(place, slot, [&](int u, typename Body::Index column) {
        late[u] = Body::template late<Config::lanes>(args, place.row(), column);
    });
}

// kw: ring_relay
// The last phase of the row `now` and the first of `next`, either of which may be missing; what comes first of the row
// `then` is on its way in the end, and so is what only the last phase wants of the row that is stored after this one.
// `place` is where the first of `next` lies, and is where that of `then` will.
template <typename Body, typename Config, typename Row, typename Late>
KW_DEVICE void ring_relay(const typename Body::Args& args, const ReducePlace<Body, Config>& now, const Row& r,
                          const ReducePlace<Body, Config>& next, const Row& after, const ReducePlace<Body, Config>& then,
                          const ReducePlace<Body, Config>& stored_after, int& place, Late& late,
                          typename Body::template State<0, Config::lanes>& state) {
    using Slots = RingSlots<Body, Config>;
    using Index = typename Body::Index;
    constexpr int step = Slots::step;
    constexpr Index columns = ReducePlace<Body, Config>::columns;
    auto* const places = Slots::places();
    const Index end = now.end(), next_end = next.end();
    const auto take = [&](int slot, auto whole) {
        const Index at = Slots::first(now, slot) + threadIdx.x;
        const int spot = Slots::next(place, Slots::ahead);  // of what is stored, and then of what is sent for
#pragma unroll
        for (int u = 0; u < step; ++u)
            if (whole.value || at + u * Config::threads < end)
                Body::store_vector(args, now.row(), (at + u * Config::threads) * columns,
                                   places[(spot + u) * Config::threads], late[u], r);
        if (slot + step < Slots::slots) ring_late<Body, Config>(args, now, slot + step, late);
        else ring_late<Body, Config>(args, stored_after, 0, late);
        const int following = slot + Slots::ahead;
        if (following < Slots::slots) ring_send<Body, Config>(args, next, following, spot);
        else ring_send<Body, Config>(args, then, following - Slots::slots, spot);
        arrived_but<Slots::ahead / step>();
#pragma unroll
        for (int u = 0; u < step; ++u)
            if (whole.value || at + u * Config::threads < next_end)
                Body::step(args, next.row(), (at + u * Config::threads) * columns, places[(place + u) * Config::threads],
                           after, state);
        place = Slots::next(place, step);
    };
#pragma unroll 1
    for (int slot = 0; slot < Slots::slots; slot += step) {
        const Index stop = Slots::first(now, slot) + step * Config::threads;
        if (stop <= end && stop <= next_end) take(slot, Whole<true>());
        else take(slot, Whole<false>());
    }
}

// kw: ring_walk
// A phase between the first and the last; the row's first vector is at `place`.
template <typename Body, typename Config, int phase, typename Row>
KW_DEVICE void ring_walk(const typename Body::Args& args, const ReducePlace<Body, Config>& now, const Row& r, int place,
                         typename Body::template State<phase, Config::lanes>& state) {
    using Slots = RingSlots<Body, Config>;
    using Index = typename Body::Index;
    const auto* const places = Slots::places();
    const Index end = now.end();
#pragma unroll 4
    for (int slot = 0; slot < Slots::slots; ++slot, place = Slots::next(place, 1)) {
        const Index at = Slots::first(now, slot) + threadIdx.x;
        if (at < end)
            Body::step(args, now.row(), at * ReducePlace<Body, Config>::columns, places[place * Config::threads], r,
                       state);
    }
}

// kw: TaggedParts
// What blocks leave for each other: each word of a state beside the number of the meeting that it is for, so that who
// reads both at once needs no other sign. Two places for each row that is held, used in turn: who tells something in one
// of them has heard that everybody had done with what was there.
template <typename Body, typename Config> struct TaggedParts {
    template <int phase> static constexpr int words = int((sizeof(typename Body::template State<phase, 1>) + 3) / 4);
    static constexpr int places = 2 * Config::holds;
    template <int phase> __host__ __device__ static constexpr int64_t start() {
        if constexpr (phase == 0) return 0;
        else return start<phase - 1>() + int64_t(places) * Config::together * Config::blocks * words<phase - 1> * 8;
    }
    template <int phase> KW_DEVICE static uint64_t* of(void* workspace, int team, int turn) {
        constexpr int64_t offset = start<phase>();
        auto* const all = reinterpret_cast<uint64_t*>(static_cast<char*>(workspace) + offset);
        return all + int64_t(team * places + turn % places) * Config::blocks * words<phase>;
    }
};

// kw: tell_grid
// A word and its tag become visible together.
KW_DEVICE void tell_grid(uint64_t* place, uint32_t word, uint32_t tag) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(place), "l"(uint64_t(tag) << 32 | word) : "memory");
}

// kw: told_by_grid
KW_DEVICE uint64_t told_by_grid(const uint64_t* place) {
    uint64_t told;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(told) : "l"(place) : "memory");
    return told;
}

// kw: tell_words
// What a block has found of its part of a row, for the others.
template <typename Body, typename Config, int phase, typename State>
KW_DEVICE void tell_words(State state, void* workspace, int part, int turn) {
    constexpr int words = TaggedParts<Body, Config>::template words<phase>, warps = Config::threads / 32;
    __shared__ State found[warps];
    state = merged_in_warp<32>(state);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = state;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    state = merged_in_warp<warps>(found[threadIdx.x % warps]);
    if (threadIdx.x == 0) {
        uint64_t* const parts =
            TaggedParts<Body, Config>::template of<phase>(workspace, int(blockIdx.x) / Config::blocks, turn);
        uint32_t mine[words] = {};
        __builtin_memcpy(mine, &state, sizeof state);
#pragma unroll
        for (int i = 0; i < words; ++i) tell_grid(parts + part * words + i, mine[i], uint32_t(turn) + 1);
    }
}

// kw: hear_words
// What all blocks of a row know together, merged in the order of the blocks, known to every thread to the same bit.
template <typename Body, typename Config, int phase> KW_DEVICE auto hear_words(void* workspace, int turn) {
    using State = typename Body::template State<phase, 1>;
    constexpr int words = TaggedParts<Body, Config>::template words<phase>, all = words * Config::blocks;
    __shared__ uint32_t told[all];
    const uint64_t* const parts =
        TaggedParts<Body, Config>::template of<phase>(workspace, int(blockIdx.x) / Config::blocks, turn);
    for (int i = threadIdx.x; i < all; i += Config::threads) {
        uint64_t word = told_by_grid(parts + i);
        while (uint32_t(word >> 32) != uint32_t(turn) + 1) word = told_by_grid(parts + i);
        told[i] = uint32_t(word);
    }
    __syncthreads();
    State state;
    state.clear();
    for (int i = threadIdx.x % 32; i < Config::blocks; i += 32) {
        State other;
        __builtin_memcpy(&other, told + i * words, sizeof other);
        state.merge(other);
    }
    return merged_in_warp<32>(state);
}

// kw: met_in_ring
// What a row's blocks know together where nobody goes on without it.
template <typename Body, typename Config, int phase, typename State>
KW_DEVICE State met_in_ring(State state, void* workspace, int part, int turn) {
    if constexpr (Config::blocks > 1) {
        tell_words<Body, Config, phase>(state, workspace, part, turn);
        return hear_words<Body, Config, phase>(workspace, turn);
    } else {
        state = merged_in_block<Config::threads, phase>(state);
        __syncthreads();  // where nothing else makes them wait, the next row's states would come over this one's
        return state;
    }
}

// kw: finish_in_ring
// The values of a row, from phase to phase.
template <typename Body, typename Config, int phase, typename Row>
KW_DEVICE void finish_in_ring(const typename Body::Args& args, void* workspace, const ReducePlace<Body, Config>& now,
                              Row& r, int place, const typename Body::template State<phase, Config::lanes>& lanes,
                              int turn) {
    Body::finish(met_in_ring<Body, Config, phase>(lanes.folded(), workspace, now.part, turn), r);
    if constexpr (phase + 1 < Body::reductions) {
        typename Body::template State<phase + 1, Config::lanes> next;
        next.clear();
        ring_walk<Body, Config, phase + 1>(args, now, r, place, next);
        finish_in_ring<Body, Config, phase + 1>(args, workspace, now, r, place, next, turn);
    }
}

// kw: RingRows
// The rows of a block, one turn after the other.
template <typename Body, typename Config> struct RingRows {
    using Place = ReducePlace<Body, Config>;
    KW_DEVICE static Place of(int turn) {
        Place place;
        place.unit = int(blockIdx.x) / Config::blocks + typename Body::Index(turn) * int(gridDim.x / Config::blocks);
        place.active = turn >= 0 && place.unit < Place::units;
        return place;
    }
    // Whether nothing is left to store after a turn.
    KW_DEVICE static bool ends(int turn) { return turn + 1 >= Config::holds && !of(turn + 1 - Config::holds).active; }
};

// kw: ring_alone
// One row is held: its blocks meet before it is stored.
template <typename Body, typename Config> KW_DEVICE void ring_alone(const typename Body::Args& args, void* workspace) {
    using Slots = RingSlots<Body, Config>;
    using Rows = RingRows<Body, Config>;
    auto r = Body::template begin<1>(args, Rows::of(0).row());
    typename Slots::Late late[Slots::step];
    for (int turn = 0, place = 0;; ++turn) {
        const auto now = Rows::of(turn - 1), next = Rows::of(turn);
        const auto after = Body::template begin<1>(args, next.row());
        typename Body::template State<0, Config::lanes> state;
        state.clear();
        const int first = place;
        ring_relay<Body, Config>(args, now, r, next, after, Rows::of(turn + 1), next, place, late, state);
        if (now.speaks() && now.part == 0) Body::store_row(args, now.row(), r);
        if (Rows::ends(turn)) return;
        r = after;
        finish_in_ring<Body, Config, 0>(args, workspace, next, r, first, state, turn);
    }
}

// kw: ring_several
// Several rows are held: what others tell of one is heard after the next has been read.
template <typename Body, typename Config> KW_DEVICE void ring_several(const typename Body::Args& args, void* workspace) {
    using Slots = RingSlots<Body, Config>;
    using Rows = RingRows<Body, Config>;
    constexpr int holds = Config::holds;
    auto r = Body::template begin<1>(args, Rows::of(0).row());
    typename Slots::Late late[Slots::step];
    for (int turn = 0, place = 0;; ++turn) {
        const auto now = Rows::of(turn - holds), next = Rows::of(turn);
        if (now.active) {
            r = Body::template begin<1>(args, now.row());
            Body::finish(hear_words<Body, Config, 0>(workspace, turn - holds), r);
        } else {
            __syncthreads();  // what is told next would come over what was told last
        }
        const auto after = Body::template begin<1>(args, next.row());
        typename Body::template State<0, Config::lanes> state;
        state.clear();
        ring_relay<Body, Config>(args, now, r, next, after, Rows::of(turn + 1), Rows::of(turn + 1 - holds), place, late,
                                 state);
        if (now.speaks() && now.part == 0) Body::store_row(args, now.row(), r);
        if (Rows::ends(turn)) return;
        if (next.active) tell_words<Body, Config, 0>(state.folded(), workspace, next.part, turn);
        else __syncthreads();  // what is heard next would come over what was heard last
    }
}

// kw: RingDesk
// Where a block and its clerk leave things for each other: what the warps have found of a row, and the values of another.
// Two places, used in turn. No warp waits for another: one may be a turn ahead of those that are last, since the clerk
// opens a turn when all warps have ended the one before the last.
template <typename Body, typename Config> struct RingDesk {
    typename Body::template State<0, 1> found[2][Config::threads / 32];
    typename Body::template Row<1> rows[2];
    uint32_t open;  // turns that have been
    static_assert(sizeof(typename Body::template Row<1>) <= 64, "the config was chosen for so much shared memory");
};

// kw: open_turn
// By the clerk's lanes: what they have left for a turn may be read, and what they have read may be written over.
KW_DEVICE void open_turn(uint32_t& open, int turn) {
    __syncwarp();
    if (threadIdx.x % 32 > 0) return;
    const uint32_t to = uint32_t(__cvta_generic_to_shared(&open));
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(to), "r"(turn + 1) : "memory");
}

// kw: await_turn
KW_DEVICE void await_turn(const uint32_t& open, int turn) {
    const uint32_t from = uint32_t(__cvta_generic_to_shared(&open));
    for (uint32_t opened = 0; opened <= uint32_t(turn);)
        asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(opened) : "r"(from) : "memory");
}

// kw: end_turn
// A warp has left what it found. Turns have two barriers in turn, the first two behind that of __syncthreads.
template <typename Config> KW_DEVICE void end_turn(int turn) {
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + turn % 2), "n"(Config::threads + Config::clerks) : "memory");
}

// kw: await_end_of_turn
// All warps have left what they found.
template <typename Config> KW_DEVICE void await_end_of_turn(int turn) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + turn % 2), "n"(Config::threads + Config::clerks) : "memory");
}

// kw: ring_worker
// In each turn: stores a row, reads another.
template <typename Body, typename Config, typename Desk>
KW_DEVICE void ring_worker(const typename Body::Args& args, Desk& desk) {
    using Slots = RingSlots<Body, Config>;
    using Rows = RingRows<Body, Config>;
    typename Slots::Late late[Slots::step];
    for (int turn = 0, place = 0;; ++turn) {
        await_turn(desk.open, turn);
        const auto now = Rows::of(turn - Config::holds), next = Rows::of(turn);
        const auto r = desk.rows[turn % 2];
        const auto after = Body::template begin<1>(args, next.row());
        typename Body::template State<0, Config::lanes> state;
        state.clear();
        ring_relay<Body, Config>(args, now, r, next, after, Rows::of(turn + 1), Rows::of(turn + 1 - Config::holds), place,
                                 late, state);
        if (now.speaks() && now.part == 0) Body::store_row(args, now.row(), r);
        if (Rows::ends(turn)) return;
        const auto found = merged_in_warp<32>(state.folded());
        if (threadIdx.x % 32 == 0) desk.found[turn % 2][threadIdx.x / 32] = found;
        __syncwarp();  // a warp arrives as one
        end_turn<Config>(turn);
    }
}

// kw: ring_clerk
// In each turn: tells what the block has found in the one before, and hears what is known of the row that is stored next.
template <typename Body, typename Config, typename Desk>
KW_DEVICE void ring_clerk(const typename Body::Args& args, void* workspace, Desk& desk) {
    using Rows = RingRows<Body, Config>;
    using Parts = TaggedParts<Body, Config>;
    using State = typename Body::template State<0, 1>;
    constexpr int warps = Config::threads / 32, words = Parts::template words<0>;
    constexpr int of_a_lane = (Config::blocks + 31) / 32, at_a_time = 8 / words > 1 ? 8 / words : 1;
    const int lane = threadIdx.x % 32, team = int(blockIdx.x) / Config::blocks, part = int(blockIdx.x) % Config::blocks;
    for (int turn = 0;; ++turn) {
        if (turn > 0) await_end_of_turn<Config>(turn - 1);
        if (Rows::of(turn - 1).active) {
            State state;
            state.clear();
            if (lane < warps) state = desk.found[(turn - 1) % 2][lane];
            state = merged_in_warp<32>(state);
            uint32_t mine[words] = {};
            __builtin_memcpy(mine, &state, sizeof state);
            uint64_t* const places = Parts::template of<0>(workspace, team, turn - 1) + part * words;
#pragma unroll
            for (int i = 0; i < words; ++i)
                if (lane == i) tell_grid(places + i, mine[i], uint32_t(turn));
        }
        if (Rows::ends(turn)) return;
        const int heard = turn + 1 - Config::holds;
        if (!Rows::of(heard).active) {
            open_turn(desk.open, turn + 1);
            continue;
        }
        const uint64_t* const places = Parts::template of<0>(workspace, team, heard);
        State state;
        state.clear();
#pragma unroll
        for (int first = 0; first < of_a_lane; first += at_a_time) {  // so many words are asked for at a time
            uint64_t told[at_a_time * words];
            bool all = false;
            while (!all) {
                all = true;
#pragma unroll
                for (int i = 0; i < at_a_time * words; ++i) {
                    const int from = (first + i / words) * 32 + lane;
                    told[i] = from < Config::blocks ? told_by_grid(places + from * words + i % words)
                                                    : uint64_t(heard + 1) << 32;
                }
#pragma unroll
                for (int i = 0; i < at_a_time * words; ++i) all &= uint32_t(told[i] >> 32) == uint32_t(heard) + 1;
            }
#pragma unroll
            for (int u = 0; u < at_a_time; ++u) {
                uint32_t theirs[words];
#pragma unroll
                for (int i = 0; i < words; ++i) theirs[i] = uint32_t(told[u * words + i]);
                State other;
                __builtin_memcpy(&other, theirs, sizeof other);
                if ((first + u) * 32 + lane < Config::blocks) state.merge(other);
            }
        }
        auto r = Body::template begin<1>(args, Rows::of(heard).row());
        Body::finish(merged_in_warp<32>(state), r);
        if (lane == 0) desk.rows[(turn + 1) % 2] = r;
        open_turn(desk.open, turn + 1);
    }
}

// kw: reduce_ring_kernel
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::threads + Config::clerks, Config::each)
reduce_ring_kernel(typename Body::Args args, void* workspace) {
    using Slots = RingSlots<Body, Config>;
    static_assert(Config::holds == 1 || (Body::reductions == 1 && Config::blocks > 1), "what is heard late ends a row");
    static_assert(Config::clerks == 0 || (Config::clerks == 32 && Config::holds > 1), "a clerk is a warp");
    if (threadIdx.x < Config::threads) {
#pragma unroll 1
        for (int slot = 0; slot < Slots::ahead; slot += Slots::step)
            ring_send<Body, Config>(args, RingRows<Body, Config>::of(0), slot, slot);
    }
    if constexpr (Config::holds == 1) {
        ring_alone<Body, Config>(args, workspace);
    } else if constexpr (Config::clerks == 0) {
        ring_several<Body, Config>(args, workspace);
    } else {
        __shared__ RingDesk<Body, Config> desk;
        if (threadIdx.x == 0) desk.open = 1;
        __syncthreads();
        if (threadIdx.x < Config::threads) ring_worker<Body, Config>(args, desk);
        else ring_clerk<Body, Config>(args, workspace, desk);
    }
}

// kw: reduce_ring
#ifndef __CUDACC_RTC__
template <typename Body, typename Config>
cudaError_t reduce_ring(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    static_assert(kept_in_shared<Body, Config>() == Config::shared_bytes, "what the config was chosen for");
    int64_t told = 0;
    if constexpr (Config::blocks > 1) {
        told = TaggedParts<Body, Config>::template start<Body::reductions>();
        static_assert(TaggedParts<Body, Config>::template start<Body::reductions>() <= Config::workspace_bytes);
    }
    return launch_at_once<Body, Config>(reduce_ring_kernel<Body, Config>, Config::threads + Config::clerks,
                                        kept_in_shared<Body, Config>(), told, args, workspace, stream);
}
#endif

}  // namespace kw
