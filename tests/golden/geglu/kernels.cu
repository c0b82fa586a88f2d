// --- generated: one struct a kernel

// y = packed * gelu_erf(packed)
struct GeluErfMul {
    using Index = int;
    static constexpr int64_t rows = 2048, columns = 2048;
    struct Args { const float* packed; float* y; };

    template <int N> struct Operands { kw::Vec<float, N> packed; kw::Vec<float, N> packed_2; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        Operands<N> x;
        x.packed = kw::load<N>(a.packed + 2048 + int64_t(row) * 4096 + column);
        x.packed_2 = kw::load<N>(a.packed + int64_t(row) * 4096 + column);
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = kw::gelu_erf(x.packed[i]);
            const float t1 = x.packed_2[i] * t0;
            y[i] = t1;
        }
        kw::store<N>(a.y + row * columns + column, y);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(const float* packed, float* y, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise<GeluErfMul, 4, 1, 256>({packed, y}, stream)) return 0 * 65536 + error;
    return 0;
}
