// __half and __half2: arithmetic in float, rounded once, which is exact enough to be the GPU's own result.
#pragma once

#include "cuda_on_host.hpp"

#define EMULATOR_SIXTEEN_BITS(TYPE, TYPE2, TO_FLOAT, FROM_FLOAT)                                                       \
    struct TYPE {                                                                                                      \
        uint16_t bits;                                                                                                 \
        TYPE() = default;                                                                                              \
        TYPE(float x) : bits(emulator::FROM_FLOAT(x)) {}                                                               \
        TYPE(double x) : TYPE((float)x) {}                                                                             \
        TYPE(int x) : TYPE((float)x) {}                                                                                \
        operator float() const { return emulator::TO_FLOAT(bits); }                                                    \
        TYPE& operator+=(TYPE x) { return *this = TYPE((float)*this + (float)x); }                                     \
        TYPE& operator-=(TYPE x) { return *this = TYPE((float)*this - (float)x); }                                     \
        TYPE& operator*=(TYPE x) { return *this = TYPE((float)*this * (float)x); }                                     \
    };                                                                                                                 \
    inline TYPE operator+(TYPE a, TYPE b) { return TYPE((float)a + (float)b); }                                        \
    inline TYPE operator-(TYPE a, TYPE b) { return TYPE((float)a - (float)b); }                                        \
    inline TYPE operator*(TYPE a, TYPE b) { return TYPE((float)a * (float)b); }                                        \
    inline TYPE operator/(TYPE a, TYPE b) { return TYPE((float)a / (float)b); }                                        \
    struct alignas(4) TYPE2 {                                                                                          \
        TYPE x, y;                                                                                                     \
    };                                                                                                                 \
    inline TYPE __hadd(TYPE a, TYPE b) { return a + b; }                                                               \
    inline TYPE __hsub(TYPE a, TYPE b) { return a - b; }                                                               \
    inline TYPE __hmul(TYPE a, TYPE b) { return a * b; }                                                               \
    inline TYPE __hdiv(TYPE a, TYPE b) { return a / b; }                                                               \
    inline TYPE __hneg(TYPE a) { return TYPE(-(float)a); }                                                             \
    inline TYPE __hmax(TYPE a, TYPE b) { return TYPE(::fmaxf((float)a, (float)b)); }                                   \
    inline TYPE __hmin(TYPE a, TYPE b) { return TYPE(::fminf((float)a, (float)b)); }                                   \
    inline TYPE __hfma(TYPE a, TYPE b, TYPE c) {                                                                       \
        return TYPE((float)((double)(float)a * (double)(float)b + (double)(float)c));                                  \
    }                                                                                                                  \
    inline bool __hisnan(TYPE a) { return (float)a != (float)a; }                                                      \
    inline bool __hgt(TYPE a, TYPE b) { return (float)a > (float)b; }                                                  \
    inline bool __hlt(TYPE a, TYPE b) { return (float)a < (float)b; }                                                  \
    inline TYPE2 __hadd2(TYPE2 a, TYPE2 b) { return {a.x + b.x, a.y + b.y}; }                                          \
    inline TYPE2 __hmul2(TYPE2 a, TYPE2 b) { return {a.x * b.x, a.y * b.y}; }                                          \
    inline TYPE2 __hfma2(TYPE2 a, TYPE2 b, TYPE2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }         \
    inline float __low2float(TYPE2 a) { return (float)a.x; }                                                           \
    inline float __high2float(TYPE2 a) { return (float)a.y; }

EMULATOR_SIXTEEN_BITS(__half, __half2, half_to_float, float_to_half)
using half = __half;
using half2 = __half2;

inline float __half2float(__half x) { return (float)x; }
inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 x) { return {__half(x.x), __half(x.y)}; }
inline float2 __half22float2(__half2 x) { return {(float)x.x, (float)x.y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half __low2half(__half2 x) { return x.x; }
inline __half __high2half(__half2 x) { return x.y; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short x) { return emulator_bits<__half>(x); }
