// A convolution of which only sums over all images and space are wanted: statistics of its channels, no result.
//
// A block has all channels, and takes tile after tile; threads keep what they know of their channels in registers from the
// first tile to the last. The inputs of the next tile are on their way while this one is multiplied, phase by phase. At
// the end the block leaves one state for each channel, and a second launch merges those (row_pieces.cuh). The epilogue is
// placeless: a step needs nothing but the sums.
#pragma once

#include "conv_mma.cuh"
#include "conv_pieces.cuh"

namespace kw::conv_gathered {

using conv::Phase;
using conv::Place;
using conv_mma::Carrier;
using conv_mma::Part;
using conv_mma::Problem;
using conv_mma::Shared;
using conv_mma::Sizes;
using conv_mma::Work;
using row_pieces::merge_lane;
using row_pieces::State;

using Tiles = conv_pieces::Kept<1, true>;

template <class C> __host__ __device__ constexpr int64_t tiles() { return conv_mma::tiles_of<C>() / C::turns; }
// Of each row: one for each block, of which there are no more.
template <class C> __host__ __device__ constexpr int parts() { return tiles<C>() < 1024 ? (int)tiles<C>() : 1024; }

// What a thread knows of its channels: sums of two places at a time, and of single ones at the ends of rows.
template <class C, class Epilogue, class Sums> struct Gathering {
    using Index = typename Epilogue::Index;
    static constexpr int M = Sums::M * 2, N = Sums::N, P = C::w_phases;
    typename Epilogue::template State<0, 2 * P> both[M];
    typename Epilogue::template State<0, 1> single[M];
    typename Epilogue::template Row<1> r[M];

    KW_DEVICE static Index row(const Part<C>& part, int m) { return min(part.first_output + m * 8, C::outputs - 1); }

    KW_DEVICE Gathering(const typename Epilogue::Args& args, const Part<C>& part) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            both[m].clear();
            single[m].clear();
            r[m] = Epilogue::template begin<1>(args, row(part, m));
        }
    }
    template <int L, class State>
    KW_DEVICE void take(const typename Epilogue::Args& args, const Part<C>& part, int m, const float (&v)[L], State& state) {
        auto x = Epilogue::template load<L>(args, row(part, m), 0);
#pragma unroll
        for (int j = 0; j < L; j++) Epilogue::given(x)[j] = v[j];
        Epilogue::step(args, row(part, m), 0, x, r[m], state);
    }
    KW_DEVICE void add(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                       const Part<C>& part, const Sums (&sums)[P], const float (&inverse)[M]) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int column = part.first_column + n * 8;
            if (Tiles::are_inside<C>(problem, work, column)) {
#pragma unroll
                for (int m = 0; m < M; m++) {
                    float v[2 * P];
                    conv_mma::scale_places(v, sums, m / 2, n, m % 2, inverse[m]);
                    take<2 * P>(args, part, m, v, both[m]);
                }
                continue;
            }
#pragma unroll
            for (int j = 0; j < 2 * P; j++) {
                const Place at = conv_mma::place_of<C>(work, column + j / P);
                if (!conv_mma::is_inside<C>(problem.phases[work.phase + j % P], at)) continue;
#pragma unroll
                for (int m = 0; m < M; m++) {
                    const float v[1] = {sums[j % P].at(m / 2, n, m % 2 * 2 + j / P) * inverse[m]};
                    take<1>(args, part, m, v, single[m]);
                }
            }
        }
    }
    // In plain float32, where an input or a weight is not finite.
    KW_DEVICE void add_plainly(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                               const Part<C>& part) {
#pragma unroll 1
        for (int i = 0; i < N * 2 * P; i++) {
            const Phase& phase = problem.phases[work.phase + i % P];
            const Place at = conv_mma::place_of<C>(work, part.first_column + i / (2 * P) * 8 + i / P % 2);
            if (!conv_mma::is_inside<C>(phase, at)) continue;
#pragma unroll
            for (int m = 0; m < M; m++) {
                const float v[1] = {
                    conv::plain_sum<C>(problem.x, problem.weight, &phase, at, work.group, (int)row(part, m))};
                take<1>(args, part, m, v, single[m]);
            }
        }
    }
    // Lanes that have the same channels merge theirs, then warps do; each block has a place of its own in the workspace.
    // Places of blocks that there are not know nothing.
    KW_DEVICE void leave(const typename Epilogue::Args& args, const Part<C>& part, State<Epilogue>* states) {
        const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        __syncthreads();  // states lie where inputs were
#pragma unroll
        for (int m = 0; m < M; m++) {
            State<Epilogue> one = both[m].folded();
            one.merge(single[m]);
            merge_lane(one, 1);
            merge_lane(one, 2);
            if (lane % 4 == 0) states[warp / C::warps_m * C::tile_m + part.first_output + m * 8] = one;
        }
        __syncthreads();
        const int channel = threadIdx.x;
        if (channel >= C::outputs) return;
        State<Epilogue> state = states[channel], nothing;
        nothing.clear();
#pragma unroll 1
        for (int i = 1; i < Sizes<C>::warps_n; i++) state.merge(states[i * C::tile_m + channel]);
#pragma unroll 1
        for (int place = blockIdx.x; place < parts<C>(); place += gridDim.x) {
            row_pieces::leave<Epilogue>(args, (int64_t)channel * parts<C>() + place, state);
            state = nothing;
        }
    }
};

