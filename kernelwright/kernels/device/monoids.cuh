// Monoids: what is known of a part of a row, for N rows or N parts of one row side by side. Each starts from `clear`,
// which is neutral, takes single elements by `add` (lane i, then the element) and other parts by `merge`. `folded` is
// what N parts of one row know together, `lane` what one of N rows knows. All orders are fixed, and so is every bit of a
// result.
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

// kw: folded
// One value of all lanes: in their order on a GPU; on a CPU half of them with the other half, and so on, each a vector
// instruction. (A loop with OpenMP's reduction clause ends in a chain of single additions, four times as many of them.)
#ifdef __CUDACC__
template <typename T, int N, typename Both> KW_DEVICE T folded(const Vec<T, N>& x, T start, Both both) {
#pragma unroll
    for (int i = 0; i < N; ++i) start = both(start, x[i]);
    return start;
}
#else
template <typename T, int N, typename Both> KW_DEVICE T folded(const Vec<T, N>& x, T start, Both both) {
    if constexpr (N % 2 != 0) {
        for (int i = 0; i < N; ++i) start = both(start, x[i]);
        return start;
    } else {
        Vec<T, N / 2> half;
        KW_LANES for (int i = 0; i < N / 2; ++i) half[i] = both(T(x[i]), T(x[i + N / 2]));
        return folded(half, start, both);
    }
}
#endif

// kw: Plus
struct Plus {
    template <typename T> KW_DEVICE T operator()(T a, T b) const { return T(a + b); }
};

// kw: Times
struct Times {
    template <typename T> KW_DEVICE T operator()(T a, T b) const { return T(a * b); }
};

// kw: Larger
struct Larger {
    template <typename T> KW_DEVICE T operator()(T a, T b) const { return b > a ? b : a; }
};

// kw: LargerNumber
// NaN only if both are.
struct LargerNumber {
    template <typename T> KW_DEVICE T operator()(T a, T b) const { return fmax(a, b); }
};

// kw: Smaller
struct Smaller {
    template <typename T> KW_DEVICE T operator()(T a, T b) const { return b < a ? b : a; }
};

// kw: has_nan
// Whether a lane is no number.
template <typename T, int N> KW_DEVICE bool has_nan(const Vec<T, N>& x) {
    Vec<int, N> nan;
    KW_LANES for (int i = 0; i < N; ++i) nan[i] = x[i] != x[i];
    return folded(nan, 0, Larger()) != 0;
}

// kw: Divisor divided over
// What a whole row is divided by. On a GPU a division is a subroutine, so the inverse is found once: the quotient is
// then refined by what is left of x, to the nearest float; not where x itself is an exponential, and no nearest float.
#ifdef __CUDACC__
template <typename T> struct Divisor {
    T y;
    Divisor() = default;
    KW_DEVICE explicit Divisor(T value) : y(value) {}
};
template <> struct Divisor<float> {
    float scale, y, inverse;  // scaled, so that the inverse is neither infinite nor denormal
    Divisor() = default;
    KW_DEVICE explicit Divisor(float value)
        : scale(abs(value) < 0x1p-60f ? 0x1p64f : abs(value) > 0x1p60f ? 0x1p-64f : 1.0f),
          y(value * scale),
          inverse(1.0f / y) {}
};
template <typename T> KW_DEVICE T divided(T x, const Divisor<T>& by) { return x / by.y; }
KW_DEVICE float divided(float x, const Divisor<float>& by) {
    const float scaled = x * by.scale, quotient = scaled * by.inverse, size = abs(quotient);
    const float refined = fma(fma(-quotient, by.y, scaled), by.inverse, quotient);
    return (size > 0x1p-100f) & (size < 0x1p100f) ? refined : quotient;  // not for 0, infinity and NaN
}
template <typename T> KW_DEVICE T over(T x, const Divisor<T>& by) { return x / by.y; }
KW_DEVICE float over(float x, const Divisor<float>& by) { return x * by.scale * by.inverse; }
#else
template <typename T> struct Divisor {
    T y;
    Divisor() = default;
    KW_DEVICE explicit Divisor(T value) : y(value) {}
};
template <typename T> KW_DEVICE T divided(T x, const Divisor<T>& by) { return x / by.y; }
template <typename T> KW_DEVICE T over(T x, const Divisor<T>& by) { return x / by.y; }
#endif

