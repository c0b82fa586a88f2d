// Vectors of neighbours: N elements that are loaded, computed with and stored together.
#pragma once

#include "types.cuh"

// kw: KW_LANES
// Stands before a loop over the lanes of a vector: unrolled on a GPU, one vector instruction a step on a CPU.
#ifdef __CUDACC__
#define KW_LANES _Pragma("unroll")
#else
#define KW_LANES _Pragma("omp simd")
#endif

namespace kw {

// kw: copy_words
#ifndef __CUDACC__
#ifdef __AVX512F__
constexpr int widest_word = 64;
#elif defined(__AVX__)
constexpr int widest_word = 32;
#else
constexpr int widest_word = 16;
#endif
// In the widest registers. Left to itself g++ copies a structure by 16 bytes, some through integer registers, and what
// then loads 32 waits for both stores: with AVX2 gelu(x) * y took 2.4 ms instead of 1.5.
template <int bytes> KW_DEVICE void copy_words(void* to, const void* from) {
    constexpr int even = bytes & -bytes, width = even < widest_word ? even : widest_word;
    typedef uint8_t Word __attribute__((vector_size(width), aligned(1), may_alias));
#pragma GCC unroll 16
    for (int i = 0; i < bytes / width; ++i) static_cast<Word*>(to)[i] = static_cast<const Word*>(from)[i];
}
#endif

// kw: Vec
#ifdef __CUDACC__
template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
    T v[N];
#else
// Aligned as the largest word that one instruction moves: no access touches two lines of the cache.
template <typename T, int N> struct alignas(sizeof(T) * N < 64 ? sizeof(T) * N : 64) Vec {
    T v[N];
    Vec() = default;
    KW_DEVICE Vec(T only) : v{only} {}
    KW_DEVICE Vec(const Vec& other) { copy_words<sizeof v>(v, other.v); }
    KW_DEVICE Vec& operator=(const Vec& other) { return copy_words<sizeof v>(v, other.v), *this; }
#endif
    KW_DEVICE T& operator[](int i) { return v[i]; }
    KW_DEVICE const T& operator[](int i) const { return v[i]; }
};
template <int N> struct alignas(N < 16 ? N : 16) Vec<bool, N> {  // as bytes: a loop that loads bool is not vectorised
    uint8_t v[N];
    KW_DEVICE uint8_t& operator[](int i) { return v[i]; }
    KW_DEVICE bool operator[](int i) const { return v[i] != 0; }
};

// kw: fill
template <int N, typename T> KW_DEVICE Vec<T, N> fill(T value) {
    Vec<T, N> y;
    KW_LANES for (int i = 0; i < N; ++i) y.v[i] = value;
    return y;
}

// kw: counted
// first, first + step, first + 2 step, ...
template <int N> KW_DEVICE Vec<int64_t, N> counted(int64_t first, int64_t step) {
    Vec<int64_t, N> y;
    KW_LANES for (int i = 0; i < N; ++i) y.v[i] = first + i * step;
    return y;
}

// kw: vec_convert
template <typename To, typename From, int N> KW_DEVICE Vec<To, N> vec_convert(const Vec<From, N>& x) {
    Vec<To, N> y;
    KW_LANES for (int i = 0; i < N; ++i) y.v[i] = convert<To>(From(x[i]));
    return y;
}

// kw: Packet
#ifdef __CUDACC__
// The largest word one instruction moves, of a vector that is a whole number of them.
template <int bytes> struct PacketOf { using type = uint4; };
template <> struct PacketOf<8> { using type = uint2; };
template <> struct PacketOf<4> { using type = unsigned int; };
template <> struct PacketOf<2> { using type = unsigned short; };
template <> struct PacketOf<1> { using type = unsigned char; };
template <typename T, int N> using Packet = typename PacketOf<int(sizeof(Vec<T, N>))>::type;
#endif

// kw: load
#ifdef __CUDACC__
// N neighbours from p, which must be aligned as Vec<T, N> is.
template <int N, typename T> KW_DEVICE Vec<T, N> load(const T* p) { return *reinterpret_cast<const Vec<T, N>*>(p); }
#else
template <int N, typename T> KW_DEVICE Vec<T, N> load(const T* p) {
    Vec<T, N> x;
    copy_words<sizeof x>(&x, p);
    return x;
}
#endif

// kw: load_inside
// N elements from p[at] on, `stride` apart; `border` for lanes whose place, from `first` on and `step` apart, is not in
// [0, extent), and for all of them where nothing is `inside`.
template <int N, int64_t stride, int64_t step, typename Index, typename T, typename B>
KW_DEVICE Vec<T, N> load_inside(const T* p, int64_t at, bool inside, Index first, Index extent, B border) {
    Vec<T, N> x;
#ifndef __CUDACC__
    const Index last = Index(first + (N - 1) * step);
    if (inside & (first >= 0) & (first < extent) & (last >= 0) & (last < extent)) {  // most are: no lane is looked at
        KW_LANES for (int i = 0; i < N; ++i) x.v[i] = p[at + i * stride];
        return x;
    }
#endif
    KW_LANES for (int i = 0; i < N; ++i) {
        const Index place = Index(first + i * step);
        x.v[i] = inside && place >= 0 && place < extent ? p[at + i * stride] : T(border);
    }
    return x;
}

// kw: load_constant
#ifdef __CUDACC__
// As load, for data that nothing writes while the kernel runs: such loads may be moved before stores.
template <int N, typename T> KW_DEVICE Vec<T, N> load_constant(const T* p) {
    using Word = Packet<T, N>;
    Vec<T, N> x;
#pragma unroll
    for (int i = 0; i < int(sizeof x / sizeof(Word)); ++i)
        reinterpret_cast<Word*>(&x)[i] = __ldg(reinterpret_cast<const Word*>(p) + i);
    return x;
}
#else
template <int N, typename T> KW_DEVICE Vec<T, N> load_constant(const T* p) { return load<N>(p); }
#endif

// kw: load_line
#ifdef __CUDACC__
// As load_constant, of data whose neighbours are wanted soon: 256 bytes of them come to L2 with it.
KW_DEVICE unsigned short load_word_of_line(const unsigned short* p) {
    unsigned short x;
    asm volatile("ld.global.nc.L2::256B.u16 %0, [%1];" : "=h"(x) : "l"(__cvta_generic_to_global(p)));
    return x;
}
KW_DEVICE unsigned int load_word_of_line(const unsigned int* p) {
    unsigned int x;
    asm volatile("ld.global.nc.L2::256B.u32 %0, [%1];" : "=r"(x) : "l"(__cvta_generic_to_global(p)));
    return x;
}
KW_DEVICE uint2 load_word_of_line(const uint2* p) {
    uint2 x;
    asm volatile("ld.global.nc.L2::256B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(x.x), "=r"(x.y) : "l"(__cvta_generic_to_global(p)));
    return x;
}
template <typename Word> KW_DEVICE Word load_word_of_line(const Word* p) { return __ldg(p); }
template <int N, typename T> KW_DEVICE Vec<T, N> load_line(const T* p) {
    using Word = Packet<T, N>;
    Vec<T, N> x;
#pragma unroll
    for (int i = 0; i < int(sizeof x / sizeof(Word)); ++i)
        reinterpret_cast<Word*>(&x)[i] = load_word_of_line(reinterpret_cast<const Word*>(p) + i);
    return x;
}
#else
template <int N, typename T> KW_DEVICE Vec<T, N> load_line(const T* p) { return load<N>(p); }
#endif

// kw: narrowed
#ifdef __CUDACC__
KW_DEVICE uint32_t rounded_pair(half, float first, float second) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
KW_DEVICE uint32_t rounded_pair(bfloat16, float first, float second) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
// Two at once: the conversion of one alone takes as long.
template <typename T, int N> KW_DEVICE Vec<T, N> narrowed(const float (&x)[N]) {
    Vec<T, N> y;
    if constexpr (N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 2) reinterpret_cast<uint32_t*>(&y)[i / 2] = rounded_pair(T{}, x[i], x[i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) y[i] = convert<T>(x[i]);
    }
    return y;
}
#endif

// kw: sum_of
#ifdef __CUDACC__
KW_DEVICE uint32_t sum_of_pairs(half, uint32_t a, uint32_t b) {
    uint32_t sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}
KW_DEVICE uint32_t sum_of_pairs(bfloat16, uint32_t a, uint32_t b) {
    uint32_t sum;
    asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));  // sm_90
    return sum;
}
// Sums of 16-bit numbers, rounded to 16 bits: the same as of floats, rounded twice, for those have more than twice the bits.
template <typename T, int N> KW_DEVICE Vec<T, N> sum_of(const Vec<T, N>& a, const Vec<T, N>& b) {
    Vec<T, N> y;
    if constexpr (N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N / 2; ++i)
            reinterpret_cast<uint32_t*>(&y)[i] = sum_of_pairs(T{}, reinterpret_cast<const uint32_t*>(&a)[i],
                                                             reinterpret_cast<const uint32_t*>(&b)[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) y[i] = convert<T>(widen(a[i]) + widen(b[i]));
    }
    return y;
}
#endif

