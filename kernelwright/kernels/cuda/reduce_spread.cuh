// Few long rows: their reductions as in reduce_split, each shared by blocks that meet between launches; then a launch that
// closes every row; then one that is spread over all elements as a pointwise kernel is, a vector to a thread, which knows
// the values of its row from memory. What several rows share (weights) is read once for all that a thread has.
//
// Config: threads  of a block that reduces, and blocks that share a row    vectors  a thread of it has in flight
//         width    threads of a block that stores                          beside   rows of which a thread stores a vector
//         backwards: the last that each block has read is stored first, while it is in the L2 cache; else in order
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

// kw: spread_close_kernel
// The values of a row, merged by one block.
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::threads) spread_close_kernel(typename Body::Args args, void* workspace) {
    ReducePlace<Body, Config> place;
    place.unit = blockIdx.x;
    place.part = 0;
    place.active = true;
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
    using Index = typename Body::Index;
    static constexpr int64_t groups = (Place::units + Config::beside - 1) / Config::beside;
    // Of each part of a row, or of the whole row.
    static constexpr int parts = Config::backwards ? Config::blocks : 1;
    static constexpr Index each = Config::backwards ? Place::share : Place::vectors;
    static constexpr int64_t tiles = (each + Config::width - 1) / Config::width;
    static constexpr int64_t blocks = groups * parts * tiles;
};

// kw: spread_store_kernel
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::width) spread_store_kernel(typename Body::Args args, void* workspace) {
    using Tiles = SpreadTiles<Body, Config>;
    using Index = typename Body::Index;
    constexpr int lanes = Config::lanes, beside = Config::beside;
    // Backwards, all parts of all rows come before the next tile of any does.
    const unsigned strides = unsigned(Tiles::groups) * Tiles::parts;
    const unsigned stride = Config::backwards ? blockIdx.x % strides : blockIdx.x / unsigned(Tiles::tiles);
    const unsigned tile = Config::backwards ? unsigned(Tiles::tiles) - 1 - blockIdx.x / strides
                                            : blockIdx.x % unsigned(Tiles::tiles);
    const Index part = stride % Tiles::parts, first = Index(stride / Tiles::parts) * beside;
    const Index within = Index(tile) * Config::width + threadIdx.x, at = part * Tiles::each + within;
    if (within >= Tiles::each || at >= ReducePlace<Body, Config>::vectors) return;
    typename Body::template Operands<lanes> x[beside];
    typename Body::template Late<lanes> late[beside];
    typename Body::template Row<1> r[beside];
    const auto* const rows = SpreadRows<Body, Config>::of(workspace);
#pragma unroll
    for (int u = 0; u < beside; ++u)
        if (first + u < SpreadRows<Body, Config>::units) {
            x[u] = Body::template load_last<lanes>(args, first + u, at * lanes);
            late[u] = Body::template late<lanes>(args, first + u, at * lanes);
            r[u] = rows[first + u];
        }
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
        reduce_phase_kernel<Body, Config, phase>
            <<<unsigned(units * Config::blocks), Config::threads, 0, stream>>>(args, workspace);
        const cudaError_t error = cudaGetLastError();
        return error != cudaSuccess ? error : spread_launches<Body, Config, phase + 1>(args, workspace, stream);
    } else {
        spread_close_kernel<Body, Config><<<unsigned(units), Config::threads, 0, stream>>>(args, workspace);
        if (const cudaError_t error = cudaGetLastError()) return error;
        constexpr int64_t blocks = SpreadTiles<Body, Config>::blocks;
        spread_store_kernel<Body, Config><<<unsigned(blocks), Config::width, 0, stream>>>(args, workspace);
        return cudaGetLastError();
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
