// Few long rows, shared by blocks that meet between launches as in reduce_split, but walked over in one front: blocks
// take turns along a row, a stretch at a time, instead of a part each. What all of them touch at once lies together, as
// in a kernel that only copies: memory opens few pages, and what a phase has read last is what the next one, which goes
// backwards, reads first.
//
// Config: threads  of a block, all on one row    lanes   of a vector
//         vectors  a thread has in flight        blocks  that share a row
#pragma once

#include "reduce.cuh"

namespace kw {

// kw: turns_walk
// A phase of one thread. Few hundred elements are added in sequence, then merged. Only the last stretch of a row has
// vectors to look at one by one.
template <typename Body, typename Config, int phase, typename Row>
KW_DEVICE void turns_walk(const typename Body::Args& args, const ReducePlace<Body, Config>& place, const Row& r,
                          typename Body::template State<phase, Config::lanes>& state) {
    using Place = ReducePlace<Body, Config>;
    using Index = typename Body::Index;
    constexpr int lanes = Config::lanes, vectors = Config::vectors, chunk = 256 / vectors;
    constexpr Index stretch = Config::threads * vectors, front = stretch * Config::blocks;
    constexpr Index times = (Place::vectors + front - 1) / front;
    const Index row = place.row();
    const auto take = [&](Index at, auto whole, auto& s) {
        typename Body::template Operands<lanes> x[vectors];
#pragma unroll
        for (int u = 0; u < vectors; ++u)
            if (whole.value || at + u * Config::threads < Place::vectors)
                x[u] = Body::template load<lanes>(args, row, (at + u * Config::threads) * Place::columns);
#pragma unroll
        for (int u = 0; u < vectors; ++u)
            if (whole.value || at + u * Config::threads < Place::vectors)
                Body::step(args, row, (at + u * Config::threads) * Place::columns, x[u], r, s);
    };
    for (Index time = 0; time < times;) {
        typename Body::template State<phase, lanes> few;
        few.clear();
        for (const Index stop = time + chunk < times ? time + chunk : times; time < stop; ++time) {
            const Index first = (phase % 2 ? times - 1 - time : time) * front + place.part * stretch;
            if (first + stretch <= Place::vectors) take(first + place.member, Whole<true>(), few);
            else take(first + place.member, Whole<false>(), few);
        }
        state.merge(few);
    }
}

// kw: reduce_turns_kernel
// One phase of all rows. After the last one that reduces, a row is closed.
template <typename Body, typename Config, int phase>
__global__ void __launch_bounds__(Config::threads) reduce_turns_kernel(typename Body::Args args, void* workspace) {
    using Place = ReducePlace<Body, Config>;
    static_assert(!Body::across && Config::team == Config::threads, "a block is on one row, along it");
    const Place place;
    if (phase >= Body::phases && place.part > 0) return;  // one block closes the row
    auto r = Body::template begin<1>(args, place.row());
    reduce_catch_up<Body, Config, phase>(place, workspace, r);
    if constexpr (phase < Body::phases) {
        typename Body::template State<phase, Config::lanes> lanes;
        lanes.clear();
        turns_walk<Body, Config, phase>(args, place, r, lanes);
        typename Body::template State<phase, 1> state = lanes.folded();
        if constexpr (Place::rest > 0) state.merge(reduce_rest<Body, Config, phase>(args, place, r));
        if constexpr (phase < Body::reductions) {
            state = merged_in_team<Body, Config, phase>(state);
            auto* const parts = ReduceParts<Body, Config>::template states<phase>(workspace);
            if (place.speaks()) parts[int64_t(place.unit) * Config::blocks + place.part] = state;
        }
    }
    if constexpr (phase == Body::reductions)
        if (place.speaks() && place.part == 0) Body::store_row(args, place.row(), r);
}

// kw: reduce_turns_launches
#ifndef __CUDACC_RTC__
template <typename Body, typename Config, int phase>
cudaError_t reduce_turns_launches(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    constexpr int64_t blocks = ReducePlace<Body, Config>::units * Config::blocks;
    reduce_turns_kernel<Body, Config, phase><<<unsigned(blocks), Config::threads, 0, stream>>>(args, workspace);
    if constexpr (phase == Body::reductions) return cudaGetLastError();
    else {
        const cudaError_t error = cudaGetLastError();
        return error != cudaSuccess ? error : reduce_turns_launches<Body, Config, phase + 1>(args, workspace, stream);
    }
}
#endif

// kw: reduce_turns
#ifndef __CUDACC_RTC__
template <typename Body, typename Config>
cudaError_t reduce_turns(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    static_assert(ReduceParts<Body, Config>::template start<Body::reductions>() <= Config::workspace_bytes);
    if constexpr (Config::lanes > 1)
        if (!all_aligned(args)) return reduce_turns<Body, Unaligned<Config>>(args, workspace, stream);
    return reduce_turns_launches<Body, Config, 0>(args, workspace, stream);
}
#endif

}  // namespace kw
