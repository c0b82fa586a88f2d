// A pointwise computation with an operand whose neighbours lie along another axis than the results': a block reads a
// tile of it along its own axis, and uses it along theirs, so that both are read and written in whole lines.
#pragma once

#include "../device/vec.cuh"
#include "launch.cuh"

namespace kw {

// kw: pointwise_tiles_block
template <typename Body, int lanes, int levels, int columns, int threads>
KW_DEVICE void pointwise_tiles_block(const typename Body::Args& args) {
    using Index = typename Body::Index;
    constexpr Index across = (Body::columns + columns - 1) / columns, down = (Body::depth + levels - 1) / levels;
    constexpr int vectors = levels * columns / lanes / threads;  // of one thread
    static_assert(vectors * lanes * threads == levels * columns, "the threads share the tile evenly");
    __shared__ typename Body::template Tile<levels, columns> tile;
    const Index block = blockIdx.x, row = block / (across * down);
    const Index level = block % down * levels, column = block / down % across * columns;
    typename Body::template Turned<lanes> turned[vectors];
#pragma unroll
    for (int u = 0; u < vectors; ++u) {
        const int i = threadIdx.x + u * threads, p = i % (levels / lanes) * lanes, q = i / (levels / lanes);
        if (level + p < Body::depth && column + q < Body::columns)
            turned[u] = Body::template fetch<lanes>(args, row, level + p, column + q);
    }
    __syncwarp();  // or the compiler puts each load right before its use, and they wait for each other
#pragma unroll
    for (int u = 0; u < vectors; ++u) {
        const int i = threadIdx.x + u * threads, p = i % (levels / lanes) * lanes, q = i / (levels / lanes);
        Body::template keep<lanes>(tile, turned[u], p, q);
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < vectors; ++u) {
        const int i = threadIdx.x + u * threads, q = i % (columns / lanes) * lanes, p = i / (columns / lanes);
        if (level + p < Body::depth && column + q < Body::columns)
            Body::template store<lanes>(args, tile, row, level + p, column + q, p, q);
    }
}

// kw: pointwise_tiles_kernel
template <typename Body, int lanes, int levels, int columns, int threads>
__global__ void __launch_bounds__(threads) pointwise_tiles_kernel(typename Body::Args args) {
    pointwise_tiles_block<Body, lanes, levels, columns, threads>(args);
}

// kw: pointwise_tiles
#ifndef __CUDACC_RTC__
template <typename Body, int lanes, int levels, int columns, int threads>
cudaError_t pointwise_tiles(const typename Body::Args& args, cudaStream_t stream) {
    if (lanes > 1 && !all_aligned(args)) return pointwise_tiles<Body, 1, levels, columns, threads>(args, stream);
    constexpr int64_t across = (Body::columns + columns - 1) / columns, down = (Body::depth + levels - 1) / levels;
    constexpr int64_t blocks = Body::rows * across * down;
    pointwise_tiles_kernel<Body, lanes, levels, columns, threads><<<unsigned(blocks), threads, 0, stream>>>(args);
    return cudaGetLastError();
}
#endif

}  // namespace kw
