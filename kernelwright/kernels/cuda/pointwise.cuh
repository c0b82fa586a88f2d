// A pointwise computation over rows and columns: every thread loads all its vectors before it uses the first.
#pragma once

#include "../device/vec.cuh"
#include "launch.cuh"

namespace kw {

// kw: gather
// N elements `stride` apart, for an operand whose neighbours do not lie side by side.
template <int N, typename T> KW_DEVICE Vec<T, N> gather(const T* p, int64_t stride) {
    Vec<T, N> x;
#pragma unroll
    for (int i = 0; i < N; ++i) x.v[i] = p[i * stride];
    return x;
}

// kw: scatter
// The same for a result: a part of a concatenation may lie between the others, element by element.
template <int N, typename T> KW_DEVICE void scatter(T* p, int64_t stride, const Vec<T, N>& x) {
#pragma unroll
    for (int i = 0; i < N; ++i) p[i * stride] = x[i];
}

// kw: pointwise_block
// A block owns threads * vectors consecutive vectors; neighbouring threads own neighbouring vectors.
template <typename Body, int lanes, int vectors, int threads>
KW_DEVICE void pointwise_block(const typename Body::Args& args) {
    using Index = typename Body::Index;
    constexpr Index per_row = Body::columns / lanes, total = Body::rows * per_row;
    const Index first = Index(blockIdx.x) * (threads * vectors) + threadIdx.x;
    typename Body::template Operands<lanes> operands[vectors];
#pragma unroll
    for (int u = 0; u < vectors; ++u) {
        const Index i = first + u * threads;
        if (i < total) operands[u] = Body::template load<lanes>(args, i / per_row, i % per_row * lanes);
    }
#pragma unroll
    for (int u = 0; u < vectors; ++u) {
        const Index i = first + u * threads;
        if (i < total) Body::template store<lanes>(args, i / per_row, i % per_row * lanes, operands[u]);
    }
    // A single row may end with a few elements that fill no vector.
    constexpr int rest = Body::rows == 1 ? int(Body::columns % lanes) : 0;
    if (rest && blockIdx.x == 0 && threadIdx.x < rest) {
        const Index column = per_row * lanes + threadIdx.x;
        Body::template store<1>(args, 0, column, Body::template load<1>(args, 0, column));
    }
}

// kw: pointwise_kernel
template <typename Body, int lanes, int vectors, int threads>
__global__ void __launch_bounds__(threads) pointwise_kernel(typename Body::Args args) {
    pointwise_block<Body, lanes, vectors, threads>(args);
}

// kw: pointwise
#ifndef __CUDACC_RTC__
template <typename Body, int lanes, int vectors, int threads>
cudaError_t pointwise(const typename Body::Args& args, cudaStream_t stream) {
    if (lanes > 1 && !all_aligned(args)) return pointwise<Body, 1, vectors, threads>(args, stream);
    constexpr int64_t total = Body::rows * (Body::columns / lanes), each = threads * vectors;
    constexpr int64_t blocks = total > each ? (total + each - 1) / each : 1;
    pointwise_kernel<Body, lanes, vectors, threads><<<unsigned(blocks), threads, 0, stream>>>(args);
    return cudaGetLastError();
}
#endif

}  // namespace kw
