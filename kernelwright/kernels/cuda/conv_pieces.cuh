// The end of a convolution's tile where its epilogue reduces over space, maybe over images and neighbouring channels too.
//
// A row of the epilogue lies in many tiles (row_pieces.cuh): a thread adds the pixels that it has of some channels to their
// states; the four lanes of a warp that have the same channels merge theirs, then the warps do; the block leaves one state
// for each channel in the workspace.
#pragma once

#include "conv_mma.cuh"
#include "row_pieces.cuh"

namespace kw::conv_pieces {

using conv::Phase;
using conv::Place;
using conv_mma::ceil_div;
using conv_mma::OfWarp;
using conv_mma::Part;
using conv_mma::Problem;
using conv_mma::Run;
using conv_mma::Sizes;
using conv_mma::Work;
using row_pieces::merge_lane;
using row_pieces::State;

// A row is `channels` neighbouring channels of one image, or of all of them.
template <int channels, bool all_images> struct Kept {
    // --- which row, column and part of the workspace

    template <class C> __host__ __device__ static constexpr int tiles() {  // of an image
        return C::phases / C::w_phases * ceil_div(C::most_w, C::tile_w) * ceil_div(C::most_h, C::tile_h) *
               ceil_div(C::most_d, C::tile_d);
    }
    template <class C> __host__ __device__ static constexpr int64_t parts() {  // of a row
        return (int64_t)(all_images ? ceil_div(C::images, C::tile_b) : 1) * channels * tiles<C>();
    }
    template <class C> __host__ __device__ static constexpr int64_t rows() {
        return (int64_t)(all_images ? 1 : C::images) * (C::groups * C::outputs / channels);
    }
    template <class C> KW_DEVICE static int64_t row_of(int image, int channel) {
        return (all_images ? 0 : (int64_t)image * (C::groups * C::outputs / channels)) + channel / channels;
    }
    template <class C> KW_DEVICE static int64_t part_of(const Work& work, int channel) {
        const int w = work.first.w / C::tile_w, h = work.first.h / C::tile_h, d = work.first.d / C::tile_d;
        const int tile = ((d * ceil_div(C::most_h, C::tile_h) + h) * ceil_div(C::most_w, C::tile_w) + w) *
                             (C::phases / C::w_phases) +
                         work.phase / C::w_phases;
        const int64_t images = all_images ? ceil_div(C::images, C::tile_b) : 1;
        const int64_t image = all_images ? work.first.image / C::tile_b : 0;
        return ((row_of<C>(work.first.image, channel) * images + image) * channels + channel % channels) * tiles<C>() +
               tile;
    }

    // A pixel of the tile, and where a channel of it lies in the channel's row.
    template <class C> struct Pixel {
        const Phase* phase;
        Place place;
        int64_t column;

        KW_DEVICE Pixel(const Problem<C>& problem, const Work& work, int slot) {
            constexpr unsigned together = C::w_phases;
            phase = &problem.phases[work.phase + (unsigned)slot % together];
            place = conv_mma::place_of<C>(work, (unsigned)slot / together);
            const int d = phase->axis[0].y_first + place.d * C::y_step_d,
                      h = phase->axis[1].y_first + place.h * C::y_step_h,
                      w = phase->axis[2].y_first + place.w * C::y_step_w;
            const int64_t image = all_images ? (int64_t)place.image * channels * (C::y_d * C::y_h * C::y_w) : 0;
            column = image + (d * C::y_h + h) * C::y_w + w;
        }
        KW_DEVICE bool is_inside() const { return conv_mma::is_inside<C>(*phase, place); }
    };
    template <class C> KW_DEVICE static int64_t channel_column(int channel) {
        return (int64_t)(channel % channels) * (C::y_d * C::y_h * C::y_w);
    }

    // --- the sums of a block

    template <class C> __host__ __device__ static constexpr int plain_parts() {
        return Sizes<C>::threads / C::tile_m > 1 ? Sizes<C>::threads / C::tile_m : 1;
    }
    template <class C, class Epilogue> static constexpr int shared_bytes() {
        constexpr int parts = plain_parts<C>() > Sizes<C>::warps_n ? plain_parts<C>() : Sizes<C>::warps_n;
        return parts * C::tile_m * (int)sizeof(State<Epilogue>);
    }

    // Whether two places of a thread, from a column on, are inside in all phases that are together.
    template <class C> KW_DEVICE static bool are_inside(const Problem<C>& problem, const Work& work, int column) {
        const Place at = conv_mma::place_of<C>(work, column);
        const Phase& phase = problem.phases[work.phase];
        int least = phase.axis[2].count;
#pragma unroll
        for (int p = 1; p < C::w_phases; p++) least = min(least, problem.phases[work.phase + p].axis[2].count);
        return at.image < C::images && at.d < phase.axis[0].count && at.h < phase.axis[1].count && at.w + 1 < least;
    }

    // From registers: a state for each warp along the pixels and each channel. Where a step does not ask for the place of a
    // sum in its row, the sums of two places are added at once, so that only those at an end need coordinates.
    template <class C, class Epilogue, class Sums>
    KW_DEVICE static void add(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                              const Part<C>& part, const Sums (&sums)[C::w_phases], const float (&inverse)[Sums::M * 2],
                              State<Epilogue>* states) {
        using Index = typename Epilogue::Index;
        constexpr int M = Sums::M * 2, N = Sums::N, P = C::w_phases, V = C::vector;
        typename Epilogue::template State<0, V> state[M];
        typename Epilogue::template State<0, 2 * P> both[M];
        typename Epilogue::template Row<1> r[M];
        Index row[M];
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int channel = work.group * C::outputs + min(part.first_output + m * 8, C::outputs - 1);
            row[m] = (Index)row_of<C>(work.first.image, channel);
            r[m] = Epilogue::template begin<1>(args, row[m]);
            state[m].clear();
            both[m].clear();
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (Epilogue::placeless && are_inside<C>(problem, work, part.first_column + n * 8)) {
#pragma unroll
                for (int m = 0; m < M; m++) {
                    auto x = Epilogue::template load<2 * P>(args, row[m], 0);
#pragma unroll
                    for (int j = 0; j < 2 * P; j++)
                        Epilogue::given(x)[j] = sums[j % P].at(m / 2, n, m % 2 * 2 + j / P) * inverse[m];
                    Epilogue::step(args, row[m], 0, x, r[m], both[m]);
                }
                continue;
            }
#pragma unroll
            for (int i = 0; i < 2 * P; i += V) {
                const Pixel<C> pixel(problem, work, (part.first_column + n * 8) * P + i);
                if (!pixel.is_inside()) continue;
#pragma unroll
                for (int m = 0; m < M; m++) {
                    const int output = part.first_output + m * 8, channel = work.group * C::outputs + output;
                    if (C::outputs % C::tile_m != 0 && output >= C::outputs) continue;
                    const Index column = (Index)(pixel.column + channel_column<C>(channel));
                    auto x = Epilogue::template load<V>(args, row[m], column);
#pragma unroll
                    for (int j = 0; j < V; j++)
                        Epilogue::given(x)[j] = sums[(i + j) % P].at(m / 2, n, m % 2 * 2 + (i + j) / P) * inverse[m];
                    Epilogue::step(args, row[m], column, x, r[m], state[m]);
                }
            }
        }
        const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
        for (int m = 0; m < M; m++) {
            State<Epilogue> one = state[m].folded();
            if constexpr (Epilogue::placeless) one.merge(both[m].folded());
            merge_lane(one, 1);
            merge_lane(one, 2);
            const int in_tile = part.first_output - work.first_output + m * 8;
            if (lane % 4 == 0) states[warp / C::warps_m * C::tile_m + in_tile] = one;
        }
    }

