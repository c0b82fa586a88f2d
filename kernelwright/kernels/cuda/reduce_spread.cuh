// Few long rows, in launches: one for each phase that reduces, in which blocks share a row; one that closes every row; and
// one that is spread over all elements as a pointwise kernel is, a vector to a thread, which knows the values of its row
// from memory. What rows share (weights) is read once for all rows of which a thread stores a vector.
//
// Blocks take turns along their row, all rows at a time: what is read at a time lies together in memory. Each launch goes
// the other way along the rows than the one before, and begins with what is still in the L2 cache.
//
// Config: threads  of a block that reduces, and blocks that share a row    vectors  a thread of it has in flight
//         width    threads of a block that stores                          beside   rows of which a thread stores a vector
//         early    whether launches begin as the one before ends
#pragma once

#include "reduce.cuh"

namespace kw {

// kw: SpreadRows
// The values of each row, behind what blocks leave for each other.
template <typename Body, typename Config> struct SpreadRows {
    using Row = typename Body::template Row<1>;
    static constexpr int64_t units = ReducePlace<Body, Config>::units;
    static_assert(!Body::across && Config::team == Config::threads, "a row is shared by whole blocks");
    static_assert(Body::phases == Body::reductions + 1, "the last phase stores, and only it");
    __host__ __device__ static constexpr int64_t start() {
        return ReduceParts<Body, Config>::template start<Body::reductions>();
    }
    __host__ __device__ static constexpr int64_t bytes() { return start() + units * int64_t(sizeof(Row)); }
    KW_DEVICE static Row* of(void* workspace) { return reinterpret_cast<Row*>(static_cast<char*>(workspace) + start()); }
};

// kw: spread_phase_kernel
// One phase that reduces. Few hundred elements are added in sequence, then merged.
template <typename Body, typename Config, int phase>
__global__ void __launch_bounds__(Config::threads) spread_phase_kernel(typename Body::Args args, void* workspace) {
    using Place = ReducePlace<Body, Config>;
    using Index = typename Body::Index;
    constexpr int lanes = Config::lanes, vectors = Config::vectors, step = Config::threads * vectors;
    constexpr int chunk = 256 / vectors;
    constexpr Index turn = Index(step) * Config::blocks, times = (Place::vectors + turn - 1) / turn;
    const Place place;
    const Index row = place.row(), begin = Index(place.part) * step;
    if (Config::early) let_launch_begin();
    if (Config::early && phase > 0) await_launch_before();
    auto r = Body::template begin<1>(args, row);
    reduce_catch_up<Body, Config, phase>(place, workspace, r);
    const auto take = [&](Index at, auto whole, auto& s) {
        typename Body::template Operands<lanes> x[vectors];
#pragma unroll
        for (int u = 0; u < vectors; ++u)
            if (whole.value || at + u * Config::threads < Place::vectors)
                x[u] = Body::template load<lanes>(args, row, (at + u * Config::threads) * lanes);
#pragma unroll
        for (int u = 0; u < vectors; ++u)
            if (whole.value || at + u * Config::threads < Place::vectors)
                Body::step(args, row, (at + u * Config::threads) * lanes, x[u], r, s);
    };
    typename Body::template State<phase, lanes> state;
    state.clear();
    for (Index time = 0; time < times;) {
        typename Body::template State<phase, lanes> few;
        few.clear();
        for (const Index stop = time + chunk < times ? time + chunk : times; time < stop; ++time) {
            const Index first = begin + (phase % 2 ? times - 1 - time : time) * turn;
            if (first + step <= Place::vectors) take(first + threadIdx.x, Whole<true>(), few);
            else take(first + threadIdx.x, Whole<false>(), few);
        }
        state.merge(few);
    }
    const auto found = merged_in_block<Config::threads, phase>(state.folded());
    auto* const parts = ReduceParts<Body, Config>::template states<phase>(workspace);
    if (place.speaks()) parts[int64_t(place.unit) * Config::blocks + place.part] = found;
}

// kw: spread_close_kernel
// The values of a row, merged by one block.
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::threads) spread_close_kernel(typename Body::Args args, void* workspace) {
    ReducePlace<Body, Config> place;
    place.unit = blockIdx.x;
    place.part = 0;
    place.active = true;
    if (Config::early) let_launch_begin();
    if (Config::early) await_launch_before();
    auto r = Body::template begin<1>(args, place.row());
    reduce_catch_up<Body, Config, Body::reductions>(place, workspace, r);
    if (!place.speaks()) return;
    Body::store_row(args, place.row(), r);
    SpreadRows<Body, Config>::of(workspace)[place.unit] = r;
}

