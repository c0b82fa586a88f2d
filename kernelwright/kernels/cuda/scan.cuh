// Running values of rows, in tiles that are loaded, computed with, scanned and stored in one go.
//
// Along: neighbours are in one row. A thread adds up its vectors, a warp scans those sums by shuffles, and the totals
// of the warps are added in order; what is known then goes on to the next tile. Across: each lane is a row.
// Few long rows are cut into chunks: for each stage, one launch finds the total of every chunk and one adds up what
// comes before it; the last launch starts from there. The order of all additions is fixed: two runs give the same bits.
#pragma once

#include "../device/monoids.cuh"
#include "launch.cuh"
#include "pointwise.cuh"

namespace kw {

// kw: scan_shuffled
// x of another lane; a state travels in words.
template <typename T, typename Shuffle> KW_DEVICE T scan_shuffled(const T& x, Shuffle shuffle) {
    constexpr int words = int(sizeof(T) + 3) / 4;
    uint32_t word[words] = {};
    __builtin_memcpy(word, &x, sizeof(T));
#pragma unroll
    for (int i = 0; i < words; ++i) word[i] = shuffle(word[i]);
    T y;
    __builtin_memcpy(&y, word, sizeof(T));
    return y;
}

// kw: ScanAlong
// `threads` threads own a tile of one row: warp after warp, vector after vector, lane after lane.
template <bool reverse, int threads> struct ScanAlong {
    static constexpr int width = threads < 32 ? threads : 32, warps = threads / width;
    // The totals of the warps, twice: a warp may write the next ones while another still reads.
    uint64_t (*totals)[warps];
    int lane, warp, turn;

    template <typename State> KW_DEVICE State from_below(const State& x, int by) const {
        return scan_shuffled(x, [by](uint32_t word) { return __shfl_up_sync(0xffffffffu, word, by, width); });
    }
    template <typename State> KW_DEVICE State from_last(const State& x) const {
        return scan_shuffled(x, [](uint32_t word) { return __shfl_sync(0xffffffffu, word, width - 1, width); });
    }

    template <bool exclusive, typename T, int N, int V, typename State>
    KW_DEVICE void scan(Vec<T, N> (&r)[V], State& carry) {
        static_assert(sizeof(State) <= sizeof(uint64_t), "a state is one word of shared memory");
        State before[V], last[V];
#pragma unroll
        for (int u = 0; u < V; ++u) {
            State own;
            own.clear();
#pragma unroll
            for (int k = 0; k < N; ++k) own.add(0, r[u][reverse ? N - 1 - k : k]);
#pragma unroll
            for (int by = 1; by < width; by *= 2) {
                State lower = from_below(own, by);
                lower.add(0, own.value(0));
                if (lane >= by) own = lower;
            }
            before[u] = from_below(own, 1);
            if (lane == 0) before[u].clear();
            last[u] = from_last(own);
        }
        State all;
        all.clear();
#pragma unroll
        for (int u = 0; u < V; ++u) {
            State start = all;
            start.add(0, before[u].value(0));
            before[u] = start;
            all.add(0, last[u].value(0));
        }
        State start = carry;
        if constexpr (warps > 1) {
            if (lane == 0) __builtin_memcpy(&totals[turn][warp], &all, sizeof(State));
            __syncthreads();
#pragma unroll
            for (int w = 0; w < warps; ++w) {
                State total;
                __builtin_memcpy(&total, &totals[turn][w], sizeof(State));
                if (w == warp) start = carry;
                carry.add(0, total.value(0));
            }
            turn ^= 1;
        } else {
            carry.add(0, all.value(0));
        }
#pragma unroll
        for (int u = 0; u < V; ++u) {
            State state = start;
            state.add(0, before[u].value(0));
#pragma unroll
            for (int k = 0; k < N; ++k) {
                const int i = reverse ? N - 1 - k : k;
                const T until_here = T(state.value(0));
                state.add(0, r[u][i]);
                r[u][i] = exclusive ? until_here : T(state.value(0));
            }
        }
    }
};

// kw: ScanAcross
// The next V places of N rows.
struct ScanAcross {
    template <bool exclusive, typename T, int N, int V, typename State>
    KW_DEVICE static void scan(Vec<T, N> (&r)[V], State& state) {
#pragma unroll
        for (int u = 0; u < V; ++u) {
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const T before = T(state.value(i));
                state.add(i, r[u][i]);
                r[u][i] = exclusive ? before : T(state.value(i));
            }
        }
    }
};

