// --- generated: one struct a kernel

// add = (mean * 0.9) + (mean_2 * 0.1)
struct MulAdd {
    using Index = int;
    static constexpr int64_t rows = 1, columns = 1024;
    struct Args { const float* mean; const float* mean_2; float* add; };

    template <int N> struct Operands { kw::Vec<float, N> mean; kw::Vec<float, N> mean_2; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        Operands<N> x;
        x.mean = kw::load<N>(a.mean + column);
        x.mean_2 = kw::load<N>(a.mean_2 + column);
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = x.mean[i] * 0.9f;
            const float t1 = x.mean_2[i] * 0.1f;
            const float t2 = t0 + t1;
            y[i] = t2;
        }
        kw::store<N>(a.add + column, y);
    }
};

// add_2 = steps + 1
struct Add {
    using Index = int;
    static constexpr int64_t rows = 1, columns = 1;
    struct Args { const int64_t* steps; int64_t* add_2; };

    template <int N> struct Operands { int64_t steps; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        Operands<N> x;
        x.steps = a.steps[0];
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        const int64_t t0 = x.steps + int64_t(1);
        kw::Vec<int64_t, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            y[i] = t0;
        }
        kw::store<N>(a.add_2, y);
    }
};

// y = relu(x - add) / sqrt(float32(add_2))
struct ReluSqrtDiv {
    using Index = int;
    static constexpr int64_t rows = 4096, columns = 1024;
    struct Args { const float* x; const float* add; const int64_t* add_2; float* y; };

    template <int N> struct Operands { kw::Vec<float, N> x; kw::Vec<float, N> add; int64_t add_2; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        Operands<N> x;
        x.x = kw::load<N>(a.x + row * columns + column);
        x.add = kw::load<N>(a.add + column);
        x.add_2 = a.add_2[0];
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        const float t2 = kw::cast<float>(x.add_2);
        const float t3 = kw::sqrt(t2);
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = x.x[i] - x.add[i];
            const float t1 = kw::relu(t0);
            const float t4 = t1 / t3;
            y[i] = t4;
        }
        kw::store<N>(a.y + row * columns + column, y);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(const float* mean, const float* mean_2, float* add, const int64_t* steps, int64_t* add_2, const float* x, float* y, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise<MulAdd, 8, 2, 256>({mean, mean_2, add}, stream)) return 0 * 65536 + error;
    if (const int error = kw::pointwise<Add, 8, 2, 256>({steps, add_2}, stream)) return 1 * 65536 + error;
    if (const int error = kw::pointwise<ReluSqrtDiv, 8, 2, 256>({x, add, add_2, y}, stream)) return 2 * 65536 + error;
    return 0;
}
