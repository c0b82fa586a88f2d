// Reductions over the columns of rows, in phases: each walks over the rows, merges what its threads found in a fixed
// tree, and finishes values of the row that the next phase uses. All phases run in one launch.
//
// Along: lanes of a vector are neighbours in one row, and are folded at the end. Across: each lane is a row.
// A team of threads has one row (across: `lanes` rows); a row may be shared by the blocks of a cluster, or by blocks that
// meet between launches (reduce_split).
//
// Config: threads   of a block                       team     threads of a block that share a row
//         lanes     of a vector                      vectors  a thread has in flight, or keeps
//         blocks    that share a row                 keep     where a row is between phases: read again, or held
//         beside    vectors of rows that a thread takes, of reduce_beside
#pragma once

#include "../device/monoids.cuh"
#include "launch.cuh"
#include "pointwise.cuh"

namespace kw {

// kw: Keep
// Where the operands of a thread are between phases: in memory, in its registers, or in its part of shared memory.
enum class Keep { again, registers, shared };

// kw: ReducePlace
// What a thread works on: which of the teams of its block it belongs to, as which member, on which row.
template <typename Body, typename Config> struct ReducePlace {
    using Index = typename Body::Index;
    static constexpr int rows = Body::across ? Config::lanes : 1, columns = Body::across ? 1 : Config::lanes;
    static constexpr int teams = Config::threads / Config::team;
    static constexpr int64_t units = Body::rows / rows;  // what teams take
    static constexpr Index vectors = Body::columns / columns;
    static constexpr Index share = (vectors + Config::blocks - 1) / Config::blocks;
    static constexpr int rest = int(Body::columns % columns);  // columns that fill no vector
    static constexpr bool even = share * Config::blocks == vectors;
    // Whether every thread of every block takes exactly `each` vectors: then nobody needs to look where the row ends.
    template <int each> static constexpr bool full = even && units % teams == 0 && share % (Config::team * each) == 0;
    static_assert(Config::threads % Config::team == 0 && (Config::team & (Config::team - 1)) == 0, "teams of 2^n");
    static_assert(Body::across || Config::team <= 32 || teams == 1, "a team is in a warp, or it is a block");

    int team, member, part;
    Index unit;
    bool active;

    KW_DEVICE ReducePlace() {
        team = Body::across ? threadIdx.x % teams : threadIdx.x / Config::team;
        member = Config::team == 1 ? 0 : Body::across ? threadIdx.x / teams : threadIdx.x % Config::team;
        part = blockIdx.x % Config::blocks;
        unit = Index(blockIdx.x / Config::blocks) * teams + team;
        active = unit < units;
    }
    KW_DEVICE Index row() const { return active ? unit * rows : 0; }
    KW_DEVICE Index begin() const { return share * part; }
    KW_DEVICE Index end() const {
        const Index all = even || share * (part + 1) < vectors ? share * (part + 1) : vectors;
        return active ? all : begin();
    }
    KW_DEVICE bool speaks() const { return active && member == 0; }
};

// kw: few_elements
// Loops over no more are unrolled.
constexpr int few_elements = 128;

// kw: reduce_few
// A phase of one thread that has so few vectors that each is known when this is compiled, and with it where it lies: the
// places of a small window.
template <typename Body, typename Config, int phase, typename Row>
KW_DEVICE void reduce_few(const typename Body::Args& args, typename Body::Index row, const Row& r,
                          typename Body::template State<phase, Config::lanes>& state) {
    using Place = ReducePlace<Body, Config>;
    constexpr int count = int(Place::share), together = Config::vectors;
#pragma unroll
    for (int first = 0; first < count; first += together) {
        typename Body::template Operands<Config::lanes> x[together];
#pragma unroll
        for (int u = 0; u < together; ++u)
            if (first + u < count)
                x[u] = Body::template load<Config::lanes>(args, row, (first + u) * Place::columns);
#pragma unroll
        for (int u = 0; u < together; ++u)
            if (first + u < count) Body::step(args, row, (first + u) * Place::columns, x[u], r, state);
    }
}

// kw: reduce_again
// A phase of one thread that reads its columns: `vectors` loads in flight at a time. Every second phase goes backwards,
// so that it meets in the cache what was read last. Few hundred elements are added in sequence, then merged.
template <typename Body, typename Config, int phase, typename Row>
KW_DEVICE void reduce_again(const typename Body::Args& args, const ReducePlace<Body, Config>& place, const Row& r,
                            typename Body::template State<phase, Config::lanes>& state) {
    using Place = ReducePlace<Body, Config>;
    using Index = typename Body::Index;
    constexpr int lanes = Config::lanes, vectors = Config::vectors, step = Config::team * vectors;
    constexpr int chunk = 256 / vectors;
    constexpr bool full = Place::template full<vectors>;
    const Index row = place.row(), begin = place.begin(), end = place.end();
    const Index times = (end - begin + step - 1) / step;
    const auto take = [&](Index time, auto& s) {
        const Index at = begin + place.member + (phase % 2 ? times - 1 - time : time) * step;
        typename Body::template Operands<lanes> x[vectors];
#pragma unroll
        for (int u = 0; u < vectors; ++u)
            if (full || at + u * Config::team < end)
                x[u] = Body::template load<lanes>(args, row, (at + u * Config::team) * Place::columns);
#pragma unroll
        for (int u = 0; u < vectors; ++u)
            if (full || at + u * Config::team < end)
                Body::step(args, row, (at + u * Config::team) * Place::columns, x[u], r, s);
    };
    if constexpr (Config::team == 1 && Config::blocks == 1 && Place::share * lanes <= few_elements) {
        if (place.active) reduce_few<Body, Config, phase>(args, row, r, state);
    } else if constexpr (Place::share <= Index(step) * chunk) {
        for (Index time = 0; time < times; ++time) take(time, state);
    } else {
        for (Index time = 0; time < times;) {
            typename Body::template State<phase, lanes> few;
            few.clear();
            for (const Index stop = time + chunk < times ? time + chunk : times; time < stop; ++time) take(time, few);
            state.merge(few);
        }
    }
}

// kw: reduce_held
// A phase of one thread that has its columns in registers.
template <typename Body, typename Config, int phase, typename Row, typename Held>
KW_DEVICE void reduce_held(const typename Body::Args& args, const ReducePlace<Body, Config>& place, const Row& r,
                           Held& held, typename Body::template State<phase, Config::lanes>& state) {
    using Place = ReducePlace<Body, Config>;
    using Index = typename Body::Index;
    static_assert(Place::share <= Index(Config::team) * Config::vectors, "the row does not fit");
    constexpr bool full = Place::template full<Config::vectors>;
    const Index row = place.row(), at = place.begin() + place.member, end = place.end();
    if constexpr (phase == 0) {
#pragma unroll
        for (int v = 0; v < Config::vectors; ++v)
            if (full || at + v * Config::team < end)
                held[v] = Body::template load<Config::lanes>(args, row, (at + v * Config::team) * Place::columns);
    }
#pragma unroll
    for (int v = 0; v < Config::vectors; ++v)
        if (full || at + v * Config::team < end)
            Body::step(args, row, (at + v * Config::team) * Place::columns, held[v], r, state);
}

// kw: vectors_in
// How many vectors a thread has on their way where so many bytes may be, so that what it computes with has registers too.
template <typename Operands> __host__ __device__ constexpr int vectors_in(int bytes) {
    const int vectors = bytes / int(sizeof(Operands));
    return vectors > 16 ? 16 : vectors > 1 ? vectors : 1;
}

// kw: Whole
// Whether no vector of a step is beyond the end of the row: known when it is compiled, so that nobody looks.
template <bool known> struct Whole {
    static constexpr bool value = known;
};

// kw: reduce_kept
// A phase of one thread that has its columns in shared memory, where nobody else looks at them. Steps that end before the
// row does, for all threads, are taken without a look at each vector.
template <typename Body, typename Config, int phase, typename Row>
KW_DEVICE void reduce_kept(const typename Body::Args& args, const ReducePlace<Body, Config>& place, const Row& r,
                           typename Body::template State<phase, Config::lanes>& state) {
    using Place = ReducePlace<Body, Config>;
    using Index = typename Body::Index;
    using Operands = typename Body::template Operands<Config::lanes>;
    static_assert(Place::share <= Index(Config::team) * Config::vectors, "the row does not fit");
    extern __shared__ __align__(16) unsigned char kept_bytes[];
    Operands* const kept = reinterpret_cast<Operands*>(kept_bytes) + threadIdx.x;
    // Blocks of 1024 threads have 64 registers a thread.
    constexpr int most = vectors_in<Operands>(Config::threads <= 512 ? 128 : 64);
    constexpr int together = Config::vectors < most ? Config::vectors : most;
    const Index row = place.row(), begin = place.begin(), at = begin + place.member, end = place.end();
    const auto take = [&](int v, auto whole) {
        Operands x[together];
#pragma unroll
        for (int u = 0; u < together; ++u) {
            if (!whole.value && at + (v + u) * Config::team >= end) continue;
            if constexpr (phase == 0)
                x[u] = Body::template load<Config::lanes>(args, row, (at + (v + u) * Config::team) * Place::columns);
            else
                x[u] = kept[(v + u) * Config::threads];
        }
#pragma unroll
        for (int u = 0; u < together; ++u) {
            if (!whole.value && at + (v + u) * Config::team >= end) continue;
            if constexpr (phase == 0) kept[(v + u) * Config::threads] = x[u];
            Body::step(args, row, (at + (v + u) * Config::team) * Place::columns, x[u], r, state);
        }
    };
    int v = 0;
#pragma unroll 1
    for (; begin + (v + together) * Config::team <= end; v += together) take(v, Whole<true>());
    constexpr bool full = Place::template full<Config::vectors> && Config::vectors % together == 0;
    if constexpr (!full) take(v, Whole<false>());
}

// kw: reduce_rest
// The last columns of a row that fill no vector, one a thread.
template <typename Body, typename Config, int phase, typename Row>
KW_DEVICE auto reduce_rest(const typename Body::Args& args, const ReducePlace<Body, Config>& place, const Row& r) {
    using Place = ReducePlace<Body, Config>;
    typename Body::template State<phase, 1> state;
    state.clear();
    for (int i = place.member; i < Place::rest; i += Config::team) {
        const typename Body::Index column = Place::vectors * Place::columns + i;
        if (place.active && place.part == Config::blocks - 1)
            Body::step(args, place.row(), column, Body::template load<1>(args, place.row(), column), r, state);
    }
    return state;
}

// kw: moved_down
// The state of the thread `apart` further up in a group of `width` threads.
template <typename State> KW_DEVICE State moved_down(const State& state, int apart, int width) {
    uint32_t words[(sizeof state + 3) / 4] = {};
    State other;
    __builtin_memcpy(words, &state, sizeof state);
#pragma unroll
    for (int i = 0; i < int((sizeof state + 3) / 4); ++i) words[i] = __shfl_down_sync(0xffffffffu, words[i], apart, width);
    __builtin_memcpy(&other, words, sizeof state);
    return other;
}

// kw: of_first
// The state of the first thread in a group of `width` threads.
template <typename State> KW_DEVICE State of_first(const State& state, int width) {
    uint32_t words[(sizeof state + 3) / 4] = {};
    State first;
    __builtin_memcpy(words, &state, sizeof state);
#pragma unroll
    for (int i = 0; i < int((sizeof state + 3) / 4); ++i) words[i] = __shfl_sync(0xffffffffu, words[i], 0, width);
    __builtin_memcpy(&first, words, sizeof state);
    return first;
}

// kw: merged_in_warp
// What a group of `width` neighbouring threads knows together, known to all of them to the same bit.
template <int width, typename State> KW_DEVICE State merged_in_warp(State state) {
#pragma unroll
    for (int apart = width / 2; apart > 0; apart /= 2) state.merge(moved_down(state, apart, width));
    return of_first(state, width);
}

// kw: merged_in_block
// The same for all threads of a block.
template <int threads, int phase, typename State> KW_DEVICE State merged_in_block(State state) {
    __shared__ State found[threads / 32];
    state = merged_in_warp<32>(state);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = state;
    __syncthreads();
    constexpr int width = threads / 32;  // a power of two
    return merged_in_warp<width>(found[threadIdx.x % width]);
}

// kw: merged_across
// The same for teams whose members are `teams` threads apart.
template <int threads, int teams, int phase, typename State> KW_DEVICE State merged_across(State state) {
    __shared__ State found[threads];
    found[threadIdx.x] = state;
#pragma unroll 1
    for (int apart = threads / 2; apart >= teams; apart /= 2) {
        __syncthreads();
        if (threadIdx.x < apart) {
            state.merge(found[threadIdx.x + apart]);
            found[threadIdx.x] = state;
        }
    }
    __syncthreads();
    return found[threadIdx.x % teams];
}

// kw: merged_in_team
template <typename Body, typename Config, int phase, typename State> KW_DEVICE State merged_in_team(const State& state) {
    if constexpr (Config::team == 1) return state;
    else if constexpr (Body::across) return merged_across<Config::threads, Config::threads / Config::team, phase>(state);
    else if constexpr (Config::team <= 32) return merged_in_warp<Config::team>(state);
    else return merged_in_block<Config::threads, phase>(state);
}

// kw: cluster_barrier
// All threads of the cluster are here, and see what the others wrote before.
KW_DEVICE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// kw: shared_word_of
// A word of shared memory of another block of the cluster, at the place where this block has `word`.
KW_DEVICE uint32_t shared_word_of(const uint32_t* word, int block) {
    uint32_t value;
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.u32 %0, [there];\n}"
        : "=r"(value) : "r"(uint32_t(__cvta_generic_to_shared(word))), "r"(block) : "memory");
    return value;
}

