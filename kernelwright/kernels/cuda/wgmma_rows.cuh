// wgmma in widths that ptx90.cuh does not have: D[64, n] (+)= A[64, 16] B[n, 16]^T in float16, both operands in shared
// memory, for every n from 32 to 256 that is a multiple of 8. A row of a convolution's tile can then be one instruction, or
// several of them.
#pragma once

#include "ptx90.cuh"

namespace kw::wgmma_rows {

using ptx90::wgmma_f16_shared;  // 64, 128, 192 and 256 columns

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
#define KW_D_64 KW_D_60 ", %60, %61, %62, %63"
#define KW_D_68 KW_D_64 ", %64, %65, %66, %67"
#define KW_D_72 KW_D_68 ", %68, %69, %70, %71"
#define KW_D_76 KW_D_72 ", %72, %73, %74, %75"
#define KW_D_80 KW_D_76 ", %76, %77, %78, %79"
#define KW_D_84 KW_D_80 ", %80, %81, %82, %83"
#define KW_D_88 KW_D_84 ", %84, %85, %86, %87"
#define KW_D_92 KW_D_88 ", %88, %89, %90, %91"
#define KW_D_96 KW_D_92 ", %92, %93, %94, %95"
#define KW_D_100 KW_D_96 ", %96, %97, %98, %99"
#define KW_D_104 KW_D_100 ", %100, %101, %102, %103"
#define KW_D_108 KW_D_104 ", %104, %105, %106, %107"
#define KW_D_112 KW_D_108 ", %108, %109, %110, %111"
#define KW_D_116 KW_D_112 ", %112, %113, %114, %115"
#define KW_D_120 KW_D_116 ", %116, %117, %118, %119"
#define KW_D_124 KW_D_120 ", %120, %121, %122, %123"
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
#define KW_TO_64(d) KW_TO_60(d), KW_TO_4(d, 60)
#define KW_TO_68(d) KW_TO_64(d), KW_TO_4(d, 64)
#define KW_TO_72(d) KW_TO_68(d), KW_TO_4(d, 68)
#define KW_TO_76(d) KW_TO_72(d), KW_TO_4(d, 72)
#define KW_TO_80(d) KW_TO_76(d), KW_TO_4(d, 76)
#define KW_TO_84(d) KW_TO_80(d), KW_TO_4(d, 80)
#define KW_TO_88(d) KW_TO_84(d), KW_TO_4(d, 84)
#define KW_TO_92(d) KW_TO_88(d), KW_TO_4(d, 88)
#define KW_TO_96(d) KW_TO_92(d), KW_TO_4(d, 92)
#define KW_TO_100(d) KW_TO_96(d), KW_TO_4(d, 96)
#define KW_TO_104(d) KW_TO_100(d), KW_TO_4(d, 100)
#define KW_TO_108(d) KW_TO_104(d), KW_TO_4(d, 104)
#define KW_TO_112(d) KW_TO_108(d), KW_TO_4(d, 108)
#define KW_TO_116(d) KW_TO_112(d), KW_TO_4(d, 112)
#define KW_TO_120(d) KW_TO_116(d), KW_TO_4(d, 116)
#define KW_TO_124(d) KW_TO_120(d), KW_TO_4(d, 120)

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
KW_WGMMA_ROW(136, 68, "%68", "%69", "%70")
KW_WGMMA_ROW(144, 72, "%72", "%73", "%74")
KW_WGMMA_ROW(152, 76, "%76", "%77", "%78")
KW_WGMMA_ROW(160, 80, "%80", "%81", "%82")
KW_WGMMA_ROW(168, 84, "%84", "%85", "%86")
KW_WGMMA_ROW(176, 88, "%88", "%89", "%90")
KW_WGMMA_ROW(184, 92, "%92", "%93", "%94")
KW_WGMMA_ROW(200, 100, "%100", "%101", "%102")
KW_WGMMA_ROW(208, 104, "%104", "%105", "%106")
KW_WGMMA_ROW(216, 108, "%108", "%109", "%110")
KW_WGMMA_ROW(224, 112, "%112", "%113", "%114")
KW_WGMMA_ROW(232, 116, "%116", "%117", "%118")
KW_WGMMA_ROW(240, 120, "%120", "%121", "%122")
KW_WGMMA_ROW(248, 124, "%124", "%125", "%126")
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
#undef KW_D_64
#undef KW_TO_64
#undef KW_D_68
#undef KW_TO_68
#undef KW_D_72
#undef KW_TO_72
#undef KW_D_76
#undef KW_TO_76
#undef KW_D_80
#undef KW_TO_80
#undef KW_D_84
#undef KW_TO_84
#undef KW_D_88
#undef KW_TO_88
#undef KW_D_92
#undef KW_TO_92
#undef KW_D_96
#undef KW_TO_96
#undef KW_D_100
#undef KW_TO_100
#undef KW_D_104
#undef KW_TO_104
#undef KW_D_108
#undef KW_TO_108
#undef KW_D_112
#undef KW_TO_112
#undef KW_D_116
#undef KW_TO_116
#undef KW_D_120
#undef KW_TO_120
#undef KW_D_124
#undef KW_TO_124
#undef KW_TO_4

}  // namespace kw::wgmma_rows