// kw: Sum
template <typename T, int N> struct Sum {
    Vec<T, N> total;
    KW_DEVICE void clear() { total = fill<N>(T(0)); }
    KW_DEVICE void add(int i, T x) { total[i] = T(total[i] + x); }
    KW_DEVICE void merge(const Sum& other) {
        KW_LANES for (int i = 0; i < N; ++i) total[i] = T(total[i] + other.total[i]);
    }
    KW_DEVICE Sum<T, 1> folded() const {
        return {{kw::folded(total, T(0), Plus())}};
    }
    KW_DEVICE Sum<T, 1> lane(int i) const { return {{total[i]}}; }
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
        return {{kw::folded(total, T(1), Times())}};
    }
    KW_DEVICE Product<T, 1> lane(int i) const { return {{total[i]}}; }
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
        const T most = kw::folded(best, lowest<T>(), Larger());
        return {{has_nan(best) ? T(lowest<T>() * T(0)) : most}};
    }
    KW_DEVICE Largest<T, 1> lane(int i) const { return {{best[i]}}; }
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
        const T least = kw::folded(best, highest<T>(), Smaller());
        return {{has_nan(best) ? T(highest<T>() * T(0)) : least}};
    }
    KW_DEVICE Smallest<T, 1> lane(int i) const { return {{best[i]}}; }
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
    // The same for a place after all that were added before. What a state starts from never wins, so
    // that a row of nothing else has no place: its first element is at 0.
    KW_DEVICE void add_next(int i, T x, Index place) {
        const T held = best[i];
        const bool wins = !(x <= held) & (held == held);
        best[i] = wins ? x : held;
        at[i] = wins ? place : at[i];
    }
    KW_DEVICE void merge(const LargestAt& other) {
        KW_LANES for (int i = 0; i < N; ++i) add(i, other.best[i], other.at[i]);
    }
    KW_DEVICE LargestAt<T, Index, 1> folded() const {
        const T most = kw::folded(best, lowest<T>(), Larger());
        const bool nan = has_nan(best);
        Vec<Index, N> places;
        KW_LANES for (int i = 0; i < N; ++i)
            places[i] = (nan ? best[i] != best[i] : best[i] == most) ? at[i] : highest<Index>();
        return {{nan ? T(lowest<T>() * T(0)) : most}, {kw::folded(places, highest<Index>(), Smaller())}};
    }
    KW_DEVICE LargestAt<T, Index, 1> lane(int i) const { return {{best[i]}, {at[i]}}; }
    KW_DEVICE int64_t value(int i) const { return at[i] == highest<Index>() ? 0 : at[i]; }
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
    // The same for a place after all that were added before. What a state starts from never wins, so
    // that a row of nothing else has no place: its first element is at 0.
    KW_DEVICE void add_next(int i, T x, Index place) {
        const T held = best[i];
        const bool wins = !(x >= held) & (held == held);
        best[i] = wins ? x : held;
        at[i] = wins ? place : at[i];
    }
    KW_DEVICE void merge(const SmallestAt& other) {
        KW_LANES for (int i = 0; i < N; ++i) add(i, other.best[i], other.at[i]);
    }
    KW_DEVICE SmallestAt<T, Index, 1> folded() const {
        const T least = kw::folded(best, highest<T>(), Smaller());
        const bool nan = has_nan(best);
        Vec<Index, N> places;
        KW_LANES for (int i = 0; i < N; ++i)
            places[i] = (nan ? best[i] != best[i] : best[i] == least) ? at[i] : highest<Index>();
        return {{nan ? T(highest<T>() * T(0)) : least}, {kw::folded(places, highest<Index>(), Smaller())}};
    }
    KW_DEVICE SmallestAt<T, Index, 1> lane(int i) const { return {{best[i]}, {at[i]}}; }
    KW_DEVICE int64_t value(int i) const { return at[i] == highest<Index>() ? 0 : at[i]; }
};

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
        return inverse(count);
    }
    KW_DEVICE void add(int i, T x, T share) {
        const T before = x - mean[i];
        mean[i] = fma(before, share, mean[i]);
        squares[i] = fma(before, x - mean[i], squares[i]);
    }
    KW_DEVICE void merge(const Deviations& other) {
        const T both = count + other.count;
        const T share = both > 0 ? other.count * inverse(both) : T(0), overlap = count * share;
        KW_LANES for (int i = 0; i < N; ++i) {
            const T apart = other.mean[i] - mean[i];
            mean[i] = fma(apart, share, mean[i]);
            squares[i] = fma(apart * overlap, apart, squares[i] + other.squares[i]);
        }
        count = both;
    }
    KW_DEVICE Deviations<T, 1> folded() const {
        const T all = kw::folded(mean, T(0), Plus()) * T(1.0 / N);
        Vec<T, N> apart;
        KW_LANES for (int i = 0; i < N; ++i) apart[i] = (mean[i] - all) * (mean[i] - all);
        const T inside = kw::folded(squares, T(0), Plus()), between = kw::folded(apart, T(0), Plus());
        return {{all}, {fma(between, count, inside)}, count * N};
    }
    KW_DEVICE Deviations<T, 1> lane(int i) const { return {{mean[i]}, {squares[i]}, count}; }
    KW_DEVICE T value(int i) const { return squares[i]; }
};