// kw: merged_in_cluster
// What the blocks of a cluster know together, merged in the order of the blocks.
template <int blocks, int phase, typename State> KW_DEVICE State merged_in_cluster(const State& state) {
    constexpr int words = (sizeof state + 3) / 4;
    __shared__ uint32_t own[words];
    if (threadIdx.x == 0) __builtin_memcpy(own, &state, sizeof state);
    cluster_barrier();
    uint32_t theirs[words];
#pragma unroll
    for (int i = 0; i < words; ++i) theirs[i] = shared_word_of(own + i, threadIdx.x % blocks);
    State other;
    __builtin_memcpy(&other, theirs, sizeof other);
    return merged_in_warp<blocks>(other);
}

// kw: reduce_phases
template <typename Body, typename Config, int phase, typename Row, typename Held>
KW_DEVICE void reduce_phases(const typename Body::Args& args, const ReducePlace<Body, Config>& place, Row& r, Held& held) {
    typename Body::template State<phase, Config::lanes> lanes;
    lanes.clear();
    if constexpr (Config::keep == Keep::registers) reduce_held<Body, Config, phase>(args, place, r, held, lanes);
    else if constexpr (Config::keep == Keep::shared) reduce_kept<Body, Config, phase>(args, place, r, lanes);
    else reduce_again<Body, Config, phase>(args, place, r, lanes);
    typename Body::template State<phase, ReducePlace<Body, Config>::rows> state;
    if constexpr (Body::across) {
        state = lanes;
    } else {
        state = lanes.folded();
        if constexpr (ReducePlace<Body, Config>::rest > 0)
            state.merge(reduce_rest<Body, Config, phase>(args, place, r));
    }
    if constexpr (phase < Body::reductions) {
        state = merged_in_team<Body, Config, phase>(state);
        if constexpr (Config::blocks > 1) state = merged_in_cluster<Config::blocks, phase>(state);
        Body::finish(state, r);
    }
    if constexpr (phase + 1 < Body::phases) reduce_phases<Body, Config, phase + 1>(args, place, r, held);
}

