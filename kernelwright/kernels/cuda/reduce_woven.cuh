// Rows that stay on the multiprocessors from one phase to the next, and are woven into each other: the last phase of a
// row and the first of the next are one walk, in which each vector is stored and the one that takes its place is read.
// Memory has something to read and something to write all the time, and blocks stay until the last row is done.
//
// A row has a block, or as many as hold it, which all run at once and meet in global memory. What comes first of the row
// after the next is on its way while they meet.
//
// Config: threads  of a block, all on one row         lanes     of a vector
//         vectors  a thread keeps in shared memory    held      vectors that it has in registers besides
//         ahead    vectors of a thread on their way   blocks    that share a row
//         each     blocks of a multiprocessor         together  rows at a time
//
// Body: as in reduce.cuh, and for the last phase late, what it alone wants of a vector, and store_vector, which is given
// it; where a thread has more vectors than it can keep, also load_again, which leaves what it reads in the L2 cache.
#pragma once

#include "reduce.cuh"

namespace kw {

// kw: WovenSlots
// The vectors of a thread, `threads` apart: the first are in shared memory, then come those in registers. What is left is
// read again.
template <typename Body, typename Config> struct WovenSlots {
    using Place = ReducePlace<Body, Config>;
    using Operands = typename Body::template Operands<Config::lanes>;
    using Late = typename Body::template Late<Config::lanes>;
    static constexpr int kept = Config::vectors, held = Config::held, ahead = Config::ahead;
    static constexpr int all = int((Place::share + Config::threads - 1) / Config::threads);
    static constexpr int left = all > kept + held ? all - kept - held : 0;
    static_assert(Config::team == Config::threads && !Body::across && Place::rest == 0, "whole vectors along a row");
    static_assert(Body::phases == Body::reductions + 1, "what is kept is stored in the end");
    static_assert(kept % ahead == 0 && held % ahead == 0, "what is on its way has places of one kind");
};

// kw: woven_fetch
// Sends for some vectors of a row that ends at `end`, from number `first` on.
template <typename Body, typename Config, typename Ahead>
KW_DEVICE void woven_fetch(const typename Body::Args& args, typename Body::Index row, typename Body::Index first,
                           typename Body::Index end, Ahead& ahead) {
    using Index = typename Body::Index;
    constexpr int count = Config::ahead;
    constexpr Index columns = ReducePlace<Body, Config>::columns;
    const Index at = first + threadIdx.x;
    const bool whole = first + count * Config::threads <= end;
#pragma unroll
    for (int u = 0; u < count; ++u)
        if (whole || at + u * Config::threads < end)
            ahead[u] = Body::template load<Config::lanes>(args, row, (at + u * Config::threads) * columns);
}

// kw: woven_pass
// Some vectors of a thread, from the one at `at` on. Those of the next row are there, or on their way, and take the places
// of those that are stored; `fetch` sends for what the next ones will be replaced by. `place_of` says where each is kept.
template <bool whole, typename Body, typename Config, typename Row, typename PlaceOf, typename Ahead, typename Fetch>
KW_DEVICE void woven_pass(const typename Body::Args& args, const ReducePlace<Body, Config>& now, const Row& r,
                          const ReducePlace<Body, Config>& next, const Row& after, typename Body::Index at,
                          PlaceOf place_of, Ahead& ahead, Fetch fetch,
                          typename Body::template State<0, Config::lanes>& state) {
    using Index = typename Body::Index;
    using Slots = WovenSlots<Body, Config>;
    constexpr int count = Slots::ahead;
    constexpr Index columns = ReducePlace<Body, Config>::columns;
    const Index end = now.end(), next_end = next.end();
    typename Slots::Operands here[count];
    typename Slots::Late late[count];
#pragma unroll
    for (int u = 0; u < count; ++u) here[u] = ahead[u];
    fetch();
#pragma unroll
    for (int u = 0; u < count; ++u)
        if (whole || at + u * Config::threads < end)
            late[u] = Body::template late<Config::lanes>(args, now.row(), (at + u * Config::threads) * columns);
#pragma unroll
    for (int u = 0; u < count; ++u)
        if (whole || at + u * Config::threads < end) {
            const typename Slots::Operands x = place_of(u);
            Body::store_vector(args, now.row(), (at + u * Config::threads) * columns, x, late[u], r);
        }
#pragma unroll
    for (int u = 0; u < count; ++u)
        if (whole || at + u * Config::threads < next_end) {
            place_of(u) = here[u];
            Body::step(args, next.row(), (at + u * Config::threads) * columns, here[u], after, state);
        }
}

// kw: woven_passes
// The same, without a look at each vector where none of the block's is beyond the end of its row.
template <typename Body, typename Config, typename Row, typename PlaceOf, typename Ahead, typename Fetch>
KW_DEVICE void woven_passes(const typename Body::Args& args, const ReducePlace<Body, Config>& now, const Row& r,
                            const ReducePlace<Body, Config>& next, const Row& after, int slot, PlaceOf place_of,
                            Ahead& ahead, Fetch fetch, typename Body::template State<0, Config::lanes>& state) {
    using Index = typename Body::Index;
    const Index first = now.begin() + Index(slot) * Config::threads, stop = first + Config::ahead * Config::threads;
    const Index at = first + now.member;
    if (stop <= now.end() && stop <= next.end())
        woven_pass<true>(args, now, r, next, after, at, place_of, ahead, fetch, state);
    else woven_pass<false>(args, now, r, next, after, at, place_of, ahead, fetch, state);
}

// kw: woven_held
// The vectors that are in registers, a few at a time, from number `first` on.
template <int first, typename Body, typename Config, typename Row, typename Held, typename Ahead>
KW_DEVICE void woven_held(const typename Body::Args& args, const ReducePlace<Body, Config>& now, const Row& r,
                          const ReducePlace<Body, Config>& next, const Row& after, const ReducePlace<Body, Config>& then,
                          Held& held, Ahead& ahead, typename Body::template State<0, Config::lanes>& state) {
    using Slots = WovenSlots<Body, Config>;
    using Index = typename Body::Index;
    if constexpr (first < Slots::held) {
        constexpr int slot = Slots::kept + first, following = first + Slots::ahead;
        const auto fetch = [&] {
            if constexpr (following == Slots::held)
                woven_fetch<Body, Config>(args, then.row(), then.begin(), then.end(), ahead);
            else
                woven_fetch<Body, Config>(args, next.row(), next.begin() + Index(Slots::kept + following) * Config::threads,
                                          next.end(), ahead);
        };
        woven_passes(args, now, r, next, after, slot,
                     [&](int u) -> typename Slots::Operands& { return held[first + u]; }, ahead, fetch, state);
        woven_held<following>(args, now, r, next, after, then, held, ahead, state);
    }
}

// kw: woven_left
// A phase over what is neither in shared memory nor in registers. The first goes forwards and leaves it in the L2 cache,
// the others go backwards, so that they meet what was read last.
template <typename Body, typename Config, int phase, typename Row>
KW_DEVICE void woven_left(const typename Body::Args& args, const ReducePlace<Body, Config>& place, const Row& r,
                          typename Body::template State<phase, Config::lanes>& state) {
    using Slots = WovenSlots<Body, Config>;
    if constexpr (Slots::left > 0) {
        using Index = typename Body::Index;
        constexpr int many = Slots::ahead, times = (Slots::left + many - 1) / many;
        constexpr Index columns = ReducePlace<Body, Config>::columns;
        const Index first = place.begin() + (Slots::kept + Slots::held) * Config::threads + place.member;
        const Index end = place.end();
#pragma unroll 1
        for (int time = 0; time < times; ++time) {
            const Index at = first + Index(phase == 0 ? time : times - 1 - time) * (many * Config::threads);
            typename Slots::Operands x[many];
            typename Slots::Late late[many];
#pragma unroll
            for (int u = 0; u < many; ++u) {
                const Index column = (at + u * Config::threads) * columns;
                if (at + u * Config::threads >= end) continue;
                if constexpr (phase == Body::reductions) {
                    x[u] = Body::template load<Config::lanes>(args, place.row(), column);
                    late[u] = Body::template late<Config::lanes>(args, place.row(), column);
                } else {
                    x[u] = Body::template load_again<Config::lanes>(args, place.row(), column);
                }
            }
#pragma unroll
            for (int u = 0; u < many; ++u) {
                const Index column = (at + u * Config::threads) * columns;
                if (at + u * Config::threads >= end) continue;
                if constexpr (phase == Body::reductions) Body::store_vector(args, place.row(), column, x[u], late[u], r);
                else Body::step(args, place.row(), column, x[u], r, state);
            }
        }
    }
}

// kw: woven_relay
// The last phase of the row `now` and the first of `next`; either may be missing. What is read again of the one comes
// first and of the other last, so that little else passes through the L2 cache in between. In the end, what comes first
// of the row `then` is on its way.
template <typename Body, typename Config, typename Row, typename Held, typename Ahead>
KW_DEVICE void woven_relay(const typename Body::Args& args, const ReducePlace<Body, Config>& now, const Row& r,
                           const ReducePlace<Body, Config>& next, const Row& after, const ReducePlace<Body, Config>& then,
                           Held& held, Ahead& ahead, typename Body::template State<0, Config::lanes>& state) {
    using Slots = WovenSlots<Body, Config>;
    using Operands = typename Slots::Operands;
    using Index = typename Body::Index;
    extern __shared__ __align__(16) unsigned char kept_bytes[];
    Operands* const kept = reinterpret_cast<Operands*>(kept_bytes) + threadIdx.x;
    typename Body::template State<Body::reductions, Config::lanes> nothing;
    woven_left<Body, Config, Body::reductions>(args, now, r, nothing);
#pragma unroll 1
    for (int slot = 0; slot < Slots::kept; slot += Slots::ahead) {
        const int following = slot + Slots::ahead;
        const bool wraps = Slots::held == 0 && following == Slots::kept;
        const Index row = wraps ? then.row() : next.row(), end = wraps ? then.end() : next.end();
        const Index first = next.begin() + (wraps ? Index(0) : Index(following) * Config::threads);
        woven_passes(args, now, r, next, after, slot,
                     [&](int u) -> Operands& { return kept[(slot + u) * Config::threads]; }, ahead,
                     [&] { woven_fetch<Body, Config>(args, row, first, end, ahead); }, state);
    }
    woven_held<0>(args, now, r, next, after, then, held, ahead, state);
    woven_left<Body, Config, 0>(args, next, after, state);
}

// kw: woven_walk
// A phase between the first and the last.
template <typename Body, typename Config, int phase, typename Row, typename Held>
KW_DEVICE void woven_walk(const typename Body::Args& args, const ReducePlace<Body, Config>& place, const Row& r,
                          const Held& held, typename Body::template State<phase, Config::lanes>& state) {
    using Slots = WovenSlots<Body, Config>;
    using Index = typename Body::Index;
    constexpr Index columns = ReducePlace<Body, Config>::columns;
    extern __shared__ __align__(16) unsigned char kept_bytes[];
    const auto* const kept = reinterpret_cast<const typename Slots::Operands*>(kept_bytes) + threadIdx.x;
    const Index at = place.begin() + place.member, end = place.end();
    woven_left<Body, Config, phase>(args, place, r, state);
#pragma unroll 4
    for (int slot = 0; slot < Slots::kept; ++slot)
        if (at + slot * Config::threads < end)
            Body::step(args, place.row(), (at + slot * Config::threads) * columns, kept[slot * Config::threads], r, state);
#pragma unroll
    for (int u = 0; u < Slots::held; ++u)
        if (at + (Slots::kept + u) * Config::threads < end)
            Body::step(args, place.row(), (at + (Slots::kept + u) * Config::threads) * columns, held[u], r, state);
}

// kw: WovenParts
// What blocks that run at once leave for each other in a workspace: how many of a row's have arrived, a line of the
// cache each; then their states, phase after phase, each in two places that are used in turn.
template <typename Body, typename Config> struct WovenParts {
    static constexpr int64_t line = 128;
    template <int phase> __host__ __device__ static constexpr int64_t start() {
        if constexpr (phase == 0) return Config::together * line;
        else {
            using Before = typename Body::template State<phase - 1, 1>;
            return start<phase - 1>() + (2 * Config::together * Config::blocks * int64_t(sizeof(Before)) + 15) / 16 * 16;
        }
    }
    KW_DEVICE static uint32_t* arrived(void* workspace, int team) {
        return reinterpret_cast<uint32_t*>(static_cast<char*>(workspace) + team * line);
    }
    template <int phase> KW_DEVICE static auto* states(void* workspace, int team, int turn) {
        constexpr int64_t offset = start<phase>();
        auto* const all = reinterpret_cast<typename Body::template State<phase, 1>*>(static_cast<char*>(workspace) + offset);
        return all + (team * 2 + turn % 2) * Config::blocks;
    }
};

// kw: arrive_in_grid
// One more is there; who sees that sees what this thread wrote before.
KW_DEVICE void arrive_in_grid(uint32_t* arrived) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
}

