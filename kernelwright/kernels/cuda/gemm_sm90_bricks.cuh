// gemm_sm90 with another order of the packed W, for one that is packed in each call from rows that lie side by side (the
// second operand of a @ b): bricks of 128 rows and 32 of k.
//
// A brick is what one slot of the product's ring takes: 16 KB that lie together, before the brick of the next 32 of k. So
// packing writes 4 KB, and the product reads 16 KB, at a time, where rows of split::Packed are 4 k bytes apart.
#pragma once

#include "gemm_sm90.cuh"

namespace kw::gemm_sm90_bricks {

constexpr int rows_of_brick = 128;
constexpr int padding = 256;  // of rows: the widest tile reads two bricks

// Packed by panels; `pairs` are [batches][padded_rows / 128][padded_k / 32][128 rows][32 hi | 32 lo].
struct Bricks : split::Packed {
    static constexpr int64_t block_pitch = rows_of_brick * 2 * split::packed_block;

    // Where a row begins, counted in lines of 128 bytes: 32 of k.
    KW_DEVICE int64_t line(int batch, int row) const {
        const int64_t brick_row = ((int64_t)batch * padded_rows + row) / rows_of_brick;
        return brick_row * (padded_k / split::packed_block) * rows_of_brick + row % rows_of_brick;
    }
    KW_DEVICE __half* row(int batch, int row) const { return pairs + line(batch, row) * (2 * split::packed_block); }
    KW_DEVICE int kept_rows() const { return padded_rows; }  // those beyond the last are zeros
};

__host__ __device__ inline int64_t line_count(const Bricks& w) {
    return (int64_t)w.batches * w.padded_rows * (w.padded_k / split::packed_block);
}

__host__ __device__ inline Bricks bricks_view(void* buffer, int rows, int k, int batches) {
    Bricks view = {};
    view.rows = rows, view.k = k, view.batches = batches, view.halves = 2, view.panels = split::panels_of(k);
    view.padded_rows = split::round_up(rows, padding), view.padded_k = split::round_up(k, 64);
    view.pairs = (__half*)buffer;
    view.inverse = (float*)((char*)buffer + line_count(view) * 128);
    return view;
}

// As gemm_sm90 asks of a W: where the box of a slot begins, and the map of all boxes: one matrix, line after line.
KW_DEVICE gemm_sm90::Corner corner(const Bricks& w, int batch, int n, int block) {
    return {0, (int)w.line(batch, n) + block * rows_of_brick, 0};
}

#ifndef __CUDACC_RTC__
inline cudaError_t describe(Bricks& w, ptx90::TensorMap* map, const gemm_sm90::Operands& operands, int, int rows) {
    if (rows_of_brick % rows != 0) return cudaErrorInvalidValue;  // a slot lies inside of a brick
    w = bricks_view(const_cast<void*>(operands.w), operands.n, operands.k, operands.w_batches);
    return ptx90::encode_map(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, operands.w,
                             {2 * split::packed_block, line_count(w), 1}, {2 * split::packed_block, 0},
                             {2 * split::packed_block, rows});
}

// As split::pack_by.
template <int Halves>
cudaError_t pack(const float* w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k, int batches,
                 void* buffer, cudaStream_t stream) {
    if (row_pitch != 1) return cudaErrorInvalidValue;
    const Bricks packed = bricks_view(buffer, rows, k, batches);
    const dim3 grid(packed.padded_rows / 32, packed.panels, batches);
    split::pack_panels<Halves, Bricks><<<grid, 256, 0, stream>>>(w, k_pitch, batch_pitch, packed);
    return cudaGetLastError();
}
#endif

}  // namespace kw::gemm_sm90_bricks
