// Monoids: what is known of a part of a row, for N rows or N parts of one row side by side. Each starts from `clear`,
// which is neutral, takes single elements by `add` (lane i, then the element) and other parts by `merge`. `folded` is
// what N parts of one row know together, by halves: the order is fixed, and so is every bit of the result.
#pragma once

#include "math.cuh"
#include "vec.cuh"

// kw: KW_HALVES
// Stands before a loop that halves a number of lanes.
#ifdef __CUDACC__
#define KW_HALVES _Pragma("unroll")
#else
#define KW_HALVES _Pragma("GCC unroll 16")
#endif

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
    KW_DEVICE void merge(const Sum& other) {
        KW_LANES for (int i = 0; i < N; ++i) total[i] = T(total[i] + other.total[i]);
    }
    KW_DEVICE Sum<T, 1> folded() const {
        Sum x = *this;
        KW_HALVES for (int half = N / 2; half > 0; half /= 2)
            KW_LANES for (int i = 0; i < half; ++i) x.total[i] = T(x.total[i] + x.total[half + i]);
        return {{x.total[0]}};
    }
    KW_DEVICE T value(int i) const { return total[i]; }
};

// kw: Product
template <typename T, int N> struct Product {
    Vec<T, N> total;
    KW_DEVICE void clear() { total = fill<N>(T(1)); }
    KW_DEVICE void add(int i, T x) { total[i] = T(total[i] * x); }
    KW_DEVICE void merge(const Product& other) {
        KW_LANES for (int i = 0; i < N; ++i) total[i] = T(total[i] * other.total[i]);
    }
    KW_DEVICE Product<T, 1> folded() const {
        Product x = *this;
        KW_HALVES for (int half = N / 2; half > 0; half /= 2)
            KW_LANES for (int i = 0; i < half; ++i) x.total[i] = T(x.total[i] * x.total[half + i]);
        return {{x.total[0]}};
    }
    KW_DEVICE T value(int i) const { return total[i]; }
};

// kw: Largest
// NaN if one element is.
template <typename T, int N> struct Largest {
    Vec<T, N> best;
    KW_DEVICE void clear() { best = fill<N>(lowest<T>()); }
    KW_DEVICE void add(int i, T x) { best[i] = maximum(T(best[i]), x); }
    KW_DEVICE void merge(const Largest& other) {
        KW_LANES for (int i = 0; i < N; ++i) best[i] = maximum(T(best[i]), T(other.best[i]));
    }
    KW_DEVICE Largest<T, 1> folded() const {
        Largest x = *this;
        KW_HALVES for (int half = N / 2; half > 0; half /= 2)
            KW_LANES for (int i = 0; i < half; ++i) x.best[i] = maximum(T(x.best[i]), T(x.best[half + i]));
        return {{x.best[0]}};
    }
    KW_DEVICE T value(int i) const { return best[i]; }
};

// kw: Smallest
// NaN if one element is.
template <typename T, int N> struct Smallest {
    Vec<T, N> best;
    KW_DEVICE void clear() { best = fill<N>(highest<T>()); }
    KW_DEVICE void add(int i, T x) { best[i] = minimum(T(best[i]), x); }
    KW_DEVICE void merge(const Smallest& other) {
        KW_LANES for (int i = 0; i < N; ++i) best[i] = minimum(T(best[i]), T(other.best[i]));
    }
    KW_DEVICE Smallest<T, 1> folded() const {
        Smallest x = *this;
        KW_HALVES for (int half = N / 2; half > 0; half /= 2)
            KW_LANES for (int i = 0; i < half; ++i) x.best[i] = minimum(T(x.best[i]), T(x.best[half + i]));
        return {{x.best[0]}};
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
    KW_DEVICE void merge(const LargestAt& other) {
        KW_LANES for (int i = 0; i < N; ++i) add(i, other.best[i], other.at[i]);
    }
    KW_DEVICE LargestAt<T, Index, 1> folded() const {
        LargestAt x = *this;
        KW_HALVES for (int half = N / 2; half > 0; half /= 2)
            KW_LANES for (int i = 0; i < half; ++i) x.add(i, x.best[half + i], x.at[half + i]);
        return {{x.best[0]}, {x.at[0]}};
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
    KW_DEVICE void merge(const SmallestAt& other) {
        KW_LANES for (int i = 0; i < N; ++i) add(i, other.best[i], other.at[i]);
    }
    KW_DEVICE SmallestAt<T, Index, 1> folded() const {
        SmallestAt x = *this;
        KW_HALVES for (int half = N / 2; half > 0; half /= 2)
            KW_LANES for (int i = 0; i < half; ++i) x.add(i, x.best[half + i], x.at[half + i]);
        return {{x.best[0]}, {x.at[0]}};
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
    KW_DEVICE void merge(const Deviations& other) {
        const T both = count + other.count;
        const T share = both > 0 ? other.count / both : T(0), overlap = count * share;
        KW_LANES for (int i = 0; i < N; ++i) {
            const T apart = other.mean[i] - mean[i];
            mean[i] = fma(apart, share, mean[i]);
            squares[i] = fma(apart * overlap, apart, squares[i] + other.squares[i]);
        }
        count = both;
    }
    KW_DEVICE Deviations<T, 1> folded() const {
        Deviations x = *this;
        KW_HALVES for (int half = N / 2; half > 0; half /= 2) {  // of lanes that have all seen `count` elements
            KW_LANES for (int i = 0; i < half; ++i) {
                const T apart = x.mean[half + i] - x.mean[i];
                x.mean[i] = fma(apart, T(0.5), x.mean[i]);
                x.squares[i] = fma(apart * (T(0.5) * x.count), apart, x.squares[i] + x.squares[half + i]);
            }
            x.count *= 2;
        }
        return {{x.mean[0]}, {x.squares[0]}, x.count};
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
    KW_DEVICE void merge(const Exponentials& other) {
        KW_LANES for (int i = 0; i < N; ++i) take(i, other.largest[i], other.total[i]);
    }
    KW_DEVICE Exponentials<T, 1> folded() const {
        Exponentials x = *this;
        KW_HALVES for (int half = N / 2; half > 0; half /= 2)
            KW_LANES for (int i = 0; i < half; ++i)
                x.largest[i] = x.largest[half + i] > x.largest[i] ? x.largest[half + i] : x.largest[i];
        const T all = x.largest[0];
        KW_LANES for (int i = 0; i < N; ++i) x.total[i] *= exp(largest[i] - all);
        KW_HALVES for (int half = N / 2; half > 0; half /= 2)
            KW_LANES for (int i = 0; i < half; ++i) x.total[i] += x.total[half + i];
        return {{all}, {x.total[0]}};
    }
    KW_DEVICE T value(int i) const {
        const bool defined = (total[i] > 0) & (largest[i] < highest<T>());
        return defined ? total[i] : T(0) * highest<T>();
    }
};

}  // namespace kw