// kw: seen_in_grid
KW_DEVICE uint32_t seen_in_grid(const uint32_t* arrived) {
    uint32_t count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(arrived) : "memory");
    return count;
}

// kw: merged_in_grid
// What the blocks of a row know together, merged in the order of the blocks. Who is here for the `turn`th time has read
// everything of the time before, so that two places for the states are enough.
template <typename Body, typename Config, int phase, typename State>
KW_DEVICE State merged_in_grid(const State& state, void* workspace, int team, int part, int turn) {
    using Parts = WovenParts<Body, Config>;
    auto* const parts = Parts::template states<phase>(workspace, team, turn);
    if (threadIdx.x == 0) {
        uint32_t* const arrived = Parts::arrived(workspace, team);
        parts[part] = state;
        arrive_in_grid(arrived);
        while (seen_in_grid(arrived) < uint32_t(turn + 1) * Config::blocks) {}
    }
    __syncthreads();
    State others;
    others.clear();
    for (int i = threadIdx.x; i < Config::blocks; i += Config::threads) others.merge(parts[i]);
    return merged_in_block<Config::threads, phase + Body::phases>(others);
}

// kw: met_woven
// What all blocks of a row know together.
template <typename Body, typename Config, int phase, typename State>
KW_DEVICE State met_woven(State state, void* workspace, int part, int turn) {
    state = merged_in_block<Config::threads, phase>(state);
    if constexpr (Config::blocks > 1)
        return merged_in_grid<Body, Config, phase>(state, workspace, int(blockIdx.x) / Config::blocks, part, turn);
    __syncthreads();  // where nothing else makes them wait, the next row's states would come over this one's
    return state;
}

