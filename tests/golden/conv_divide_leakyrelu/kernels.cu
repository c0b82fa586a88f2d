// --- generated: one struct a kernel

// y = leaky_relu((conv + conv_bias) * 0.5, 0.01)
struct AddMulLeakyRelu {
    using Index = int;
    static constexpr int64_t rows = 1024, columns = 8836;
    struct Args { const float* conv; const float* conv_bias; float* y; };

    template <int N> struct Operands { kw::Vec<float, N> conv; float conv_bias; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        const Index i1 = row % 64;
        Operands<N> x;
        x.conv = kw::load<N>(a.conv + row * columns + column);
        x.conv_bias = a.conv_bias[i1];
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = x.conv[i] + x.conv_bias;
            const float t1 = t0 * 0.5f;
            const float t2 = kw::leaky_relu(t1, 0.01f);
            y[i] = t2;
        }
        kw::store<N>(a.y + row * columns + column, y);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(const float* conv, const float* conv_bias, float* y, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise<AddMulLeakyRelu, 4, 1, 256>({conv, conv_bias, y}, stream)) return 0 * 65536 + error;
    return 0;
}
