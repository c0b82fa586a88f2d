// How every matrix multiplication hands its sums to the generated epilogue.
//
//   struct Epilogue {
//     struct Args { ... };
//     template <int N> static __device__ void store(const Args&, const float (&sums)[N], int64_t m, int64_t n);
//   };
//
// `sums` are N neighbours along n of row m, all inside the result; N is the Config's `vector` or 1, and n is a multiple
// of N. Rows of batch b are b * M ... b * M + M - 1. Every element is handed over exactly once. Operands that no kernel
// writes should be read with __ldg: then the compiler may gather the loads of several calls.
#pragma once

#include "../device/base.cuh"

namespace kw::gemm {

template <int Vector, class Epilogue>
KW_DEVICE void store_part(const typename Epilogue::Args& args, const float (&v)[4], int i, int64_t m, int64_t n) {
    float part[Vector];
#pragma unroll
    for (int j = 0; j < Vector; j++) part[j] = v[i + j];
    Epilogue::template store<Vector>(args, part, m, n + i);
}

// Four neighbours, all inside the result.
template <int Vector, class Epilogue>
KW_DEVICE void store_four(const typename Epilogue::Args& args, const float (&v)[4], int64_t m, int64_t n) {
#pragma unroll
    for (int i = 0; i < 4; i += Vector) store_part<Vector, Epilogue>(args, v, i, m, n);
}

// Four neighbours at the right edge: those before `columns`, a multiple of Vector.
template <int Vector, class Epilogue>
KW_DEVICE void store_some(const typename Epilogue::Args& args, const float (&v)[4], int64_t m, int64_t n,
                          int64_t columns) {
#pragma unroll
    for (int i = 0; i < 4; i += Vector)
        if (n + i < columns) store_part<Vector, Epilogue>(args, v, i, m, n);
}

// --- wgmma's accumulators. A thread has, of every 8 columns, the pair 2q, 2q + 1 (q = lane % 4) in two rows.
// Of 16 columns, lanes q and q ^ 1 trade pairs: even lanes take the left 8, odd lanes the right 8, four neighbours
// each.

// Where a lane's four neighbours begin in every 16 columns.
KW_DEVICE int first_of_four(int lane) { return (lane & 1) * 8 + (lane & 2) * 2; }

KW_DEVICE void trade(float (&v)[4], const float* left, const float* right, bool odd) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float received = __shfl_xor_sync(~0u, odd ? left[i] : right[i], 1);
        v[i] = odd ? received : left[i];
        v[2 + i] = odd ? right[i] : received;
    }
}

}  // namespace kw::gemm
