// __nv_bfloat16 and __nv_bfloat162.
#pragma once

#include "cuda_fp16.h"

EMULATOR_SIXTEEN_BITS(__nv_bfloat16, __nv_bfloat162, bfloat16_to_float, float_to_bfloat16)

inline float __bfloat162float(__nv_bfloat16 x) { return (float)x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 x) { return {__nv_bfloat16(x.x), __nv_bfloat16(x.y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 x) { return {(float)x.x, (float)x.y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return emulator_bits<__nv_bfloat16>(x); }
