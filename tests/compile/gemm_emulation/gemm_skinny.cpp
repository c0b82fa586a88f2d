#include "product.hpp"

#include "gemm_skinny.cuh"

template <class T, int Few, bool FewIsA, int RowsOfWarp, int KWarps, int LoadBytes> struct Config {
    using Type = T;
    static constexpr int few = Few, rows = RowsOfWarp, k_warps = KWarps, load_bytes = LoadBytes;
    static constexpr bool few_is_a = FewIsA;
};

template <class C> bool right(const char* name, int m, int n, int k, int batches) {
    using S = kw::gemm_skinny::Sizes<C>;
    Product<typename C::Type> p(Values::integers, m, n, k, batches, batches);
    kw::gemm_skinny::Operand a = {p.a.data, p.a.row_pitch, p.a.batch_pitch}, w = {p.w.data, p.w.row_pitch, p.w.batch_pitch};
    const int few = C::few_is_a ? m : n, many = C::few_is_a ? n : m;
    const kw::gemm_skinny::Problem problem = {C::few_is_a ? a : w, C::few_is_a ? w : a, few, many, k, batches, m};
    const dim3 grid((many + S::rows_of_block - 1) / S::rows_of_block, batches);
    cpu::run(grid, dim3(256), [&] { kw::gemm_skinny::multiply_kernel<C, Store>(problem, p.args()); });
    return p.right(name);
}

int main() {
    bool good = right<Config<float, 1, true, 4, 8, 16>>("1 row", 1, 37, 1100, 1);
    good &= right<Config<float, 2, true, 8, 8, 16>>("2 rows", 2, 37, 1100, 2);
    good &= right<Config<float, 4, true, 4, 2, 16>>("3 rows", 3, 37, 1100, 2);
    good &= right<Config<float, 4, true, 2, 1, 16>>("4 rows, short k", 4, 37, 100, 2);
    good &= right<Config<float, 8, true, 4, 1, 16>>("7 rows", 7, 67, 1100, 2);
    good &= right<Config<float, 8, false, 4, 1, 16>>("8 columns", 67, 8, 1100, 2);
    good &= right<Config<float, 8, true, 4, 1, 4>>("8 rows, odd k", 8, 67, 1101, 1);
    good &= right<Config<float, 8, true, 4, 8, 16>>("8 rows from cache", 8, 67, 1100, 1);
    good &= right<Config<float, 16, true, 4, 1, 16>>("13 rows", 13, 67, 1100, 1);
    good &= right<Config<__half, 8, true, 4, 1, 16>>("8 rows of float16", 8, 67, 1104, 1);
    good &= right<Config<__half, 8, true, 4, 2, 2>>("8 rows of float16, odd k", 8, 67, 1103, 1);
    good &= right<Config<__half, 16, false, 2, 1, 16>>("15 columns of float16", 9, 15, 8, 1);
    return good ? 0 : 1;
}
