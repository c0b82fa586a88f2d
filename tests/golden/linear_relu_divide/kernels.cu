// --- generated: one struct a kernel

// y = relu(product + linear_bias) * 0.5
struct AddReluMul {
    using Index = int;
    static constexpr int64_t rows = 4096, columns = 2048;
    struct Args { const float* product; const float* linear_bias; float* y; };

    template <int N> struct Operands { kw::Vec<float, N> product; kw::Vec<float, N> linear_bias; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        Operands<N> x;
        x.product = kw::load<N>(a.product + row * columns + column);
        x.linear_bias = kw::load<N>(a.linear_bias + column);
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = x.product[i] + x.linear_bias[i];
            const float t1 = kw::relu(t0);
            const float t2 = t1 * 0.5f;
            y[i] = t2;
        }
        kw::store<N>(a.y + row * columns + column, y);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(const float* product, const float* linear_bias, float* y, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise<AddReluMul, 4, 1, 256>({product, linear_bias, y}, stream)) return 0 * 65536 + error;
    return 0;
}
