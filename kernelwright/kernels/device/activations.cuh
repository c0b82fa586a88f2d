// Activation functions, in forms that neither overflow on the way nor lose their tails. NaN goes through all of them.
#pragma once

#include "math.cuh"

namespace kw {

// kw: relu
template <typename T> KW_DEVICE T relu(T x) { return x < 0 ? T(0) : x; }
#ifdef __CUDACC__
KW_DEVICE float relu(float x) { return maximum(x, 0.0f); }  // one instruction
#endif

// kw: hardtanh
template <typename T> KW_DEVICE T hardtanh(T x, T low, T high) {
    const T bounded = x < low ? low : x;
    return bounded > high ? high : bounded;
}
#ifdef __CUDACC__
KW_DEVICE float hardtanh(float x, float low, float high) { return minimum(maximum(x, low), high); }  // two instructions
#endif

// kw: relu6
template <typename T> KW_DEVICE T relu6(T x) { return hardtanh(x, T(0), T(6)); }

// kw: leaky_relu
template <typename T> KW_DEVICE T leaky_relu(T x, T slope) { return x > 0 ? x : x * slope; }

// kw: threshold
template <typename T> KW_DEVICE T threshold(T x, T bound, T value) { return x <= bound ? value : x; }

// kw: hardsigmoid
template <typename T> KW_DEVICE T hardsigmoid(T x) { return quotient(relu6(x + T(3)), T(6)); }

// kw: hardswish
template <typename T> KW_DEVICE T hardswish(T x) { return x * hardsigmoid(x); }

// kw: hardshrink
template <typename T> KW_DEVICE T hardshrink(T x, T bound) { return (x >= -bound) & (x <= bound) ? T(0) : x; }

// kw: softshrink
template <typename T> KW_DEVICE T softshrink(T x, T bound) {
    const T inside = x * T(0);  // 0, or NaN
    return x > bound ? x - bound : x < -bound ? x + bound : inside;
}

// kw: softsign
template <typename T> KW_DEVICE T softsign(T x) { return x / (T(1) + abs(x)); }

// kw: sigmoid
template <typename T> KW_DEVICE T sigmoid(T x) {
    const T z = exp(-abs(x));  // at most 1
    return (x < 0 ? z : T(1)) / (T(1) + z);
}
#ifdef __CUDACC__
KW_DEVICE float sigmoid(float x) { return inverse(1.0f + exp(-x)); }
#endif

// kw: logsigmoid
template <typename T> KW_DEVICE T logsigmoid(T x) { return (x < 0 ? x : T(0)) - log1p_fraction(exp(-abs(x))); }

// kw: silu
#ifdef __CUDACC__
template <typename T> KW_DEVICE T silu(T x) { return x * sigmoid(x); }
#else
template <typename T> KW_DEVICE T silu(T x) { return x / (T(1) + exp(-x)); }
#endif

// kw: mish
template <typename T> KW_DEVICE T mish(T x) {  // x tanh(ln(1 + e^x)) = x w / (w + 2) with w = e^x (e^x + 2)
    const T n = exp(x > T(22) ? T(22) : x);    // above, the quotient is 1
    const T w = fma(n, n, n + n);
    return x * quotient(w, w + T(2));
}

// kw: near_sigmoid
// As all that is called near: in few instructions, for what follows products of 11 bits, off by 2^-18 of what it is or less.
template <typename T> KW_DEVICE T near_sigmoid(T x) { return sigmoid(x); }
#ifdef __CUDACC__
KW_DEVICE float near_sigmoid(float x) { return inverse(1.0f + exp2_bounded(x * -1.44269504f)); }
#endif

// kw: near_exp
// Off by x 2^-23 of what it is, where x is off by x 2^-11; what would be denormal is 0.
template <typename T> KW_DEVICE T near_exp(T x) { return exp(x); }
#ifdef __CUDACC__
KW_DEVICE float near_exp(float x) { return exp2_bounded(x * 1.44269504f); }
#endif

// kw: near_silu
template <typename T> KW_DEVICE T near_silu(T x) { return x * near_sigmoid(x); }

// kw: near_tanh
template <typename T> KW_DEVICE T near_tanh(T x) { return tanh(x); }
#ifdef __CUDACC__
KW_DEVICE float near_tanh(float x) {  // 1 - 2 / (e^2x + 1), and x - x^3 / 3 + 2 x^5 / 15, which has what that cancels
    const float square = x * x, far = fma(inverse(1.0f + exp2_bounded(x * 2.88539008f)), -2.0f, 1.0f);
    const float near = x * fma(square, fma(square, 0.133333333f, -0.333333333f), 1.0f);
    return square < 0.02f ? near : far;
}
#endif

// kw: near_mish
template <typename T> KW_DEVICE T near_mish(T x) { return mish(x); }
#ifdef __CUDACC__
KW_DEVICE float near_mish(float x) {  // as mish
    const float n = exp2_bounded(minimum(x, 22.0f) * 1.44269504f), w = fma(n, n, n + n);
    return x * (w * inverse(w + 2.0f));
}
#endif

// kw: softplus
template <typename T> KW_DEVICE T softplus(T x, T beta, T threshold) {  // ln(1 + e^(beta x)) / beta
    const T t = x * beta;
    const T y = ((t > 0 ? t : T(0)) + log1p_fraction(exp(-abs(t)))) / beta;
    return t > threshold ? x : y;
}

// kw: near_hardsigmoid
template <typename T> KW_DEVICE T near_hardsigmoid(T x) { return relu6(x + T(3)) * T(0.16666666666666666); }

// kw: near_hardswish
template <typename T> KW_DEVICE T near_hardswish(T x) { return x * near_hardsigmoid(x); }

// kw: elu
template <typename T> KW_DEVICE T elu(T x, T alpha, T scale, T input_scale) {
    return x <= 0 ? expm1(x * input_scale) * (alpha * scale) : x * scale;
}

// kw: selu
template <typename T> KW_DEVICE T selu(T x) { return elu(x, T(1.6732632423543772), T(1.0507009873554805), T(1)); }

// kw: celu
template <typename T> KW_DEVICE T celu(T x, T alpha) { return x <= 0 ? expm1(x / alpha) * alpha : x; }

// kw: gelu_erf
// x times the normal distribution at x, from its upper tail: e^(-x^2 / 2) times a polynomial in |x| / (1 + |x| / 4).
KW_DEVICE float gelu_erf(float x) {
    const float u = abs(x) > 20.0f ? 20.0f : abs(x);  // the tail beyond is 0, NaN stays
    const float v = u * inverse(fma(u, 0.25f, 1.0f));
    float p = -1.3317631e-07f;
    p = fma(p, v, 1.7241267e-06f);
    p = fma(p, v, -3.2639896e-06f);
    p = fma(p, v, -5.0009145e-05f);
    p = fma(p, v, 0.00010480726f);
    p = fma(p, v, 0.0034013835f);
    p = fma(p, v, -0.032911092f);
    p = fma(p, v, 0.15026322f);
    p = fma(p, v, -0.39894214f);
    p = fma(p, v, 0.5f);
    const float square = u * u;
#ifdef __CUDACC__
    const float tail = p * exp2_bounded(square * -0.72134752f);
#else
    const float lost = fma(u, u, -square);  // by rounding the square, which e^x would magnify
    const float tail = fma(p, lost * -0.5f, p) * exp_bounded(square * -0.5f);
#endif
    return x * (x < 0.0f ? tail : 1.0f - tail);
}
KW_DEVICE double gelu_erf(double x) { return 0.5 * x * (1.0 + erf(x * 0.7071067811865476)); }

// kw: near_gelu_erf
// The same in few instructions: max(x, 0) - |x| P(-|x|), the normal distribution P as 2 to the power of a polynomial.
// Off by 2^-15 of what it is, or less, down to x = -5.7, where float16 ends, and by 2^-11 down to -9. Beyond, where it
// is less than 2^-59, it goes to 0 faster than it should, as the first coefficient is negative. -Inf gives NaN, as -Inf
// times 0 does.
template <typename T> KW_DEVICE T near_gelu_erf(T x) { return gelu_erf(x); }
#ifdef __CUDACC__
KW_DEVICE float near_gelu_erf(float x) {
    const float u = abs(minimum(x, 20.0f));  // P is 0 there, and +Inf times 0 would be NaN
    float power = -1.2528884e-06f;
    power = fma(power, u, 4.8308913e-05f);
    power = fma(power, u, -0.0008117241f);
    power = fma(power, u, 0.007982124f);
    power = fma(power, u, -0.052764162f);
    power = fma(power, u, -0.45976827f);
    power = fma(power, u, -1.1507074f);
    power = fma(power, u, -1.000035f);
    return fma(-u, exp2_bounded(power), maximum(x, 0.0f));
}
#endif

// kw: gelu_tanh
// x (1 + tanh(u)) / 2 = x / (1 + e^(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3).
#ifdef __CUDACC__
template <typename T> KW_DEVICE T gelu_tanh(T x) {
    return x * sigmoid(x * fma(x * x, T(0.07135481627260025), T(1.5957691216057308)));
}
#else
template <typename T> KW_DEVICE T gelu_tanh(T x) {
    return x / (T(1) + exp(x * fma(x * x, T(-0.07135481627260025), T(-1.5957691216057308))));
}
#endif

// kw: near_gelu_tanh
template <typename T> KW_DEVICE T near_gelu_tanh(T x) { return gelu_tanh(x); }
#ifdef __CUDACC__
KW_DEVICE float near_gelu_tanh(float x) { return x * near_sigmoid(x * fma(x * x, 0.0713548163f, 1.59576912f)); }
#endif

// kw: tanhshrink
template <typename T> KW_DEVICE T tanhshrink(T x) { return x - tanh(x); }

}  // namespace kw
