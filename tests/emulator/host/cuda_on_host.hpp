// CUDA C++ as far as our kernels speak it: qualifiers, vectors, intrinsics, and the runtime's functions.
#pragma once

#include "emulator.hpp"
#include "sixteen_bits.hpp"

#include <cmath>
#include <cstdio>

#define __CUDACC__ 1
#define CUDART_VERSION 13000
#define __CUDA_ARCH__ 900

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __align__(bytes) alignas(bytes)

constexpr int warpSize = 32;

// --- vectors

#define EMULATOR_VECTORS(NAME, TYPE, ALIGN2, ALIGN4)                                       \
    struct NAME##1 { TYPE x; };                                                            \
    struct alignas(ALIGN2) NAME##2 { TYPE x, y; };                                         \
    struct alignas(ALIGN4) NAME##4 { TYPE x, y, z, w; };                                   \
    inline NAME##1 make_##NAME##1(TYPE x) { return {x}; }                                  \
    inline NAME##2 make_##NAME##2(TYPE x, TYPE y) { return {x, y}; }                       \
    inline NAME##4 make_##NAME##4(TYPE x, TYPE y, TYPE z, TYPE w) { return {x, y, z, w}; }
EMULATOR_VECTORS(char, signed char, 2, 4)
EMULATOR_VECTORS(uchar, unsigned char, 2, 4)
EMULATOR_VECTORS(short, short, 4, 8)
EMULATOR_VECTORS(ushort, unsigned short, 4, 8)
EMULATOR_VECTORS(int, int, 8, 16)
EMULATOR_VECTORS(uint, unsigned, 8, 16)
EMULATOR_VECTORS(float, float, 8, 16)
EMULATOR_VECTORS(longlong, long long, 16, 16)
EMULATOR_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATOR_VECTORS(double, double, 16, 16)
#undef EMULATOR_VECTORS
struct int3 { int x, y, z; };
struct float3 { float x, y, z; };
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }

// --- bits

template <class To, class From> To emulator_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline unsigned __float_as_uint(float x) { return emulator_bits<unsigned>(x); }
inline int __float_as_int(float x) { return emulator_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return emulator_bits<float>(x); }
inline float __int_as_float(int x) { return emulator_bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulator_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator_bits<double>(x); }
inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
inline double __hiloint2double(int hi, int lo) { return __longlong_as_double((long long)hi << 32 | (unsigned)lo); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)(((uint64_t)hi << 32 | lo) << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (n & 31));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned pick = selector >> (4 * i) & 15, byte = bytes >> (8 * (pick & 7)) & 255;
        result |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
    }
    return result;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// --- arithmetic

#define EMULATOR_MIN_MAX(TYPE)                               \
    inline TYPE min(TYPE a, TYPE b) { return b < a ? b : a; } \
    inline TYPE max(TYPE a, TYPE b) { return a < b ? b : a; }
EMULATOR_MIN_MAX(int)
EMULATOR_MIN_MAX(unsigned)
EMULATOR_MIN_MAX(long)
EMULATOR_MIN_MAX(unsigned long)
EMULATOR_MIN_MAX(long long)
EMULATOR_MIN_MAX(unsigned long long)
#undef EMULATOR_MIN_MAX
inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
inline float min(float a, float b) { return ::fminf(a, b); }
inline float max(float a, float b) { return ::fmaxf(a, b); }
inline double min(double a, double b) { return ::fmin(a, b); }
inline double max(double a, double b) { return ::fmax(a, b); }

