// Order, sign, rounding and division: functions without error, on floats and integers.
#pragma once

#include "base.cuh"

namespace kw {

// kw: abs
template <typename T> KW_DEVICE T abs(T x) { return x < 0 ? T(0 - x) : x; }
#ifdef __CUDACC__
KW_DEVICE float abs(float x) { return ::fabsf(x); }
KW_DEVICE double abs(double x) { return ::fabs(x); }
#else
KW_DEVICE float abs(float x) { return __builtin_fabsf(x); }
KW_DEVICE double abs(double x) { return __builtin_fabs(x); }
#endif

// kw: sign
template <typename T> KW_DEVICE T sign(T x) { return T((x > 0) - (x < 0)); }  // NaN gives 0, as in PyTorch

// kw: reciprocal
template <typename T> KW_DEVICE T reciprocal(T x) { return T(1) / x; }

// kw: minimum
template <typename T> KW_DEVICE T minimum(T a, T b) { return (a < b) | (a != a) ? a : b; }  // NaN if either is
#ifdef __CUDACC__
KW_DEVICE float minimum(float a, float b) {
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
#endif

// kw: maximum
template <typename T> KW_DEVICE T maximum(T a, T b) { return (a > b) | (a != a) ? a : b; }  // NaN if either is
#ifdef __CUDACC__
KW_DEVICE float maximum(float a, float b) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
#endif

// kw: fmin
template <typename T> KW_DEVICE T fmin(T a, T b) { return (a < b) | (b != b) ? a : b; }  // NaN only if both are

// kw: fmax
template <typename T> KW_DEVICE T fmax(T a, T b) { return (a > b) | (b != b) ? a : b; }  // NaN only if both are
#ifdef __CUDACC__
KW_DEVICE float fmax(float a, float b) { return ::fmaxf(a, b); }  // one instruction
#endif

// kw: isnan
template <typename T> KW_DEVICE bool isnan(T x) { return x != x; }

// kw: isfinite
KW_DEVICE bool isfinite(float x) { return abs(x) <= 3.402823466e+38f; }
KW_DEVICE bool isfinite(double x) { return abs(x) <= 1.7976931348623157e+308; }

// kw: isinf
KW_DEVICE bool isinf(float x) { return abs(x) > 3.402823466e+38f; }
KW_DEVICE bool isinf(double x) { return abs(x) > 1.7976931348623157e+308; }

// kw: signbit
template <typename T> KW_DEVICE bool signbit(T x) { return x < 0; }
KW_DEVICE bool signbit(float x) { return float_bits(x) >> 31; }
KW_DEVICE bool signbit(double x) { return double_bits(x) >> 63; }

// kw: copysign
#ifdef __CUDACC__
KW_DEVICE float copysign(float x, float from) { return ::copysignf(x, from); }
KW_DEVICE double copysign(double x, double from) { return ::copysign(x, from); }
#else
KW_DEVICE float copysign(float x, float from) { return __builtin_copysignf(x, from); }
KW_DEVICE double copysign(double x, double from) { return __builtin_copysign(x, from); }
#endif

// kw: nan_to_num
template <typename T> KW_DEVICE T nan_to_num(T x, T nan, T positive_infinity, T negative_infinity) {
    const T number = isnan(x) ? nan : x;
    return isinf(x) ? (x > 0 ? positive_infinity : negative_infinity) : number;
}

// kw: floor
#ifdef __CUDACC__
KW_DEVICE float floor(float x) { return ::floorf(x); }
KW_DEVICE double floor(double x) { return ::floor(x); }
#else
KW_DEVICE float floor(float x) { return __builtin_floorf(x); }
KW_DEVICE double floor(double x) { return __builtin_floor(x); }
#endif

// kw: ceil
#ifdef __CUDACC__
KW_DEVICE float ceil(float x) { return ::ceilf(x); }
KW_DEVICE double ceil(double x) { return ::ceil(x); }
#else
KW_DEVICE float ceil(float x) { return __builtin_ceilf(x); }
KW_DEVICE double ceil(double x) { return __builtin_ceil(x); }
#endif

// kw: round
#ifdef __CUDACC__
KW_DEVICE float round(float x) { return ::rintf(x); }  // ties to even
KW_DEVICE double round(double x) { return ::rint(x); }
#else
KW_DEVICE float round(float x) { return __builtin_rintf(x); }  // ties to even
KW_DEVICE double round(double x) { return __builtin_rint(x); }
#endif

// kw: trunc
#ifdef __CUDACC__
KW_DEVICE float trunc(float x) { return ::truncf(x); }
KW_DEVICE double trunc(double x) { return ::trunc(x); }
#else
KW_DEVICE float trunc(float x) { return __builtin_truncf(x); }
KW_DEVICE double trunc(double x) { return __builtin_trunc(x); }
#endif

// kw: frac
template <typename T> KW_DEVICE T frac(T x) { return x - trunc(x); }

// kw: sqrt
#ifdef __CUDACC__
KW_DEVICE float sqrt(float x) { return ::sqrtf(x); }
KW_DEVICE double sqrt(double x) { return ::sqrt(x); }
#else
KW_DEVICE float sqrt(float x) { return __builtin_sqrtf(x); }
KW_DEVICE double sqrt(double x) { return __builtin_sqrt(x); }
#endif

// kw: rsqrt
#ifdef __CUDACC__
KW_DEVICE float rsqrt(float x) { return ::rsqrtf(x); }
KW_DEVICE double rsqrt(double x) { return ::rsqrt(x); }
#else
template <typename T> KW_DEVICE T rsqrt(T x) { return T(1) / sqrt(x); }
#endif

// kw: fma
#ifdef __CUDACC__
KW_DEVICE float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
KW_DEVICE double fma(double a, double b, double c) { return ::fma(a, b, c); }
#else
#ifdef __FP_FAST_FMA
KW_DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KW_DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else  // emulation would cost a call for each element and gain little
KW_DEVICE float fma(float a, float b, float c) { return a * b + c; }
KW_DEVICE double fma(double a, double b, double c) { return a * b + c; }
#endif
#endif

// kw: inverse
// 1 / b for b from 1 on. On a GPU it is one instruction, off by at most one unit in the last place; what would be denormal
// is 0 there.
template <typename T> KW_DEVICE T inverse(T b) { return T(1) / b; }
#ifdef __CUDACC__
KW_DEVICE float inverse(float b) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(b));
    return y;
}
#endif

