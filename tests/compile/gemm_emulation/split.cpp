#include "packed.hpp"

using namespace kw::split;

// Few long rows are packed by other kernels than many short ones: to the same bytes.
bool pieces_equal_rows() {
    Product<> p(Values::special, 9, 9, 20001, 1, 1);
    PackedW rows(p), pieces(p);
    std::fill_n(pieces.view.largest, pieces.view.padded_rows, 0u);
    std::memset((void*)pieces.view.pairs, 0xff, (size_t)9 * pieces.view.padded_k * 4);
    const dim3 grid((pieces.view.padded_k + k_of_part - 1) / k_of_part, p.n, 1);
    cpu::run(grid, dim3(256), [&] { largest_of_parts(p.w.data, p.w.row_pitch, p.w.batch_pitch, pieces.view); });
    cpu::run(grid, dim3(256), [&] { pack_parts<2>(p.w.data, p.w.row_pitch, p.w.batch_pitch, pieces.view); });
    const bool same = std::memcmp(rows.view.pairs, pieces.view.pairs, (size_t)9 * rows.view.padded_k * 4) == 0 &&
                      std::memcmp(rows.view.inverse, pieces.view.inverse, 9 * 4) == 0;
    std::printf("%s pieces of rows\n", same ? "right" : "WRONG");
    return same;
}

// A transposed matrix packs to the bytes of the matrix.
template <int Halves> bool columns_equal_rows() {
    Product<> p(Values::normal, 1, 70, 300), turned(Values::normal, 1, 70, 300, 1, 1, 1, true, false);
    for (int n = 0; n < p.n; n++)
        for (int k = 0; k < p.k; k++) turned.w.at(0, n, k) = p.w.at(0, n, k);
    PackedW rows(p), columns(p);
    Packed a = rows.view, b = columns.view;
    a.halves = b.halves = Halves;
    std::fill_n(b.largest, b.padded_rows, 0u);
    std::memset((void*)b.pairs, 0xff, (size_t)p.n * b.padded_k * 2 * Halves);
    cpu::run(dim3(p.n, 1), dim3(256), [&] { pack_rows<Halves>(p.w.data, p.w.row_pitch, p.w.batch_pitch, a); });
    const dim3 grid((p.n + 31) / 32, (b.padded_k + 255) / 256, 1), block(32, 8);
    auto& w = turned.w;
    cpu::run(grid, block, [&] { largest_of_columns(w.data, w.row_pitch, w.k_pitch, w.batch_pitch, b); });
    cpu::run(grid, block, [&] { pack_columns<Halves>(w.data, w.row_pitch, w.k_pitch, w.batch_pitch, b); });
    const bool same = std::memcmp(a.pairs, b.pairs, (size_t)p.n * a.padded_k * 2 * Halves) == 0 &&
                      std::memcmp(a.inverse, b.inverse, p.n * 4) == 0;
    std::printf("%s columns, %d halves\n", same ? "right" : "WRONG", Halves);
    return same;
}

// Rows that fit registers pack to the same bytes; beyond the last row, scales are 1.
template <int Halves, int WarpsOfRow> bool held_equal_rows(int k) {
    Product<> p(Values::special, 1, 19, k, 2, 2);
    PackedW rows(p), held(p);
    Packed a = rows.view, b = held.view;
    a.halves = b.halves = Halves;
    const size_t bytes = (size_t)2 * p.n * b.padded_k * 2 * Halves;
    std::memset((void*)b.pairs, 0xff, bytes);
    std::fill_n(b.inverse, 2 * b.padded_rows, 7.f);
    cpu::run(dim3(p.n, 2), dim3(256), [&] { pack_rows<Halves>(p.w.data, p.w.row_pitch, p.w.batch_pitch, a); });
    cpu::run(dim3(24 * WarpsOfRow / 8, 2), dim3(256),
             [&] { pack_held<Halves, WarpsOfRow>(p.w.data, p.w.row_pitch, p.w.batch_pitch, b); });
    bool same = std::memcmp(a.pairs, b.pairs, bytes) == 0;
    for (int batch = 0; batch < 2; batch++)
        for (int row = 0; row < 24; row++)
            same &= b.inverse[batch * b.padded_rows + row] == (row < p.n ? a.inverse[batch * a.padded_rows + row] : 1.f);
    std::printf("%s rows in registers of %d warps, %d halves\n", same ? "right" : "WRONG", WarpsOfRow, Halves);
    return same;
}

int main() {
    bool good = pieces_equal_rows();
    good &= held_equal_rows<2, 1>(301);
    good &= held_equal_rows<1, 1>(1024);
    good &= held_equal_rows<2, 8>(1025);
    good &= columns_equal_rows<2>();
    good &= columns_equal_rows<1>();
    return good ? 0 : 1;
}
