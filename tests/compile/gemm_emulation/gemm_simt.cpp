#include "product.hpp"

#include "gemm_simt.cuh"

template <int TileM, int TileN, int TileK, bool AAlongK, bool WAlongK, int AWidth, int WWidth, bool Blocked, int Vector>
struct Config {
    using AType = float;
    using WType = float;
    static constexpr int tile_m = TileM, tile_n = TileN, tile_k = TileK, a_width = AWidth, w_width = WWidth,
                         vector = Vector;
    static constexpr bool a_along_k = AAlongK, w_along_k = WAlongK, blocked = Blocked;
};

template <class C> bool right(const char* name, int m, int n, int k, int batches) {
    Product<> p(Values::integers, m, n, k, batches, batches, 1, C::a_along_k, C::w_along_k);
    const kw::gemm_simt::Problem problem = {{p.a.data, p.a.row_pitch, p.a.k_pitch, p.a.batch_pitch},
                                            {p.w.data, p.w.row_pitch, p.w.k_pitch, p.w.batch_pitch},
                                            m, n, k, batches};
    const int tiles = ((m + C::tile_m - 1) / C::tile_m) * ((n + C::tile_n - 1) / C::tile_n);
    cpu::run(dim3(tiles, 1), dim3(256), [&] { kw::gemm_simt::multiply_kernel<C, Store>(problem, p.args()); });
    return p.right(name);
}

int main() {
    bool good = right<Config<128, 128, 8, true, true, 4, 4, false, 4>>("wide tile", 132, 260, 100, 1);
    good &= right<Config<128, 128, 8, true, true, 1, 1, false, 1>>("wide tile, odd", 131, 67, 37, 2);
    good &= right<Config<128, 128, 8, false, false, 4, 4, false, 4>>("wide tile, transposed", 132, 136, 29, 1);
    good &= right<Config<64, 64, 16, true, false, 4, 4, false, 2>>("small tile", 68, 132, 36, 2);
    good &= right<Config<64, 64, 16, true, true, 4, 4, true, 4>>("short sums", 65, 68, 40, 1);
    good &= right<Config<64, 64, 16, true, true, 1, 4, true, 1>>("short sums, odd", 65, 67, 20, 1);
    good &= right<Config<64, 64, 16, false, true, 1, 1, true, 1>>("short k", 33, 70, 3, 1);
    return good ? 0 : 1;
}
