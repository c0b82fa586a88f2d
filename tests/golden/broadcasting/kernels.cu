// --- generated: one struct a kernel

// y: 7 functions, mul -> mul -> add -> add -> mul -> div -> tanh
struct MulDivTanh {
    using Index = int;
    static constexpr int64_t rows = 40960, columns = 160;
    struct Args { const float* image; const float* exposure; const float* vignette; const float* row_bias; const float* column_bias; const float* channel_scale; const float* temperature; float* y; };

    template <int N> struct Operands { kw::Vec<float, N> image; float exposure; kw::Vec<float, N> vignette; float row_bias; kw::Vec<float, N> column_bias; float channel_scale; float temperature; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        const Index i0 = row / 5120;
        const Index i1 = row / 160 % 32;
        const Index i2 = row % 160;
        Operands<N> x;
        x.image = kw::load<N>(a.image + row * columns + column);
        x.exposure = a.exposure[i0];
        x.vignette = kw::load<N>(a.vignette + int64_t(i2) * 160 + column);
        x.row_bias = a.row_bias[i2];
        x.column_bias = kw::load<N>(a.column_bias + column);
        x.channel_scale = a.channel_scale[i1];
        x.temperature = a.temperature[0];
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = x.image[i] * x.exposure;
            const float t1 = t0 * x.vignette[i];
            const float t2 = t1 + x.row_bias;
            const float t3 = t2 + x.column_bias[i];
            const float t4 = t3 * x.channel_scale;
            const float t5 = t4 / x.temperature;
            const float t6 = kw::tanh(t5);
            y[i] = t6;
        }
        kw::store<N>(a.y + row * columns + column, y);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(const float* image, const float* exposure, const float* vignette, const float* row_bias,
    const float* column_bias, const float* channel_scale, const float* temperature, float* y, int device,
    cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise<MulDivTanh, 4, 1, 256>({image, exposure, vignette, row_bias, column_bias, channel_scale, temperature, y}, stream)) return 0 * 65536 + error;
    return 0;
}