// kw: reduce_kernel
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::threads) reduce_kernel(typename Body::Args args) {
    using Place = ReducePlace<Body, Config>;
    const Place place;
    auto r = Body::template begin<Place::rows>(args, place.row());
    typename Body::template Operands<Config::lanes> held[Config::keep == Keep::registers ? Config::vectors : 1];
    reduce_phases<Body, Config, 0>(args, place, r, held);
    if (place.speaks() && place.part == 0) Body::store_row(args, place.row(), r);
    if constexpr (Config::blocks > 1) cluster_barrier();  // others may still read this block's shared memory
}

// kw: Unaligned
// For operands that do not start where a vector may: element by element.
template <typename Config> struct Unaligned : Config {
    static constexpr int lanes = 1, vectors = 4;
    static constexpr Keep keep = Keep::again;
};

// kw: reduce
#ifndef __CUDACC_RTC__
template <typename Body, typename Config> cudaError_t reduce(const typename Body::Args& args, cudaStream_t stream) {
    using Place = ReducePlace<Body, Config>;
    if constexpr (Config::lanes > 1)
        if (!all_aligned(args)) return reduce<Body, Unaligned<Config>>(args, stream);
    constexpr int64_t blocks = (Place::units + Place::teams - 1) / Place::teams * Config::blocks;
    constexpr int held = Config::threads * Config::vectors * int(sizeof(typename Body::template Operands<Config::lanes>));
    constexpr int shared_bytes = Config::keep == Keep::shared ? held : 0;
    if constexpr (Config::keep == Keep::shared)
        static_assert(shared_bytes == Config::shared_bytes, "the config was chosen for so much shared memory");
    if constexpr (shared_bytes > 0)
        if (const cudaError_t error = cudaFuncSetAttribute(reduce_kernel<Body, Config>,
                                                           cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes))
            return error;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {Config::blocks, 1, 1};
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3(unsigned(blocks));
    launch.blockDim = dim3(Config::threads);
    launch.dynamicSmemBytes = shared_bytes;
    launch.stream = stream;
    launch.attrs = &cluster;
    launch.numAttrs = Config::blocks > 1 ? 1 : 0;
    return cudaLaunchKernelEx(&launch, reduce_kernel<Body, Config>, args);
}
#endif

