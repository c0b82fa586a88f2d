// Windows that overlap, as pooling has them: a thread makes `lanes` neighbouring results from one run of memory. What
// several windows see is loaded once, in words of 16 bytes, and stays in registers; one by one, each place of each window
// would be a load, and the first cache, not memory, would decide.
//
// Results leave by way of shared memory: lines of results are of any length, so a thread's own ones are no whole words,
// and stored as they are they would reach the L2 cache in pieces.
//
// Config: threads  of a block    lanes  neighbouring results of a thread    vectors  lines of windows in flight
//
// Body: as in reduce.cuh, across, in one phase. It has more:
//   places            of a window that lie in a line of memory, the last of the reduced axes
//   Run<N>            what N neighbouring windows see of such a line
//   run<N>            loads it, for windows from `row` on and the line of memory in which `column` lies
//   seen<N>           what each of the N sees at one of its places
//   State::lane       the state of one of N
#pragma once

#include "reduce.cuh"

namespace kw {

// kw: load_run
// M neighbours from the place `first` of a line on, `width` at a time. A line's ends, at places 0 and `extent`, lie
// between such words, so that a word is inside as a whole or not at all.
template <int M, int width, typename Index, typename T, typename B>
KW_DEVICE Vec<T, M> load_run(const T* p, bool inside, Index first, Index extent, B border) {
    static_assert(M % width == 0, "whole words");
    Vec<T, M> x;
#pragma unroll
    for (int at = 0; at < M; at += width) {
        Vec<T, width> word = fill<width>(T(border));
        if (inside && first + at >= 0 && first + at < extent) word = load_constant<width>(p + at);
#pragma unroll
        for (int i = 0; i < width; ++i) x.v[at + i] = word.v[i];
    }
    return x;
}

// kw: reduce_sliding_kernel
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::threads) reduce_sliding_kernel(typename Body::Args args) {
    using Index = typename Body::Index;
    using One = typename Body::template State<0, 1>;
    static_assert(Body::across && Body::phases == 1 && Body::reductions == 1, "every lane is a row, walked over once");
    constexpr int lanes = Config::lanes, together = Config::vectors, lines = int(Body::columns) / Body::places;
    constexpr Index line = Index(Body::line), groups = (line + lanes - 1) / lanes;
    constexpr int64_t units = Body::rows / Body::line * groups;
    struct alignas(16) Found {
        One of[lanes];
    };
    __shared__ Found found[Config::threads];
    const Index first = Index(blockIdx.x) * Config::threads, unit = first + threadIdx.x;
    if (unit < units) {
        const Index row = unit / groups * line + unit % groups * lanes;
        const auto r = Body::template begin<lanes>(args, row);
        typename Body::template State<0, lanes> state;
        state.clear();
#pragma unroll
        for (int one = 0; one < lines; one += together) {
            typename Body::template Run<lanes> runs[together];
#pragma unroll
            for (int u = 0; u < together; ++u)
                if (one + u < lines) runs[u] = Body::template run<lanes>(args, row, (one + u) * Body::places);
#pragma unroll
            for (int u = 0; u < together; ++u)
#pragma unroll
                for (int place = 0; place < Body::places; ++place)
                    if (one + u < lines)
                        Body::step(args, row, (one + u) * Body::places + place,
                                   Body::template seen<lanes>(runs[u], place), r, state);
        }
        Found mine;
#pragma unroll
        for (int i = 0; i < lanes; ++i) mine.of[i] = state.lane(i);
        found[threadIdx.x] = mine;
    }
    __syncwarp();
    // The results of a warp, neighbours by neighbouring threads.
    const int warp = threadIdx.x / 32 * 32;
    const auto leave = [&](int result, Index line_start, Index at) {
        if (at >= line) return;
        auto r = Body::template begin<1>(args, line_start + at);
        Body::finish(found[warp + result / lanes].of[result % lanes], r);
        Body::store_row(args, line_start + at, r);
    };
    const Index start = first + warp, start_line = start / groups, start_group = start % groups;
    if (start + 32 <= units && start_group + 32 <= groups) {  // all in one line, so that one division is enough
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
            const int result = i * 32 + threadIdx.x % 32;
            leave(result, start_line * line, start_group * lanes + result);
        }
    } else {
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
            const int result = i * 32 + threadIdx.x % 32;
            const Index its = start + result / lanes;
            if (its < units) leave(result, its / groups * line, its % groups * lanes + result % lanes);
        }
    }
}

// kw: OneByOne
// For operands that do not start where a word may: every place of every window is a load.
template <typename Config> struct OneByOne : Config {
    static constexpr int lanes = 1, vectors = 8;
};

// kw: reduce_sliding
#ifndef __CUDACC_RTC__
template <typename Body, typename Config>
cudaError_t reduce_sliding(const typename Body::Args& args, cudaStream_t stream) {
    if (!all_aligned(args)) return reduce_beside<Body, OneByOne<Config>>(args, stream);
    constexpr int64_t groups = (Body::line + Config::lanes - 1) / Config::lanes, units = Body::rows / Body::line * groups;
    constexpr int64_t blocks = (units + Config::threads - 1) / Config::threads;
    reduce_sliding_kernel<Body, Config><<<unsigned(blocks), Config::threads, 0, stream>>>(args);
    return cudaGetLastError();
}
#endif

}  // namespace kw
