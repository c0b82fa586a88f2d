// What the other headers stand on: fixed-width integers, how a device function is marked, and a float's bits.
//
// A line "kw:" with names opens a part that provides those names; the text up to the next such line belongs to it, and
// an emitted file carries only the parts it uses. "#ifdef __CUDACC__" parts what is for a GPU from what is for a CPU.
#pragma once

// kw: int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
#include <cstdint>

// kw: KW_DEVICE
#ifdef __CUDACC__
#define KW_DEVICE __device__ __forceinline__
#else
#define KW_DEVICE inline __attribute__((always_inline))
#endif

namespace kw {

// kw: float_bits
#ifdef __CUDACC__
KW_DEVICE uint32_t float_bits(float x) { return __float_as_uint(x); }
#else
KW_DEVICE uint32_t float_bits(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
#endif

// kw: bits_float
#ifdef __CUDACC__
KW_DEVICE float bits_float(uint32_t bits) { return __uint_as_float(bits); }
#else
KW_DEVICE float bits_float(uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}
#endif

// kw: double_bits
#ifdef __CUDACC__
KW_DEVICE uint64_t double_bits(double x) { return uint64_t(__double_as_longlong(x)); }
#else
KW_DEVICE uint64_t double_bits(double x) {
    uint64_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
#endif

// kw: bits_double
#ifdef __CUDACC__
KW_DEVICE double bits_double(uint64_t bits) { return __longlong_as_double(int64_t(bits)); }
#else
KW_DEVICE double bits_double(uint64_t bits) {
    double x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}
#endif

}  // namespace kw