// kw: reduce_beside_kernel
// Rows of few columns, several vectors of rows to a thread: what all of them need is on its way at the same time.
template <typename Body, typename Config>
__global__ void __launch_bounds__(Config::threads) reduce_beside_kernel(typename Body::Args args) {
    using Place = ReducePlace<Body, Config>;
    using Index = typename Body::Index;
    static_assert(Body::across && Body::phases == 1 && Body::reductions == 1, "every lane is a row, walked over once");
    static_assert(Config::team == 1 && Config::blocks == 1, "a row has one thread");
    constexpr int lanes = Config::lanes, beside = Config::beside, together = Config::vectors;
    constexpr int count = int(Place::share);
    const Index first = Index(blockIdx.x) * (Config::threads * beside) + threadIdx.x;
    Index row[beside];
    typename Body::template Row<lanes> r[beside];
    typename Body::template State<0, lanes> state[beside];
#pragma unroll
    for (int b = 0; b < beside; ++b) {
        const Index unit = first + b * Config::threads;
        row[b] = unit < Place::units ? unit * lanes : 0;
        r[b] = Body::template begin<lanes>(args, row[b]);
        state[b].clear();
    }
#pragma unroll
    for (int column = 0; column < count; column += together) {
        typename Body::template Operands<lanes> x[beside][together];
#pragma unroll
        for (int b = 0; b < beside; ++b)
#pragma unroll
            for (int u = 0; u < together; ++u)
                if (column + u < count) x[b][u] = Body::template load<lanes>(args, row[b], column + u);
#pragma unroll
        for (int b = 0; b < beside; ++b)
#pragma unroll
            for (int u = 0; u < together; ++u)
                if (column + u < count) Body::step(args, row[b], column + u, x[b][u], r[b], state[b]);
    }
#pragma unroll
    for (int b = 0; b < beside; ++b) {
        Body::finish(state[b], r[b]);
        if (first + b * Config::threads < Place::units) Body::store_row(args, row[b], r[b]);
    }
}

