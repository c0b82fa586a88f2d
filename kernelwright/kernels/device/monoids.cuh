// Monoids: what is known of a part of a row, for N rows or N parts of one row side by side. Each starts from `clear`,
// which is neutral, takes single elements by `add` (lane i, then the element), and other parts by `merge`, which
// takes the N lanes of `other` from `from` on: so a vector of lanes is folded by merging its halves.
#pragma once

#include "math.cuh"
#include "vec.cuh"

namespace kw {

// kw: lowest
// The least value of a type; of floats, -infinity.
template <typename T> KW_DEVICE constexpr T lowest() { return T(-1) < T(0) ? T(uint64_t(1) << (8 * sizeof(T) - 1)) : T(0); }
template <> KW_DEVICE float lowest<float>() { return bits_float(0xff800000u); }
template <> KW_DEVICE double lowest<double>() { return bits_double(0xfff0000000000000ull); }

// kw: highest
// The greatest value of a type; of floats, infinity.
template <typename T> KW_DEVICE constexpr T highest() { return T(~uint64_t(lowest<T>())); }
template <> KW_DEVICE bool highest<bool>() { return true; }
template <> KW_DEVICE float highest<float>() { return bits_float(0x7f800000u); }
template <> KW_DEVICE double highest<double>() { return bits_double(0x7ff0000000000000ull); }

// kw: Sum
template <typename T, int N> struct Sum {
    Vec<T, N> total;
    KW_DEVICE void clear() { total = fill<N>(T(0)); }
    KW_DEVICE void add(int i, T x) { total[i] = T(total[i] + x); }
    template <int M> KW_DEVICE void merge(const Sum<T, M>& other, int from) {
        KW_LANES for (int i = 0; i < N; ++i) total[i] = T(total[i] + other.total[from + i]);
    }
    KW_DEVICE T value(int i) const { return total[i]; }
};

// kw: Product
template <typename T, int N> struct Product {
    Vec<T, N> total;
    KW_DEVICE void clear() { total = fill<N>(T(1)); }
    KW_DEVICE void add(int i, T x) { total[i] = T(total[i] * x); }
    template <int M> KW_DEVICE void merge(const Product<T, M>& other, int from) {
        KW_LANES for (int i = 0; i < N; ++i) total[i] = T(total[i] * other.total[from + i]);
    }
    KW_DEVICE T value(int i) const { return total[i]; }
};

// kw: Largest
// NaN if one element is.
template <typename T, int N> struct Largest {
    Vec<T, N> best;
    KW_DEVICE void clear() { best = fill<N>(lowest<T>()); }
    KW_DEVICE void add(int i, T x) { best[i] = maximum(T(best[i]), x); }
    template <int M> KW_DEVICE void merge(const Largest<T, M>& other, int from) {
        KW_LANES for (int i = 0; i < N; ++i) best[i] = maximum(T(best[i]), T(other.best[from + i]));
    }
    KW_DEVICE T value(int i) const { return best[i]; }
};

// kw: Smallest
// NaN if one element is.
template <typename T, int N> struct Smallest {
    Vec<T, N> best;
    KW_DEVICE void clear() { best = fill<N>(highest<T>()); }
    KW_DEVICE void add(int i, T x) { best[i] = minimum(T(best[i]), x); }
    template <int M> KW_DEVICE void merge(const Smallest<T, M>& other, int from) {
        KW_LANES for (int i = 0; i < N; ++i) best[i] = minimum(T(best[i]), T(other.best[from + i]));
    }
    KW_DEVICE T value(int i) const { return best[i]; }
};

// kw: LargestAt
// Where the largest is, the first of several; NaN is larger than every number.
template <typename T, typename Index, int N> struct LargestAt {
    Vec<T, N> best;
    Vec<Index, N> at;
    KW_DEVICE void clear() {
        best = fill<N>(lowest<T>());
        at = fill<N>(highest<Index>());
    }
    KW_DEVICE void add(int i, T x, Index place) {
        const T held = best[i];
        const bool ties = (x == held) | ((x != x) & (held != held));
        const bool wins = (x > held) | ((x != x) & (held == held)) | (ties & (place < at[i]));
        best[i] = wins ? x : held;
        at[i] = wins ? place : at[i];
    }
    template <int M> KW_DEVICE void merge(const LargestAt<T, Index, M>& other, int from) {
        KW_LANES for (int i = 0; i < N; ++i) add(i, other.best[from + i], other.at[from + i]);
    }
    KW_DEVICE int64_t value(int i) const { return at[i]; }
};

// kw: SmallestAt
// Where the smallest is, the first of several; NaN is smaller than every number.
template <typename T, typename Index, int N> struct SmallestAt {
    Vec<T, N> best;
    Vec<Index, N> at;
    KW_DEVICE void clear() {
        best = fill<N>(highest<T>());
        at = fill<N>(highest<Index>());
    }
    KW_DEVICE void add(int i, T x, Index place) {
        const T held = best[i];
        const bool ties = (x == held) | ((x != x) & (held != held));
        const bool wins = (x < held) | ((x != x) & (held == held)) | (ties & (place < at[i]));
        best[i] = wins ? x : held;
        at[i] = wins ? place : at[i];
    }
    template <int M> KW_DEVICE void merge(const SmallestAt<T, Index, M>& other, int from) {
        KW_LANES for (int i = 0; i < N; ++i) add(i, other.best[from + i], other.at[from + i]);
    }
    KW_DEVICE int64_t value(int i) const { return at[i]; }
};

// kw: small_reciprocal
// 1 / n for a count, to about its last bit.
#ifdef __CUDACC__
KW_DEVICE float small_reciprocal(float n) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(n));
    return y;
}
KW_DEVICE double small_reciprocal(double n) { return 1.0 / n; }
#else
template <typename T> KW_DEVICE T small_reciprocal(T n) { return T(1) / n; }
#endif

