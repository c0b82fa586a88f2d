#include "packed.hpp"

#include "gemm_sm90_f16x1.cuh"

namespace kw::gemm_sm90_half {
alignas(1024) uint8_t shared[256 * 1024];
}
using namespace kw::gemm_sm90_half;

template <class T, int TileN, int Vector> struct Config {
    using Type = T;
    static constexpr int tile_n = TileN, cluster = 1, blocks = 1, vector = Vector, raster = 16;
};

template <class C, class Epilogue>
void multiply(const Problem& problem, const typename Epilogue::Args& args) {
    kw::ptx90::barriers.clear(), kw::ptx90::named.clear();
    cpu::run(dim3(1), dim3(Sizes<C>::threads), [&] { multiply_kernel<C, Epilogue>(problem, args); });
}

template <class C>
bool right(const char* name, Values values, int m, int n, int k, int batches = 1, int w_batches = 1) {
    Product<typename C::Type> p(values, m, n, k, batches, w_batches, 8);
    Problem problem;
    problem.a_map = {p.a.data, {k, m, batches}, {p.a.row_pitch, p.a.batch_pitch}, {tile_k, tile_m}, 2};
    problem.w_map = {p.w.data, {k, n, w_batches}, {p.w.row_pitch, p.w.batch_pitch}, {tile_k, C::tile_n}, 2};
    problem.m = m, problem.n = n, problem.k = k, problem.batches = batches, problem.w_batches = w_batches;
    multiply<C, Store>(problem, p.args());
    return p.right(name);
}

// float32 through rows of scaled float16: pack<1>, the product, the scales taken out.
struct PackedRows {
    std::vector<char> memory;
    kw::split::Packed view;

    PackedRows(Matrix<float>& x, int rows, int k, int batches)
        : memory(kw::split::packed_bytes(rows, k, batches, 1) + 128) {
        void* aligned = (void*)(((uintptr_t)memory.data() + 127) & ~(uintptr_t)127);
        view = kw::split::packed_view(aligned, rows, k, batches, 1);
        cpu::run(dim3(view.padded_rows, batches), dim3(256),
                 [&] { kw::split::pack_rows<1>(x.data, x.row_pitch, x.batch_pitch, view); });
    }
};

template <class C> bool right_rounded(const char* name, Values values, int m, int n, int k, int batches = 1) {
    Product<> p(values, m, n, k, batches, batches, 4);
    PackedRows a(p.a, m, k, batches), w(p.w, n, k, batches);
    const int64_t pitch = a.view.padded_k;
    Problem problem;
    problem.a_map = {a.view.pairs, {k, m, batches}, {pitch, pitch * m}, {tile_k, tile_m}, 2};
    problem.w_map = {w.view.pairs, {k, n, batches}, {pitch, pitch * n}, {tile_k, C::tile_n}, 2};
    problem.m = m, problem.n = n, problem.k = k, problem.batches = batches, problem.w_batches = batches;
    using Unscaled = kw::gemm_sm90_f16x1::Unscaled<Store>;
    const Unscaled::Args args = {p.args(), a.view.inverse, w.view.inverse, a.view.padded_rows,
                                 batches == 1 ? 0 : w.view.padded_rows, batches == 1 ? 0 : m};
    multiply<C, Unscaled>(problem, args);
    return p.right(name, 4e-4);
}

int main() {
    bool good = right<Config<__half, 256, 4>>("float16, widest tile", Values::integers, 132, 260, 200);
    good &= right<Config<__half, 64, 1>>("float16, odd", Values::integers, 9, 71, 72, 2, 1);
    good &= right<Config<__nv_bfloat16, 128, 2>>("bfloat16", Values::integers, 130, 134, 136, 2, 2);
    good &= right<Config<__nv_bfloat16, 192, 4>>("bfloat16, special", Values::special, 10, 196, 64);
    good &= right_rounded<Config<__half, 128, 4>>("scaled float16", Values::integers, 130, 132, 100);
    good &= right_rounded<Config<__half, 64, 1>>("scaled float16, odd", Values::normal, 9, 71, 101, 2);
    good &= right_rounded<Config<__half, 64, 1>>("scaled float16, special", Values::special, 9, 71, 101);
    return good ? 0 : 1;
}
