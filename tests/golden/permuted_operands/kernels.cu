// --- generated: one struct a kernel

// y = relu(first + last) * sigmoid(turned)
struct ReluSigmoidMul {
    using Index = int64_t;
    static constexpr int64_t rows = 16, height = 96, depth = 32, columns = 96;
    struct Args { const float* first; const float* last; const float* turned; float* y; };

    // What lies along the depth (in levels) or the height (in layers) is turned around in shared memory.
    template <int N> struct Turned { kw::Vec<float, N> last; kw::Vec<float, N> turned; };
    template <int R, int P, int Q> struct Tile { kw::Brick<float, R, Q, P> last; kw::Brick<float, P, Q, R> turned; };
    template <int N> struct Operands { kw::Vec<float, N> first; };

    template <int N>
    KW_DEVICE static void fetch_levels(const Args& a, Turned<N>& x, Index row, Index layer, Index level, Index column) {
        x.last = kw::load<N>(a.last + row * (height * depth * columns) + layer * 3072 + level + column * 32);
    }

    template <int N>
    KW_DEVICE static void fetch_layers(const Args& a, Turned<N>& x, Index row, Index layer, Index level, Index column) {
        x.turned = kw::load<N>(a.turned + row * (height * depth * columns) + layer + level * 9216 + column * 96);
    }

    template <int N, typename Tile>
    KW_DEVICE static void keep_levels(Tile& tile, const Turned<N>& x, kw::BrickPlace at) {
        KW_LANES for (int i = 0; i < N; ++i) tile.last.at(at.r, at.q, at.p + i) = x.last[i];
    }

    template <int N, typename Tile>
    KW_DEVICE static void keep_layers(Tile& tile, const Turned<N>& x, kw::BrickPlace at) {
        KW_LANES for (int i = 0; i < N; ++i) tile.turned.at(at.p, at.q, at.r + i) = x.turned[i];
    }

    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index layer, Index level, Index column) {
        Operands<N> x;
        x.first = kw::load<N>(a.first + row * (height * depth * columns) + layer * 96 + level * 9216 + column);
        return x;
    }

    template <int N, typename Tile>
    KW_DEVICE static void store(const Args& a, const Tile& tile, const Operands<N>& x, kw::BrickPlace at,
                                Index row, Index layer, Index level, Index column) {
        kw::Vec<float, N> y;
        KW_LANES for (int i = 0; i < N; ++i) {
            const float t0 = x.first[i] + tile.last.at(at.r, at.q + i, at.p);
            const float t1 = kw::relu(t0);
            const float t2 = kw::sigmoid(tile.turned.at(at.p, at.q + i, at.r));
            const float t3 = t1 * t2;
            y[i] = t3;
        }
        kw::store<N>(a.y + row * (height * depth * columns) + layer * 96 + level * 9216 + column, y);
    }
};

// --- entries: each runs its kernels in order on the caller's stream

extern "C" int run0(const float* first, const float* last, const float* turned, float* y, int device, cudaStream_t stream) {
    kw::OnDevice guard(device);
    if (const int error = kw::pointwise_bricks<ReluSigmoidMul, 4, 8, 16, 32, 512>({first, last, turned, y}, stream)) return 0 * 65536 + error;
    return 0;
}