inline float rsqrtf(float x) { return (float)(1.0 / std::sqrt((double)x)); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rcbrtf(float x) { return (float)(1.0 / std::cbrt((double)x)); }
inline float exp10f(float x) { return (float)std::pow(10.0, (double)x); }
inline float normcdff(float x) { return (float)(0.5 * std::erfc(-(double)x * 0.70710678118654752440)); }
inline double normcdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
inline float sinpif(float x) { return (float)std::sin(3.14159265358979323846 * std::fmod((double)x, 2.0)); }
inline float cospif(float x) { return (float)std::cos(3.14159265358979323846 * std::fmod((double)x, 2.0)); }
// Newton's method on erf, from a start that is good to a few bits.
inline double erfinv(double y) {
    if (!(y > -1.0 && y < 1.0)) return y == 1.0 ? INFINITY : y == -1.0 ? -INFINITY : NAN;
    const double l = std::log1p(-y * y), t = 2.0 / (3.14159265358979323846 * 0.147) + l / 2;
    double x = std::copysign(std::sqrt(std::sqrt(t * t - l / 0.147) - t), y);
    for (int i = 0; i < 4; i++) {
        const double off = y < 0 ? -(std::erfc(-x) - (1 + y)) : std::erfc(x) - (1 - y);
        x += off / (1.1283791670955125739 * std::exp(-x * x));
    }
    return x;
}
inline float erfinvf(float y) { return (float)erfinv((double)y); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return ::expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return ::logf(x); }
inline float __log2f(float x) { return ::log2f(x); }
inline float __log10f(float x) { return ::log10f(x); }
inline float __sinf(float x) { return ::sinf(x); }
inline float __cosf(float x) { return ::cosf(x); }
inline float __tanf(float x) { return ::tanf(x); }
inline float __tanhf(float x) { return ::tanhf(x); }
inline float __powf(float x, float y) { return ::powf(x, y); }
inline float __saturatef(float x) { return x > 0.f ? (x < 1.f ? x : 1.f) : 0.f; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return ::fmaf(a, b, c); }
inline float __fsqrt_rn(float x) { return ::sqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __frcp_rn(float x) { return 1.f / x; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }
inline int __float2int_rn(float x) { return (int)::rintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline int __float2int_rd(float x) { return (int)::floorf(x); }
inline int __float2int_ru(float x) { return (int)::ceilf(x); }
inline unsigned __float2uint_rn(float x) { return (unsigned)::rintf(x); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }

// --- what threads do together

using EmulatorSite = emulator::Site;
inline void __syncthreads(EmulatorSite site = EmulatorSite::current()) { emulator::sync_threads(site); }
inline int __syncthreads_count(int p, EmulatorSite site = EmulatorSite::current()) {
    return emulator::sync_threads_voting(emulator::Vote::count, p, site);
}
inline int __syncthreads_and(int p, EmulatorSite site = EmulatorSite::current()) {
    return emulator::sync_threads_voting(emulator::Vote::all, p, site);
}
inline int __syncthreads_or(int p, EmulatorSite site = EmulatorSite::current()) {
    return emulator::sync_threads_voting(emulator::Vote::any, p, site);
}
inline void __syncwarp(unsigned mask = ~0u, EmulatorSite site = EmulatorSite::current()) {
    emulator::sync_warp(mask, site);
}

inline int emulator_lane() { return (int)(emulator::self->linear % 32); }
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, EmulatorSite site = EmulatorSite::current()) {
    const int lane = emulator_lane(), from = (lane & ~(width - 1)) | (source & (width - 1));
    return emulator::shown("__shfl_sync", mask, value, from, emulator::shuffle_finish, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EmulatorSite site = EmulatorSite::current()) {
    const int lane = emulator_lane(), from = lane - (int)delta, first = lane & ~(width - 1);
    return emulator::shown("__shfl_up_sync", mask, value, from < first ? lane : from, emulator::shuffle_finish, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   EmulatorSite site = EmulatorSite::current()) {
    const int lane = emulator_lane(), from = lane + (int)delta, last = lane | (width - 1);
    return emulator::shown("__shfl_down_sync", mask, value, from > last ? lane : from, emulator::shuffle_finish, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EmulatorSite site = EmulatorSite::current()) {
    const int lane = emulator_lane(), from = lane ^ bits, last = lane | (width - 1);
    return emulator::shown("__shfl_xor_sync", mask, value, from > last ? lane : from, emulator::shuffle_finish, site);
}
inline unsigned __ballot_sync(unsigned mask, int value, EmulatorSite site = EmulatorSite::current()) {
    return emulator::shown("__ballot_sync", mask, (unsigned)(value != 0), 0, emulator::ballot_finish, site);
}
inline int __any_sync(unsigned mask, int value, EmulatorSite site = EmulatorSite::current()) {
    return emulator::shown("__any_sync", mask, (unsigned)(value != 0), 0, emulator::ballot_finish, site) != 0;
}
inline int __all_sync(unsigned mask, int value, EmulatorSite site = EmulatorSite::current()) {
    return emulator::shown("__all_sync", mask, (unsigned)(value != 0), 0, emulator::ballot_finish, site) == mask;
}
template <class T> unsigned __match_any_sync(unsigned mask, T value, EmulatorSite site = EmulatorSite::current()) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return (unsigned)emulator::shown("__match_any_sync", mask, bits, 0, emulator::match_finish, site);
}
// Which lanes run together is the hardware's choice: as few as possible, so that nothing relies on more.
inline unsigned __activemask() { return 1u << emulator_lane(); }

#define EMULATOR_REDUCE(NAME, TYPE, RESULT)                                                                      \
    inline TYPE __reduce_##NAME##_sync(unsigned mask, TYPE value, EmulatorSite site = EmulatorSite::current()) { \
        const auto reduce = [](uint32_t x, uint32_t y) {                                                         \
            const TYPE a = (TYPE)x, b = (TYPE)y;                                                                 \
            return (uint32_t)(RESULT);                                                                           \
        };                                                                                                       \
        return emulator::shown("__reduce_" #NAME "_sync", mask, value, 0, emulator::reduce_finish, site, reduce); \
    }
EMULATOR_REDUCE(add, unsigned, a + b)
EMULATOR_REDUCE(add, int, (unsigned)a + (unsigned)b)
EMULATOR_REDUCE(min, unsigned, a < b ? a : b)
EMULATOR_REDUCE(min, int, a < b ? a : b)
EMULATOR_REDUCE(max, unsigned, a > b ? a : b)
EMULATOR_REDUCE(max, int, a > b ? a : b)
EMULATOR_REDUCE(and, unsigned, a & b)
EMULATOR_REDUCE(or, unsigned, a | b)
EMULATOR_REDUCE(xor, unsigned, a ^ b)
#undef EMULATOR_REDUCE

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { emulator::yield(); }
[[noreturn]] inline void __trap() { emulator::fault("runs into __trap()"); }
inline long long clock64() {  // passes by being looked at
    static long long now = 0;
    return now += 100;
}

// --- atomics: threads take turns, so that plain updates are atomic

template <class T> using EmulatorValue = std::type_identity_t<T>;
template <class T, class Update> T emulator_atomic(T* pointer, Update update) {
    emulator::yield();  // somebody may wait for what others do between two of these
    emulator::global_order_is_known();
    emulator::touch_aligned(pointer, sizeof(T), emulator::Access::atomic);
    T before, after;
    emulator::copy(&before, pointer, sizeof before);
    after = update(before);
    emulator::copy(pointer, &after, sizeof after);
    return before;
}
template <class T> T atomicAdd(T* p, EmulatorValue<T> x) { return emulator_atomic(p, [x](T y) { return T(y + x); }); }
template <class T> T atomicSub(T* p, EmulatorValue<T> x) { return emulator_atomic(p, [x](T y) { return T(y - x); }); }
template <class T> T atomicMin(T* p, EmulatorValue<T> x) {
    return emulator_atomic(p, [x](T y) { return x < y ? x : y; });
}
template <class T> T atomicMax(T* p, EmulatorValue<T> x) {
    return emulator_atomic(p, [x](T y) { return y < x ? x : y; });
}
template <class T> T atomicAnd(T* p, EmulatorValue<T> x) { return emulator_atomic(p, [x](T y) { return T(y & x); }); }
template <class T> T atomicOr(T* p, EmulatorValue<T> x) { return emulator_atomic(p, [x](T y) { return T(y | x); }); }
template <class T> T atomicXor(T* p, EmulatorValue<T> x) { return emulator_atomic(p, [x](T y) { return T(y ^ x); }); }
template <class T> T atomicExch(T* p, EmulatorValue<T> x) { return emulator_atomic(p, [x](T) { return x; }); }
template <class T> T atomicCAS(T* p, EmulatorValue<T> old, EmulatorValue<T> x) {
    return emulator_atomic(p, [=](T y) { return y == old ? x : y; });
}
inline unsigned atomicInc(unsigned* p, unsigned most) {
    return emulator_atomic(p, [=](unsigned y) { return y >= most ? 0u : y + 1; });
}
inline unsigned atomicDec(unsigned* p, unsigned most) {
    return emulator_atomic(p, [=](unsigned y) { return y == 0 || y > most ? most : y - 1; });
}

// --- memory

template <class T> T emulator_load(const T* pointer) {
    emulator::touch_aligned(pointer, sizeof(T), emulator::Access::read);
    T value;
    emulator::copy(&value, pointer, sizeof value);
    return value;
}
template <class T> void emulator_store(T* pointer, const T& value) {
    emulator::touch_aligned(pointer, sizeof(T), emulator::Access::write);
    emulator::copy(pointer, &value, sizeof value);
}
template <class T> T __ldg(const T* pointer) { return emulator_load(pointer); }
template <class T> T __ldcs(const T* pointer) { return emulator_load(pointer); }
template <class T> T __ldca(const T* pointer) { return emulator_load(pointer); }
template <class T> T __ldcg(const T* pointer) { return emulator_load(pointer); }
template <class T> T __ldlu(const T* pointer) { return emulator_load(pointer); }
template <class T> T __ldcv(const T* pointer) { return emulator_load(pointer); }
template <class T> void __stcs(T* pointer, EmulatorValue<T> value) { emulator_store(pointer, value); }
template <class T> void __stcg(T* pointer, EmulatorValue<T> value) { emulator_store(pointer, value); }
template <class T> void __stwb(T* pointer, EmulatorValue<T> value) { emulator_store(pointer, value); }
template <class T> void __stwt(T* pointer, EmulatorValue<T> value) { emulator_store(pointer, value); }
inline size_t __cvta_generic_to_shared(const void* pointer) { return emulator::shared_address(pointer); }
inline void* __cvta_shared_to_generic(size_t address) {
    return emulator::shared_pointer((uint32_t)address, emulator::self->rank);
}
inline size_t __cvta_generic_to_global(const void* pointer) { return reinterpret_cast<size_t>(pointer); }

// --- the runtime

enum cudaError_t : int {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNotSupported = 801,
    cudaErrorLaunchFailure = 719,
};
using cudaError = cudaError_t;
typedef struct EmulatorStream* cudaStream_t;

inline cudaError_t cudaGetLastError() { return (cudaError_t)emulator::take_last_error(); }
inline cudaError_t cudaPeekAtLastError() { return (cudaError_t)emulator::peek_last_error(); }
inline const char* cudaGetErrorString(cudaError_t) { return "an error of the emulator"; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaPeekAtLastError(); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaPeekAtLastError(); }
inline cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t = nullptr) {
    return (cudaError_t)emulator::fill(pointer, value, bytes);
}

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
    cudaFuncAttributeNonPortableClusterSizeAllowed = 15,
};
template <class... P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
        return (cudaError_t)emulator::allow_dynamic_bytes(reinterpret_cast<const void*>(kernel), value);
    return cudaSuccess;
}
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
        return (cudaError_t)emulator::allow_dynamic_bytes(kernel, value);
    return cudaSuccess;
}
enum cudaDeviceAttr {
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = emulator::device_attribute(attribute);
    return *value < 0 ? cudaErrorInvalidValue : cudaSuccess;
}
template <class... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*)(P...), int threads, size_t) {
    return *blocks = 2048 / threads, cudaSuccess;
}

