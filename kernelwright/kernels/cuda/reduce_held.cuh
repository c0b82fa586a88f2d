// Rows that are held in registers from one phase to the next, by as many blocks as have room for one; these all run at
// once and meet in global memory. The last phase of a row and the first of the next are one walk: a vector is stored, and
// the one that takes its registers is sent for. That one is looked at a few vectors later, so that so many are on their
// way; and what only the last phase wants of a row (weights) is left alone in the L2 cache, since a row passes it by.
// Where it is the same for every row, what there is room for is kept in shared memory.
//
// Config: threads   of a block, all on one row            lanes  of a vector
//         held      vectors of a row that a thread has    blocks that share a row
//         kept      of which what only the last phase wants is in shared memory
//         early     of the others, of which it is on its way
//         together  rows for which there are blocks       each   blocks of a multiprocessor
//
// Body: as in reduce_woven.cuh.
#pragma once

#include "reduce_ring.cuh"

namespace kw {

// kw: HeldAlone
// The numbers that other templates have: no vectors are in shared memory, and one row is held.
template <typename Config> struct HeldAlone : Config {
    static constexpr int vectors = 0, holds = 1;
};

// kw: HeldSlots
// The vectors of a thread, `threads` apart.
template <typename Body, typename Config> struct HeldSlots {
    using Place = ReducePlace<Body, Config>;
    using Index = typename Body::Index;
    using Operands = typename Body::template Operands<Config::lanes>;
    using Late = typename Body::template Late<Config::lanes>;
    static_assert(sizeof(Index) == 8, "an address and an offset that is known");
    static constexpr int all = Config::held, behind = all < 8 ? all : 8;
    static constexpr bool full = Place::template full<all>;
    static_assert(Config::team == Config::threads && !Body::across && Place::rest == 0, "whole vectors along a row");
    static_assert(Body::phases == Body::reductions + 1, "what is held is stored in the end");
    static_assert(Place::share <= Index(all) * Config::threads, "the row does not fit");
    Index first;  // column of the first of them
    KW_DEVICE HeldSlots() {
        first = (Place().begin() + Index(threadIdx.x)) * Place::columns;
        asm volatile("" : "+l"(first));  // else each vector has an address of its own, where one and offsets would do
    }
    KW_DEVICE Index column(int slot) const { return first + Index(slot) * (Config::threads * Place::columns); }
    // Asked only of rows that are there.
    KW_DEVICE bool has(const Place& place, int slot) const { return full || column(slot) < place.end() * Place::columns; }
};

// kw: KeptLate
// What only the last phase wants of a thread's first vectors: in words, so that neighbours have neighbouring banks.
template <typename Body, typename Config> struct KeptLate {
    using Late = typename Body::template Late<Config::lanes>;
    static constexpr int words = int(sizeof(Late) / 16);
    static_assert(Config::kept == 0 || sizeof(Late) % 16 == 0, "whole words");
    static constexpr int bytes = Config::kept * Config::threads * words * 16;
    KW_DEVICE static uint4* place(int slot, int word) {
        extern __shared__ __align__(16) unsigned char kept_bytes[];
        return reinterpret_cast<uint4*>(kept_bytes) + (slot * words + word) * Config::threads + threadIdx.x;
    }
    KW_DEVICE static void keep(int slot, const Late& late) {
#pragma unroll
        for (int word = 0; word < words; ++word) *place(slot, word) = reinterpret_cast<const uint4*>(&late)[word];
    }
    KW_DEVICE static Late of(int slot) {
        Late late;
#pragma unroll
        for (int word = 0; word < words; ++word) reinterpret_cast<uint4*>(&late)[word] = *place(slot, word);
        return late;
    }
};

// kw: held_late
// Sends for what only the last phase wants of one of a thread's vectors, the first of which have it.
template <typename Body, typename Config, typename Late>
KW_DEVICE void held_late(const typename Body::Args& args, const HeldSlots<Body, Config>& slots,
                         const ReducePlace<Body, Config>& place, int slot, Late& late) {
    if (slot >= Config::kept && slot < Config::held && slots.has(place, slot))
        late[slot % Config::early] = Body::template late<Config::lanes>(args, place.row(), slots.column(slot));
}

// kw: held_relay
// The last phase of the row `now` and the first of `next`, or one of them alone. Each has code of its own, without
// branches, in which a thread waits for nothing but what it needs next. What the last phase wants of the first vectors is
// on its way.
template <bool stores, bool reads, typename Body, typename Config, typename Row, typename Held, typename Late>
KW_DEVICE void held_relay(const typename Body::Args& args, const ReducePlace<Body, Config>& now, const Row& r,
                          const ReducePlace<Body, Config>& next, const Row& after, Held& held, Late& late,
                          typename Body::template State<0, Config::lanes>& state) {
    using Slots = HeldSlots<Body, Config>;
    const Slots slots;  // found anew each time: between rows, registers are for what is held
    constexpr int lanes = Config::lanes, all = Slots::all, behind = Slots::behind;
    constexpr int kept = Config::kept, early = Config::early;
#pragma unroll
    for (int slot = 0; slot < all + behind; ++slot) {
        if (stores && slot < all && slots.has(now, slot))
            Body::store_vector(args, now.row(), slots.column(slot), held[slot],
                               slot < kept ? KeptLate<Body, Config>::of(slot) : late[slot % early], r);
        if (stores && slot >= kept) held_late(args, slots, now, slot + early, late);
        if (reads && slot < all && slots.has(next, slot))
            held[slot] = Body::template load<lanes>(args, next.row(), slots.column(slot));
        const int there = slot - behind;
        if (reads && there >= 0 && slots.has(next, there))
            Body::step(args, next.row(), slots.column(there), held[there < 0 ? 0 : there], after, state);
    }
    if constexpr (reads)  // while the blocks meet
#pragma unroll
        for (int slot = kept; slot < kept + early; ++slot) held_late(args, slots, next, slot, late);
}

// kw: finish_held
// The values of a row, from phase to phase.
template <typename Body, typename Config, int phase, typename Row, typename Held>
KW_DEVICE void finish_held(const typename Body::Args& args, void* workspace, const ReducePlace<Body, Config>& now, Row& r,
                           const Held& held, const typename Body::template State<phase, Config::lanes>& lanes, int turn) {
    Body::finish(met_in_ring<Body, Config, phase>(lanes.folded(), workspace, now.part, turn), r);
    if constexpr (phase + 1 < Body::reductions) {
        typename Body::template State<phase + 1, Config::lanes> next;
        next.clear();
        const HeldSlots<Body, Config> slots;
#pragma unroll
        for (int slot = 0; slot < Config::held; ++slot)
            if (slots.has(now, slot))
                Body::step(args, now.row(), slots.column(slot), held[slot], r, next);
        finish_held<Body, Config, phase + 1>(args, workspace, now, r, held, next, turn);
    }
}

// kw: reduce_held_kernel
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::threads, Config::each)
reduce_held_kernel(typename Body::Args args, void* workspace) {
    using Slots = HeldSlots<Body, Config>;
    using Rows = RingRows<Body, Config>;
    typename Slots::Operands held[Slots::all];
    typename Slots::Late late[Config::early];
    auto next = Rows::of(0), now = next;
    if (!next.active) return;
    if constexpr (Config::kept > 0) {
        const Slots slots;
#pragma unroll 4
        for (int slot = 0; slot < Config::kept; ++slot)
            if (slots.has(next, slot))
                KeptLate<Body, Config>::keep(slot, Body::template late<Config::lanes>(args, 0, slots.column(slot)));
    }
    auto after = Body::template begin<1>(args, next.row()), r = after;
    typename Body::template State<0, Config::lanes> state;
    state.clear();
    held_relay<false, true, Body, Config>(args, now, r, next, after, held, late, state);
    for (int turn = 0;; ++turn) {
        now = next;
        r = after;
        finish_held<Body, Config, 0>(args, workspace, now, r, held, state, turn);
        if (now.speaks() && now.part == 0) Body::store_row(args, now.row(), r);
        next = Rows::of(turn + 1);
        if (!next.active) break;
        after = Body::template begin<1>(args, next.row());
        state.clear();
        held_relay<true, true, Body, Config>(args, now, r, next, after, held, late, state);
    }
    held_relay<true, false, Body, Config>(args, now, r, next, after, held, late, state);
}

// kw: reduce_held
#ifndef __CUDACC_RTC__
template <typename Body, typename Config>
cudaError_t reduce_held(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    using Held = HeldAlone<Config>;
    constexpr int shared_bytes = KeptLate<Body, Config>::bytes;
    if constexpr (shared_bytes > 0) static_assert(shared_bytes == Config::shared_bytes, "what the config was chosen for");
    int64_t told = 0;
    if constexpr (Config::blocks > 1) {
        told = TaggedParts<Body, Held>::template start<Body::reductions>();
        static_assert(TaggedParts<Body, Held>::template start<Body::reductions>() <= Config::workspace_bytes);
    }
    return launch_at_once<Body, Held>(reduce_held_kernel<Body, Held>, Config::threads, shared_bytes, told, args, workspace,
                                      stream);
}
#endif

}  // namespace kw
