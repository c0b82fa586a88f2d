// A pointwise computation with operands whose neighbours lie along two axes that are not the results': a block owns a
// brick that extends along all three, reads each operand along its own axis and uses it along the results', so that
// every sector of memory is read and written whole.
#pragma once

#include "../device/vec.cuh"
#include "launch.cuh"

namespace kw {

// kw: Brick
// What a block keeps of an operand: planes of columns, each with its neighbours side by side. A column is one element
// longer than it needs and so is a plane: whether neighbours in a column are written or neighbours in a row or plane are
// read, they lie in different banks.
template <typename T, int planes, int columns, int edge> struct Brick {
    T v[planes][columns * (edge + 1) + 1];
    KW_DEVICE T& at(int plane, int column, int place) { return v[plane][column * (edge + 1) + place]; }
    KW_DEVICE const T& at(int plane, int column, int place) const { return v[plane][column * (edge + 1) + place]; }
};

// kw: BrickPlace
// A place in a brick, by layer, level and column.
struct BrickPlace {
    int r, p, q;
    KW_DEVICE BrickPlace operator+(const BrickPlace& y) const { return {r + y.r, p + y.p, q + y.q}; }
};

// kw: BrickOrders
// The three orders in which threads share a brick: each begins with the vectors along one of its edges. All numbers are
// powers of two, so the place of the sum of two numbers without a common bit is the sum of their places.
template <int lanes, int layers, int levels, int columns> struct BrickOrders {
    KW_DEVICE static BrickPlace by_columns(int i) {
        const int j = i / (columns / lanes);
        return {j / levels, j % levels, i % (columns / lanes) * lanes};
    }
    KW_DEVICE static BrickPlace by_levels(int i) {
        const int j = i / (levels / lanes);
        return {j / columns, i % (levels / lanes) * lanes, spread<levels>(j % columns)};
    }
    KW_DEVICE static BrickPlace by_layers(int i) {
        const int j = i / (layers / lanes);
        return {i % (layers / lanes) * lanes, j / columns, spread<layers>(j % columns)};
    }
    // Columns in groups of `lanes` that lie `edge` apart: in those, neighbouring threads write to different banks.
    template <int edge> KW_DEVICE static int spread(int j) {
        constexpr int apart = columns > edge ? columns / edge : 1;
        return j % lanes + j / lanes % apart * edge + j / (lanes * apart) * lanes;
    }
};

// kw: pointwise_bricks_block
template <typename Body, int lanes, int layers, int levels, int columns, int threads>
KW_DEVICE void pointwise_bricks_block(const typename Body::Args& args) {
    using Index = typename Body::Index;
    using Orders = BrickOrders<lanes, layers, levels, columns>;
    using Tile = typename Body::template Tile<layers, levels, columns>;
    constexpr unsigned across = (Body::columns + columns - 1) / columns;
    constexpr unsigned down = (Body::depth + levels - 1) / levels, up = (Body::height + layers - 1) / layers;
    constexpr int vectors = layers * levels * columns / lanes / threads;  // of one thread
    static_assert(vectors * lanes * threads == layers * levels * columns, "the threads share the brick evenly");
    extern __shared__ uint4 dynamic[];
    Tile& tile = *reinterpret_cast<Tile*>(dynamic);
    // Bricks that share lines of memory follow each other: the second finds them in the L2 cache.
    const unsigned block = blockIdx.x;
    const Index row = block / (down * up * across), level = block % down * levels;
    const Index layer = block / down % up * layers, column = block / (down * up) % across * columns;
    const int layers_left = Body::height - layer < layers ? int(Body::height - layer) : layers;
    const int levels_left = Body::depth - level < levels ? int(Body::depth - level) : levels;
    const int columns_left = Body::columns - column < columns ? int(Body::columns - column) : columns;
    const auto is_inside = [&](const BrickPlace& at) {
        return (Body::height % layers == 0 || at.r < layers_left) && (Body::depth % levels == 0 || at.p < levels_left) &&
               (Body::columns % columns == 0 || at.q < columns_left);
    };
    const BrickPlace by_levels = Orders::by_levels(threadIdx.x), by_layers = Orders::by_layers(threadIdx.x);
    const BrickPlace by_columns = Orders::by_columns(threadIdx.x);
    typename Body::template Turned<lanes> turned[vectors];
    typename Body::template Operands<lanes> operands[vectors];
#pragma unroll
    for (int u = 0; u < vectors; ++u) {
        const BrickPlace at = by_levels + Orders::by_levels(u * threads);
        if (is_inside(at))
            Body::template fetch_levels<lanes>(args, turned[u], row, layer + at.r, level + at.p, column + at.q);
    }
#pragma unroll
    for (int u = 0; u < vectors; ++u) {
        const BrickPlace at = by_layers + Orders::by_layers(u * threads);
        if (is_inside(at))
            Body::template fetch_layers<lanes>(args, turned[u], row, layer + at.r, level + at.p, column + at.q);
    }
#pragma unroll
    for (int u = 0; u < vectors; ++u) {
        const BrickPlace at = by_columns + Orders::by_columns(u * threads);
        if (is_inside(at))
            operands[u] = Body::template load<lanes>(args, row, layer + at.r, level + at.p, column + at.q);
    }
    __syncwarp();  // or the compiler puts each load right before its use, and they wait for each other
#pragma unroll
    for (int u = 0; u < vectors; ++u) {
        Body::template keep_levels<lanes>(tile, turned[u], by_levels + Orders::by_levels(u * threads));
        Body::template keep_layers<lanes>(tile, turned[u], by_layers + Orders::by_layers(u * threads));
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < vectors; ++u) {
        const BrickPlace at = by_columns + Orders::by_columns(u * threads);
        if (is_inside(at))
            Body::template store<lanes>(args, tile, operands[u], at, row, layer + at.r, level + at.p, column + at.q);
    }
}

// kw: pointwise_bricks_kernel
template <typename Body, int lanes, int layers, int levels, int columns, int threads>
__global__ void __launch_bounds__(threads) pointwise_bricks_kernel(typename Body::Args args) {
    pointwise_bricks_block<Body, lanes, layers, levels, columns, threads>(args);
}

// kw: pointwise_bricks
#ifndef __CUDACC_RTC__
template <typename Body, int lanes, int layers, int levels, int columns, int threads>
cudaError_t pointwise_bricks(const typename Body::Args& args, cudaStream_t stream) {
    // Element by element, in the smallest bricks: registers hold fewer elements than vectors.
    if (lanes > 1 && !all_aligned(args)) return pointwise_bricks<Body, 1, 8, 8, 16, 512>(args, stream);
    constexpr int64_t across = (Body::columns + columns - 1) / columns, down = (Body::depth + levels - 1) / levels;
    constexpr int64_t blocks = Body::rows * across * down * ((Body::height + layers - 1) / layers);
    constexpr int shared_bytes = sizeof(typename Body::template Tile<layers, levels, columns>);
    const auto kernel = pointwise_bricks_kernel<Body, lanes, layers, levels, columns, threads>;
    if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes))
        return error;
    kernel<<<unsigned(blocks), threads, shared_bytes, stream>>>(args);
    return cudaGetLastError();
}
#endif

}  // namespace kw