// kw: reduce_beside
#ifndef __CUDACC_RTC__
template <typename Body, typename Config> cudaError_t reduce_beside(const typename Body::Args& args, cudaStream_t stream) {
    if constexpr (Config::lanes > 1)
        if (!all_aligned(args)) return reduce_beside<Body, Unaligned<Config>>(args, stream);
    constexpr int64_t each = Config::threads * Config::beside;
    constexpr int64_t blocks = (ReducePlace<Body, Config>::units + each - 1) / each;
    reduce_beside_kernel<Body, Config><<<unsigned(blocks), Config::threads, 0, stream>>>(args);
    return cudaGetLastError();
}
#endif

// kw: ReduceParts
// The states that the blocks of a row leave for each other between launches, phase after phase in a workspace.
template <typename Body, typename Config> struct ReduceParts {
    using Place = ReducePlace<Body, Config>;
    template <int phase> __host__ __device__ static constexpr int64_t start() {
        if constexpr (phase == 0) return 0;
        else {
            using Before = typename Body::template State<phase - 1, Place::rows>;
            return start<phase - 1>() + (Place::units * Config::blocks * int64_t(sizeof(Before)) + 15) / 16 * 16;
        }
    }
    template <int phase> KW_DEVICE static auto* states(void* workspace) {
        constexpr int64_t offset = start<phase>();
        return reinterpret_cast<typename Body::template State<phase, Place::rows>*>(static_cast<char*>(workspace) +
                                                                                  offset);
    }
};

