// Hopper's own instructions (sm_90a), one small function each: mbarrier, TMA, wgmma, setmaxnreg, fences, descriptors.
#pragma once

#include "../device/base.cuh"

#ifndef __CUDACC_RTC__
// kw: CUtensorMap
#include <cuda.h>
#include <cuda_runtime.h>
#endif

namespace kw::ptx90 {

// kw: shared_address
KW_DEVICE uint32_t shared_address(const void* pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }

// --- loads of 16 bytes. volatile: the compiler leaves them where they are, and so a group of them together

// kw: load_shared
KW_DEVICE void load_shared(float (&to)[4], uint32_t address) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                 : "r"(address)
                 : "memory");
}
// kw: load_shared
KW_DEVICE void load_shared(float& first, float& second, uint32_t address) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(first), "=f"(second) : "r"(address) : "memory");
}
// kw: store_shared
KW_DEVICE void store_shared(uint32_t address, const float* from) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(from[0]), "f"(from[1]), "f"(from[2]),
                 "f"(from[3])
                 : "memory");
}
// kw: store_shared
KW_DEVICE void store_shared(uint32_t address, float first, float second) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second) : "memory");
}
// kw: store_shared
KW_DEVICE void store_shared(uint32_t address, float from) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(from) : "memory");
}
// kw: load_shared
KW_DEVICE void load_shared(uint32_t (&to)[4], uint32_t address) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}
// kw: load_shared_if
// As one instruction under a condition, for the same reason as barrier_arrive_if. Otherwise `to` stays.
KW_DEVICE void load_shared_if(bool condition, uint32_t (&to)[4], uint32_t address) {
    asm volatile(
        "{\n.reg .pred loads;\nsetp.ne.u32 loads, %5, 0;\n@loads ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
        : "r"(address), "r"((uint32_t)condition)
        : "memory");
}
// kw: store_shared
KW_DEVICE void store_shared(uint32_t address, const uint32_t (&from)[4]) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(from[0]), "r"(from[1]), "r"(from[2]),
                 "r"(from[3])
                 : "memory");
}
// kw: load_constant
// What no kernel writes while this one runs.
KW_DEVICE float load_constant(const float* pointer) {
    float v;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(pointer) : "memory");
    return v;
}
// kw: load_two
// What blocks of this kernel may have written, to those who know that they have.
KW_DEVICE float2 load_two(const float* pointer) {
    float2 v;
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(pointer) : "memory");
    return v;
}
// kw: prefetch_near
KW_DEVICE void prefetch_near(const float* pointer) { asm volatile("prefetch.global.L1 [%0];" ::"l"(pointer) : "memory"); }
// kw: larger_or_nan
KW_DEVICE float larger_or_nan(float x, float y) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
    return larger;
}
// kw: load_constants
KW_DEVICE float4 load_constants(const float* pointer) {
    float4 v;
    asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(pointer)
                 : "memory");
    return v;
}

// --- two numbers of 16 bits in a word, rounded to nearest, the first one low

// kw: rounded_pair_f16
KW_DEVICE uint32_t rounded_pair_f16(float first, float second) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
// kw: rounded_pair_bf16
KW_DEVICE uint32_t rounded_pair_bf16(float first, float second) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// --- mbarrier: counts arrivals and bytes; flips its phase when both are complete

// kw: barrier_init
KW_DEVICE void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
// kw: barrier_init_fence
// After the last init and before the first use by the copy engine.
KW_DEVICE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// kw: barrier_arrive
template <int Count = 1> KW_DEVICE void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(Count) : "memory");
}
// kw: barrier_arrive_if
// As one instruction under a condition: ptxas takes a branch on the number of a lane for one on which warps part, and
// then has what is alike in all lanes in registers of each.
template <int Count = 1> KW_DEVICE void barrier_arrive_if(bool condition, uint32_t barrier) {
    asm volatile(
        "{\n.reg .pred arrives;\nsetp.ne.u32 arrives, %2, 0;\n@arrives mbarrier.arrive.shared::cta.b64 _, [%0], %1;\n}" ::"r"(
            barrier),
        "n"(Count), "r"((uint32_t)condition)
        : "memory");
}
// kw: barrier_arrive_and_expect
KW_DEVICE void barrier_arrive_and_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// kw: barrier_arrive_in
// The barrier at the same address in block `rank` of the cluster. Without .release: that form compiles to a fence over
// the whole GPU and halves the speed of a pipeline.
KW_DEVICE void barrier_arrive_in(uint32_t barrier, uint32_t rank) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, "
        "[there];\n}" ::"r"(barrier),
        "r"(rank)
        : "memory");
}
// kw: barrier_wait
// Returns once the phase with this parity is complete; the hardware suspends the thread while it waits.
KW_DEVICE void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\nWAIT_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
        "WAIT_%=;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// --- named barriers: 1 to 15 are free for use, 0 is __syncthreads

