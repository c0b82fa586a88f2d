// --- generated: one struct a kernel

// where, where_2: 10 functions, eq -> logical_and -> ne -> logical_and -> sigmoid -> where -> mul -> add -> neg -> where
struct AddNegWhere {
    using Index = int;
    static constexpr int64_t rows = 1, columns = 3276800;
    struct Args { const int64_t* label; const bool* valid; const float* score; float* where; int64_t* where_2; };

    template <int N> struct Operands { kw::Vec<int64_t, N> label; kw::Vec<bool, N> valid; kw::Vec<float, N> score; };

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
        Operands<N> x;
        x.label = kw::load<N>(a.label + column);
        x.valid = kw::load<N>(a.valid + column);
        x.score = kw::load<N>(a.score + column);
        return x;
    }

    template <int N>
    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
        kw::Vec<float, N> y0;
        kw::Vec<int64_t, N> y1;
        KW_LANES for (int i = 0; i < N; ++i) {
            const bool t0 = x.label[i] == int64_t(1);
            const bool t1 = (x.valid[i] != 0) & (t0 != 0);
            const bool t2 = x.label[i] != int64_t(3);
            const bool t3 = (t1 != 0) & (t2 != 0);
            const float t4 = kw::sigmoid(x.score[i]);
            const float t5 = t3 ? t4 : x.score[i];
            const int64_t t6 = x.label[i] * int64_t(2);
            const int64_t t7 = t6 + int64_t(1);
            const int64_t t8 = -x.label[i];
            const int64_t t9 = t3 ? t7 : t8;
            y0[i] = t5;
            y1[i] = t9;
        }
        kw::store<N>(a.where + column, y0);
        kw::store<N>(a.where_2 + column, y1);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(const int64_t* label, const bool* valid, const float* score, float* where, int64_t* where_2, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise<AddNegWhere, 2, 1, 256>({label, valid, score, where, where_2}, stream)) return 0 * 65536 + error;
    return 0;
}
