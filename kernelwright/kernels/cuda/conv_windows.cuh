// The end of a convolution's tile where its epilogue pools windows that lie side by side, each whole in one tile.
//
// A row of the epilogue is a window of one channel, its columns are the places in it. It is a struct as reduce.cuh runs it,
// along its rows, with one phase. Sums go through shared memory, where the inputs were, or those of a warp through its
// slab (conv_sm90_kept.cuh), and then a thread has a window. Of the struct that reduce.cuh runs it has more:
//
//   given(operands)                where the sum of a place goes
#pragma once

#include "conv_mma.cuh"

namespace kw::conv_windows {

using conv::Phase;
using conv::Place;
using conv_mma::All;
using conv_mma::OfWarp;
using conv_mma::Part;
using conv_mma::Problem;
using conv_mma::Sizes;
using conv_mma::Work;

// Sums of some neighbouring channels in shared memory: of images, each d by h by w places from `first` on.
template <int images, int d, int h, int w> struct Patch {
    float* sums;
    int pitch, channels, output;  // from a channel to the next; how many, and the first one
    Place first;

    KW_DEVICE float* at(int channel, int place) const { return sums + channel * pitch + place; }
};

// Those who share a patch, where it is not all of a block.
struct Warp {
    static constexpr int threads = 32;
    KW_DEVICE static int rank() { return threadIdx.x % 32; }
};

template <int size_d, int size_h, int size_w> struct Pooled {
    static constexpr int size = size_d * size_h * size_w;
    static constexpr bool of_teams = false;

    // Of one channel in shared memory: lanes of a warp write 8 channels by 8 pixels, each to a bank of its own.
    template <class C> __host__ __device__ static constexpr int pitch() { return (C::tile_n + 31) / 32 * 32 + 8; }
    template <class C, class Epilogue> static constexpr int shared_bytes() { return C::tile_m * pitch<C>() * 4; }

    template <class C, class Epilogue, class Sums>
    KW_DEVICE static void take(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                               const Part<C>& part, const Sums (&sums)[C::w_phases], float inverse_x, void* memory) {
        static_assert(Epilogue::reductions == 1 && Epilogue::phases == 1, "a window is finished when it was seen");
        static_assert(C::phases == 1 && C::y_step_d * C::y_step_h * C::y_step_w == 1, "neighbours are in one tile");
        static_assert(C::tile_d % size_d == 0 && C::tile_h % size_h == 0 && C::tile_w % size_w == 0, "windows are whole");
        constexpr int M = Sums::M * 2, N = Sums::N;
        float inverse[M];
        const bool finite = conv_mma::find_inverses(inverse, problem, work, part, sums, inverse_x);
        const Patch<C::tile_b, C::tile_d, C::tile_h, C::tile_w> patch = {(float*)memory, pitch<C>(), C::tile_m,
                                                                         work.first_output, work.first};
        // From here on the inputs are not needed.
        if (!__syncthreads_or(!finite)) {
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int m = 0; m < M; m++) {
                    const int channel = part.first_output - work.first_output + m * 8, column = part.first_column + n * 8;
                    *(float2*)patch.at(channel, column) =
                        make_float2(sums[0].at(m / 2, n, m % 2 * 2) * inverse[m],
                                    sums[0].at(m / 2, n, m % 2 * 2 + 1) * inverse[m]);
                }
        } else {
            add_plainly<C, All<C>>(problem, work, 0, patch);
        }
        __syncthreads();
        pool<C, Epilogue, All<C>>(args, work, patch);
    }

    // --- by a warp, 8 channels at a time: what a lap has of a tile

    template <class C> __host__ __device__ static constexpr int lap_d() { return C::tile_d > 1 ? C::lap_rows : 1; }
    template <class C> __host__ __device__ static constexpr int lap_h() { return C::tile_d > 1 ? 1 : C::lap_rows; }
    template <class C> __host__ __device__ static constexpr int warp_pitch() {
        return (C::lap_rows * C::tile_w + 31) / 32 * 32 + 8;
    }
    template <class C> __host__ __device__ static constexpr int warp_bytes() { return 8 * warp_pitch<C>() * 4; }

