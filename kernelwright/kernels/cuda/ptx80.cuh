// Instructions that Ampere brought (sm_80 and later), one small function each: cp.async, ldmatrix, mma.
#pragma once

#include "ptx90.cuh"

namespace kw::ptx80 {

// --- cp.async: from global to shared memory without registers. 16, 8 or 4 bytes; zeros where `inside` is false.

// kw: copy_async
template <int Bytes> KW_DEVICE void copy_async(void* destination, const void* source, bool inside) {
    const uint32_t to = ptx90::shared_address(destination);
    const int size = inside ? Bytes : 0;  // what is read; the rest of the destination becomes zero
    if constexpr (Bytes == 16)  // past L1: nothing is read twice
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source), "r"(size) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(source), "n"(Bytes), "r"(size)
                     : "memory");
}
// kw: copies_commit
// Closes a group of copies; empty groups count.
KW_DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// kw: copies_wait
// Returns once at most `Pending` of this thread's groups are still on their way.
template <int Pending> KW_DEVICE void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// --- ldmatrix: four 8 x 8 matrices of halves. Lane l gives the address of row l % 8 of matrix l / 8 (16 bytes, aligned)
// and gets from every matrix the elements 2 (l % 4) and + 1 of row l / 4.

// kw: load_matrices
KW_DEVICE void load_matrices(uint32_t (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(ptx90::shared_address(row))
                 : "memory");
}

// --- mma: D[16, 8] = A[16, 16] B[8, 16]^T + D in float32. A thread has of D the columns 2 q and + 1 (q = lane % 4) of
// rows lane / 4 and 8 below.

// kw: mma_f16
KW_DEVICE void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace kw::ptx80