// kw: finish_woven
// The values of a row, from phase to phase.
template <typename Body, typename Config, int phase, typename Row, typename Held>
KW_DEVICE void finish_woven(const typename Body::Args& args, void* workspace, const ReducePlace<Body, Config>& place,
                            Row& r, const Held& held, const typename Body::template State<phase, Config::lanes>& lanes,
                            int& turn) {
    Body::finish(met_woven<Body, Config, phase>(lanes.folded(), workspace, place.part, turn++), r);
    if constexpr (phase + 1 < Body::reductions) {
        typename Body::template State<phase + 1, Config::lanes> next;
        next.clear();
        woven_walk<Body, Config, phase + 1>(args, place, r, held, next);
        finish_woven<Body, Config, phase + 1>(args, workspace, place, r, held, next, turn);
    }
}

// kw: reduce_woven_kernel
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::threads, Config::each)
reduce_woven_kernel(typename Body::Args args, void* workspace) {
    using Place = ReducePlace<Body, Config>;
    using Operands = typename Body::template Operands<Config::lanes>;
    Operands held[Config::held > 0 ? Config::held : 1], ahead[Config::ahead];
    const auto follower = [](const Place& place) {
        Place other = place;
        other.unit += gridDim.x / Config::blocks;
        other.active = other.unit < Place::units;
        return other;
    };
    Place now, next, then = follower(next);
    now.active = false;  // before the first row nothing is stored
    auto r = Body::template begin<1>(args, now.row());
    woven_fetch<Body, Config>(args, next.row(), next.begin(), next.end(), ahead);
    for (int turn = 0;;) {
        const auto after = Body::template begin<1>(args, next.row());
        typename Body::template State<0, Config::lanes> state;
        state.clear();
        woven_relay<Body, Config>(args, now, r, next, after, then, held, ahead, state);
        if (now.speaks() && now.part == 0) Body::store_row(args, now.row(), r);
        if (!next.active) break;
        now = next;
        r = after;
        next = then;
        then = follower(next);
        finish_woven<Body, Config, 0>(args, workspace, now, r, held, state, turn);
    }
}

