// Monoids: what is known of a part of a row, for N rows or N parts of one row side by side. Each starts from `clear`,
// which is neutral, takes single elements by `add` (lane i, then the element) and other parts by `merge`. `folded` is
// what N parts of one row know together, `lane` what one of N rows knows. All orders are fixed, and so is every bit of a
// result.
#pragma once

#include "math.cuh"
#include "vec.cuh"

// kw: KW_FOLD
// Stands before a loop that makes one value of all lanes: KW_FOLD(+ : sum). In the order of the lanes on a GPU, in a tree
// that the compiler lays out on a CPU.
#ifdef __CUDACC__
#define KW_FOLD(...) _Pragma("unroll")
#else
#define KW_TEXT(...) #__VA_ARGS__
#define KW_FOLD(...) _Pragma(KW_TEXT(omp simd reduction(__VA_ARGS__)))
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

// kw: Divisor divided
// What a whole row is divided by. On a GPU a division is a subroutine, so the inverse is found once: the quotient is
// then refined by what is left of x, to the nearest float.
#ifdef __CUDACC__
template <typename T> struct Divisor {
    T y;
    KW_DEVICE explicit Divisor(T value) : y(value) {}
};
template <> struct Divisor<float> {
    float scale, y, inverse;  // scaled, so that the inverse is neither infinite nor denormal
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
#else
template <typename T> struct Divisor {
    T y;
    KW_DEVICE explicit Divisor(T value) : y(value) {}
};
template <typename T> KW_DEVICE T divided(T x, const Divisor<T>& by) { return x / by.y; }
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
        T sum = 0;
        KW_FOLD(+ : sum) for (int i = 0; i < N; ++i) sum = T(sum + total[i]);
        return {{sum}};
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
        T product = 1;
        KW_FOLD(* : product) for (int i = 0; i < N; ++i) product = T(product * total[i]);
        return {{product}};
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
        T most = lowest<T>();
        int nan = 0;
        KW_FOLD(max : most) for (int i = 0; i < N; ++i) most = T(best[i]) > most ? T(best[i]) : most;
        KW_FOLD(| : nan) for (int i = 0; i < N; ++i) nan |= best[i] != best[i];
        return {{nan ? T(lowest<T>() * T(0)) : most}};
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
        T least = highest<T>();
        int nan = 0;
        KW_FOLD(min : least) for (int i = 0; i < N; ++i) least = T(best[i]) < least ? T(best[i]) : least;
        KW_FOLD(| : nan) for (int i = 0; i < N; ++i) nan |= best[i] != best[i];
        return {{nan ? T(highest<T>() * T(0)) : least}};
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
        T most = lowest<T>();
        int nan = 0;
        Index first = highest<Index>();
        KW_FOLD(max : most) for (int i = 0; i < N; ++i) most = T(best[i]) > most ? T(best[i]) : most;
        KW_FOLD(| : nan) for (int i = 0; i < N; ++i) nan |= best[i] != best[i];
        KW_FOLD(min : first) for (int i = 0; i < N; ++i) {
            const Index place = (nan ? best[i] != best[i] : best[i] == most) ? at[i] : highest<Index>();
            first = place < first ? place : first;
        }
        return {{nan ? T(lowest<T>() * T(0)) : most}, {first}};
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
        T least = highest<T>();
        int nan = 0;
        Index first = highest<Index>();
        KW_FOLD(min : least) for (int i = 0; i < N; ++i) least = T(best[i]) < least ? T(best[i]) : least;
        KW_FOLD(| : nan) for (int i = 0; i < N; ++i) nan |= best[i] != best[i];
        KW_FOLD(min : first) for (int i = 0; i < N; ++i) {
            const Index place = (nan ? best[i] != best[i] : best[i] == least) ? at[i] : highest<Index>();
            first = place < first ? place : first;
        }
        return {{nan ? T(highest<T>() * T(0)) : least}, {first}};
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
        const T share = both > 0 ? other.count / both : T(0), overlap = count * share;
        KW_LANES for (int i = 0; i < N; ++i) {
            const T apart = other.mean[i] - mean[i];
            mean[i] = fma(apart, share, mean[i]);
            squares[i] = fma(apart * overlap, apart, squares[i] + other.squares[i]);
        }
        count = both;
    }
    KW_DEVICE Deviations<T, 1> folded() const {
        T sum = 0, inside = 0, between = 0;
        KW_FOLD(+ : sum) for (int i = 0; i < N; ++i) sum += mean[i];
        const T all = sum * T(1.0 / N);
        KW_FOLD(+ : inside) for (int i = 0; i < N; ++i) inside += squares[i];
        KW_FOLD(+ : between) for (int i = 0; i < N; ++i) between += (mean[i] - all) * (mean[i] - all);
        return {{all}, {fma(between, count, inside)}, count * N};
    }
    KW_DEVICE Deviations<T, 1> lane(int i) const { return {{mean[i]}, {squares[i]}, count}; }
    KW_DEVICE T value(int i) const { return squares[i]; }
};

// kw: exp_falling
// e^x for x <= 0, to 2^-22 of 1, which is the largest: for sums of them. What would be denormal may be 0.
#ifdef __CUDACC__
KW_DEVICE float exp_falling(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}
KW_DEVICE double exp_falling(double x) { return exp(x); }
#else
KW_DEVICE float exp_falling(float x) { return exp_bounded(x < -88.0f ? -88.0f : x); }  // NaN stays
KW_DEVICE double exp_falling(double x) { return exp(x); }
#endif

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
        T all = start(), sum = 0;
        KW_FOLD(max : all) for (int i = 0; i < N; ++i) all = largest[i] > all ? largest[i] : all;
        KW_FOLD(+ : sum) for (int i = 0; i < N; ++i) sum += total[i] * exp_falling(largest[i] - all);
        return {{all}, {sum}};
    }
    KW_DEVICE Exponentials<T, 1> lane(int i) const { return {{largest[i]}, {total[i]}}; }
    KW_DEVICE T value(int i) const {
        const bool defined = (total[i] > 0) & (largest[i] < highest<T>());
        return defined ? total[i] : T(0) * highest<T>();
    }
};

}  // namespace kw
