// The end of a convolution's tile where its epilogue reduces along w, whole rows of which the tile has.
//
// Rows of the epilogue are those of the result, of every channel. It is a struct as reduce.cuh runs it, along its rows. A
// warp of conv_sm90_kept.cuh has all pixels of its 16 channels, so that a row is its own matter: in each phase a lane adds
// the places that it has of a row to its state, the four lanes that have the same row merge theirs, and all of them finish
// it. Of the struct that reduce.cuh runs it has more:
//
//   given(operands)                           where sums of N neighbours go
//   values(args, row, column, operands, r)    what the last phase would store
//   place(args, row, column)                  where
//   add(args, row, column, operands, r, s)    where that is the only phase: what else it does
#pragma once

#include "conv_kept_ends.cuh"
#include "row_pieces.cuh"

namespace kw::conv_lines {

using conv::Phase;
using conv::Place;
using conv_mma::OfWarp;
using conv_mma::Problem;
using conv_mma::Run;
using conv_mma::Work;
using conv_sm90_kept::Leaving;
using row_pieces::merge_lane;

template <class C> KW_DEVICE int64_t row_of(const Work& work, const Run& run, int output) {
    const int64_t plane = (int64_t)work.first.image * (C::groups * C::outputs) + work.group * C::outputs + output;
    return (plane * C::y_d + run.d) * C::y_h + run.h;
}

// What a phase adds of a lane's places, `v`, in a row.
template <class C, class Epilogue, int phase, class Index, class Row, class Sums>
KW_DEVICE void run_phases(const typename Epilogue::Args& args, Index of_row, const Sums (&sums)[C::w_phases], int row,
                          int half, float scale, Row& r) {
    constexpr int P = C::w_phases, V = C::row_vector;
    typename Epilogue::template State<phase, V> state;
    state.clear();
#pragma unroll
    for (int n = 0; n < C::tile_w / 8; n++) {
        float v[2 * P];
        conv_mma::scale_places(v, sums, 0, row * (C::tile_w / 8) + n, half, scale);
#pragma unroll
        for (int i = 0; i < 2 * P; i += V) {
            const int column = (n * 8 + (int)threadIdx.x % 4 * 2) * P + i;
            if ((n * 8 + 8) * P > C::y_w && column >= C::y_w) continue;
            auto x = Epilogue::template load<V>(args, of_row, (Index)column);
#pragma unroll
            for (int j = 0; j < V; j++) Epilogue::given(x)[j] = v[i + j];
            if constexpr (Epilogue::phases == Epilogue::reductions) Epilogue::add(args, of_row, (Index)column, x, r, state);
            else Epilogue::step(args, of_row, (Index)column, x, r, state);
        }
    }
    typename Epilogue::template State<phase, 1> one = state.folded();
    merge_lane(one, 1);
    merge_lane(one, 2);
    Epilogue::finish(one, r);
    if constexpr (phase + 1 < Epilogue::reductions)
        run_phases<C, Epilogue, phase + 1>(args, of_row, sums, row, half, scale, r);
}

// --- the same in plain float32, for a warp that has something that is not finite: a lane for each row of a channel

template <class C, class Epilogue, int phase, class Index, class Row>
KW_DEVICE void run_plainly(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work, Index of_row,
                           const Place& first, int output, Row& r) {
    typename Epilogue::template State<phase, 1> state;
    state.clear();
#pragma unroll 1
    for (int column = 0; column < C::y_w; column++) {
        Place place = first;
        place.w = column / C::w_phases;
        const Phase* of_column = &problem.phases[work.phase + column % C::w_phases];
        auto x = Epilogue::template load<1>(args, of_row, (Index)column);
        Epilogue::given(x)[0] = conv::plain_sum<C>(problem.x, problem.weight, of_column, place, work.group, output);
        Epilogue::step(args, of_row, (Index)column, x, r, state);
    }
    if constexpr (phase < Epilogue::reductions) Epilogue::finish(state, r);
    if constexpr (phase + 1 < Epilogue::phases)
        run_plainly<C, Epilogue, phase + 1>(problem, args, work, of_row, first, output, r);
}

// Not inline: what it needs would take registers from those who have sums.
template <class C, class Epilogue>
__device__ __noinline__ void take_plainly(const Problem<C>& problem, const typename Epilogue::Args& args, Work work,
                                          int first_row, int first_output) {
    using Index = typename Epilogue::Index;
    const Phase& phase = problem.phases[work.phase];
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < 16 * C::lap_rows; i += 32) {
        const int output = first_output + i % 16, row = first_row + i / 16;
        const Run run = conv_mma::run_of<C>(phase, work, row);
        if (output >= C::outputs || run.count == 0) continue;
        const Index of_row = (Index)row_of<C>(work, run, output);
        auto r = Epilogue::template begin<1>(args, of_row);
        run_plainly<C, Epilogue, 0>(problem, args, work, of_row, conv_mma::place_of<C>(work, row * C::tile_w), output, r);
        Epilogue::store_row(args, of_row, r);
    }
}