// kw: exp_falling
// e^x for x <= 0, to 2^-22 of 1, which is the largest: for sums of them. What would be denormal may be 0.
#ifdef __CUDACC__
KW_DEVICE float exp_falling(float x) { return exp2_bounded(x * 1.44269504f); }
#else
KW_DEVICE float exp_falling(float x) { return exp_bounded(x < -88.0f ? -88.0f : x); }  // NaN stays
#endif
KW_DEVICE double exp_falling(double x) { return exp(x); }

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
        const T apart = x - largest[i], scale = exp_falling(-abs(apart));
        const bool grows = apart > 0;
        total[i] = fma(grows ? total[i] : amount, scale, grows ? amount : total[i]);
        largest[i] = grows ? x : largest[i];
    }
    KW_DEVICE void add(int i, T x) { take(i, x, T(1)); }
    KW_DEVICE void merge(const Exponentials& other) {
        KW_LANES for (int i = 0; i < N; ++i) take(i, other.largest[i], other.total[i]);
    }
    KW_DEVICE Exponentials<T, 1> folded() const {
        const T all = kw::folded(largest, start(), Larger());
        Vec<T, N> scaled;
        KW_LANES for (int i = 0; i < N; ++i) scaled[i] = total[i] * exp_falling(largest[i] - all);
        return {{all}, {kw::folded(scaled, T(0), Plus())}};
    }
    KW_DEVICE Exponentials<T, 1> lane(int i) const { return {{largest[i]}, {total[i]}}; }
    KW_DEVICE T value(int i) const {
        const bool defined = (total[i] > 0) & (largest[i] < highest<T>());
        return defined ? total[i] : T(0) * highest<T>();
    }
};

// kw: ExponentialsAlong
// The same for neighbours in one row, which have one largest: each vector is scaled once, by what it makes that grow.
template <typename T, int N> struct ExponentialsAlong {
    T largest;
    Vec<T, N> total;
    KW_DEVICE void clear() {
        largest = Exponentials<T, 1>::start();
        total = fill<N>(T(0));
    }
    KW_DEVICE T scaled_to(T most) {
        const T before = largest;
        largest = fmax(largest, most);
        return exp_falling(before - largest);
    }
    KW_DEVICE void add(const Vec<T, N>& x) {
        const T scale = scaled_to(kw::folded(x, Exponentials<T, 1>::start(), LargerNumber()));
        KW_LANES for (int i = 0; i < N; ++i) total[i] = fma(total[i], scale, exp_falling(x[i] - largest));
    }
    KW_DEVICE void merge(const ExponentialsAlong& other) {
        const T scale = scaled_to(other.largest), others = exp_falling(other.largest - largest);
        KW_LANES for (int i = 0; i < N; ++i) total[i] = fma(total[i], scale, other.total[i] * others);
    }
    KW_DEVICE ExponentialsAlong<T, 1> folded() const {
        return {largest, {kw::folded(total, T(0), Plus())}};
    }
    KW_DEVICE T value(int i) const { return Exponentials<T, 1>{{largest}, {total[i]}}.value(0); }
};

}  // namespace kw