// kw: reduce_catch_up
// The values of the row that the phases before `phase` have found, merged from their parts in a fixed order.
template <typename Body, typename Config, int phase, typename Row>
KW_DEVICE void reduce_catch_up(const ReducePlace<Body, Config>& place, void* workspace, Row& r) {
    if constexpr (phase > 0) {
        reduce_catch_up<Body, Config, phase - 1>(place, workspace, r);
        using Place = ReducePlace<Body, Config>;
        const auto* const parts = ReduceParts<Body, Config>::template states<phase - 1>(workspace);
        typename Body::template State<phase - 1, Place::rows> state;
        state.clear();
        if (place.active)
            for (int part = place.member; part < Config::blocks; part += Config::team)
                state.merge(parts[int64_t(place.unit) * Config::blocks + part]);
        Body::finish(merged_in_team<Body, Config, phase - 1>(state), r);
    }
}

// kw: reduce_phase_kernel
// One phase of rows that are shared by many blocks. After the last one that reduces, a row is closed.
template <typename Body, typename Config, int phase>
__global__ void __launch_bounds__(Config::threads) reduce_phase_kernel(typename Body::Args args, void* workspace) {
    using Place = ReducePlace<Body, Config>;
    const Place place;
    if (phase >= Body::phases && place.part > 0) return;  // one block closes the row
    auto r = Body::template begin<Place::rows>(args, place.row());
    reduce_catch_up<Body, Config, phase>(place, workspace, r);
    if constexpr (phase < Body::phases) {
        typename Body::template State<phase, Config::lanes> lanes;
        lanes.clear();
        reduce_again<Body, Config, phase>(args, place, r, lanes);
        typename Body::template State<phase, Place::rows> state;
        if constexpr (Body::across) {
            state = lanes;
        } else {
            state = lanes.folded();
            if constexpr (Place::rest > 0) state.merge(reduce_rest<Body, Config, phase>(args, place, r));
        }
        if constexpr (phase < Body::reductions) {
            state = merged_in_team<Body, Config, phase>(state);
            auto* const parts = ReduceParts<Body, Config>::template states<phase>(workspace);
            if (place.speaks()) parts[int64_t(place.unit) * Config::blocks + place.part] = state;
        }
    }
    if constexpr (phase == Body::reductions)
        if (place.speaks() && place.part == 0) Body::store_row(args, place.row(), r);
}

// kw: reduce_launches
#ifndef __CUDACC_RTC__
template <typename Body, typename Config, int phase>
cudaError_t reduce_launches(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    using Place = ReducePlace<Body, Config>;
    constexpr int64_t blocks = (Place::units + Place::teams - 1) / Place::teams * Config::blocks;
    reduce_phase_kernel<Body, Config, phase><<<unsigned(blocks), Config::threads, 0, stream>>>(args, workspace);
    if constexpr (phase == Body::reductions) return cudaGetLastError();
    else {
        const cudaError_t error = cudaGetLastError();
        return error != cudaSuccess ? error : reduce_launches<Body, Config, phase + 1>(args, workspace, stream);
    }
}
#endif

// kw: reduce_split
// Few long rows, each shared by blocks that meet only between launches.
#ifndef __CUDACC_RTC__
template <typename Body, typename Config>
cudaError_t reduce_split(const typename Body::Args& args, void* workspace, cudaStream_t stream) {
    static_assert(ReduceParts<Body, Config>::template start<Body::reductions>() <= Config::workspace_bytes);
    if constexpr (Config::lanes > 1)
        if (!all_aligned(args)) return reduce_split<Body, Unaligned<Config>>(args, workspace, stream);
    return reduce_launches<Body, Config, 0>(args, workspace, stream);
}
#endif

}  // namespace kw
