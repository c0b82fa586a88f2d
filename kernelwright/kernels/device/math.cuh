// Elementary functions. On a GPU they are the accurate ones of the CUDA library. On a CPU they are written without
// branches, so that a loop over them becomes vector instructions; the errors stated are the largest found against
// float64, in units in the last place. Two kinds: in float arithmetic where speed counts, in double arithmetic ("wide")
// where accuracy would otherwise need two floats for each value. Polynomials are minimax fits on the stated interval.
#pragma once

#include "arithmetic.cuh"

namespace kw {

// kw: power_of_two
// 2^n for -126 <= n <= 127.
KW_DEVICE float power_of_two(int32_t n) { return bits_float(uint32_t(n + 127) << 23); }

// kw: ExpArgument exp_argument
#ifndef __CUDACC__
// x = exponent ln(2) + high + low; high is exact, low less than 2^-12.
struct ExpArgument { int32_t exponent; float high, low; };
KW_DEVICE ExpArgument exp_argument(float x) {
    const float shifted = fma(x, 1.44269504f, 12582912.0f);  // 1.5 2^23: the integer is in the low bits of the sum
    const float n = shifted - 12582912.0f;
    return {int32_t(float_bits(shifted)) - 0x4b400000, fma(n, -0.693145752f, x), n * -1.42860682e-6f};
}
#endif

// kw: exp_reduced
#ifndef __CUDACC__
KW_DEVICE float exp_reduced(float r) {  // e^r for |r| <= ln(2) / 2
    float p = 0.0013836423f;
    p = fma(p, r, 0.008369131f);
    p = fma(p, r, 0.041668106f);
    p = fma(p, r, 0.16666517f);
    p = fma(p, r, 0.49999994f);
    p = fma(p, r, 1.0f);
    return fma(p, r, 1.0f);
}
#endif

// kw: exp2_bounded
#ifdef __CUDACC__
KW_DEVICE float exp2_bounded(float x) {  // 2^x, to 2^-22 of itself; what would be denormal is 0
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

// kw: exp_bounded
#ifndef __CUDACC__
// e^x for -10^6 < x < 88; below -87.3, where the result would be denormal, it is 0.
KW_DEVICE float exp_bounded(float x) {
    const ExpArgument a = exp_argument(x);
    const int32_t biased = a.exponent + 127;
    return exp_reduced(a.high + a.low) * bits_float(uint32_t(biased > 0 ? biased : 0) << 23);
}
#endif

// kw: exp_times_power_of_two
#ifndef __CUDACC__
// e^x 2^k for small k, without overflow or underflow on the way.
KW_DEVICE float exp_times_power_of_two(float x, int32_t k) {
    const float upper = x > 90.0f ? 90.0f : x;  // e^90 is infinite, e^-105 is 0, NaN stays
    const ExpArgument a = exp_argument(upper < -105.0f ? -105.0f : upper);
    const int32_t exponent = a.exponent + k, first = exponent >> 1;  // in two steps: 2^exponent may be no normal float
    return exp_reduced(a.high + a.low) * power_of_two(first) * power_of_two(exponent - first);
}
#endif

// kw: exp
#ifdef __CUDACC__
KW_DEVICE float exp(float x) { return ::expf(x); }
KW_DEVICE double exp(double x) { return ::exp(x); }
#else
KW_DEVICE float exp(float x) { return exp_times_power_of_two(x, 0); }
KW_DEVICE double exp(double x) { return __builtin_exp(x); }
#endif

// kw: exp2
#ifdef __CUDACC__
KW_DEVICE float exp2(float x) { return ::exp2f(x); }
KW_DEVICE double exp2(double x) { return ::exp2(x); }
#else
KW_DEVICE float exp2(float x) {
    const float upper = x > 129.0f ? 129.0f : x;
    const float bounded = upper < -151.0f ? -151.0f : upper;
    const float shifted = bounded + 12582912.0f;
    const float r = bounded - (shifted - 12582912.0f);  // |r| <= 1/2
    float p = 0.00015850265f;
    p = fma(p, r, 0.0013419403f);
    p = fma(p, r, 0.009617026f);
    p = fma(p, r, 0.055502728f);
    p = fma(p, r, 0.24022655f);
    p = fma(p, r, 0.69314724f);
    p = fma(p, r, 1.0f);
    const int32_t exponent = int32_t(float_bits(shifted)) - 0x4b400000;
    const int32_t first = exponent >> 1;
    return p * power_of_two(first) * power_of_two(exponent - first);
}
KW_DEVICE double exp2(double x) { return __builtin_exp2(x); }
#endif

// kw: expm1
#ifdef __CUDACC__
KW_DEVICE float expm1(float x) { return ::expm1f(x); }
KW_DEVICE double expm1(double x) { return ::expm1(x); }
#else
KW_DEVICE float expm1(float x) {
    const float upper = x > 89.0f ? 89.0f : x;  // e^89 is infinite, NaN stays
    const ExpArgument a = exp_argument(upper < -30.0f ? -30.0f : upper);
    const float r = a.high + a.low;
    float q = 0.00019661864f;
    q = fma(q, r, 0.0013935094f);
    q = fma(q, r, 0.008333644f);
    q = fma(q, r, 0.041666467f);
    q = fma(q, r, 0.16666666f);
    q = fma(q, r, 0.5f);
    const float p = a.high + fma(q, r * r, a.low);          // e^r - 1
    const float half_scale = power_of_two(a.exponent - 1);  // 2^128 is no float
    const float half_y = fma(p, half_scale, half_scale - 0.5f);
    return copysign(a.exponent == 0 ? p : half_y + half_y, x);
}
KW_DEVICE double expm1(double x) { return __builtin_expm1(x); }
#endif

// kw: log_reduced
// ln(1 + f) for sqrt(1/2) <= 1 + f <= sqrt(2).
KW_DEVICE float log_reduced(float f) {
    float q = 0.0675028f;
    q = fma(q, f, -0.116735f);
    q = fma(q, f, 0.11884847f);
    q = fma(q, f, -0.12405844f);
    q = fma(q, f, 0.14220175f);
    q = fma(q, f, -0.16668f);
    q = fma(q, f, 0.20002078f);
    q = fma(q, f, -0.2500001f);
    q = fma(q, f, 0.33333313f);
    return fma(fma(q, f, -0.5f), f * f, f);
}

// kw: log_edges
#ifndef __CUDACC__
// The logarithm of x where it is not simply `y`: zero, negative numbers, infinity and NaN.
KW_DEVICE float log_edges(float x, float y) {
    const float positive = x < __builtin_inff() ? y : x;
    const float edge = x == 0.0f ? -__builtin_inff() : __builtin_nanf("");
    return x <= 0.0f ? edge : positive;
}
#endif

// kw: log
#ifdef __CUDACC__
KW_DEVICE float log(float x) { return ::logf(x); }
KW_DEVICE double log(double x) { return ::log(x); }
#else
KW_DEVICE float log(float x) {
    const bool denormal = x < 0x1p-126f;
    const uint32_t bits = float_bits(denormal ? x * 0x1p23f : x) - 0x3f3504f3;  // from sqrt(1/2) on
    const float n = float(int32_t(bits) >> 23) - (denormal ? 23.0f : 0.0f);
    const float y = log_reduced(bits_float((bits & 0x7fffff) + 0x3f3504f3) - 1.0f);
    return log_edges(x, fma(n, 0.693145752f, fma(n, 1.42860682e-6f, y)));
}
KW_DEVICE double log(double x) { return __builtin_log(x); }
#endif

// kw: log2
#ifdef __CUDACC__
KW_DEVICE float log2(float x) { return ::log2f(x); }
KW_DEVICE double log2(double x) { return ::log2(x); }
#else
KW_DEVICE float log2(float x) {
    const bool denormal = x < 0x1p-126f;
    const uint32_t bits = float_bits(denormal ? x * 0x1p23f : x) - 0x3f3504f3;
    const float n = float(int32_t(bits) >> 23) - (denormal ? 23.0f : 0.0f);
    const float y = log_reduced(bits_float((bits & 0x7fffff) + 0x3f3504f3) - 1.0f);
    return log_edges(x, fma(y, 0.44269504f, y) + n);  // log2(e) is 1.4427
}
KW_DEVICE double log2(double x) { return __builtin_log2(x); }
#endif

// kw: log1p
#ifdef __CUDACC__
KW_DEVICE float log1p(float x) { return ::log1pf(x); }
KW_DEVICE double log1p(double x) { return ::log1p(x); }
#else
KW_DEVICE float log1p(float x) {
    const uint32_t bits = float_bits(x + 1.0f) - 0x3f3504f3;
    const int32_t exponent = int32_t(bits) >> 23;  // of 1 + x
    // f = (1 + x) / 2^exponent - 1 from x itself, since 1 + x is rounded; 4 / 2^exponent is always a normal float.
    const float scale = bits_float(uint32_t(129 - exponent) << 23);
    const float f = fma(x * scale, 0.25f, scale * 0.25f - 1.0f);
    const float n = float(exponent);
    const float y = fma(n, 0.693145752f, fma(n, 1.42860682e-6f, log_reduced(f)));
    const float small = x == 0.0f ? x : y;
    const float upper = x < __builtin_inff() ? small : x;
    const float edge = x == -1.0f ? -__builtin_inff() : __builtin_nanf("");
    return x <= -1.0f ? edge : upper;
}
KW_DEVICE double log1p(double x) { return __builtin_log1p(x); }
#endif

// kw: log1p_fraction
// ln(1 + x) for 0 <= x <= 1, in fewer instructions than CUDA takes for any x.
KW_DEVICE float log1p_fraction(float x) {
    const bool upper = x > 0.41421357f;  // above sqrt(2) - 1, ln(2) + ln((1 + x) / 2)
    return (upper ? 0.693147182f : 0.0f) + log_reduced(upper ? fma(x, 0.5f, -0.5f) : x);
}
#ifdef __CUDACC__
KW_DEVICE double log1p_fraction(double x) { return ::log1p(x); }
#else
KW_DEVICE double log1p_fraction(double x) { return __builtin_log1p(x); }
#endif

// kw: exp_wide
#ifndef __CUDACC__
// e^x for |x| < 700, to 2^-34.
KW_DEVICE double exp_wide(double x) {
    const double shifted = fma(x, 1.4426950408889634, 0x1.8p52);
    const double n = shifted - 0x1.8p52;
    const double r = fma(n, -0x1.473de6af278edp-34, fma(n, -0x1.62e42fefp-1, x));
    double q = 0.000197902926076;
    q = fma(q, r, 0.00139447532301);
    q = fma(q, r, 0.0083334975558);
    q = fma(q, r, 0.0416662937019);
    q = fma(q, r, 0.166666658652);
    q = fma(q, r, 0.500000006802);
    return fma(fma(q, r, 1.0), r, 1.0) * bits_double((double_bits(shifted) << 52) + 0x3ff0000000000000);
}
#endif

// kw: log_wide
#ifndef __CUDACC__
// ln(x) for a positive normal double, to 2^-44.
KW_DEVICE double log_wide(double x) {
    const uint64_t biased = (double_bits(x) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd)) >> 52;  // from sqrt(1/2) on
    const double n = bits_double(biased | 0x4330000000000000) - (0x1p52 + 1023.0);
    const double m = bits_double(double_bits(x) - ((biased - 1023) << 52));
    const double s = (m - 1.0) / (m + 1.0);  // ln(m) = 2 atanh(s), |s| <= 0.1716
    const double z = s * s;
    double q = 0.19586848177;
    q = fma(q, z, 0.221760119547);
    q = fma(q, z, 0.285721131413);
    q = fma(q, z, 0.399999955864);
    q = fma(q, z, 0.666666666759);
    return fma(n, 0.6931471805599453, fma(q * z, s, s + s));
}
#endif

// kw: log10
#ifdef __CUDACC__
KW_DEVICE float log10(float x) { return ::log10f(x); }
KW_DEVICE double log10(double x) { return ::log10(x); }
#else
KW_DEVICE float log10(float x) { return log_edges(x, float(log_wide(x) * 0.4342944819032518)); }
KW_DEVICE double log10(double x) { return __builtin_log10(x); }
#endif

// kw: pow
template <typename T> KW_DEVICE T pow(T base, T exponent) {  // of integers; wraps around
    uint64_t power = 1, square = uint64_t(base);
    for (uint64_t rest = exponent < 0 ? 0 : uint64_t(exponent); rest != 0; rest >>= 1) {
        if (rest & 1) power *= square;
        square *= square;
    }
    const T inverse = base == T(1) ? T(1) : base == T(-1) ? T(exponent & 1 ? -1 : 1) : T(0);
    return exponent < 0 ? inverse : T(power);
}
#ifdef __CUDACC__
KW_DEVICE float pow(float base, float exponent) { return ::powf(base, exponent); }
KW_DEVICE double pow(double base, double exponent) { return ::pow(base, exponent); }
#else
KW_DEVICE float pow(float base, float exponent) {
    const double infinity = __builtin_inf();
    const double magnitude = abs(base);
    const double finite_log = magnitude > 0.0 ? log_wide(magnitude) : -infinity;
    const double product = double(exponent) * (magnitude < infinity ? finite_log : magnitude);  // NaN stays
    const double upper = product > 100.0 ? 100.0 : product;  // e^100 is infinite as a float, e^-110 is 0
    const float power = float(exp_wide(upper < -110.0 ? -110.0 : upper));
    const bool whole = trunc(exponent) == exponent;
    const bool odd = whole & (trunc(exponent * 0.5f) != exponent * 0.5f);
    const float signed_power = odd ? copysign(power, base) : power;
    const bool undefined = (base < 0.0f) & (base > -__builtin_inff()) & !whole & (exponent == exponent);
    const bool one = (exponent == 0.0f) | (base == 1.0f) | ((base == -1.0f) & isinf(exponent));
    return one ? 1.0f : undefined ? __builtin_nanf("") : signed_power;
}
KW_DEVICE double pow(double base, double exponent) { return __builtin_pow(base, exponent); }
#endif

// kw: log_add_exp
// ln(e^a + e^b); equal infinities have no difference.
template <typename T> KW_DEVICE T log_add_exp(T a, T b) {
    const T apart = (a > b ? a : b) + log1p_fraction(exp(-abs(a - b)));
    return a == b ? a + T(0.6931471805599453) : apart;
}

// kw: xlogy
template <typename T> KW_DEVICE T xlogy(T x, T y) {  // 0 ln(0) is 0
    const T product = x * log(y);
    return (x == 0) & (y == y) ? T(0) : product;
}

// kw: sinh
#ifdef __CUDACC__
KW_DEVICE float sinh(float x) { return ::sinhf(x); }
KW_DEVICE double sinh(double x) { return ::sinh(x); }
#else
KW_DEVICE float sinh(float x) {
    const float half_exp = exp_times_power_of_two(abs(x), -1);
    const float large = copysign(half_exp - 0.25f / half_exp, x);
    const float z = x * x;
    float q = 2.7822132e-06f;
    q = fma(q, z, 0.00019842896f);
    q = fma(q, z, 0.0083333105f);
    q = fma(q, z, 0.16666667f);
    const float small = fma(q * z, x, x);
    return abs(x) < 1.0f ? small : large;
}
KW_DEVICE double sinh(double x) { return __builtin_sinh(x); }
#endif

// kw: cosh
#ifdef __CUDACC__
KW_DEVICE float cosh(float x) { return ::coshf(x); }
KW_DEVICE double cosh(double x) { return ::cosh(x); }
#else
KW_DEVICE float cosh(float x) {
    const float half_exp = exp_times_power_of_two(abs(x), -1);
    return half_exp + 0.25f / half_exp;
}
KW_DEVICE double cosh(double x) { return __builtin_cosh(x); }
#endif

// kw: tanh
#ifdef __CUDACC__
KW_DEVICE float tanh(float x) { return ::tanhf(x); }
KW_DEVICE double tanh(double x) { return ::tanh(x); }
#else
KW_DEVICE float tanh(float x) {
    const float a = abs(x) > 10.0f ? 10.0f : abs(x);  // tanh(10) is 1 as a float, NaN stays
    const float large = 1.0f - 2.0f / (exp_bounded(a + a) + 1.0f);
    const float z = x * x;
    float q = -0.0061703343f;
    q = fma(q, z, 0.021000538f);
    q = fma(q, z, -0.053835757f);
    q = fma(q, z, 0.13332437f);
    q = fma(q, z, -0.33333313f);
    const float small = fma(q * z, x, x);
    return copysign(abs(x) < 0.55f ? small : large, x);
}
KW_DEVICE double tanh(double x) { return __builtin_tanh(x); }
#endif

// kw: asinh
#ifdef __CUDACC__
KW_DEVICE float asinh(float x) { return ::asinhf(x); }
KW_DEVICE double asinh(double x) { return ::asinh(x); }
#else
KW_DEVICE float asinh(float x) {
    const double a = abs(x);
    const float y = copysign(float(log_wide(a + sqrt(fma(a, a, 1.0)))), x);
    return (a > 0x1p-13) & isfinite(x) ? y : x;
}
KW_DEVICE double asinh(double x) { return __builtin_asinh(x); }
#endif

// kw: acosh
#ifdef __CUDACC__
KW_DEVICE float acosh(float x) { return ::acoshf(x); }
KW_DEVICE double acosh(double x) { return ::acosh(x); }
#else
KW_DEVICE float acosh(float x) {
    const double a = x;
    const float y = float(log_wide(a + sqrt(fma(a, a, -1.0))));
    return x < 1.0f ? __builtin_nanf("") : isfinite(x) ? y : x;
}
KW_DEVICE double acosh(double x) { return __builtin_acosh(x); }
#endif

// kw: atanh
#ifdef __CUDACC__
KW_DEVICE float atanh(float x) { return ::atanhf(x); }
KW_DEVICE double atanh(double x) { return ::atanh(x); }
#else
KW_DEVICE float atanh(float x) {
    const double a = abs(x);
    const float inside = copysign(float(0.5 * log_wide((1.0 + a) / (1.0 - a))), x);
    const float edge = a == 1.0 ? copysign(__builtin_inff(), x) : __builtin_nanf("");
    return a >= 1.0 ? edge : a > 0x1p-13 ? inside : x;
}
KW_DEVICE double atanh(double x) { return __builtin_atanh(x); }
#endif

// kw: Quadrant quadrant
#ifndef __CUDACC__
struct Quadrant { double r; uint64_t n; };  // x = n pi/2 + r, |r| <= pi/4, n modulo 4
KW_DEVICE Quadrant quadrant(float x) {
    // From 2^47 on x is m 2^(24 k) for whole m, and 2^(24 k) may be replaced by its remainder modulo 2 pi, high + low:
    // so every float, however large, is reduced as well as a small one.
    const float a = abs(x);
    const bool k1 = a >= 0x1p47f, k2 = a >= 0x1p71f, k3 = a >= 0x1p95f, k4 = a >= 0x1p119f;
    const double scale = k4 ? 0x1p-96 : k3 ? 0x1p-72 : k2 ? 0x1p-48 : k1 ? 0x1p-24 : 1.0;
    const double high = k4   ? 0x1.89a58c41dc40cp+1
                        : k3 ? 0x1.ee6639887604dp-3
                        : k2 ? 0x1.09f4683d25023p-3
                        : k1 ? -0x1.c9b6498c1137fp-1
                             : 1.0;
    const double low = k4   ? -0x1.27745096c7eeep-53
                       : k3 ? 0x1.8b437ad3f55ep-58
                       : k2 ? 0x1.fee10ecf6f246p-59
                       : k1 ? -0x1.2643605c762f1p-58
                            : 0.0;
    const double m = double(x) * scale;
    const double y = m * high;
    const double rest = fma(m, high, -y) + m * low;
    const double shifted = fma(y, 0.6366197723675814, 0x1.8p52);
    const double n = shifted - 0x1.8p52;
    const double r = fma(n, -0x1.1a62633145c07p-54, fma(n, -0x1.921fb54442d18p+0, y));  // pi/2 in two parts
    return Quadrant{r + rest, double_bits(shifted)};
}
#endif

// kw: sin_reduced
#ifndef __CUDACC__
KW_DEVICE double sin_reduced(double r) {  // |r| <= pi/4
    const double z = r * r;
    double q = 2.71808504633e-06;
    q = fma(q, z, -0.000198393084766);
    q = fma(q, z, 0.00833332929325);
    q = fma(q, z, -0.166666666407);
    return fma(q * z, r, r);
}
#endif

// kw: cos_reduced
#ifndef __CUDACC__
KW_DEVICE double cos_reduced(double r) {  // |r| <= pi/4
    const double z = r * r;
    double q = 2.43831401608e-05;
    q = fma(q, z, -0.00138866771056);
    q = fma(q, z, 0.0416666202132);
    q = fma(q, z, -0.499999996932);
    return fma(q, z, 1.0);
}
#endif

// kw: sin
#ifdef __CUDACC__
KW_DEVICE float sin(float x) { return ::sinf(x); }
KW_DEVICE double sin(double x) { return ::sin(x); }
#else
KW_DEVICE float sin(float x) {
    const Quadrant q = quadrant(x);
    const double y = q.n & 1 ? cos_reduced(q.r) : sin_reduced(q.r);
    return x == 0.0f ? x : float(q.n & 2 ? -y : y);
}
KW_DEVICE double sin(double x) { return __builtin_sin(x); }
#endif

// kw: cos
#ifdef __CUDACC__
KW_DEVICE float cos(float x) { return ::cosf(x); }
KW_DEVICE double cos(double x) { return ::cos(x); }
#else
KW_DEVICE float cos(float x) {
    const Quadrant q = quadrant(x);
    const double y = q.n & 1 ? sin_reduced(q.r) : cos_reduced(q.r);
    return float((q.n + 1) & 2 ? -y : y);
}
KW_DEVICE double cos(double x) { return __builtin_cos(x); }
#endif

// kw: tan
#ifdef __CUDACC__
KW_DEVICE float tan(float x) { return ::tanf(x); }
KW_DEVICE double tan(double x) { return ::tan(x); }
#else
KW_DEVICE float tan(float x) {
    const Quadrant q = quadrant(x);
    const double s = sin_reduced(q.r), c = cos_reduced(q.r);
    return x == 0.0f ? x : float(q.n & 1 ? -c / s : s / c);
}
KW_DEVICE double tan(double x) { return __builtin_tan(x); }
#endif

// kw: atan2_wide
#ifndef __CUDACC__
// The angle of (x, y) from the positive x axis, to 2^-33; NaN at the origin and between infinities.
KW_DEVICE double atan2_wide(double y, double x) {
    const double ax = abs(x), ay = abs(y);
    const bool steep = ay > ax;
    const double t = (steep ? ax : ay) / (steep ? ay : ax);
    const double z = t * t;
    double q = -0.000697921798537;
    q = fma(q, z, 0.00492616454194);
    q = fma(q, z, -0.0162990003908);
    q = fma(q, z, 0.034475279445);
    q = fma(q, z, -0.0545154776427);
    q = fma(q, z, 0.0725941246481);
    q = fma(q, z, -0.089854305396);
    q = fma(q, z, 0.110945019274);
    q = fma(q, z, -0.142841670328);
    q = fma(q, z, 0.199999272331);
    q = fma(q, z, -0.333333321336);
    const double flat = fma(q * z, t, t);
    const double first = steep ? 1.5707963267948966 - flat : flat;
    return copysign(x < 0 ? 3.141592653589793 - first : first, y);
}
#endif

// kw: atan
#ifdef __CUDACC__
KW_DEVICE float atan(float x) { return ::atanf(x); }
KW_DEVICE double atan(double x) { return ::atan(x); }
#else
KW_DEVICE float atan(float x) { return float(atan2_wide(x, 1.0)); }
KW_DEVICE double atan(double x) { return __builtin_atan(x); }
#endif

// kw: asin
#ifdef __CUDACC__
KW_DEVICE float asin(float x) { return ::asinf(x); }
KW_DEVICE double asin(double x) { return ::asin(x); }
#else
KW_DEVICE float asin(float x) { return float(atan2_wide(x, sqrt((1.0 - x) * (1.0 + x)))); }
KW_DEVICE double asin(double x) { return __builtin_asin(x); }
#endif

// kw: acos
#ifdef __CUDACC__
KW_DEVICE float acos(float x) { return ::acosf(x); }
KW_DEVICE double acos(double x) { return ::acos(x); }
#else
KW_DEVICE float acos(float x) { return float(atan2_wide(sqrt((1.0 - x) * (1.0 + x)), x)); }
KW_DEVICE double acos(double x) { return __builtin_acos(x); }
#endif

// kw: atan2
#ifdef __CUDACC__
KW_DEVICE float atan2(float y, float x) { return ::atan2f(y, x); }
KW_DEVICE double atan2(double y, double x) { return ::atan2(y, x); }
#else
KW_DEVICE float atan2(float y, float x) {
    // Two zeros, and two infinities, form the angles that (+-0, +-1) and (+-1, +-1) do.
    const bool origin = (x == 0.0f) & (y == 0.0f), corner = isinf(x) & isinf(y);
    const double ordinate = corner ? copysign(1.0f, y) : y;
    return float(atan2_wide(ordinate, origin | corner ? copysign(1.0f, x) : x));
}
KW_DEVICE double atan2(double y, double x) { return __builtin_atan2(y, x); }
#endif

// kw: erf
#ifdef __CUDACC__
KW_DEVICE float erf(float x) { return ::erff(x); }
KW_DEVICE double erf(double x) { return ::erf(x); }
#else
KW_DEVICE float erf(float x) {
    const float a = abs(x) > 4.0f ? 4.0f : abs(x);  // erf(4) is 1 as a float
    float p = 0.000195939f;  // ln(erfc(a)) for 0.92 <= a <= 4
    p = fma(p, a, -0.0030432406f);
    p = fma(p, a, 0.022227017f);
    p = fma(p, a, -0.10393177f);
    p = fma(p, a, -0.6371821f);
    p = fma(p, a, -1.1276757f);
    p = fma(p, a, -0.0001956817f);
    const float large = copysign(1.0f - exp_bounded(p), x);
    const float z = x * x;
    float q = 7.99665e-05f;  // erf(x) / x - 1 for |x| <= 0.93
    q = fma(q, z, -0.00080497697f);
    q = fma(q, z, 0.005192405f);
    q = fma(q, z, -0.026855731f);
    q = fma(q, z, 0.11283626f);
    q = fma(q, z, -0.3761263f);
    q = fma(q, z, 0.12837917f);
    const float small = fma(q, x, x);
    return abs(x) < 0.925f ? small : large;
}
KW_DEVICE double erf(double x) { return __builtin_erf(x); }
#endif

// kw: erfc_wide
#ifndef __CUDACC__
// erfc(a) for a >= 0, to 2^-34, as e^(-a^2) times a smooth function of (a - 3) / (a + 3).
KW_DEVICE double erfc_wide(double a) {
    const double b = a > 10.1 ? 10.1 : a;  // erfc(10.1) is 0 as a float
    const double t = (b - 3.0) / (b + 3.0);
    double p = 3.32389633292e-05;
    p = fma(p, t, 0.000127137790073);
    p = fma(p, t, -0.000126347472994);
    p = fma(p, t, -0.000790084812389);
    p = fma(p, t, 0.00189400872038);
    p = fma(p, t, 0.00253347530713);
    p = fma(p, t, -0.0237709964694);
    p = fma(p, t, 0.0683073907822);
    p = fma(p, t, -0.119273657229);
    p = fma(p, t, 0.129645198698);
    p = fma(p, t, -0.0475622938795);
    p = fma(p, t, -0.135621106829);
    p = fma(p, t, 1.25300805827);
    return p / (1.0 + 2.0 * b) * exp_wide(-b * b);
}
#endif

// kw: erfc
#ifdef __CUDACC__
KW_DEVICE float erfc(float x) { return ::erfcf(x); }
KW_DEVICE double erfc(double x) { return ::erfc(x); }
#else
KW_DEVICE float erfc(float x) {
    const double y = erfc_wide(abs(x));
    return float(x < 0.0f ? 2.0 - y : y);
}
KW_DEVICE double erfc(double x) { return __builtin_erfc(x); }
#endif

// kw: erfinv_wide
#ifndef __CUDACC__
// The inverse of erf for |x| < 1, to 2^-29, as x times a function of w = -ln(1 - x^2).
KW_DEVICE double erfinv_wide(double x) {
    const double w = -log_wide((1.0 - x) * (1.0 + x));
    const double c = w - 2.5;
    double central = 1.32866635779e-10;  // w <= 5
    central = fma(central, c, 4.3705495958e-10);
    central = fma(central, c, -1.10233413692e-08);
    central = fma(central, c, 1.64568175043e-08);
    central = fma(central, c, 4.79699621064e-07);
    central = fma(central, c, -3.42600956107e-06);
    central = fma(central, c, -4.99876178057e-06);
    central = fma(central, c, 0.000218263550313);
    central = fma(central, c, -0.00125270487475);
    central = fma(central, c, -0.00417732462813);
    central = fma(central, c, 0.246640275785);
    central = fma(central, c, 1.50140935169);
    const double s = sqrt(w) - 3.0;
    double tail = -2.94301648852e-05;  // 5 <= w <= 16.7, which 1 - 2^-24 does not reach
    tail = fma(tail, s, 0.00016039754357);
    tail = fma(tail, s, -0.000277541611916);
    tail = fma(tail, s, -0.000119849823829);
    tail = fma(tail, s, 0.00147509442772);
    tail = fma(tail, s, -0.00356717443399);
    tail = fma(tail, s, 0.00568771153688);
    tail = fma(tail, s, -0.00764275072984);
    tail = fma(tail, s, 0.00944530158956);
    tail = fma(tail, s, 1.00167523605);
    tail = fma(tail, s, 2.83297680148);
    return x * (w < 5.0 ? central : tail);
}
#endif

// kw: erfinv
#ifdef __CUDACC__
KW_DEVICE float erfinv(float x) { return ::erfinvf(x); }
KW_DEVICE double erfinv(double x) { return ::erfinv(x); }
#else
KW_DEVICE float erfinv(float x) {
    const float inside = float(erfinv_wide(x));
    const float edge = abs(x) == 1.0f ? copysign(__builtin_inff(), x) : __builtin_nanf("");
    return abs(x) < 1.0f ? inside : edge;
}
KW_DEVICE double erfinv(double x) {
    const double a = abs(x);
    const double w = -__builtin_log((1.0 - a) * (1.0 + a));
    double y = w < 16.0 ? erfinv_wide(a) : sqrt(w - 0.5 * __builtin_log(0.7853981633974483 * w));
    for (int i = 0; i < 3; ++i) {  // Halley's method triples the digits; erfc has those that erf lacks near 1
        const double off = a < 0.5 ? __builtin_erf(y) - a : (1.0 - a) - __builtin_erfc(y);
        const double step = off / (1.1283791670955126 * __builtin_exp(-y * y));
        y -= step / (1.0 + y * step);
    }
    const double edge = a == 1.0 ? copysign(__builtin_inf(), x) : __builtin_nan("");
    return a < 1.0 ? copysign(y, x) : edge;
}
#endif

}  // namespace kw