// kw: named_sync
KW_DEVICE void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
// kw: named_sync_when_computed
// The same, once all that comes before in the text is computed. ptxas moves arithmetic behind a barrier if its results are
// wanted there; it moves none across a read of the clock, which has to be of use: its upper half is never all ones.
KW_DEVICE void named_sync_when_computed(int id, int threads) {
    uint32_t clock;
    asm volatile("mov.u32 %0, %%clock_hi;" : "=r"(clock)::"memory");
    named_sync(id + (clock == ~0u), threads);
}
// kw: named_arrive
KW_DEVICE void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// --- clusters

// kw: cluster_rank
KW_DEVICE uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// kw: cluster_sync
KW_DEVICE void cluster_sync() { asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory"); }

// --- registers: a warpgroup hands back or takes registers. Needs a cap at entry: __launch_bounds__(threads, 1)

// kw: registers_shrink_to
template <int Count> KW_DEVICE void registers_shrink_to() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
// kw: registers_grow_to
template <int Count> KW_DEVICE void registers_grow_to() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

// --- TMA: tiles of a tensor in global memory, described by a map that the host encodes

// kw: TensorMap
// What the driver calls CUtensorMap; declared here because NVRTC cannot read cuda.h.
struct alignas(128) TensorMap {
    uint64_t opaque[16];
};

// kw: prefetch_map
KW_DEVICE void prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
// kw: load_box
// Box at (x, y, z), x innermost, to shared memory; its bytes count towards the barrier.
KW_DEVICE void load_box(uint32_t destination, const TensorMap* map, uint32_t barrier, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// kw: load_box_multicast
// The same, to the same place in every block of the cluster whose bit is set in `blocks`, and to its barrier.
KW_DEVICE void load_box_multicast(uint32_t destination, const TensorMap* map, uint32_t barrier, int x, int y, int z,
                                  uint16_t blocks) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks)
        : "memory");
}

// --- bytes from global memory to shared memory by the copy engine: both at multiples of 16, and as many; they count
// towards the barrier.

// kw: load_bytes
KW_DEVICE void load_bytes(uint32_t destination, const void* source, int bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :
                 : "r"(destination), "l"(source), "r"(bytes), "r"(barrier)
                 : "memory");
}

// --- bytes from shared memory to global memory by the copy engine: both at multiples of 16, and as many. It sees what
// threads wrote before their fence (fence.proxy.async). Groups are a thread's own, in the order of its commits.

// kw: send_bytes
KW_DEVICE void send_bytes(void* destination, uint32_t source, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination), "r"(source), "r"(bytes)
                 : "memory");
}
// kw: store_box
// A box at (x, y, z) of a tensor, x innermost, which lies in shared memory as the map says; what is outside of the tensor
// is left out.
KW_DEVICE void store_box(const TensorMap* map, uint32_t source, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(source), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
// kw: fence_for_copy_engine
// Between what a thread wrote to shared memory and its word to whoever asks the copy engine to take it.
KW_DEVICE void fence_for_copy_engine() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// kw: fence_memory_for_copy_engine
// Between what threads wrote to global memory and its reading by the copy engine, on either side.
KW_DEVICE void fence_memory_for_copy_engine() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// kw: send_commit
KW_DEVICE void send_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// kw: send_wait
// Until all groups but the last `Pending` have been read, so that their shared memory may be written again.
template <int Pending> KW_DEVICE void send_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// --- wgmma: D[64, n] (+)= A[64, 16] B[n, 16]^T by a warpgroup, asynchronously

// kw: wgmma_fence
KW_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// kw: wgmma_commit
KW_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// kw: wgmma_wait
template <int Pending> KW_DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// kw: pin
// Keeps the compiler from moving reads and writes of accumulators across this point.
template <int N> KW_DEVICE void pin(float (&registers)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(registers[i])::"memory");
}

// kw: anew
// x, of which the compiler knows nothing: what was computed of it before is computed again, not kept in a register.
KW_DEVICE int anew(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

// kw: descriptor_128b
// A K-major tile whose rows are 128 bytes under the 128-byte swizzle: groups of 8 rows lie 1024 bytes apart.
// The next 16 elements of K, 32 bytes on, are at descriptor + 2.
KW_DEVICE uint64_t descriptor_128b(uint32_t address) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 | (uint64_t)(address >> 4);
}

