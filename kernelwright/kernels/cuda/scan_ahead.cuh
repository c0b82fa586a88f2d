// Running values along whole rows, as in scan.cuh, with the next tile on its way while this one is scanned and stored: a
// scan is a chain of additions and shuffles, and while it runs a warp would have nothing in flight.
//
// Config: threads  of a row                     rows     of a block
//         lanes    of a vector                  vectors  of a thread in a tile
#pragma once

#include "scan.cuh"

namespace kw {

// kw: scan_ahead_kernel
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::threads* Config::rows) scan_ahead_kernel(typename Body::Args args) {
    using Index = typename Body::Index;
    using Walk = ScanAlong<Body::reverse, Config::threads>;
    using Operands = typename Body::template Operands<Config::lanes>;
    constexpr int lanes = Config::lanes, vectors = Config::vectors, rows = Config::rows;
    constexpr Index columns = Body::columns, tile = Config::threads * vectors * lanes;
    __shared__ uint64_t shared[2][Walk::warps];
    const int thread = rows == 1 ? threadIdx.x : threadIdx.x % Config::threads;
    Walk walk{shared, thread % Walk::width, thread / Walk::width, 0};
    const Index row = Index(blockIdx.x) * rows + (rows == 1 ? 0 : threadIdx.x / Config::threads);
    const bool there = rows == 1 || row < Index(Body::rows);
    const Index mine = (walk.warp * vectors * Walk::width + walk.lane) * lanes;
    const auto column_of = [](Index place) { return Body::reverse ? columns - lanes - place : place; };
    const auto fetch = [&](Index first, Operands (&x)[vectors]) {
#pragma unroll
        for (int u = 0; u < vectors; ++u) {
            const Index place = first + mine + u * (Walk::width * lanes);
            if (there && place < columns) x[u] = Body::template load<lanes>(args, row, column_of(place));
        }
    };
    typename Body::template State<1> s;
    scan_begin<Body, Body::stages>(s, decltype(&s)(nullptr));
    Operands ahead[vectors];
    fetch(0, ahead);
    for (Index first = 0; first < columns; first += tile) {
        Operands x[vectors];
        typename Body::template Running<lanes, vectors> r;
#pragma unroll
        for (int u = 0; u < vectors; ++u) x[u] = ahead[u];
        fetch(first + tile, ahead);
        scan_stages<Body, 0, Body::stages, vectors>(walk, x, r, s);
#pragma unroll
        for (int u = 0; u < vectors; ++u) {
            const Index place = first + mine + u * (Walk::width * lanes);
            if (there && place < columns) Body::store(args, row, column_of(place), x[u], r, u);
        }
    }
}

// kw: Single
// For operands that do not start where a vector may: element by element.
template <typename Config> struct Single : Config {
    static constexpr int lanes = 1;
};

// kw: scan_ahead
#ifndef __CUDACC_RTC__
template <typename Body, typename Config> cudaError_t scan_ahead(const typename Body::Args& args, cudaStream_t stream) {
    if constexpr (Config::lanes > 1)
        if (!all_aligned(args)) return scan_ahead<Body, Single<Config>>(args, stream);
    constexpr int64_t blocks = (Body::rows + Config::rows - 1) / Config::rows;
    scan_ahead_kernel<Body, Config><<<unsigned(blocks), Config::threads * Config::rows, 0, stream>>>(args);
    return cudaGetLastError();
}
#endif

}  // namespace kw
