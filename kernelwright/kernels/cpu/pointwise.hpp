// A pointwise computation over rows and columns: threads share the elements, vectors run along the columns.
#pragma once

#include "../device/vec.cuh"

namespace kw {

// kw: gather
// N elements `stride` apart, for an operand whose neighbours do not lie side by side.
template <int N, typename T> KW_DEVICE Vec<T, N> gather(const T* p, int64_t stride) {
    Vec<T, N> x;
    KW_LANES for (int i = 0; i < N; ++i) x.v[i] = p[i * stride];
    return x;
}

// kw: pointwise
// The grain is what one thread takes at a time; a computation below it runs on the calling thread.
template <typename Body, int lanes, int64_t grain> void pointwise(const typename Body::Args& args) {
    constexpr int64_t pieces_per_row = (Body::columns + grain - 1) / grain;
    constexpr int64_t pieces = Body::rows * pieces_per_row;
#pragma omp parallel for schedule(static) if (Body::rows * Body::columns > grain)
    for (int64_t piece = 0; piece < pieces; ++piece) {
        const int64_t row = piece / pieces_per_row, begin = piece % pieces_per_row * grain;
        const int64_t end = begin + grain < Body::columns ? begin + grain : Body::columns;
        int64_t column = begin;
        for (; column + lanes <= end; column += lanes)
            Body::template store<lanes>(args, row, column, Body::template load<lanes>(args, row, column));
        for (; column < end; ++column) Body::template store<1>(args, row, column, Body::template load<1>(args, row, column));
    }
}

}  // namespace kw
