// --- generated: one struct a kernel

// y, norm_running_mean, norm_running_var: 20 functions, mul -> sum -> div -> sub -> deviations -> ... -> div -> mul -> mul -> add
struct SumDeviationsAdd {
    using Index = int;
    static constexpr int64_t rows = 32, columns = 147456, line = 9216;
    struct Args { const float* conv; const float* scale; const float* norm_weight; const float* norm_bias; const float* x; float* norm_running_mean; float* norm_running_var; float* y; };
    static constexpr int phases = 2, reductions = 1;
    static constexpr bool across = false;

    template <int N> struct Operands { kw::Vec<float, N> conv; };

    template <int N> struct Row { float scale; float norm_weight; float norm_bias; float t2; float t8; float t13; float t17; };

    template <int phase, int N> struct State {
        KW_DEVICE void clear() {}
        KW_DEVICE void merge(const State&) {}
        KW_DEVICE State<phase, 1> folded() const { return {}; }
    };
    template <int N> struct State<0, N> {
        kw::Sum<float, N> t1;
        kw::Deviations<float, N> t4;
        KW_DEVICE void clear() { t1.clear(); t4.clear(); }
        KW_DEVICE void merge(const State& other) { t1.merge(other.t1); t4.merge(other.t4); }
        KW_DEVICE State<0, 1> folded() const { return {t1.folded(), t4.folded()}; }
    };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        const Index j0 = column / 9216;
        const Index j1 = column % 9216;
        Operands<N> x;
        x.conv = kw::load_once<N>(a.conv + int64_t(row) * 9216 + int64_t(j0) * 294912 + j1);
        return x;
    }

    template <int N> KW_DEVICE static void send(const Args& a, Index row, Index column, Operands<N>& x) {
        const Index j0 = column / 9216;
        const Index j1 = column % 9216;
        kw::send<N>(x.conv, a.conv + int64_t(row) * 9216 + int64_t(j0) * 294912 + j1);
    }

    template <int N> KW_DEVICE static Row<N> begin(const Args& a, Index row) {
        Row<N> r;
        r.scale = a.scale[row];
        r.norm_weight = a.norm_weight[row];
        r.norm_bias = a.norm_bias[row];
        return r;
    }

    template <int N>
    KW_DEVICE static void step(const Args& a, Index row, Index column, const Operands<N>& x, const Row<1>& r,
                               State<0, N>& s) {
        const float t4_share = s.t4.next();
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = x.conv[i] * r.scale;
            s.t1.add(i, t0);
            s.t4.add(i, t0, t4_share);
        }
    }

    template <int N> struct Late { kw::Vec<float, N> x; };

    template <int N> KW_DEVICE static Late<N> late(const Args& a, Index row, Index column) {
        const Index j0 = column / 9216;
        const Index j1 = column % 9216;
        Late<N> y;
        y.x = kw::load_constant<N>(a.x + int64_t(row) * 9216 + int64_t(j0) * 294912 + j1);
        return y;
    }

    template <int N>
    KW_DEVICE static void store_vector(const Args& a, Index row, Index column, const Operands<N>& x, const Late<N>& late,
                                        const Row<1>& r) {
        const Index j0 = column / 9216;
        const Index j1 = column % 9216;
        const auto& x_ = late.x;
        kw::Vec<float, N> y0;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = x.conv[i] * r.scale;
            const float t3 = t0 - r.t2;
            const float t9 = t3 * r.t8;
            const float t10 = t9 + r.norm_bias;
            const float t11 = t10 + x_[i];
            const float t12 = kw::relu(t11);
            y0[i] = t12;
        }
        kw::store_once<N>(a.y + int64_t(row) * 9216 + int64_t(j0) * 294912 + j1, y0);
    }

    template <int N>
    KW_DEVICE static void step(const Args& a, Index row, Index column, const Operands<N>& x, const Row<1>& r,
                               State<1, N>&) {
        store_vector<N>(a, row, column, x, late<N>(a, row, column), r);
    }

    template <int N> KW_DEVICE static void finish(const State<0, N>& s, Row<N>& r) {
        const float t1 = s.t1.value(0);
        const float t2 = kw::over_number(t1, 147456.0f);
        const float t4 = s.t4.value(0);
        const float t5 = kw::over_number(t4, 147456.0f);
        const float t6 = t5 + 1e-05f;
        const float t7 = kw::rsqrt(t6);
        const float t8 = t7 * r.norm_weight;
        const float t13 = t2 * 0.1f;
        const float t16 = kw::over_number(t4, 147455.0f);
        const float t17 = t16 * 0.1f;
        r.t2 = t2;
        r.t8 = t8;
        r.t13 = t13;
        r.t17 = t17;
    }

    template <int N> KW_DEVICE static void store_row(const Args& a, Index row, const Row<N>& r) {
        const auto norm_running_mean = a.norm_running_mean[row];
        const auto norm_running_var = a.norm_running_var[row];
        const float t14 = norm_running_mean * 0.9f;
        const float t15 = r.t13 + t14;
        const float t18 = norm_running_var * 0.9f;
        const float t19 = r.t17 + t18;
        a.norm_running_mean[row] = t15;
        a.norm_running_var[row] = t19;
    }
};

struct SumDeviationsAddConfig {
    static constexpr int threads = 512, lanes = 4, vectors = 28, ahead = 4, step = 4, blocks = 6, together = 22, each = 1, holds = 2, clerks = 0, team = 512;
    static constexpr int64_t shared_bytes = 229376;
    static constexpr int64_t workspace_bytes = 16896;
};

// norm_num_batches_tracked = norm_num_batches_tracked + 1
struct Add {
    using Index = int;
    static constexpr int64_t rows = 1, columns = 1;
    struct Args { int64_t* norm_num_batches_tracked; };

    template <int N> struct Operands { int64_t norm_num_batches_tracked; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        Operands<N> x;
        x.norm_num_batches_tracked = a.norm_num_batches_tracked[0];
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        const int64_t t0 = x.norm_num_batches_tracked + int64_t(1);
        kw::Vec<int64_t, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            y[i] = t0;
        }
        kw::store<N>(a.norm_num_batches_tracked, y);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(uint8_t* workspace_sum_deviations_add, const float* conv, const float* scale,
    const float* norm_weight, const float* norm_bias, const float* x, float* norm_running_mean,
    float* norm_running_var, float* y, int64_t* norm_num_batches_tracked, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::reduce_ring<SumDeviationsAdd, SumDeviationsAddConfig>({conv, scale, norm_weight,
        norm_bias, x, norm_running_mean, norm_running_var, y}, workspace_sum_deviations_add,
        stream)) return 0 * 65536 + error;
    if (const int error = kw::pointwise<Add, 4, 1, 256>({norm_num_batches_tracked}, stream)) return 1 * 65536 + error;
    return 0;
}