// kw: scan_each
// f of the states of all scans in the stages from `stage` up to `end`.
template <typename Body, int stage, int end, typename F, typename... S> KW_DEVICE void scan_each(F f, S&... s) {
    if constexpr (stage < end) {
        Body::template each<stage>(f, s...);
        scan_each<Body, stage + 1, end>(f, s...);
    }
}

// kw: scan_stages
// What the scans of a stage take is computed from what the stages before it gave; then they run.
template <typename Body, int stage, int end, int V, typename Walk, typename X, typename R, typename S>
KW_DEVICE void scan_stages(Walk& walk, const X& x, R& r, S& s) {
    if constexpr (stage < end) {
#pragma unroll
        for (int u = 0; u < V; ++u) Body::template feed<stage>(x[u], r, u);
        Body::template scan<stage>(walk, r, s);
        scan_stages<Body, stage + 1, end, V>(walk, x, r, s);
    }
}

// kw: scan_begin
// A sweep for the stage `sweep` starts at zero there, and in the stages before it after all chunks before its own.
template <typename Body, int sweep, typename S> KW_DEVICE void scan_begin(S& s, const S* starts) {
    scan_each<Body, 0, Body::stages>([](auto& state) { state.clear(); }, s);
    if (starts) scan_each<Body, 0, sweep>([](auto& state, const auto& start) { state = start; }, s, *starts);
}

// kw: scan_along_block
// Only the last tile of a row may be filled in part: what idle threads compute there comes after all that counts.
template <typename Body, int sweep, int threads, int rows, int lanes, int vectors, int64_t chunk>
KW_DEVICE void scan_along_block(const typename Body::Args& args, typename Body::template State<1>* totals) {
    using Index = typename Body::Index;
    using Walk = ScanAlong<Body::reverse, threads>;
    constexpr bool last = sweep == Body::stages;
    constexpr Index columns = Body::columns, chunks = (columns + Index(chunk) - 1) / Index(chunk);
    constexpr Index tile = threads * vectors * lanes;
    static_assert(chunks == 1 || (rows == 1 && chunk % tile == 0), "a chunk is whole tiles");
    __shared__ uint64_t shared[2][Walk::warps];
    const int thread = rows == 1 ? threadIdx.x : threadIdx.x % threads;
    Walk walk{shared, thread % Walk::width, thread / Walk::width, 0};
    const Index strand = Index(blockIdx.x) * rows + (rows == 1 ? 0 : threadIdx.x / threads);
    const bool there = rows == 1 || strand < Index(Body::rows);
    const Index row = chunks == 1 ? strand : strand / chunks, begin = chunks == 1 ? 0 : strand % chunks * Index(chunk);
    const Index end = chunks == 1 || columns - begin < Index(chunk) ? columns : begin + Index(chunk);
    typename Body::template State<1> s;
    scan_begin<Body, sweep>(s, chunks == 1 ? nullptr : totals + strand);
    for (Index first = begin; first < end; first += tile) {
        typename Body::template Operands<lanes> x[vectors];
        typename Body::template Running<lanes, vectors> r;
#pragma unroll
        for (int u = 0; u < vectors; ++u) {
            const Index place = first + ((walk.warp * vectors + u) * Walk::width + walk.lane) * lanes;
            const Index column = Body::reverse ? columns - lanes - place : place;
            if (there && place < end) x[u] = Body::template load<lanes>(args, row, column);
        }
        scan_stages<Body, 0, last ? sweep : sweep + 1, vectors>(walk, x, r, s);
        if constexpr (last) {
#pragma unroll
            for (int u = 0; u < vectors; ++u) {
                const Index place = first + ((walk.warp * vectors + u) * Walk::width + walk.lane) * lanes;
                const Index column = Body::reverse ? columns - lanes - place : place;
                if (there && place < end) Body::store(args, row, column, x[u], r, u);
            }
        }
    }
    if constexpr (!last) {
        const auto keep = [](auto& total, const auto& state) { total = state; };
        if (thread == 0) scan_each<Body, sweep, sweep + 1>(keep, totals[strand], s);
    }
}