enum cudaLaunchAttributeID {
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
};
union cudaLaunchAttributeValue {
    struct { unsigned x, y, z; } clusterDim;
    int cooperative;
    int programmaticStreamSerializationAllowed;
    char pad[64];
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};
template <class... P>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...),
                               std::type_identity_t<P>... arguments) {
    emulator::Shape shape{config->gridDim, config->blockDim, config->dynamicSmemBytes};
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const auto& size = config->attrs[i].val.clusterDim;
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) shape.cluster = dim3(size.x, size.y, size.z);
        // Blocks that all run at once are one cluster here, whose blocks find each other by global memory alone.
        if (config->attrs[i].id == cudaLaunchAttributeCooperative) shape.cluster = config->gridDim, shape.at_once = true;
    }
    return (cudaError_t)emulator::Configured<P...>{kernel, shape}.run(arguments...);
}

enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0 };
enum { cudaEnableDefault = 0 };
inline cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, int,
                                                    cudaDriverEntryPointQueryResult* result) {
    *function = emulator::driver_entry_point(name), *result = cudaDriverEntryPointSuccess;
    return *function ? cudaSuccess : cudaErrorNotSupported;
}
inline cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, int flags,
                                           cudaDriverEntryPointQueryResult* result) {
    return cudaGetDriverEntryPointByVersion(name, function, 0, flags, result);
}
