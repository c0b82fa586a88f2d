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

// kw: scatter
// The same for a result: a part of a concatenation may lie between the others, element by element.
template <int N, typename T> KW_DEVICE void scatter(T* p, int64_t stride, const Vec<T, N>& x) {
    KW_LANES for (int i = 0; i < N; ++i) p[i * stride] = x[i];
}

// kw: pointwise_run
// The columns from `column` on, as long as N of them are left; where it stopped.
template <typename Body, int N>
KW_DEVICE int64_t pointwise_run(const typename Body::Args& args, int64_t row, int64_t column, int64_t end) {
    for (; column + N <= end; column += N)
        Body::template store<N>(args, row, column, Body::template load<N>(args, row, column));
    return column;
}

// kw: KW_NO_JUMPS
// g++ follows x < low ? low : x into the comparison after it before it makes vectors of a loop, and a clamp becomes eight
// instructions on masks instead of four: a quarter of the time of eight functions, of which two clamp.
#ifdef __clang__
#define KW_NO_JUMPS
#else
#define KW_NO_JUMPS __attribute__((optimize("no-thread-jumps")))
#endif

// kw: pointwise
// The grain is what one thread takes at a time; a computation below it runs on the calling thread.
template <typename Body, int lanes, int64_t grain> KW_NO_JUMPS void pointwise(const typename Body::Args& args) {
    static_assert(grain % lanes == 0, "only the end of a row fills no vector");
    constexpr int64_t pieces_per_row = (Body::columns + grain - 1) / grain;
    constexpr int64_t pieces = Body::rows * pieces_per_row;
    constexpr int narrow = lanes < 16 ? 1 : 16;  // what is left of a row first in shorter vectors
#pragma omp parallel for schedule(static) if (Body::rows * Body::columns > grain)
    for (int64_t piece = 0; piece < pieces; ++piece) {
        const int64_t row = piece / pieces_per_row, begin = piece % pieces_per_row * grain;
        const int64_t end = begin + grain < Body::columns ? begin + grain : Body::columns;
        int64_t column = pointwise_run<Body, lanes>(args, row, begin, end);
        if constexpr (Body::columns % lanes >= narrow) column = pointwise_run<Body, narrow>(args, row, column, end);
        if constexpr (Body::columns % narrow != 0) pointwise_run<Body, 1>(args, row, column, end);
    }
}

}  // namespace kw
