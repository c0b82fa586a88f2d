// kw: gemm::Ending
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

// kw: Ending
// What becomes of the sums that a thread has of `rows` rows of a tile. Here each is stored, and that is all; what an
// epilogue that reduces keeps of them until the tile ends is in gemm_rows.cuh.
template <class Epilogue, int rows, int Vector> struct Ending {
    static constexpr int vector = Vector;
    static constexpr bool keeps_rows = false;
    const typename Epilogue::Args& args;

    KW_DEVICE explicit Ending(const typename Epilogue::Args& args) : args(args) {}

    // Row number `which` of the thread's is row m of the result, or the last one if that is beyond it.
    KW_DEVICE void begin(int which, int64_t m) {}
    KW_DEVICE void take(const float (&sums)[Vector], int which, int64_t m, int64_t n) {
        Epilogue::template store<Vector>(args, sums, m, n);
    }
    // Four sums in a row of lane `owner`, known to all lanes of its warp; those before `columns` are inside.
    KW_DEVICE void take_from_all(const float (&sums)[4], int which, int64_t m, int64_t n, int64_t columns, int owner) {
        const int lane = threadIdx.x & 31;
        const float mine[1] = {lane & 2 ? (lane & 1 ? sums[3] : sums[2]) : (lane & 1 ? sums[1] : sums[0])};
        if (lane < 4 && n + lane < columns) Epilogue::template store<1>(args, mine, m, n + lane);
    }
    // All lanes of the warp, of which `lanes` neighbours share the row, have handed over what they have of it.
    template <int lanes> KW_DEVICE void leave(int which, int64_t m, bool inside, int part) {}
};

// kw: take_part
template <class End> KW_DEVICE void take_part(End& end, const float (&v)[4], int i, int which, int64_t m, int64_t n) {
    float part[End::vector];
#pragma unroll
    for (int j = 0; j < End::vector; j++) part[j] = v[i + j];
    end.take(part, which, m, n + i);
}

// kw: take_four
// Four neighbours, all inside the result.
template <class End> KW_DEVICE void take_four(End& end, const float (&v)[4], int which, int64_t m, int64_t n) {
#pragma unroll
    for (int i = 0; i < 4; i += End::vector) take_part(end, v, i, which, m, n);
}

// kw: take_some
// Four neighbours at the right edge: those before `columns`, a multiple of the vector.
template <class End>
KW_DEVICE void take_some(End& end, const float (&v)[4], int which, int64_t m, int64_t n, int64_t columns) {
#pragma unroll
    for (int i = 0; i < 4; i += End::vector)
        if (n + i < columns) take_part(end, v, i, which, m, n);
}

// --- wgmma's accumulators. A thread has, of every 8 columns, the pair 2q, 2q + 1 (q = lane % 4) in two rows.
// Of 16 columns, lanes q and q ^ 1 trade pairs: even lanes take the left 8, odd lanes the right 8, four neighbours
// each.

// kw: first_of_four
// Where a lane's four neighbours begin in every 16 columns.
KW_DEVICE int first_of_four(int lane) { return (lane & 1) * 8 + (lane & 2) * 2; }

// kw: trade
// `apart`: between the lanes.
template <int apart = 1> KW_DEVICE void trade(float (&v)[4], const float* left, const float* right, bool odd) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float received = __shfl_xor_sync(~0u, odd ? left[i] : right[i], apart);
        v[i] = odd ? received : left[i];
        v[2 + i] = odd ? right[i] : received;
    }
}

}  // namespace kw::gemm
