#include "packed.hpp"

#include "gemm_sm80.cuh"

namespace kw::gemm_sm80 {
uint4 dynamic[12 * 1024];
}

template <int TileM, int TileN, int Vector> struct Config {
    static constexpr int tile_m = TileM, tile_n = TileN, vector = Vector;
};

template <class C>
bool right(const char* name, Values values, int m, int n, int k, int batches = 1, int w_batches = 1) {
    Product<> p(values, m, n, k, batches, w_batches, 4);
    PackedW w(p);
    const kw::gemm_sm80::Problem problem = {p.a.data, p.a.row_pitch, p.a.batch_pitch, w.view, m, n, k, batches};
    const int tiles = ((m + C::tile_m - 1) / C::tile_m) * ((n + C::tile_n - 1) / C::tile_n);
    cpu::run(dim3(tiles, batches), dim3(256), [&] { kw::gemm_sm80::multiply_kernel<C, Store>(problem, p.args()); });
    return p.right(name);
}

int main() {
    bool good = right<Config<64, 64, 4>>("small tile", Values::integers, 68, 72, 100);
    good &= right<Config<64, 64, 1>>("small tile, odd", Values::integers, 31, 37, 37, 2, 2);
    good &= right<Config<128, 128, 2>>("wide tile", Values::normal, 70, 70, 64, 2, 1);
    good &= right<Config<64, 128, 1>>("low tile", Values::integers, 30, 129, 33);
    good &= right<Config<128, 64, 4>>("high tile", Values::normal, 130, 36, 96);
    good &= right<Config<64, 64, 4>>("Inf and NaN", Values::special, 20, 24, 300);
    return good ? 0 : 1;
}