// kw: Deviations
// The sum of (x - mean)^2 after Welford; parts are merged after Chan. All lanes have seen the same number of elements.
template <typename T, int N> struct Deviations {
    Vec<T, N> mean, squares;
    T count;
    KW_DEVICE void clear() {
        mean = fill<N>(T(0));
        squares = fill<N>(T(0));
        count = 0;
    }
    // Every lane is about to take an element: how much of the mean that element will be.
    KW_DEVICE T next() {
        count += 1;
        return small_reciprocal(count);
    }
    KW_DEVICE void add(int i, T x, T share) {
        const T before = x - mean[i];
        mean[i] = fma(before, share, mean[i]);
        squares[i] = fma(before, x - mean[i], squares[i]);
    }
    template <int M> KW_DEVICE void merge(const Deviations<T, M>& other, int from) {
        const T both = count + other.count;
        const T share = both > 0 ? other.count / both : T(0), overlap = count * share;
        KW_LANES for (int i = 0; i < N; ++i) {
            const T apart = other.mean[from + i] - mean[i];
            mean[i] = fma(apart, share, mean[i]);
            squares[i] = fma(apart * overlap, apart, squares[i] + other.squares[from + i]);
        }
        count = both;
    }
    KW_DEVICE T value(int i) const { return squares[i]; }
};

// kw: Exponentials
// The sum of exp(x - largest), scaled anew whenever a larger x comes: one exponential an element. The largest starts
// from a finite number, so that -infinity adds nothing; as in PyTorch, a row of nothing else, or with infinity, is NaN.
template <typename T, int N> struct Exponentials {
    Vec<T, N> largest, total;
    KW_DEVICE static constexpr T start() { return sizeof(T) == 4 ? T(-3.402823466e+38) : T(-1.7976931348623157e+308); }
    KW_DEVICE void clear() {
        largest = fill<N>(start());
        total = fill<N>(T(0));
    }
    KW_DEVICE void take(int i, T x, T amount) {
        const T apart = x - largest[i], scale = exp(-abs(apart));
        const bool grows = apart > 0;
        total[i] = fma(grows ? total[i] : amount, scale, grows ? amount : total[i]);
        largest[i] = grows ? x : largest[i];
    }
    KW_DEVICE void add(int i, T x) { take(i, x, T(1)); }
    template <int M> KW_DEVICE void merge(const Exponentials<T, M>& other, int from) {
        KW_LANES for (int i = 0; i < N; ++i) take(i, other.largest[from + i], other.total[from + i]);
    }
    KW_DEVICE T value(int i) const {
        const bool defined = (total[i] > 0) & (largest[i] < highest<T>());
        return defined ? total[i] : T(0) * highest<T>();
    }
};

// kw: folded
// What all lanes know together.
template <typename Body, int phase, int N>
KW_DEVICE typename Body::template State<phase, 1> folded(const typename Body::template State<phase, N>& lanes) {
    if constexpr (N == 1) {
        return lanes;
    } else {
        typename Body::template State<phase, N / 2> half;
        half.clear();
        half.merge(lanes, 0);
        half.merge(lanes, N / 2);
        return folded<Body, phase, N / 2>(half);
    }
}

}  // namespace kw