// kw: KW_NAMES_FIRST_ KW_BIND_FIRST_
// Operand lists of the asm below: %0 to %31, %32 to %63, ... and the accumulators bound to them.
#define KW_NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define KW_NAMES_16 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KW_NAMES_32 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define KW_NAMES_48 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KW_NAMES_64 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define KW_NAMES_80 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define KW_NAMES_96 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define KW_NAMES_112 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define KW_BIND_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KW_BIND_16(d, i) KW_BIND_4(d, i), KW_BIND_4(d, i + 4), KW_BIND_4(d, i + 8), KW_BIND_4(d, i + 12)
#define KW_NAMES_FIRST_32 KW_NAMES_0 ", " KW_NAMES_16
#define KW_BIND_FIRST_32(d) KW_BIND_16(d, 0), KW_BIND_16(d, 16)
#define KW_NAMES_FIRST_48 KW_NAMES_0 ", " KW_NAMES_16 ", " KW_NAMES_32
#define KW_BIND_FIRST_48(d) KW_BIND_16(d, 0), KW_BIND_16(d, 16), KW_BIND_16(d, 32)
#define KW_NAMES_FIRST_64 KW_NAMES_0 ", " KW_NAMES_16 ", " KW_NAMES_32 ", " KW_NAMES_48
#define KW_BIND_FIRST_64(d) KW_BIND_16(d, 0), KW_BIND_16(d, 16), KW_BIND_16(d, 32), KW_BIND_16(d, 48)
#define KW_NAMES_FIRST_96 \
    KW_NAMES_0 ", " KW_NAMES_16 ", " KW_NAMES_32 ", " KW_NAMES_48 ", " KW_NAMES_64 ", " KW_NAMES_80
#define KW_BIND_FIRST_96(d) \
    KW_BIND_16(d, 0), KW_BIND_16(d, 16), KW_BIND_16(d, 32), KW_BIND_16(d, 48), KW_BIND_16(d, 64), KW_BIND_16(d, 80)
#define KW_NAMES_FIRST_128                                                                                           \
    KW_NAMES_0 ", " KW_NAMES_16 ", " KW_NAMES_32 ", " KW_NAMES_48 ", " KW_NAMES_64 ", " KW_NAMES_80 ", " KW_NAMES_96 \
               ", " KW_NAMES_112
#define KW_BIND_FIRST_128(d)                                                                                         \
    KW_BIND_16(d, 0), KW_BIND_16(d, 16), KW_BIND_16(d, 32), KW_BIND_16(d, 48), KW_BIND_16(d, 64), KW_BIND_16(d, 80), \
        KW_BIND_16(d, 96), KW_BIND_16(d, 112)

// kw: wgmma_f16
// A from registers (hi or lo halves of a float16 pair), B from shared memory. Accumulate = false starts from zero.
#define KW_WGMMA_A_IN_REGISTERS(N, COUNT, A0, A1, A2, A3, B, KEEP)                                               \
    template <bool Accumulate> KW_DEVICE void wgmma_f16(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b) { \
        asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP                                              \
                     ", 0;\n"                                                                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" KW_NAMES_FIRST_##COUNT           \
                     "}, "                                                                                       \
                     "{" A0 ", " A1 ", " A2 ", " A3 "}, " B ", keep, 1, 1, 0;\n}\n"                              \
                     : KW_BIND_FIRST_##COUNT(d)                                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Accumulate ? 1 : 0));             \
    }