    // In plain float32, where something is not finite: a thread for each channel and every so many pixels.
    template <class C, class Epilogue>
    KW_DEVICE static void add_plainly(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                                      State<Epilogue>* states) {
        const int in_tile = threadIdx.x % C::tile_m, first = threadIdx.x / C::tile_m;
        if (first >= plain_parts<C>()) return;
        states[first * C::tile_m + in_tile] = plain_state<C, Epilogue>(
            problem, args, work, work.first_output + in_tile, first, C::tile_n * C::w_phases, plain_parts<C>());
    }
    // Of one channel, every so many pixels.
    template <class C, class Epilogue>
    KW_DEVICE static State<Epilogue> plain_state(const Problem<C>& problem, const typename Epilogue::Args& args,
                                                 const Work& work, int output, int first, int end, int apart) {
        using Index = typename Epilogue::Index;
        State<Epilogue> state;
        state.clear();
        if (output >= C::outputs) return state;
        const int channel = work.group * C::outputs + output;
        const Index row = (Index)row_of<C>(work.first.image, channel);
        const auto r = Epilogue::template begin<1>(args, row);
#pragma unroll 1
        for (int slot = first; slot < end; slot += apart) {
            const Pixel<C> pixel(problem, work, slot);
            if (!pixel.is_inside()) continue;
            const Index column = (Index)(pixel.column + channel_column<C>(channel));
            auto x = Epilogue::template load<1>(args, row, column);
            Epilogue::given(x)[0] =
                conv::plain_sum<C>(problem.x, problem.weight, pixel.phase, pixel.place, work.group, output);
            Epilogue::step(args, row, column, x, r, state);
        }
        return state;
    }

