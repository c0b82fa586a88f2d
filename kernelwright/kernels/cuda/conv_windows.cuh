// The end of a convolution's tile where its epilogue pools windows that lie side by side, each whole in one tile.
//
// A row of the epilogue is a window of one channel, its columns are the places in it. It is a struct as reduce.cuh runs it,
// along its rows, with one phase. Sums go through shared memory, where the inputs were, and then a thread has a window.
// Of the struct that reduce.cuh runs it has more:
//
//   given(operands)                where the sum of a place goes
#pragma once

#include "conv_mma.cuh"

namespace kw::conv_windows {

using conv::Phase;
using conv::Place;
using conv_mma::Part;
using conv_mma::Problem;
using conv_mma::Sizes;
using conv_mma::Work;

template <int size_d, int size_h, int size_w> struct Pooled {
    static constexpr int size = size_d * size_h * size_w;

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
        float* const tile = (float*)memory;
        float inverse[M];
        const bool finite = conv_mma::find_inverses(inverse, problem, work, part, sums, inverse_x);
        // From here on the inputs are not needed.
        if (!__syncthreads_or(!finite)) {
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int m = 0; m < M; m++) {
                    const int channel = part.first_output - work.first_output + m * 8, column = part.first_column + n * 8;
                    *(float2*)(tile + channel * pitch<C>() + column) =
                        make_float2(sums[0].at(m / 2, n, m % 2 * 2) * inverse[m],
                                    sums[0].at(m / 2, n, m % 2 * 2 + 1) * inverse[m]);
                }
        } else {
            add_plainly(problem, work, tile);
        }
        __syncthreads();
        pool<C, Epilogue>(args, work, tile);
    }

    // In plain float32, where something is not finite.
    template <class C> KW_DEVICE static void add_plainly(const Problem<C>& problem, const Work& work, float* tile) {
        const Phase& phase = problem.phases[work.phase];
#pragma unroll 1
        for (int i = threadIdx.x; i < C::tile_m * C::tile_n; i += Sizes<C>::threads) {
            const int column = i % C::tile_n, output = work.first_output + i / C::tile_n;
            const Place at = conv_mma::place_of<C>(work, column);
            if (output >= C::outputs || !conv_mma::is_inside<C>(phase, at)) continue;
            tile[i / C::tile_n * pitch<C>() + column] =
                conv::plain_sum<C>(problem.x, problem.weight, &phase, at, work.group, output);
        }
    }

    template <class C, class Epilogue>
    KW_DEVICE static void pool(const typename Epilogue::Args& args, const Work& work, const float* tile) {
        using Index = typename Epilogue::Index;
        constexpr unsigned along_w = C::tile_w / size_w, along_h = C::tile_h / size_h, along_d = C::tile_d / size_d;
        constexpr unsigned windows = along_w * along_h * along_d * C::tile_b;
        constexpr int y_d = C::y_d / size_d, y_h = C::y_h / size_h, y_w = C::y_w / size_w;
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < windows * C::tile_m; i += Sizes<C>::threads) {
            const unsigned w = i % along_w, h = i / along_w % along_h, d = i / (along_w * along_h) % along_d;
            const int image = i / (along_w * along_h * along_d) % C::tile_b, in_tile = i / windows;
            const int output = work.first_output + in_tile;
            const Place at = {work.first.image + image, work.first.d / size_d + (int)d, work.first.h / size_h + (int)h,
                              work.first.w / size_w + (int)w};
            if (output >= C::outputs || at.image >= C::images || at.d >= y_d || at.h >= y_h || at.w >= y_w) continue;
            const int64_t plane = (int64_t)at.image * (C::groups * C::outputs) + work.group * C::outputs + output;
            const Index row = (Index)(((plane * y_d + at.d) * y_h + at.h) * y_w + at.w);
            const float* first = tile + in_tile * pitch<C>() +
                                 ((image * C::tile_d + d * size_d) * C::tile_h + h * size_h) * C::tile_w + w * size_w;
            auto r = Epilogue::template begin<1>(args, row);
            typename Epilogue::template State<0, 1> state;
            state.clear();
#pragma unroll(size <= 16 ? size : 4)
            for (int j = 0; j < size; j++) {
                const int jd = j / (size_h * size_w), jh = j / size_w % size_h, jw = j % size_w;
                auto x = Epilogue::template load<1>(args, row, (Index)j);
                Epilogue::given(x)[0] = first[(jd * C::tile_h + jh) * C::tile_w + jw];
                Epilogue::step(args, row, (Index)j, x, r, state);
            }
            Epilogue::finish(state, r);
            Epilogue::store_row(args, row, r);
        }
    }

    template <class C, class Epilogue> KW_DEVICE static void skip(const typename Epilogue::Args&, const Work&) {}
};

}  // namespace kw::conv_windows