KW_WGMMA_A_IN_REGISTERS(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
KW_WGMMA_A_IN_REGISTERS(96, 48, "%48", "%49", "%50", "%51", "%52", "%53")
KW_WGMMA_A_IN_REGISTERS(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
#undef KW_WGMMA_A_IN_REGISTERS

// kw: wgmma_f16_shared wgmma_bf16_shared
// Both operands from shared memory, K-major. `accumulate` is 0 or 1.
#define KW_WGMMA_BOTH_SHARED(NAME, TYPE, N, COUNT, A, B, KEEP)                                                   \
    KW_DEVICE void NAME(float (&d)[COUNT], uint64_t a, uint64_t b, int accumulate) {                             \
        asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP                                              \
                     ", 0;\n"                                                                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" KW_NAMES_FIRST_##COUNT \
                     "}, " A ", " B ", keep, 1, 1, 0, 0;\n}\n"                                                   \
                     : KW_BIND_FIRST_##COUNT(d)                                                                  \
                     : "l"(a), "l"(b), "r"(accumulate));                                                         \
    }
KW_WGMMA_BOTH_SHARED(wgmma_f16_shared, "f16", 64, 32, "%32", "%33", "%34")
KW_WGMMA_BOTH_SHARED(wgmma_bf16_shared, "bf16", 64, 32, "%32", "%33", "%34")
KW_WGMMA_BOTH_SHARED(wgmma_f16_shared, "f16", 128, 64, "%64", "%65", "%66")
KW_WGMMA_BOTH_SHARED(wgmma_bf16_shared, "bf16", 128, 64, "%64", "%65", "%66")
KW_WGMMA_BOTH_SHARED(wgmma_f16_shared, "f16", 192, 96, "%96", "%97", "%98")
KW_WGMMA_BOTH_SHARED(wgmma_bf16_shared, "bf16", 192, 96, "%96", "%97", "%98")
KW_WGMMA_BOTH_SHARED(wgmma_f16_shared, "f16", 256, 128, "%128", "%129", "%130")
KW_WGMMA_BOTH_SHARED(wgmma_bf16_shared, "bf16", 256, 128, "%128", "%129", "%130")
#undef KW_WGMMA_BOTH_SHARED
// kw: KW_NAMES_FIRST_ KW_BIND_FIRST_
#undef KW_NAMES_0
#undef KW_NAMES_16
#undef KW_NAMES_32
#undef KW_NAMES_48
#undef KW_NAMES_64
#undef KW_NAMES_80
#undef KW_NAMES_96
#undef KW_NAMES_112
#undef KW_BIND_4
#undef KW_BIND_16
#undef KW_NAMES_FIRST_32
#undef KW_BIND_FIRST_32
#undef KW_NAMES_FIRST_48
#undef KW_BIND_FIRST_48
#undef KW_NAMES_FIRST_64
#undef KW_BIND_FIRST_64
#undef KW_NAMES_FIRST_96
#undef KW_BIND_FIRST_96
#undef KW_NAMES_FIRST_128
#undef KW_BIND_FIRST_128

// --- host: tensor maps, encoded through the driver's entry point so that nothing links against libcuda

#ifndef __CUDACC_RTC__
// kw: EncodeTiled
using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// kw: encode_tiled
// `static` twice: in an inline function the variable would be one for all libraries of a process (STB_GNU_UNIQUE).
[[maybe_unused]] static EncodeTiled encode_tiled() {
    static EncodeTiled function = [] {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
        return (EncodeTiled)found;
    }();
    return function;
}

// kw: encode_map
// A tensor of `count[2]` matrices of `count[1]` rows of `count[0]` elements, element (x, y, z) at x + y * pitch[0] + z
// * pitch[1]. Boxes of box[0] x box[1] elements arrive under the 128-byte swizzle; elements outside the tensor arrive
// as zero. The pitch of an axis of extent 1 is never used, but the driver wants one that it would accept.
[[maybe_unused]] static cudaError_t encode_map(TensorMap* map, CUtensorMapDataType type, int element_bytes, const void* base,
                              const int64_t (&count)[3], const int64_t (&pitch)[2], const int (&box)[2]) {
    static_assert(sizeof(TensorMap) == sizeof(CUtensorMap), "the driver's map and ours have one size");
    const cuuint64_t sizes[3] = {(cuuint64_t)count[0], (cuuint64_t)count[1], (cuuint64_t)count[2]};
    const cuuint64_t row_bytes = (cuuint64_t)(count[1] > 1 ? pitch[0] * element_bytes : 128),
                     matrix_bytes = count[2] > 1 ? (cuuint64_t)(pitch[1] * element_bytes) : row_bytes * sizes[1];
    const cuuint64_t strides[2] = {row_bytes, matrix_bytes};
    const cuuint32_t boxes[3] = {(cuuint32_t)box[0], (cuuint32_t)box[1], 1}, steps[3] = {1, 1, 1};
    EncodeTiled encode = encode_tiled();
    if (!encode) return cudaErrorNotSupported;
    CUresult result =
        encode((CUtensorMap*)map, type, 3, (void*)base, sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// --- host: launches

// kw: allow_shared_memory
// Raises a kernel's limit of dynamic shared memory. Each launch asks anew: a static flag in a template is one variable
// for all libraries of a process (STB_GNU_UNIQUE), while the kernel, and so its limit, is each library's own.
template <class Kernel> cudaError_t allow_shared_memory(Kernel kernel, int bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

// kw: multiprocessors
inline cudaError_t multiprocessors(int* count) {
    int device = 0;
    cudaError_t status = cudaGetDevice(&device);
    return status != cudaSuccess ? status : cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

// kw: in_even_rounds
// Blocks for so many tiles, of which `at_once` fit: no more than as many rounds want. A round of tiles then lies side by
// side, and shares more of its operands.
inline int64_t in_even_rounds(int64_t tiles, int64_t at_once) {
    const int64_t rounds = (tiles + at_once - 1) / at_once;
    return rounds == 0 ? 0 : (tiles + rounds - 1) / rounds;
}
#endif

}  // namespace kw::ptx90