    template <class C, class Epilogue, class Sums>
    KW_DEVICE static void take_of_warp(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                                       int first_row, const Sums (&sums)[C::w_phases], float inverse_x, bool are_finite,
                                       float* slab) {
        static_assert(Epilogue::reductions == 1 && Epilogue::phases == 1, "a window is finished when it was seen");
        static_assert(C::phases == 1 && C::y_step_d * C::y_step_h * C::y_step_w == 1, "neighbours are in one tile");
        static_assert(lap_d<C>() % size_d == 0 && lap_h<C>() % size_h == 0 && C::tile_w % size_w == 0,
                      "windows are whole");
        const OfWarp<C> of_warp(problem, work, 0, sums, inverse_x, are_finite);
        const int lane = threadIdx.x % 32;
        const bool plainly = !__all_sync(~0u, of_warp.finite);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int first = of_warp.first_of(work) + half * 8;
            if (C::outputs % 64 != 0 && first >= C::outputs) return;
            const Patch<1, lap_d<C>(), lap_h<C>(), C::tile_w> patch = {
                slab, warp_pitch<C>(), 8, first, conv_mma::place_of<C>(work, first_row * C::tile_w)};
            if (plainly) add_plainly<C, Warp>(problem, work, first_row * C::tile_w, patch);
            else
#pragma unroll
                for (int i = 0; i < Sums::N; i++) {
                    float v[2];
                    conv_mma::scale_places(v, sums, 0, i, half, of_warp.inverse[half]);
                    *(float2*)patch.at(lane / 4, i * 8 + lane % 4 * 2) = make_float2(v[0], v[1]);
                }
            __syncwarp();
            pool<C, Epilogue, Warp>(args, work, patch);
            __syncwarp();
        }
    }
    template <class C, class Epilogue> KW_DEVICE static void skip_of_warp(const typename Epilogue::Args&, const Work&) {}

    // In plain float32, where something is not finite. `first`: the patch's first column of the tile.
    template <class C, class Group, int images, int d, int h, int w>
    KW_DEVICE static void add_plainly(const Problem<C>& problem, const Work& work, int first,
                                      const Patch<images, d, h, w>& patch) {
        constexpr int places = images * d * h * w;
        const Phase& phase = problem.phases[work.phase];
#pragma unroll 1
        for (int i = Group::rank(); i < patch.channels * places; i += Group::threads) {
            const int column = i % places, channel = i / places;
            const Place at = conv_mma::place_of<C>(work, first + column);
            if (patch.output + channel >= C::outputs || !conv_mma::is_inside<C>(phase, at)) continue;
            *patch.at(channel, column) =
                conv::plain_sum<C>(problem.x, problem.weight, &phase, at, work.group, patch.output + channel);
        }
    }

    // Threads that follow each other have windows that do. A thread has the same window of several channels.
    template <class C, class Epilogue, class Group, int images, int d, int h, int w>
    KW_DEVICE static void pool(const typename Epilogue::Args& args, const Work& work, const Patch<images, d, h, w>& patch) {
        using Index = typename Epilogue::Index;
        constexpr unsigned along_w = w / size_w, along_h = h / size_h, along_d = d / size_d;
        constexpr unsigned windows = along_w * along_h * along_d * images;
        constexpr unsigned threads = Group::threads, columns = windows < threads ? windows : threads;
        constexpr int teams = threads / columns;  // each with channels of its own
        constexpr int y_d = C::y_d / size_d, y_h = C::y_h / size_h, y_w = C::y_w / size_w;
        const unsigned member = Group::rank() % columns;
        const int team = Group::rank() / columns;
        if (team >= teams) return;
#pragma unroll 1
        for (unsigned i = member; i < windows; i += columns) {
            const unsigned at_w = i % along_w, at_h = i / along_w % along_h, at_d = i / (along_w * along_h) % along_d;
            const int image = i / (along_w * along_h * along_d);
            const Place at = {patch.first.image + image, patch.first.d / size_d + (int)at_d,
                              patch.first.h / size_h + (int)at_h, patch.first.w / size_w + (int)at_w};
            if (at.image >= C::images || at.d >= y_d || at.h >= y_h || at.w >= y_w) continue;
            const int64_t plane = (int64_t)at.image * (C::groups * C::outputs) + work.group * C::outputs + patch.output;
            const Index first_row = (Index)(((plane * y_d + at.d) * y_h + at.h) * y_w + at.w);
            const int place = ((image * d + at_d * size_d) * h + at_h * size_h) * w + at_w * size_w;
#pragma unroll(size <= 4 ? 4 : 1)
            for (int channel = team; channel < patch.channels; channel += teams) {
                if (patch.output + channel >= C::outputs) continue;
                pool_one<Epilogue, h, w>(args, first_row + (Index)(channel * (y_d * y_h * y_w)), patch.at(channel, place));
            }
        }
    }
    template <class Epilogue, int h, int w>
    KW_DEVICE static void pool_one(const typename Epilogue::Args& args, typename Epilogue::Index row, const float* first) {
        using Index = typename Epilogue::Index;
        auto r = Epilogue::template begin<1>(args, row);
        typename Epilogue::template State<0, 1> state;
        state.clear();
#pragma unroll(size <= 16 ? size : 4)
        for (int j = 0; j < size; j++) {
            const int jd = j / (size_h * size_w), jh = j / size_w % size_h, jw = j % size_w;
            auto x = Epilogue::template load<1>(args, row, (Index)j);
            Epilogue::given(x)[0] = first[(jd * h + jh) * w + jw];
            Epilogue::step(args, row, (Index)j, x, r, state);
        }
        Epilogue::finish(state, r);
        Epilogue::store_row(args, row, r);
    }

    template <class C, class Epilogue> KW_DEVICE static void skip(const typename Epilogue::Args&, const Work&) {}
};

}  // namespace kw::conv_windows
