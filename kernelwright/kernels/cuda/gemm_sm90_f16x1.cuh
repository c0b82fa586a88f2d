// C = Epilogue(A W^T) for float32 at the accuracy of TF32 and twice its speed: one product of scaled float16.
//
// float16 has TF32's 11 bits; what it lacks is range. So every row of A and of W is multiplied by a power of two that
// brings its largest magnitude to [2^14, 2^15) (split.cuh), the half-precision kernel multiplies, and the inverse scales
// are put into the epilogue. W is packed ahead; A is packed by a kernel before the product, 6 bytes an element: reading
// float32 in the product itself would take more from L2 than it can give.
#pragma once

#include "gemm_sm90_half.cuh"
#include "split.cuh"

namespace kw::gemm_sm90_f16x1 {

// Read-only, so that the compiler gathers the loads of several calls; N neighbours are aligned to N.
template <int N> KW_DEVICE void load_columns(float (&values)[N], const float* columns) {
    if constexpr (N == 4) {
        const float4 v = __ldg((const float4*)columns);
        values[0] = v.x, values[1] = v.y, values[2] = v.z, values[3] = v.w;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = __ldg(columns + i);
    }
}

// The scales of row and column are taken out of the sums before Epilogue sees them.
template <class Epilogue> struct Unscaled {
    struct Args {
        typename Epilogue::Args epilogue;
        const float *of_row, *of_column;  // inverse scales: [batches][row_pitch], [batches or 1][column_pitch]
        int64_t row_pitch, column_pitch;  // column_pitch is 0 where all batches share W
        int64_t rows;                     // of a batch; 0: there is one
    };
};

}  // namespace kw::gemm_sm90_f16x1

namespace kw::gemm {

template <class Epilogue, int rows, int Vector>
struct Ending<gemm_sm90_f16x1::Unscaled<Epilogue>, rows, Vector> : Ending<Epilogue, rows, Vector> {
    using Args = typename gemm_sm90_f16x1::Unscaled<Epilogue>::Args;
    using Base = Ending<Epilogue, rows, Vector>;
    const Args& scales;

    KW_DEVICE explicit Ending(const Args& args) : Base(args.epilogue), scales(args) {}

    KW_DEVICE void take(const float (&sums)[Vector], int which, int64_t m, int64_t n) {
        const int64_t batch = scales.rows ? m / scales.rows : 0;
        const float of_row = __ldg(scales.of_row + batch * scales.row_pitch + (m - batch * scales.rows));
        float of_column[Vector], v[Vector];
        gemm_sm90_f16x1::load_columns(of_column, scales.of_column + batch * scales.column_pitch + n);
        // The smaller one first: the product of both, or the sums times the larger one, may leave float32's range.
#pragma unroll
        for (int i = 0; i < Vector; i++)
            v[i] = sums[i] * fminf(of_row, of_column[i]) * fmaxf(of_row, of_column[i]);
        Base::take(v, which, m, n);
    }
};

}  // namespace kw::gemm

namespace kw::gemm_sm90_f16x1 {

#ifndef __CUDACC_RTC__
struct Operands {
    const float* a;  // [batches][m][k], any strides
    int64_t a_row_pitch, a_k_pitch, a_batch_pitch;
    const void* w;                    // what split::pack<1> wrote for [w_batches][n][k]
    int m, n, k, batches, w_batches;  // w_batches: 1 (shared) or batches
};

// A's rows, packed.
inline int64_t workspace_bytes(int m, int k, int batches) { return split::packed_bytes(m, k, batches, 1); }

// Enqueues the passes; allocates nothing and waits for nothing. `workspace` has workspace_bytes bytes.
template <class Config, class Epilogue, class Prologue = gemm::AsItLies>
cudaError_t launch(const Operands& operands, void* workspace, const typename Epilogue::Args& args,
                   cudaStream_t stream, const typename Prologue::Args& made = {}) {
    const Operands& o = operands;
    const cudaError_t status = split::pack<1, Prologue>(o.a, o.a_row_pitch, o.a_k_pitch, o.a_batch_pitch, o.m, o.k,
                                                        o.batches, workspace, stream, made);
    if (status != cudaSuccess) return status;
    const split::Packed a = split::packed_view(workspace, o.m, o.k, o.batches, 1),
                        w = split::packed_view(const_cast<void*>(o.w), o.n, o.k, o.w_batches, 1);
    const int64_t pitch = a.padded_k;
    const gemm_sm90_half::Operands halves = {a.pairs, w.pairs, pitch, pitch * o.m, pitch,       pitch * o.n,
                                             o.m,     o.n,     o.k,   o.batches,   o.w_batches};
    typename Unscaled<Epilogue>::Args unscaled;
    unscaled.epilogue = args, unscaled.of_row = a.inverse, unscaled.of_column = w.inverse;
    unscaled.row_pitch = a.padded_rows, unscaled.column_pitch = o.w_batches == 1 ? 0 : w.padded_rows;
    unscaled.rows = o.batches == 1 ? 0 : o.m;
    return gemm_sm90_half::launch<Config, Unscaled<Epilogue>>(halves, unscaled, stream);
}
#endif

}  // namespace kw::gemm_sm90_f16x1