// kw: scan_along_kernel
template <typename Body, int sweep, int threads, int rows, int lanes, int vectors, int64_t chunk>
__global__ void __launch_bounds__(threads * rows)
    scan_along_kernel(typename Body::Args args, typename Body::template State<1>* totals) {
    scan_along_block<Body, sweep, threads, rows, lanes, vectors, chunk>(args, totals);
}

// kw: scan_along_starts
// The totals of a row's chunks become what lies before each: a warp for each row.
template <typename Body, int stage, int chunks>
__global__ void __launch_bounds__(32) scan_along_starts(typename Body::template State<1>* totals) {
    ScanAlong<false, 32> walk{nullptr, int(threadIdx.x), 0, 0};
    typename Body::template State<1> carry;
    scan_begin<Body, 0>(carry, decltype(&carry)(nullptr));
    for (int first = 0; first < chunks; first += 32) {
        const int chunk = first + threadIdx.x;
        const bool there = chunk < chunks;
        auto* at = totals + int64_t(blockIdx.x) * chunks + (there ? chunk : 0);
        const auto step = [&walk, there](auto& total, auto& before) {
            auto own = before;
            own.clear();
            if (there) own = total;
            Vec<decltype(own.value(0)), 1> x[1] = {{{own.value(0)}}};
            walk.template scan<true>(x, before);
            own.clear();
            own.add(0, x[0][0]);
            if (there) total = own;
        };
        scan_each<Body, stage, stage + 1>(step, *at, carry);
    }
}

// kw: scan_along_sweep
#ifndef __CUDACC_RTC__
template <typename Body, int sweep, int threads, int rows, int lanes, int vectors, int64_t chunk, typename State>
cudaError_t scan_along_sweep(const typename Body::Args& args, State* totals, cudaStream_t stream) {
    constexpr int64_t chunks = (Body::columns + chunk - 1) / chunk, blocks = (Body::rows * chunks + rows - 1) / rows;
    const auto kernel = scan_along_kernel<Body, sweep, threads, rows, lanes, vectors, chunk>;
    kernel<<<unsigned(blocks), threads * rows, 0, stream>>>(args, totals);
    const cudaError_t error = cudaGetLastError();
    if constexpr (sweep < Body::stages) {
        if (error != cudaSuccess) return error;
        scan_along_starts<Body, sweep, int(chunks)><<<unsigned(Body::rows), 32, 0, stream>>>(totals);
        return scan_along_sweep<Body, sweep + 1, threads, rows, lanes, vectors, chunk>(args, totals, stream);
    }
    return error;
}
#endif

// kw: scan_along
#ifndef __CUDACC_RTC__
template <typename Body, int threads, int rows, int lanes, int vectors, int64_t chunk>
cudaError_t scan_along(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    if (lanes > 1 && !all_aligned(args))
        return scan_along<Body, threads, rows, 1, vectors, chunk>(args, workspace, stream);
    constexpr int first = chunk < Body::columns ? 0 : Body::stages;
    auto* totals = static_cast<typename Body::template State<1>*>(workspace);
    return scan_along_sweep<Body, first, threads, rows, lanes, vectors, chunk>(args, totals, stream);
}
#endif