// kw: WovenAlone
// For a GPU that cannot run all blocks at once, or operands that are not aligned: a block a row, which is read again.
template <typename Config> struct WovenAlone : Config {
    static constexpr int blocks = 1, vectors = 2;
    static constexpr Keep keep = Keep::again;
};

// kw: kept_in_shared
// What the vectors that a config's threads keep take of shared memory.
template <typename Body, typename Config> constexpr int kept_in_shared() {
    return Config::threads * Config::vectors * int(sizeof(typename Body::template Operands<Config::lanes>));
}

// kw: launch_at_once
// `together` rows at a time; blocks that share one run at once, or wait for each other for ever. The first `zeroed` bytes
// of the workspace are zero before they begin.
#ifndef __CUDACC_RTC__
template <typename Body, typename Config, typename Kernel>
cudaError_t launch_at_once(Kernel kernel, int threads, int shared_bytes, int64_t zeroed, const typename Body::Args& args,
                           void* workspace, cudaStream_t stream) {
    constexpr int blocks = Config::blocks * Config::together;
    int device = 0, multiprocessors = 0, each = 0;
    if (const cudaError_t error = cudaGetDevice(&device)) return error;
    if (const cudaError_t error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device))
        return error;
    const cudaError_t room = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (room == cudaErrorInvalidValue) cudaGetLastError();  // a GPU with less shared memory
    else if (room != cudaSuccess) return room;
    else if (const cudaError_t error =
                 cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, shared_bytes))
        return error;
    if (multiprocessors * each < blocks || !all_aligned(args)) return reduce<Body, WovenAlone<Config>>(args, stream);
    if (zeroed > 0)
        if (const cudaError_t error = cudaMemsetAsync(workspace, 0, zeroed, stream)) return error;
    cudaLaunchAttribute at_once;
    at_once.id = cudaLaunchAttributeCooperative;
    at_once.val.cooperative = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3(blocks);
    launch.blockDim = dim3(threads);
    launch.dynamicSmemBytes = shared_bytes;
    launch.stream = stream;
    launch.attrs = &at_once;
    launch.numAttrs = Config::blocks > 1;  // who has a row alone waits for nobody
    return cudaLaunchKernelEx(&launch, kernel, args, workspace);
}
#endif

// kw: reduce_woven
#ifndef __CUDACC_RTC__
template <typename Body, typename Config>
cudaError_t reduce_woven(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    static_assert(kept_in_shared<Body, Config>() == Config::shared_bytes, "what the config was chosen for");
    int64_t counters = 0;
    if constexpr (Config::blocks > 1) {
        using Parts = WovenParts<Body, Config>;
        counters = Parts::template start<0>();
        static_assert(Parts::template start<Body::reductions>() <= Config::workspace_bytes);
    }
    return launch_at_once<Body, Config>(reduce_woven_kernel<Body, Config>, Config::threads, kept_in_shared<Body, Config>(),
                                        counters, args, workspace, stream);
}
#endif

}  // namespace kw
