// --- generated: one struct a kernel

// add, add_2, sub: 14 functions, mul -> mul -> add -> div -> mul -> ... -> sqrt -> add -> div -> sub
struct AddDivSub {
    using Index = int;
    static constexpr int64_t rows = 1, columns = 4194304;
    struct Args { const float* first; const float* gradient; const float* second; const float* weight; float* add; float* add_2; float* sub; };

    template <int N> struct Operands { kw::Vec<float, N> first; kw::Vec<float, N> gradient; kw::Vec<float, N> second; kw::Vec<float, N> weight; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        Operands<N> x;
        x.first = kw::load<N>(a.first + column);
        x.gradient = kw::load<N>(a.gradient + column);
        x.second = kw::load<N>(a.second + column);
        x.weight = kw::load<N>(a.weight + column);
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        kw::Vec<float, N> y0;
        kw::Vec<float, N> y1;
        kw::Vec<float, N> y2;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = x.first[i] * 0.9f;
            const float t1 = x.gradient[i] * 0.1f;
            const float t2 = t0 + t1;
            const float t3 = kw::over_number(t2, 0.65132153f);
            const float t4 = t3 * 0.001f;
            const float t5 = x.second[i] * 0.999f;
            const float t6 = x.gradient[i] * 0.001f;
            const float t7 = t6 * x.gradient[i];
            const float t8 = t5 + t7;
            const float t9 = kw::over_number(t8, 0.009955119f);
            const float t10 = kw::sqrt(t9);
            const float t11 = t10 + 1e-08f;
            const float t12 = t4 / t11;
            const float t13 = x.weight[i] - t12;
            y0[i] = t2;
            y1[i] = t8;
            y2[i] = t13;
        }
        kw::store<N>(a.add + column, y0);
        kw::store<N>(a.add_2 + column, y1);
        kw::store<N>(a.sub + column, y2);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(const float* first, const float* gradient, const float* second, const float* weight, float* add, float* add_2, float* sub, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise<AddDivSub, 4, 1, 256>({first, gradient, second, weight, add, add_2, sub}, stream)) return 0 * 65536 + error;
    return 0;
}