// kw: load_once
#ifdef __CUDACC__
// As load, for data that is read once: it is the first to leave the caches.
template <int N, typename T> KW_DEVICE Vec<T, N> load_once(const T* p) {
    using Word = Packet<T, N>;
    Vec<T, N> x;
#pragma unroll
    for (int i = 0; i < int(sizeof x / sizeof(Word)); ++i)
        reinterpret_cast<Word*>(&x)[i] = __ldcs(reinterpret_cast<const Word*>(p) + i);
    return x;
}
#else
template <int N, typename T> KW_DEVICE Vec<T, N> load_once(const T* p) { return load<N>(p); }
#endif

// kw: store_word
#ifdef __CUDACC__
template <typename Word> KW_DEVICE void store_word(Word* p, Word x) { *p = x; }
// A plain assignment is split into members, which the compiler does not always join again.
KW_DEVICE void store_word(uint4* p, uint4 x) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 ::"l"(__cvta_generic_to_global(p)), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
KW_DEVICE void store_word(uint2* p, uint2 x) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};"
                 ::"l"(__cvta_generic_to_global(p)), "r"(x.x), "r"(x.y) : "memory");
}
#endif

// kw: store
#ifdef __CUDACC__
// N neighbours to p, which must be aligned as Vec<T, N> is.
template <int N, typename T> KW_DEVICE void store(T* p, const Vec<T, N>& x) {
    using Word = Packet<T, N>;
#pragma unroll
    for (int i = 0; i < int(sizeof x / sizeof(Word)); ++i)
        store_word(reinterpret_cast<Word*>(p) + i, reinterpret_cast<const Word*>(&x)[i]);
}
#else
template <int N, typename T> KW_DEVICE void store(T* p, const Vec<T, N>& x) { copy_words<sizeof x>(p, &x); }
#endif

// kw: store_once
#ifdef __CUDACC__
// As store, for data that is not read again soon: it is the first to leave the caches.
template <int N, typename T> KW_DEVICE void store_once(T* p, const Vec<T, N>& x) {
    using Word = Packet<T, N>;
#pragma unroll
    for (int i = 0; i < int(sizeof x / sizeof(Word)); ++i)
        __stcs(reinterpret_cast<Word*>(p) + i, reinterpret_cast<const Word*>(&x)[i]);
}
#else
template <int N, typename T> KW_DEVICE void store_once(T* p, const Vec<T, N>& x) { store<N>(p, x); }
#endif

}  // namespace kw
