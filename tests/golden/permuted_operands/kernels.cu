// --- generated: one struct a kernel

// y = relu(first + last) * sigmoid(turned)
struct ReluSigmoidMul {
    using Index = int;
    static constexpr int64_t rows = 1536, depth = 32, columns = 96;
    struct Args { const float* first; const float* last; const float* turned; float* y; };

    template <int N> struct Turned { kw::Vec<float, N> last; };
    // One column more than it needs, so that reading it the other way meets fewer bank conflicts.
    template <int P, int Q> struct Tile { float last[Q][P + 1]; };

    template <int N> KW_DEVICE static Turned<N> fetch(const Args& a, Index row, Index level, Index column) {
        Turned<N> x;
        x.last = kw::load<N>(a.last + row * (depth * columns) + level + int64_t(column) * 32);
        return x;
    }

    template <int N, typename Tile>
    KW_DEVICE static void keep(Tile& tile, const Turned<N>& x, int p, int q) {
        KW_LANES for (int i = 0; i < N; ++i) tile.last[q][p + i] = x.last[i];
    }

    template <int N, typename Tile>
    KW_DEVICE static void store(const Args& a, const Tile& tile, Index row, Index level, Index column, int p, int q) {
        const Index i0 = row / 96;
        const Index i1 = row % 96;
        const auto first = kw::load<N>(a.first + int64_t(i0) * 294912 + int64_t(i1) * 96 + int64_t(level) * 9216 + column);
        const auto turned = kw::gather<N>(a.turned + int64_t(i0) * 294912 + i1 + int64_t(level) * 9216 + int64_t(column) * 96, 96);
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = first[i] + tile.last[q + i][p];
            const float t1 = kw::relu(t0);
            const float t2 = kw::sigmoid(turned[i]);
            const float t3 = t1 * t2;
            y[i] = t3;
        }
        kw::store<N>(a.y + int64_t(i0) * 294912 + int64_t(i1) * 96 + int64_t(level) * 9216 + column, y);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(const float* first, const float* last, const float* turned, float* y, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise_tiles<ReluSigmoidMul, 4, 64, 128, 256>({first, last, turned, y}, stream)) return 0 * 65536 + error;
    return 0;
}
