// --- generated: one struct a kernel

// y: 44 functions, cast -> cast -> add -> mul -> sub -> ... -> add -> mul -> add -> leaky_relu
struct MulAddLeakyRelu {
    using Index = int;
    static constexpr int64_t rows = 32768, columns = 128;
    struct Args { const float* x; float* y; };

    template <int N> struct Operands { int64_t iota; kw::Vec<int64_t, N> iota_2; kw::Vec<float, N> x_at; kw::Vec<float, N> x_at_2; kw::Vec<float, N> x_at_3; kw::Vec<float, N> x_at_4; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        const Index i0 = row / 4096;
        const Index i1 = row / 128 % 32;
        const Index i2 = row % 128;
        Operands<N> x;
        x.iota = int64_t(i2);
        x.iota_2 = kw::counted<N>(column, 1);
        const int32_t t0 = kw::cast<int32_t>(x.iota);
        const float t1 = kw::cast<float>(t0);
        const float t2 = t1 + 0.5f;
        const float t3 = t2 * 0.5f;
        const float t4 = t3 - 0.5f;
        const float t5 = kw::maximum(t4, 0.0f);
        const float t6 = kw::floor(t5);
        const int32_t t7 = kw::cast<int32_t>(t6);
        const int32_t t8 = kw::maximum(t7, 0);
        const int32_t t9 = kw::minimum(t8, 63);
        const int32_t t32 = t9 + 1;
        const int32_t t33 = kw::minimum(t32, 63);
        KW_LANES for (int i = 0; i < N; ++i) {
            const int32_t t13 = kw::cast<int32_t>(x.iota_2[i]);
            const float t14 = kw::cast<float>(t13);
            const float t15 = t14 + 0.5f;
            const float t16 = t15 * 0.5f;
            const float t17 = t16 - 0.5f;
            const float t18 = kw::maximum(t17, 0.0f);
            const float t19 = kw::floor(t18);
            const int32_t t20 = kw::cast<int32_t>(t19);
            const int32_t t21 = kw::maximum(t20, 0);
            const int32_t t22 = kw::minimum(t21, 63);
            x.x_at[i] = a.x[int64_t(i0) * 131072 + int64_t(i1) * 4096 + int(t9) * 64 + int(t22)];
            const int32_t t27 = t22 + 1;
            const int32_t t28 = kw::minimum(t27, 63);
            x.x_at_2[i] = a.x[int64_t(i0) * 131072 + int64_t(i1) * 4096 + int(t9) * 64 + int(t28)];
            x.x_at_3[i] = a.x[int64_t(i0) * 131072 + int64_t(i1) * 4096 + int(t33) * 64 + int(t22)];
            x.x_at_4[i] = a.x[int64_t(i0) * 131072 + int64_t(i1) * 4096 + int(t33) * 64 + int(t28)];
        }
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        const Index i0 = row / 4096;
        const Index i1 = row / 128 % 32;
        const Index i2 = row % 128;
        const int32_t t0 = kw::cast<int32_t>(x.iota);
        const float t1 = kw::cast<float>(t0);
        const float t2 = t1 + 0.5f;
        const float t3 = t2 * 0.5f;
        const float t4 = t3 - 0.5f;
        const float t5 = kw::maximum(t4, 0.0f);
        const float t6 = kw::floor(t5);
        const int32_t t7 = kw::cast<int32_t>(t6);
        const int32_t t8 = kw::maximum(t7, 0);
        const int32_t t9 = kw::minimum(t8, 63);
        const float t10 = kw::cast<float>(t9);
        const float t11 = t5 - t10;
        const float t12 = 1.0f - t11;
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const int32_t t13 = kw::cast<int32_t>(x.iota_2[i]);
            const float t14 = kw::cast<float>(t13);
            const float t15 = t14 + 0.5f;
            const float t16 = t15 * 0.5f;
            const float t17 = t16 - 0.5f;
            const float t18 = kw::maximum(t17, 0.0f);
            const float t19 = kw::floor(t18);
            const int32_t t20 = kw::cast<int32_t>(t19);
            const int32_t t21 = kw::maximum(t20, 0);
            const int32_t t22 = kw::minimum(t21, 63);
            const float t23 = kw::cast<float>(t22);
            const float t24 = t18 - t23;
            const float t25 = 1.0f - t24;
            const float t26 = t25 * x.x_at[i];
            const float t29 = t24 * x.x_at_2[i];
            const float t30 = t26 + t29;
            const float t31 = t12 * t30;
            const float t34 = t25 * x.x_at_3[i];
            const float t35 = t24 * x.x_at_4[i];
            const float t36 = t34 + t35;
            const float t37 = t11 * t36;
            const float t38 = t31 + t37;
            const float t39 = kw::leaky_relu(t38, 0.1f);
            y[i] = t39;
        }
        kw::store<N>(a.y + int64_t(i0) * 655360 + int64_t(i1) * 16384 + int64_t(i2) * 128 + column, y);
    }
};

// y: 8 functions, cast -> trunc_divide -> fmod -> cast -> trunc_divide -> fmod -> gather -> leaky_relu
struct FmodGatherLeakyRelu {
    using Index = int;
    static constexpr int64_t rows = 8192, columns = 128;
    struct Args { const float* skip; float* y; };

    template <int N> struct Operands { int64_t iota; kw::Vec<int64_t, N> iota_2; kw::Vec<float, N> skip_at; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        const Index i0 = row / 1024;
        const Index i1 = row / 128 % 8;
        const Index i2 = row % 128;
        Operands<N> x;
        x.iota = int64_t(i2);
        x.iota_2 = kw::counted<N>(column, 1);
        const int32_t t0 = kw::cast<int32_t>(x.iota);
        const int32_t t1 = kw::trunc_divide(t0, 2);
        const int32_t t2 = kw::fmod(t0, 2);
        KW_LANES for (int i = 0; i < N; ++i) {
            const int32_t t3 = kw::cast<int32_t>(x.iota_2[i]);
            const int32_t t4 = kw::trunc_divide(t3, 2);
            const int32_t t5 = kw::fmod(t3, 2);
            x.skip_at[i] = a.skip[int64_t(i0) * 131072 + int64_t(i1) * 16384 + int(t1) * 64 + int(t2) * 8192 + int(t4) + int(t5) * 4096];
        }
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        const Index i0 = row / 1024;
        const Index i1 = row / 128 % 8;
        const Index i2 = row % 128;
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t6 = kw::leaky_relu(x.skip_at[i], 0.1f);
            y[i] = t6;
        }
        kw::store<N>(a.y + 524288 + int64_t(i0) * 655360 + int64_t(i1) * 16384 + int64_t(i2) * 128 + column, y);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(const float* x, float* y, const float* skip, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise<MulAddLeakyRelu, 4, 1, 256>({x, y}, stream)) return 0 * 65536 + error;
    if (const int error = kw::pointwise<FmodGatherLeakyRelu, 4, 1, 256>({skip, y}, stream)) return 1 * 65536 + error;
    return 0;
}