    template <class C, class Epilogue, class Sums>
    KW_DEVICE static void take(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                               const Part<C>& part, const Sums (&sums)[C::w_phases], float inverse_x, void* memory) {
        static_assert(Epilogue::reductions == 1 && Epilogue::phases == 1, "rows are finished by another launch");
        static_assert(all_images || C::tile_b == 1, "a tile has one image");
        static_assert(Sizes<C>::threads >= C::tile_m, "a thread for each channel");
        State<Epilogue>* const states = (State<Epilogue>*)memory;
        float inverse[Sums::M * 2];
        const bool finite = conv_mma::find_inverses(inverse, problem, work, part, sums, inverse_x);
        // From here on the inputs are not needed: states lie where they were.
        const bool plainly = __syncthreads_or(!finite);
        if (plainly) add_plainly<C, Epilogue>(problem, args, work, states);
        else add<C, Epilogue>(problem, args, work, part, sums, inverse, states);
        __syncthreads();
        const int output = work.first_output + (int)threadIdx.x;
        if (threadIdx.x >= C::tile_m || output >= C::outputs) return;
        const int parts = plainly ? plain_parts<C>() : Sizes<C>::warps_n;
        State<Epilogue> state = states[threadIdx.x];
#pragma unroll 1
        for (int i = 1; i < parts; i++) state.merge(states[i * C::tile_m + threadIdx.x]);
        leave<C, Epilogue>(args, work, output, state);
    }

    // --- by a warp of a team, all channels of which are its own (conv_sm90_kept.cuh)

    static constexpr bool of_teams = false;
    template <class C> __host__ __device__ static constexpr int warp_pitch() {
        return ceil_div(C::tile_w * C::w_phases, 32) * 32 + 8;
    }
    template <class C> __host__ __device__ static constexpr int warp_bytes() {
        return C::slab_vector > 0 ? 8 * warp_pitch<C>() * 4 : 0;
    }

    // Where a row of the tile begins in a channel's row of the epilogue.
    template <class C> KW_DEVICE static int64_t first_column(const Work& work, const Run& run) {
        static_assert(C::w_phases == C::y_step_w, "results of a row are neighbours");
        const int64_t image = all_images ? (int64_t)work.first.image * channels * (C::y_d * C::y_h * C::y_w) : 0;
        return image + (run.d * C::y_h + run.h) * C::y_w + run.w;
    }

    template <class C, class Epilogue, class Sums>
    KW_DEVICE static void take_of_warp(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                                       int first_row, const Sums (&sums)[C::w_phases], float inverse_x, bool are_finite,
                                       float* slab) {
        static_assert(Epilogue::reductions == 1 && Epilogue::phases == 1, "rows are finished by another launch");
        const OfWarp<C> of_warp(problem, work, 0, sums, inverse_x, are_finite);
        const int output = of_warp.output;
        if (!__all_sync(~0u, of_warp.finite)) {
            take_plainly<C, Epilogue>(problem, args, work, first_row, output);
            return;
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (C::outputs % 64 != 0 && output + half * 8 >= C::outputs) return;
            add_half<C, Epilogue>(problem, args, work, first_row, sums, of_warp.inverse[half], output + half * 8,
                                  half);
            if constexpr (Epilogue::stores)
#pragma unroll
                for (int row = 0; row < C::lap_rows; row++) {
                    put<C>(slab, sums, of_warp.inverse[half], row, half);
                    __syncwarp();
                    store<C, Epilogue>(problem, args, work, first_row + row, slab, output + half * 8);
                    __syncwarp();
                }
        }
    }

    // Eight channels from `first` on, of which a lane has some pixels of one.
    template <class C, class Epilogue, class Sums>
    KW_DEVICE static void add_half(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                                   int first_row, const Sums (&sums)[C::w_phases], float inverse, int first, int half) {
        using Index = typename Epilogue::Index;
        constexpr int P = C::w_phases, V = C::vector;
        const int lane = threadIdx.x % 32, output = first + lane / 4;
        const int channel = work.group * C::outputs + min(output, C::outputs - 1);
        const Index row_of_channel = (Index)row_of<C>(work.first.image, channel);
        const auto r = Epilogue::template begin<1>(args, row_of_channel);
        typename Epilogue::template State<0, V> state;
        state.clear();
#pragma unroll
        for (int row = 0; row < C::lap_rows; row++) {
            const Run run = conv_mma::run_of<C>(problem.phases[work.phase], work, first_row + row);
#pragma unroll
            for (int n = 0; n < C::tile_w / 8; n++) {
                float v[2 * P];
                conv_mma::scale_places(v, sums, 0, row * (C::tile_w / 8) + n, half, inverse);
#pragma unroll
                for (int i = 0; i < 2 * P; i += V) {
                    const int result = (n * 8 + lane % 4 * 2) * P + i;
                    if (result >= run.count) continue;
                    const Index column = (Index)(first_column<C>(work, run) + result + channel_column<C>(channel));
                    auto x = Epilogue::template load<V>(args, row_of_channel, column);
#pragma unroll
                    for (int j = 0; j < V; j++) Epilogue::given(x)[j] = v[i + j];
                    Epilogue::add(args, row_of_channel, column, x, r, state);
                }
            }
        }
        State<Epilogue> one = state.folded();
        merge_lane(one, 1);
        merge_lane(one, 2);
        if (lane % 4 == 0 && output < C::outputs) leave<C, Epilogue>(args, work, output, one);
    }