// kw: quotient
// a / b for |a| <= 2^64 and b from 1 to 2^64, rounded to nearest. On a GPU IEEE division calls a subroutine for what lies
// outside; where registers are short, room for that call costs spills.
template <typename T> KW_DEVICE T quotient(T a, T b) { return a / b; }
#ifdef __CUDACC__
KW_DEVICE float quotient(float a, float b) {
    const float close = inverse(b);
    const float closer = fma(close, fma(-b, close, 1.0f), close);
    const float first = a * closer;
    return fma(fma(-b, first, a), closer, first);
}
#endif

// kw: over_number
// a / b for a number b that is known when this is compiled, from 2^-100 to 2^100 or the negative of one, and not the last
// before a power of two: rounded to nearest, by Markstein's correction. Where |a| is less than 2^-100, and where the result
// is denormal or the largest of all, it is at most one unit beside that.
template <typename T> KW_DEVICE T over_number(T a, T b) { return a / b; }
#ifdef __CUDACC__
KW_DEVICE float over_number(float a, float b) {
    const float inverse = 1.0f / b, close = a * inverse, left = fma(-b, close, a);
    return abs(left) < abs(a) ? fma(left, inverse, close) : close;  // not for 0, infinity and NaN
}
#endif

// kw: lerp
template <typename T> KW_DEVICE T lerp(T a, T b, T weight) {  // from the nearer end, so that both ends are met exactly
    const bool near_a = abs(weight) < T(0.5);
    return fma(near_a ? weight : weight - T(1), b - a, near_a ? a : b);
}

// kw: hypot
#ifdef __CUDACC__
KW_DEVICE float hypot(float a, float b) { return ::hypotf(a, b); }
KW_DEVICE double hypot(double a, double b) { return ::hypot(a, b); }
#else
KW_DEVICE float hypot(float a, float b) {  // squares of floats are exact in double and do not overflow
    const float length = float(sqrt(double(a) * double(a) + double(b) * double(b)));
    return isinf(a) | isinf(b) ? __builtin_inff() : length;
}
KW_DEVICE double hypot(double a, double b) { return __builtin_hypot(a, b); }
#endif

// kw: trunc_divide
// Integers divided by 0 give 0: a kernel cannot raise ZeroDivisionError, and the processor must not trap.
template <typename T> KW_DEVICE T trunc_divide(T a, T b) {
    const bool negates = (T(-1) < T(0)) & (b == T(-1));  // the least integer divided by -1 traps too
    const T quotient = T(a / ((b == 0) | negates ? T(1) : b));
    return b == 0 ? T(0) : negates ? T(uint64_t(0) - uint64_t(a)) : quotient;
}
KW_DEVICE float trunc_divide(float a, float b) { return trunc(a / b); }
KW_DEVICE double trunc_divide(double a, double b) { return trunc(a / b); }

// kw: fmod
// What is left of trunc_divide, with the sign of a.
template <typename T> KW_DEVICE T fmod(T a, T b) {
    const bool zero = (b == 0) | ((T(-1) < T(0)) & (b == T(-1)));
    const T rest = T(a % (zero ? T(1) : b));
    return zero ? T(0) : rest;
}
#ifdef __CUDACC__
KW_DEVICE float fmod(float a, float b) { return ::fmodf(a, b); }
KW_DEVICE double fmod(double a, double b) { return ::fmod(a, b); }
#else
KW_DEVICE float fmod(float a, float b) { return __builtin_fmodf(a, b); }
KW_DEVICE double fmod(double a, double b) { return __builtin_fmod(a, b); }
#endif

// kw: remainder
// What is left of floor_divide, with the sign of b.
template <typename T> KW_DEVICE T remainder(T a, T b) {
    const T rest = fmod(a, b);
    return (rest != 0) & ((rest < 0) != (b < 0)) ? T(rest + b) : rest;
}

// kw: floor_divide
template <typename T> KW_DEVICE T floor_divide(T a, T b) {
    const T rest = fmod(a, b);
    return T(trunc_divide(a, b) - ((rest != 0) & ((rest < 0) != (b < 0))));
}
// Through the exact remainder, as in Python: the rounded quotient a / b may lie on the wrong side of an integer.
template <typename T> KW_DEVICE T floor_divide_float(T a, T b) {
    const T rest = fmod(a, b);
    const T quotient = (a - rest) / b - T((rest != 0) & ((rest < 0) != (b < 0)));
    const T below = floor(quotient);
    const T nearest = quotient - below > T(0.5) ? below + T(1) : below;
    const T whole = quotient != 0 ? nearest : copysign(T(0), a / b);
    return b == 0 ? a / b : whole;
}
KW_DEVICE float floor_divide(float a, float b) { return floor_divide_float(a, b); }
KW_DEVICE double floor_divide(double a, double b) { return floor_divide_float(a, b); }

}  // namespace kw
