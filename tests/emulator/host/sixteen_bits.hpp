// 16-bit floats as bits, to and from float, rounded to nearest with ties to even.
#pragma once

#include <cstdint>
#include <cstring>

namespace emulator {

inline float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

inline float half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13 | (fraction ? 0x00400000 : 0));
    if (exponent == 0) return (sign ? -1.f : 1.f) * (float)fraction * 0x1p-24f;
    return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

inline uint16_t float_to_half(float value) {
    const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
    const uint16_t sign = bits >> 16 & 0x8000;
    if (magnitude > 0x7f800000) return 0x7fff;                 // what the GPU makes of any NaN
    if (magnitude >= 0x477ff000) return sign | 0x7c00;         // 65520 and more: infinity
    if (magnitude < 0x33000001) return sign;                   // up to 2^-25: zero
    const int exponent = (int)(magnitude >> 23) - 127, shift = exponent < -14 ? -1 - exponent : 13;
    const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t kept = significand >> shift, rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
    const uint32_t rounded = kept + (rest > half || (rest == half && kept & 1));
    return sign | (exponent < -14 ? rounded : (uint32_t)(exponent + 14) * 1024 + rounded);
}

inline float bfloat16_to_float(uint16_t bfloat16) { return float_of((uint32_t)bfloat16 << 16); }

inline uint16_t float_to_bfloat16(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

}  // namespace emulator
