#include "packed.hpp"

#include "gemm_sm90.cuh"

namespace kw::gemm_sm90 {
alignas(1024) uint8_t shared[smem_bytes];
}
using namespace kw::gemm_sm90;

template <int TileM, int TileN, int Promote, int Splits, int Vector> struct Config {
    static constexpr int tile_m = TileM, tile_n = TileN, promote = Promote, splits = Splits, vector = Vector, raster = 16;
    static constexpr bool undo_truncation = false;  // these products round to nearest
};

// One block works on all tiles, so that it also goes from tile to tile.
template <class C>
bool right(const char* name, Values values, int m, int n, int k, int batches = 1, int w_batches = 1) {
    Product<> p(values, m, n, k, batches, w_batches, 4);
    PackedW w(p);
    const int64_t w_pitch = (int64_t)w.view.padded_k * 2;
    Problem problem;
    problem.a_map = {p.a.data, {k, m, batches}, {p.a.row_pitch, p.a.batch_pitch}, {k_of_slot, C::tile_m}, 4};
    problem.w_map = {w.view.pairs, {w_pitch, n, w_batches}, {w_pitch, w_pitch * n}, {2 * k_of_slot, Sizes<C>::wgmma_n}, 2};
    problem.a = p.a.data, problem.a_row_pitch = p.a.row_pitch, problem.a_batch_pitch = p.a.batch_pitch;
    problem.w = w.view, problem.m = m, problem.n = n, problem.k = k, problem.batches = batches;
    kw::ptx90::barriers.clear(), kw::ptx90::named.clear();
    if constexpr (C::splits == 1) {
        cpu::run(dim3(1), dim3(threads), [&] { multiply_kernel<C, Store>(problem, p.args()); });
    } else {
        const int pitch = kw::split::round_up(n, 4);
        std::vector<float4> memory((size_t)C::splits * batches * m * pitch / 4);
        const StorePart::Args parts = {(float*)memory.data(), pitch};
        cpu::run(dim3(1), dim3(threads), [&] { multiply_kernel<PartConfig<C>, StorePart>(problem, parts); });
        cpu::run(dim3((batches * m * (pitch / 4) + 255) / 256), dim3(256),
                 [&] { sum_parts<C, Store>(problem, parts, p.args()); });
    }
    return p.right(name);
}

int main() {
    bool good = right<Config<128, 256, 64, 1, 4>>("widest tile", Values::integers, 132, 36, 300);
    good &= right<Config<128, 192, 32, 1, 1>>("192 columns, odd", Values::integers, 9, 199, 101, 2, 1);
    good &= right<Config<64, 256, 64, 1, 4>>("64 rows", Values::integers, 36, 260, 300);
    good &= right<Config<64, 128, 32, 1, 1>>("64 rows, odd", Values::integers, 37, 131, 101, 2, 2);
    good &= right<Config<64, 256, 64, 3, 2>>("64 rows in parts", Values::normal, 70, 30, 452);
    good &= right<Config<128, 64, 64, 2, 1>>("64 columns in parts", Values::integers, 130, 9, 452);
    good &= right<Config<64, 128, 64, 1, 4>>("Inf and NaN", Values::special, 10, 12, 600);
    return good ? 0 : 1;
}
