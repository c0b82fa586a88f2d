// Few long rows that are more than the multiprocessors hold, with weights as long as a row: all blocks run at once, and each
// has the same stretch of every row. It reads its stretch of one row after the other, tells what it has found, and when all
// have told everything stores its stretch of all rows, for which it reads each weight once. What it read last it still has
// in shared memory; some rows before are in the L2 cache.
//
// Config: threads  of a block                    lanes   of a vector
//         vectors  a thread has in shared memory from the first walk to the second
//         blocks   one for each stretch          stays   rows that are read so that they stay in the L2 cache
//
// Body: as in reduce_spread.cuh; what only the last phase wants is the same for all rows.
#pragma once

#include "reduce_ring.cuh"

namespace kw {

// kw: Stretch
// What a block has of each row. A thread visits its vectors of a row, then of the next; the last visits are kept.
template <typename Body, typename Config> struct Stretch {
    using Index = typename Body::Index;
    using Operands = typename Body::template Operands<Config::lanes>;
    static constexpr int rows = int(Body::rows), lanes = Config::lanes, threads = Config::threads, warps = threads / 32;
    static constexpr Index all = Body::columns / lanes;
    // Stretches begin with a line of the caches.
    static constexpr Index line = 8, share = ((all + Config::blocks - 1) / Config::blocks + line - 1) / line * line;
    static constexpr int slots = int((share + threads - 1) / threads), kept = Config::vectors;
    static constexpr int first_kept = rows * slots > kept ? rows * slots - kept : 0;
    static_assert(!Body::across && Body::columns % lanes == 0 && Config::team == threads, "whole vectors along a row");
    static_assert(Body::reductions == 1 && Body::phases == 2, "one reduction, then all is stored");
    KW_DEVICE static Index begin() { return share * blockIdx.x; }
    KW_DEVICE static Index end() { return begin() + share < all ? begin() + share : all; }
    // The place of a visit that is kept.
    KW_DEVICE static Operands& place(int visit) {
        extern __shared__ __align__(16) unsigned char kept_bytes[];
        return reinterpret_cast<Operands*>(kept_bytes)[(visit - first_kept) * threads + threadIdx.x];
    }
};

// kw: stretch_reduce
// What the warps of a block find of each row.
template <typename Body, typename Config, typename Found>
KW_DEVICE void stretch_reduce(const typename Body::Args& args, Found& found) {
    using S = Stretch<Body, Config>;
    using Index = typename Body::Index;
    constexpr int step = S::slots < 4 ? S::slots : 4;
    const Index at = S::begin() + threadIdx.x, end = S::end();
#pragma unroll 1
    for (int row = 0; row < S::rows; ++row) {
        const auto r = Body::template begin<1>(args, row);
        typename Body::template State<0, S::lanes> state;
        state.clear();
        const bool stays = row >= S::rows - Config::stays;
#pragma unroll 1
        for (int slot = 0; slot < S::slots; slot += step) {
            typename S::Operands x[step];
#pragma unroll
            for (int u = 0; u < step; ++u) {
                const Index column = at + (slot + u) * S::threads;
                if (column >= end) continue;
                x[u] = stays ? Body::template load<S::lanes>(args, row, column * S::lanes)
                             : Body::template load_last<S::lanes>(args, row, column * S::lanes);
            }
#pragma unroll
            for (int u = 0; u < step; ++u) {
                const Index column = at + (slot + u) * S::threads;
                if (column >= end) continue;
                const int visit = row * S::slots + slot + u;
                if (visit >= S::first_kept) S::place(visit) = x[u];
                Body::step(args, row, column * S::lanes, x[u], r, state);
            }
        }
        const auto all = merged_in_warp<32>(state.folded());
        if (threadIdx.x % 32 == 0) found[row][threadIdx.x / 32] = all;
    }
}

// kw: stretch_meet
// The values of each row, merged in the order of warps and of blocks: a warp takes a row.
template <typename Body, typename Config, typename Found, typename Rows>
KW_DEVICE void stretch_meet(const typename Body::Args& args, void* workspace, Found& found, Rows& rows) {
    using S = Stretch<Body, Config>;
    using State = typename Body::template State<0, 1>;
    constexpr int words = int((sizeof(State) + 3) / 4), all = S::rows * Config::blocks * words;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto* const parts = static_cast<uint64_t*>(workspace);
    __syncthreads();
    for (int row = warp; row < S::rows; row += S::warps) {
        State state;
        state.clear();
        for (int i = lane; i < S::warps; i += 32) state.merge(found[row][i]);
        state = merged_in_warp<32>(state);
        uint32_t mine[words] = {};
        __builtin_memcpy(mine, &state, sizeof state);
#pragma unroll
        for (int i = 0; i < words; ++i)
            if (lane == i) tell_grid(parts + (row * Config::blocks + int(blockIdx.x)) * words + i, mine[i], 1);
    }
    for (int row = warp; row < S::rows; row += S::warps) {
        State state;
        state.clear();
        for (int part = lane; part < Config::blocks; part += 32) {
            uint32_t theirs[words];
#pragma unroll
            for (int i = 0; i < words; ++i) {
                const uint64_t* const place = parts + (row * Config::blocks + part) * words + i;
                uint64_t word = told_by_grid(place);
                while (uint32_t(word >> 32) != 1) word = told_by_grid(place);
                theirs[i] = uint32_t(word);
            }
            State other;
            __builtin_memcpy(&other, theirs, sizeof other);
            state.merge(other);
        }
        auto r = Body::template begin<1>(args, row);
        Body::finish(merged_in_warp<32>(state), r);
        if (lane == 0) rows[row] = r;
        if (lane == 0 && blockIdx.x == 0) Body::store_row(args, row, r);
    }
    static_assert(all > 0);
    __syncthreads();
}

// kw: stretch_store
// All rows, the last first, while the L2 cache has them.
template <typename Body, typename Config, typename Rows>
KW_DEVICE void stretch_store(const typename Body::Args& args, const Rows& rows) {
    using S = Stretch<Body, Config>;
    using Index = typename Body::Index;
    constexpr int step = 4;
    const Index at = S::begin() + threadIdx.x, end = S::end();
#pragma unroll 1
    for (int slot = 0; slot < S::slots; ++slot) {
        const Index column = at + slot * S::threads;
        if (column >= end) break;
        const auto late = Body::template late<S::lanes>(args, 0, column * S::lanes);
#pragma unroll 1
        for (int last = S::rows - 1; last >= 0; last -= step) {
            typename S::Operands x[step];
#pragma unroll
            for (int u = 0; u < step; ++u) {
                const int row = last - u, visit = row * S::slots + slot;
                if (row < 0) continue;
                if (visit >= S::first_kept) x[u] = S::place(visit);
                else x[u] = Body::template load_last<S::lanes>(args, row, column * S::lanes);
            }
#pragma unroll
            for (int u = 0; u < step; ++u)
                if (last - u >= 0)
                    Body::store_vector(args, last - u, column * S::lanes, x[u], late, rows[last - u]);
        }
    }
}

// kw: reduce_stretch_kernel
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::threads, 1)
reduce_stretch_kernel(typename Body::Args args, void* workspace) {
    using S = Stretch<Body, Config>;
    __shared__ typename Body::template State<0, 1> found[S::rows][S::warps];
    __shared__ typename Body::template Row<1> rows[S::rows];
    stretch_reduce<Body, Config>(args, found);
    stretch_meet<Body, Config>(args, workspace, found, rows);
    stretch_store<Body, Config>(args, rows);
}

// kw: reduce_stretch
#ifndef __CUDACC_RTC__
template <typename Body, typename Config>
cudaError_t reduce_stretch(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    constexpr int64_t words = (sizeof(typename Body::template State<0, 1>) + 3) / 4;
    constexpr int64_t told = Body::rows * Config::blocks * words * 8;
    static_assert(told <= Config::workspace_bytes);
    return launch_at_once<Body, Config>(reduce_stretch_kernel<Body, Config>, told, args, workspace, stream);
}
#endif

}  // namespace kw