    template <class C, class Sums>
    KW_DEVICE static void put(float* slab, const Sums (&sums)[C::w_phases], float inverse, int row, int half) {
        constexpr int P = C::w_phases;
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < C::tile_w / 8; n++) {
            float v[2 * P];
            conv_mma::scale_places(v, sums, 0, row * (C::tile_w / 8) + n, half, inverse);
            float* to = slab + lane / 4 * warp_pitch<C>() + (n * 8 + lane % 4 * 2) * P;
#pragma unroll
            for (int i = 0; i < 2 * P; i += 2) *(float2*)(to + i) = make_float2(v[i], v[i + 1]);
        }
    }

    // A row of the tile, of eight channels from `first` on: lanes store neighbours.
    template <class C, class Epilogue>
    KW_DEVICE static void store(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work, int row,
                                const float* slab, int first) {
        using Index = typename Epilogue::Index;
        constexpr int V = C::slab_vector, results = C::tile_w * C::w_phases;
        const Run run = conv_mma::run_of<C>(problem.phases[work.phase], work, row);
#pragma unroll
        for (int i = 0; i < ceil_div(results / V, 32); i++) {
            const int result = ((int)threadIdx.x % 32 + i * 32) * V;
            if (result >= run.count) continue;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                if (C::outputs % 64 != 0 && first + j >= C::outputs) continue;
                const int channel = work.group * C::outputs + first + j;
                const Index of_channel = (Index)row_of<C>(work.first.image, channel),
                            column = (Index)(first_column<C>(work, run) + result + channel_column<C>(channel));
                auto x = Epilogue::template load<V>(args, of_channel, column);
                Epilogue::given(x) = kw::load<V>(slab + j * warp_pitch<C>() + result);
                Epilogue::store(args, of_channel, column, x, Epilogue::template begin<1>(args, of_channel));
            }
        }
    }

    // In plain float32: two lanes for each of 16 channels.
    template <class C, class Epilogue>
    KW_DEVICE static void take_plainly(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                                       int first_row, int first) {
        constexpr int of_a_row = C::tile_w * C::w_phases;
        const int lane = threadIdx.x % 32, output = first + lane % 16, slot = first_row * of_a_row;
        State<Epilogue> state = plain_state<C, Epilogue>(problem, args, work, output, slot + lane / 16,
                                                         slot + C::lap_rows * of_a_row, 2);
        merge_lane(state, 16);
        if (lane < 16 && output < C::outputs) leave<C, Epilogue>(args, work, output, state);
    }

    // Of a lap that has no pixels.
    template <class C, class Epilogue>
    KW_DEVICE static void skip_of_warp(const typename Epilogue::Args& args, const Work& work) {
        const int lane = threadIdx.x % 32, output = work.first_output + (int)threadIdx.x / 32 % 4 * 16 + lane;
        if (lane >= 16 || output >= C::outputs) return;
        State<Epilogue> state;
        state.clear();
        leave<C, Epilogue>(args, work, output, state);
    }

    template <class C, class Epilogue>
    KW_DEVICE static void leave(const typename Epilogue::Args& args, const Work& work, int output,
                                const State<Epilogue>& state) {
        row_pieces::leave<Epilogue>(args, part_of<C>(work, work.group * C::outputs + output), state);
    }

    // A block that has no pixels knows nothing of its channels.
    template <class C, class Epilogue>
    KW_DEVICE static void skip(const typename Epilogue::Args& args, const Work& work) {
        const int output = work.first_output + (int)threadIdx.x;
        if (threadIdx.x >= C::tile_m || output >= C::outputs) return;
        State<Epilogue> state;
        state.clear();
        leave<C, Epilogue>(args, work, output, state);
    }
};

#ifndef __CUDACC_RTC__
template <class C, class Epilogue, class End, int64_t workspace_bytes>
cudaError_t finish(const typename Epilogue::Args& args, cudaStream_t stream) {
    return row_pieces::finish<Epilogue, End::template rows<C>(), End::template parts<C>(), workspace_bytes>(args, stream);
}
#endif

}  // namespace kw::conv_pieces