// kw: scan_across_block
// A thread owns `lanes` neighbouring rows, and loads them at `places` places before it uses the first.
template <typename Body, int sweep, int threads, int lanes, int places, int64_t chunk>
KW_DEVICE void scan_across_block(const typename Body::Args& args, typename Body::template State<lanes>* totals) {
    using Index = typename Body::Index;
    constexpr bool last = sweep == Body::stages, cut = chunk < Body::depth;
    constexpr Index depth = Body::depth, per_row = Body::columns / lanes, total = Body::rows * per_row;
    static_assert(!cut || chunk % places == 0, "a chunk is whole batches of places");
    const Index i = Index(blockIdx.x) * threads + threadIdx.x, row = i / per_row, column = i % per_row * lanes;
    if (i >= total) return;
    const Index begin = cut ? Index(blockIdx.y) * Index(chunk) : 0;
    const Index end = !cut || depth - begin < Index(chunk) ? depth : begin + Index(chunk);
    auto* at = cut ? totals + int64_t(blockIdx.y) * total + i : nullptr;
    typename Body::template State<lanes> s;
    scan_begin<Body, sweep>(s, at);
    ScanAcross walk;
    for (Index first = begin; first < end; first += places) {
        typename Body::template Operands<lanes> x[places];
        typename Body::template Running<lanes, places> r;
#pragma unroll
        for (int u = 0; u < places; ++u) {
            const Index place = first + u, level = Body::reverse ? depth - 1 - place : place;
            if (place < end) x[u] = Body::template load<lanes>(args, row, level, column);
        }
        scan_stages<Body, 0, last ? sweep : sweep + 1, places>(walk, x, r, s);
        if constexpr (last) {
#pragma unroll
            for (int u = 0; u < places; ++u) {
                const Index place = first + u, level = Body::reverse ? depth - 1 - place : place;
                if (place < end) Body::store(args, row, level, column, x[u], r, u);
            }
        }
    }
    if constexpr (!last) scan_each<Body, sweep, sweep + 1>([](auto& total, const auto& own) { total = own; }, *at, s);
}

// kw: scan_across_kernel
template <typename Body, int sweep, int threads, int lanes, int places, int64_t chunk>
__global__ void __launch_bounds__(threads)
    scan_across_kernel(typename Body::Args args, typename Body::template State<lanes>* totals) {
    scan_across_block<Body, sweep, threads, lanes, places, chunk>(args, totals);
}

// kw: scan_across_starts
// The totals of the chunks of `lanes` rows become what lies before each.
template <typename Body, int stage, int threads, int lanes, int chunks>
__global__ void __launch_bounds__(threads) scan_across_starts(typename Body::template State<lanes>* totals) {
    constexpr int64_t total = Body::rows * (Body::columns / lanes);
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= total) return;
    typename Body::template State<lanes> before;
    scan_begin<Body, 0>(before, decltype(&before)(nullptr));
#pragma unroll 4
    for (int chunk = 0; chunk < chunks; ++chunk) {
        const auto step = [](auto& at, auto& sum) {
            const auto own = at;
            at = sum;
#pragma unroll
            for (int i = 0; i < lanes; ++i) sum.add(i, own.value(i));
        };
        scan_each<Body, stage, stage + 1>(step, totals[chunk * total + i], before);
    }
}

// kw: scan_across_sweep
#ifndef __CUDACC_RTC__
template <typename Body, int sweep, int threads, int lanes, int places, int64_t chunk, typename State>
cudaError_t scan_across_sweep(const typename Body::Args& args, State* totals, cudaStream_t stream) {
    constexpr int64_t chunks = (Body::depth + chunk - 1) / chunk, total = Body::rows * (Body::columns / lanes);
    const dim3 blocks(unsigned((total + threads - 1) / threads), unsigned(chunks));
    scan_across_kernel<Body, sweep, threads, lanes, places, chunk><<<blocks, threads, 0, stream>>>(args, totals);
    const cudaError_t error = cudaGetLastError();
    if constexpr (sweep < Body::stages) {
        if (error != cudaSuccess) return error;
        scan_across_starts<Body, sweep, threads, lanes, int(chunks)><<<blocks.x, threads, 0, stream>>>(totals);
        return scan_across_sweep<Body, sweep + 1, threads, lanes, places, chunk>(args, totals, stream);
    }
    return error;
}
#endif

// kw: scan_across
#ifndef __CUDACC_RTC__
template <typename Body, int threads, int lanes, int places, int64_t chunk>
cudaError_t scan_across(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    if (lanes > 1 && !all_aligned(args))
        return scan_across<Body, threads, 1, places, chunk>(args, workspace, stream);
    constexpr int first = chunk < Body::depth ? 0 : Body::stages;
    auto* totals = static_cast<typename Body::template State<lanes>*>(workspace);
    return scan_across_sweep<Body, first, threads, lanes, places, chunk>(args, totals, stream);
}
#endif

}  // namespace kw