struct Lined {
    static constexpr bool of_teams = false;
    template <class C> __host__ __device__ static constexpr int warp_bytes() { return Leaving<C>::bytes; }

    template <class C, class Epilogue, class Sums>
    KW_DEVICE static void take_of_warp(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                                       int first_row, const Sums (&sums)[C::w_phases], float inverse_x, bool are_finite,
                                       float* slab) {
        using Index = typename Epilogue::Index;
        using Out = Leaving<C>;
        constexpr int P = C::w_phases, V = C::row_vector;
        static_assert(C::by_rows && C::w_phases == C::y_step_w && C::tile_w * P >= C::y_w && C::y_w % V == 0,
                      "a tile has whole rows, of whole vectors");
        static_assert(!Out::one_run && C::sent == 0, "rows leave one by one, stored by threads");
        const OfWarp<C> of_warp(problem, work, 0, sums, inverse_x, are_finite);
        const int lane = threadIdx.x % 32, output = of_warp.output;
        if (!__all_sync(~0u, of_warp.finite)) {
            take_plainly<C, Epilogue>(problem, args, work, first_row, output);
            return;
        }
        const Phase& phase = problem.phases[work.phase];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int first = output + half * 8, mine = first + lane / 4;
            if (C::outputs % 64 != 0 && first >= C::outputs) return;
            const bool exists = C::outputs % 8 == 0 || mine < C::outputs;
#pragma unroll
            for (int row = 0; row < C::lap_rows; row++) {
                const Run run = conv_mma::run_of<C>(phase, work, first_row + row);
                if (run.count == 0) continue;
                const Index of_row = (Index)row_of<C>(work, run, exists ? mine : C::outputs - 1);
                auto r = Epilogue::template begin<1>(args, of_row);
                float scale = of_warp.inverse[half];
                run_phases<C, Epilogue, 0>(args, of_row, sums, row, half, scale, r);
                if (exists && lane % 4 == 0) Epilogue::store_row(args, of_row, r);
                asm volatile("" : "+f"(scale));  // else all that was scaled before is kept beside the sums
                put<C, Epilogue>(slab, args, of_row, sums, row, half, scale, r);
                __syncwarp();
                Out::walk(slab, work, phase, first, first_row + row,
                          [&](int j, const Vec<float, Out::V>& y, int, int, int w) {
                              const Index to = (Index)row_of<C>(work, run, first + j);
                              kw::store<Out::V>(Epilogue::place(args, to, (Index)w), y);
                          });
                __syncwarp();
            }
        }
    }

    template <class C, class Epilogue, class Index, class Row, class Sums>
    KW_DEVICE static void put(float* slab, const typename Epilogue::Args& args, Index of_row,
                              const Sums (&sums)[C::w_phases], int row, int half, float scale, const Row& r) {
        constexpr int P = C::w_phases, V = C::row_vector;
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < C::tile_w / 8; n++) {
            float v[2 * P];
            conv_mma::scale_places(v, sums, 0, row * (C::tile_w / 8) + n, half, scale);
#pragma unroll
            for (int i = 0; i < 2 * P; i += V) {
                const int column = (n * 8 + lane % 4 * 2) * P + i;
                if ((n * 8 + 8) * P > C::y_w && column >= C::y_w) continue;
                auto x = Epilogue::template load<V>(args, of_row, (Index)column);
#pragma unroll
                for (int j = 0; j < V; j++) Epilogue::given(x)[j] = v[i + j];
                const auto y = Epilogue::values(args, of_row, (Index)column, x, r);
                *(Vec<float, V>*)(slab + lane / 4 * Leaving<C>::pitch + column) = y;
            }
        }
    }
    template <class C, class Epilogue> KW_DEVICE static void skip_of_warp(const typename Epilogue::Args&, const Work&) {}
};

}  // namespace kw::conv_lines
