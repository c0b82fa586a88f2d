// wgmma in widths that ptx90.cuh does not have: D[64, n] (+)= A[64, 16] B[n, 16]^T in float16, both operands in shared
// memory, for every n from 32 to 128 that is a multiple of 8. A row of a convolution's tile can then be one instruction.
#pragma once

#include "ptx90.cuh"

namespace kw::wgmma_rows {

using ptx90::wgmma_f16_shared;  // 64, 128 and 256 columns

// Operand lists: the first so many registers of D, by fours.
#define KW_D_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define KW_D_20 KW_D_16 ", %16, %17, %18, %19"
#define KW_D_24 KW_D_20 ", %20, %21, %22, %23"
#define KW_D_28 KW_D_24 ", %24, %25, %26, %27"
#define KW_D_32 KW_D_28 ", %28, %29, %30, %31"
#define KW_D_36 KW_D_32 ", %32, %33, %34, %35"
#define KW_D_40 KW_D_36 ", %36, %37, %38, %39"
#define KW_D_44 KW_D_40 ", %40, %41, %42, %43"
#define KW_D_48 KW_D_44 ", %44, %45, %46, %47"
#define KW_D_52 KW_D_48 ", %48, %49, %50, %51"
#define KW_D_56 KW_D_52 ", %52, %53, %54, %55"
#define KW_D_60 KW_D_56 ", %56, %57, %58, %59"
#define KW_TO_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KW_TO_16(d) KW_TO_4(d, 0), KW_TO_4(d, 4), KW_TO_4(d, 8), KW_TO_4(d, 12)
#define KW_TO_20(d) KW_TO_16(d), KW_TO_4(d, 16)
#define KW_TO_24(d) KW_TO_20(d), KW_TO_4(d, 20)
#define KW_TO_28(d) KW_TO_24(d), KW_TO_4(d, 24)
#define KW_TO_32(d) KW_TO_28(d), KW_TO_4(d, 28)
#define KW_TO_36(d) KW_TO_32(d), KW_TO_4(d, 32)
#define KW_TO_40(d) KW_TO_36(d), KW_TO_4(d, 36)
#define KW_TO_44(d) KW_TO_40(d), KW_TO_4(d, 40)
#define KW_TO_48(d) KW_TO_44(d), KW_TO_4(d, 44)
#define KW_TO_52(d) KW_TO_48(d), KW_TO_4(d, 48)
#define KW_TO_56(d) KW_TO_52(d), KW_TO_4(d, 52)
#define KW_TO_60(d) KW_TO_56(d), KW_TO_4(d, 56)

// `accumulate` is 0 or 1.
#define KW_WGMMA_ROW(N, COUNT, A, B, KEEP)                                                                       \
    KW_DEVICE void wgmma_f16_shared(float (&d)[COUNT], uint64_t a, uint64_t b, int accumulate) {                 \
        asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP                                              \
                     ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" KW_D_##COUNT "}, " A ", " B \
                     ", keep, 1, 1, 0, 0;\n}\n"                                                                  \
                     : KW_TO_##COUNT(d)                                                                          \
                     : "l"(a), "l"(b), "r"(accumulate));                                                         \
    }
KW_WGMMA_ROW(32, 16, "%16", "%17", "%18")
KW_WGMMA_ROW(40, 20, "%20", "%21", "%22")
KW_WGMMA_ROW(48, 24, "%24", "%25", "%26")
KW_WGMMA_ROW(56, 28, "%28", "%29", "%30")
KW_WGMMA_ROW(72, 36, "%36", "%37", "%38")
KW_WGMMA_ROW(80, 40, "%40", "%41", "%42")
KW_WGMMA_ROW(88, 44, "%44", "%45", "%46")
KW_WGMMA_ROW(96, 48, "%48", "%49", "%50")
KW_WGMMA_ROW(104, 52, "%52", "%53", "%54")
KW_WGMMA_ROW(112, 56, "%56", "%57", "%58")
KW_WGMMA_ROW(120, 60, "%60", "%61", "%62")
#undef KW_WGMMA_ROW
#undef KW_D_16
#undef KW_TO_16
#undef KW_D_20
#undef KW_TO_20
#undef KW_D_24
#undef KW_TO_24
#undef KW_D_28
#undef KW_TO_28
#undef KW_D_32
#undef KW_TO_32
#undef KW_D_36
#undef KW_TO_36
#undef KW_D_40
#undef KW_TO_40
#undef KW_D_44
#undef KW_TO_44
#undef KW_D_48
#undef KW_TO_48
#undef KW_D_52
#undef KW_TO_52
#undef KW_D_56
#undef KW_TO_56
#undef KW_D_60
#undef KW_TO_60
#undef KW_TO_4

}  // namespace kw::wgmma_rows