// kw: SpreadTiles
// What a block stores: `width` vectors of `beside` rows.
template <typename Body, typename Config> struct SpreadTiles {
    using Place = ReducePlace<Body, Config>;
    static constexpr int64_t groups = (Place::units + Config::beside - 1) / Config::beside;
    static constexpr int64_t tiles = (Place::vectors + Config::width - 1) / Config::width;
};

// kw: spread_store_kernel
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::width) spread_store_kernel(typename Body::Args args, void* workspace) {
    using Tiles = SpreadTiles<Body, Config>;
    using Index = typename Body::Index;
    constexpr int lanes = Config::lanes, beside = Config::beside;
    constexpr unsigned groups = unsigned(Tiles::groups), tiles = unsigned(Tiles::tiles);
    const unsigned time = blockIdx.x / groups;
    const Index first = Index(blockIdx.x % groups) * beside;
    const Index at = Index(Body::reductions % 2 ? tiles - 1 - time : time) * Config::width + threadIdx.x;
    if (at >= ReducePlace<Body, Config>::vectors) return;
    typename Body::template Operands<lanes> x[beside];
    typename Body::template Late<lanes> late[beside];
    typename Body::template Row<1> r[beside];
    const auto* const rows = SpreadRows<Body, Config>::of(workspace);
#pragma unroll
    for (int u = 0; u < beside; ++u)
        if (first + u < SpreadRows<Body, Config>::units) {
            x[u] = Body::template load<lanes>(args, first + u, at * lanes);
            late[u] = Body::template late<lanes>(args, first + u, at * lanes);
        }
    if (Config::early) await_launch_before();  // what is loaded so far was there before
#pragma unroll
    for (int u = 0; u < beside; ++u)
        if (first + u < SpreadRows<Body, Config>::units) r[u] = rows[first + u];
#pragma unroll
    for (int u = 0; u < beside; ++u)
        if (first + u < SpreadRows<Body, Config>::units)
            Body::store_vector(args, first + u, at * lanes, x[u], late[u], r[u]);
}

// kw: spread_launches
#ifndef __CUDACC_RTC__
template <typename Body, typename Config, int phase>
cudaError_t spread_launches(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    constexpr int64_t units = SpreadRows<Body, Config>::units;
    if constexpr (phase < Body::reductions) {
        const auto kernel = spread_phase_kernel<Body, Config, phase>;
        constexpr unsigned blocks = unsigned(units * Config::blocks);
        constexpr bool early = Config::early && phase > 0;  // the first waits for what was there before
        const cudaError_t error = launch_early(kernel, blocks, Config::threads, 0, stream, early, args, workspace);
        return error != cudaSuccess ? error : spread_launches<Body, Config, phase + 1>(args, workspace, stream);
    } else {
        const auto close = spread_close_kernel<Body, Config>;
        if (const cudaError_t error =
                launch_early(close, unsigned(units), Config::threads, 0, stream, Config::early, args, workspace))
            return error;
        constexpr int64_t blocks = SpreadTiles<Body, Config>::groups * SpreadTiles<Body, Config>::tiles;
        const auto store = spread_store_kernel<Body, Config>;
        return launch_early(store, unsigned(blocks), Config::width, 0, stream, Config::early, args, workspace);
    }
}
#endif

// kw: reduce_spread
#ifndef __CUDACC_RTC__
template <typename Body, typename Config>
cudaError_t reduce_spread(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    static_assert(SpreadRows<Body, Config>::bytes() <= Config::workspace_bytes);
    static_assert(ReducePlace<Body, Config>::rest == 0, "whole vectors along a row");
    if constexpr (Config::lanes > 1)
        if (!all_aligned(args)) return reduce_spread<Body, Unaligned<Config>>(args, workspace, stream);
    return spread_launches<Body, Config, 0>(args, workspace, stream);
}
#endif

}  // namespace kw
