// Element types: 16-bit floats as they lie in memory, and conversion between any two types.
#pragma once

#include "base.cuh"

namespace kw {

// kw: half
struct alignas(2) half { uint16_t bits; };  // IEEE binary16; a float in registers

// kw: bfloat16
struct alignas(2) bfloat16 { uint16_t bits; };  // the upper half of a float; a float in registers

// kw: half_to_float
#ifdef __CUDACC__
KW_DEVICE float half_to_float(half x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
#else
KW_DEVICE float half_to_float(half x) {
    const uint32_t magnitude = uint32_t(x.bits & 0x7fff) << 13;
    // The multiplication rebiases the exponent and so makes denormals normal; Inf and NaN need all exponent bits.
    const uint32_t finite = float_bits(bits_float(magnitude) * 0x1p112f);
    const uint32_t bits = magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : finite;
    return bits_float(bits | uint32_t(x.bits & 0x8000) << 16);
}
#endif

// kw: float_to_half
#ifdef __CUDACC__
KW_DEVICE half float_to_half(float x) {
#if __CUDA_ARCH__ >= 800  // two at once, one of them 0: four times the rate of one alone
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
    return half{uint16_t(pair)};
#else
    half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#endif
}
#else
KW_DEVICE half float_to_half(float x) {  // rounds to nearest, ties to even
    const uint32_t bits = float_bits(x), magnitude = bits & 0x7fffffff;
    const float plain = bits_float(magnitude > 0x7f800000 ? 0x7fc00000 : magnitude);  // any NaN as the usual one
    // Beyond the largest half these make infinity, and change nothing else.
    const float scaled = plain * 0x1p112f * 0x1p-110f;
    const uint32_t exponent = magnitude & 0x7f800000;
    const uint32_t bounded = exponent < 0x38800000 ? 0x38800000 : exponent;  // that of the smallest normal half
    // The sum rounds x where its last bit as a half is the last bit of a float.
    const uint32_t rounded = float_bits(bits_float(bounded + 0x07800000) + scaled);
    return half{uint16_t((bits >> 16 & 0x8000) | ((rounded >> 13 & 0x7e00) + (rounded & 0x0fff)))};
}
#endif

// kw: bfloat16_to_float
KW_DEVICE float bfloat16_to_float(bfloat16 x) { return bits_float(uint32_t(x.bits) << 16); }

// kw: float_to_bfloat16
#ifdef __CUDACC__
KW_DEVICE bfloat16 float_to_bfloat16(float x) {  // two at once, as above
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
    return bfloat16{uint16_t(pair)};
}
#else
KW_DEVICE bfloat16 float_to_bfloat16(float x) {  // rounds to nearest, ties to even
    const uint32_t bits = float_bits(x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return bfloat16{uint16_t((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded)};
}
#endif

// kw: rounded_to_bfloat16
#ifdef __CUDACC__
KW_DEVICE float rounded_to_bfloat16(float x) {  // above a 0, which makes the pair a float
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(0.0f));
    return bits_float(pair);
}
#else
KW_DEVICE float rounded_to_bfloat16(float x) { return bfloat16_to_float(float_to_bfloat16(x)); }
#endif

// kw: is_same
template <typename A, typename B> constexpr bool is_same = false;
template <typename A> constexpr bool is_same<A, A> = true;

// kw: Register
template <typename T> struct RegisterOf { using type = T; };
template <> struct RegisterOf<half> { using type = float; };
template <> struct RegisterOf<bfloat16> { using type = float; };
template <typename T> using Register = typename RegisterOf<T>::type;  // the type in which a stored T is computed with

// kw: widen
template <typename T> KW_DEVICE T widen(T x) { return x; }
KW_DEVICE float widen(half x) { return half_to_float(x); }
KW_DEVICE float widen(bfloat16 x) { return bfloat16_to_float(x); }

// kw: convert
// From any type to any other, either of them as it lies in memory; 16-bit floats are reached through float.
template <typename To, typename From> KW_DEVICE To convert(From x) {
    const auto value = widen(x);
    if constexpr (is_same<To, From>) return x;
    else if constexpr (is_same<To, half>) return float_to_half(float(value));
    else if constexpr (is_same<To, bfloat16>) return float_to_bfloat16(float(value));
    else if constexpr (is_same<To, bool>) return value != 0;
    // A negative float has no defined conversion to an unsigned or a narrow type: those wrap around from int32.
    else if constexpr (sizeof(To) < 4) return To(int32_t(value));
    else return To(value);
}

// kw: cast
// From a value in registers to one in registers, rounded as if it had been stored as To.
template <typename To, typename From> KW_DEVICE Register<To> cast(From x) {
    if constexpr (is_same<To, bfloat16>) return rounded_to_bfloat16(float(widen(x)));
    else return widen(convert<To>(x));
}

}  // namespace kw
