// --- generated: one struct a kernel

// add = residual + (x * 0.5)
struct MulAdd {
    using Index = int;
    static constexpr int64_t rows = 1, columns = 4194304;
    struct Args { const float* x; const float* residual; float* add; };

    template <int N> struct Operands { kw::Vec<float, N> x; kw::Vec<float, N> residual; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        Operands<N> x;
        x.x = kw::load<N>(a.x + column);
        x.residual = kw::load<N>(a.residual + column);
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = x.x[i] * 0.5f;
            const float t1 = x.residual[i] + t0;
            y[i] = t1;
        }
        kw::store<N>(a.add + column, y);
    }
};

// mul = gelu_erf(normed) * sigmoid(gate)
struct GeluErfSigmoidMul {
    using Index = int;
    static constexpr int64_t rows = 4096, columns = 1024;
    struct Args { const float* normed; const float* gate; float* mul; };

    template <int N> struct Operands { kw::Vec<float, N> normed; kw::Vec<float, N> gate; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        Operands<N> x;
        x.normed = kw::load<N>(a.normed + row * columns + column);
        x.gate = kw::load<N>(a.gate + column);
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = kw::gelu_erf(x.normed[i]);
            const float t1 = kw::sigmoid(x.gate[i]);
            const float t2 = t0 * t1;
            y[i] = t2;
        }
        kw::store<N>(a.mul + row * columns + column, y);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(const float* x, const float* residual, float* add, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise<MulAdd, 8, 2, 256>({x, residual, add}, stream)) return 0 * 65536 + error;
    return 0;
}

extern "C" int run1(const float* normed, const float* gate, float* mul, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise<GeluErfSigmoidMul, 8, 2, 256>({normed, gate, mul}, stream)) return 0 * 65536 + error;
    return 0;
}
