// A pointwise computation with an operand whose neighbours lie along another axis than the results': a block reads a
// square tile of it along its own axis, and uses it along theirs, so that both are read and written in whole lines.
#pragma once

#include "../device/vec.cuh"
#include "launch.cuh"

namespace kw {

// kw: pointwise_tiles_block
template <typename Body, int lanes, int tile, int threads>
KW_DEVICE void pointwise_tiles_block(const typename Body::Args& args) {
    using Index = typename Body::Index;
    constexpr Index across = (Body::columns + tile - 1) / tile, down = (Body::depth + tile - 1) / tile;
    constexpr int per_line = tile / lanes, vectors = tile * per_line;
    __shared__ typename Body::template Tile<tile> shared;
    const Index block = blockIdx.x, row = block / (across * down);
    const Index level = block / across % down * tile, column = block % across * tile;
#pragma unroll
    for (int i = threadIdx.x; i < vectors; i += threads) {
        const int p = i % per_line * lanes, q = i / per_line;
        if (level + p < Body::depth && column + q < Body::columns)
            Body::template fetch<lanes, tile>(args, shared, row, level + p, column + q, p, q);
    }
    __syncthreads();
#pragma unroll
    for (int i = threadIdx.x; i < vectors; i += threads) {
        const int q = i % per_line * lanes, p = i / per_line;
        if (level + p < Body::depth && column + q < Body::columns)
            Body::template store<lanes, tile>(args, shared, row, level + p, column + q, p, q);
    }
}

// kw: pointwise_tiles_kernel
template <typename Body, int lanes, int tile, int threads>
__global__ void __launch_bounds__(threads) pointwise_tiles_kernel(typename Body::Args args) {
    pointwise_tiles_block<Body, lanes, tile, threads>(args);
}

// kw: pointwise_tiles
#ifndef __CUDACC_RTC__
template <typename Body, int lanes, int tile, int threads>
cudaError_t pointwise_tiles(const typename Body::Args& args, cudaStream_t stream) {
    if (lanes > 1 && !all_aligned(args)) return pointwise_tiles<Body, 1, tile, threads>(args, stream);
    constexpr int64_t across = (Body::columns + tile - 1) / tile, down = (Body::depth + tile - 1) / tile;
    constexpr int64_t blocks = Body::rows * across * down;
    pointwise_tiles_kernel<Body, lanes, tile, threads><<<unsigned(blocks), threads, 0, stream>>>(args);
    return cudaGetLastError();
}
#endif

}  // namespace kw