template <class C> KW_DEVICE bool all_finite(const Carrier<C>& carrier) {
    float zero = 0.f;
#pragma unroll
    for (int i = 0; i < Carrier<C>::rounds * 8; i++) zero = fmaf(carrier.held[i / 8][i % 8], 0.f, zero);
    return zero == 0.f;
}

template <class C, class Epilogue, class Sums>
KW_DEVICE void gather(const Problem<C>& problem, const typename Epilogue::Args& args, Shared<C>& shared) {
    static_assert(Epilogue::placeless && Epilogue::reductions == 1 && Epilogue::phases == 1, "sums alone are reduced");
    static_assert(Sizes<C>::chunks == 1 && Sizes<C>::tiles_m == 1 && C::groups == 1, "a block has all channels");
    static_assert(C::turns * C::w_phases == C::phases && !C::ahead, "a tile has all phases");
    using Tile = conv_mma::Tile<C>;
    Carrier<C> carrier;
    Part<C> parts[C::w_phases];
    Tile tile(problem, blockIdx.x * C::turns);
    parts[0].set(problem, tile.work, 0);
    Gathering<C, Epilogue, Sums> gathering(args, parts[0]);
    tile.template ask<Sums>(problem, shared, carrier);
#pragma unroll 1
    for (unsigned index = blockIdx.x;; index += gridDim.x) {
        const bool finite = all_finite(carrier), more = index + gridDim.x < (unsigned)tiles<C>();
        const uint32_t scale = split::scale_bits(carrier.largest(shared.largest));
        carrier.deliver(shared.region[0], split::scale_of(scale));
        float inverse[Sums::M * 2];
        const bool in_range = conv_mma::scales_back(inverse, problem, tile.work, parts[0], split::inverse_of(scale));
        // Finite inputs and weights, of at most 2^15 each, have finite sums.
        const bool plainly = __syncthreads_or(!(finite & in_range));
        const Tile next(problem, (more ? index + gridDim.x : index) * C::turns);
        if (more) {
            conv_mma::fill_from<C, conv_mma::All<C>>(shared.from, problem.phases[0], next.work);
            __syncthreads();
            carrier.fetch(next.x, shared.from, 0);
        }
#pragma unroll 1
        for (int turn = 0; turn < C::turns; turn++) {
            tile.work.phase = turn * C::w_phases;
            conv_mma::forget(tile.work.first.d), conv_mma::forget(tile.work.first.h), conv_mma::forget(tile.work.first.w);
            if (tile.is_empty_in(problem.phases[tile.work.phase])) continue;
            if (plainly) {
                gathering.add_plainly(problem, args, tile.work, parts[0]);
                continue;
            }
            Sums sums[C::w_phases];
#pragma unroll
            for (int p = 0; p < C::w_phases; p++) {
                parts[p].set(problem, tile.work, p);
                if (parts[p].steps > 0) sums[p].add(shared.region[0], shared.offset[tile.work.phase + p], parts[p], 0);
            }
            gathering.add(problem, args, tile.work, parts[0], sums, inverse);
        }
        if (!more) break;
        tile = next;
    }
    gathering.leave(args, parts[0], (State<Epilogue>*)shared.region);
}

template <class C, class Epilogue>
__global__ void __launch_bounds__(Sizes<C>::threads, C::blocks_at_once)
    gather_kernel(const __grid_constant__ Problem<C> problem, const __grid_constant__ typename Epilogue::Args args) {
    extern __shared__ uint4 dynamic[];
    gather<C, Epilogue, conv_mma::Sums<C>>(problem, args, *(Shared<C>*)dynamic);
}

#ifndef __CUDACC_RTC__
template <class C, class Epilogue, int64_t workspace_bytes>
cudaError_t launch(const Problem<C>& problem, const typename Epilogue::Args& args, cudaStream_t stream) {
    constexpr int bytes = conv_mma::block_bytes<C, Epilogue, Tiles>();
    if (bytes > 48 * 1024)
        if (const cudaError_t status = ptx90::allow_shared_memory(gather_kernel<C, Epilogue>, bytes)) return status;
    int blocks = 0;
    if (const cudaError_t status = ptx90::multiprocessors(&blocks)) return status;
    blocks *= C::blocks_at_once;
    if (blocks > parts<C>()) blocks = parts<C>();
    gather_kernel<C, Epilogue><<<blocks, Sizes<C>::threads, bytes, stream>>>(problem, args);
    if (const cudaError_t status = cudaGetLastError()) return status;
    return row_pieces::finish<Epilogue, C::outputs, parts<C>(), workspace_bytes>(args, stream);
}
#endif

}  // namespace kw::conv_gathered
