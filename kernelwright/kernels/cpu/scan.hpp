// Running values of rows: vectors are loaded, computed with, scanned, and stored.
//
// Along: neighbours are in one row. Across: each lane is a row. Few long rows are cut into chunks, whatever the number
// of threads: one sweep for each stage finds the total of every chunk; the next starts from what comes before each.
#pragma once

#include "../device/monoids.cuh"
#include "pointwise.hpp"

namespace kw {

// kw: KW_VECTORS
// GCC 12 and clang can move the lanes of a vector; without them, places are scanned one by one.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define KW_VECTORS
#endif
#endif

// kw: Eight
template <typename T> struct EightOf { typedef T type __attribute__((vector_size(8 * sizeof(T)), aligned(16))); };
template <typename T> using Eight = typename EightOf<T>::type;

// kw: eight_later
// Moved by `by` lanes towards the end of the scan; what comes in is neutral.
#ifdef KW_VECTORS
template <bool reverse, int by, typename V> KW_DEVICE V eight_later(V x, V neutral) {
    if constexpr (reverse) {
        if constexpr (by == 1) return __builtin_shufflevector(x, neutral, 1, 2, 3, 4, 5, 6, 7, 8);
        else if constexpr (by == 2) return __builtin_shufflevector(x, neutral, 2, 3, 4, 5, 6, 7, 8, 9);
        else return __builtin_shufflevector(x, neutral, 4, 5, 6, 7, 8, 9, 10, 11);
    } else {
        if constexpr (by == 1) return __builtin_shufflevector(neutral, x, 7, 8, 9, 10, 11, 12, 13, 14);
        else if constexpr (by == 2) return __builtin_shufflevector(neutral, x, 6, 7, 8, 9, 10, 11, 12, 13);
        else return __builtin_shufflevector(neutral, x, 4, 5, 6, 7, 8, 9, 10, 11);
    }
}
#endif

// kw: scan_eight
// Eight places are added to what is one, two and four places before them, then to what was before all: one after
// another, each addition would wait for the last.
#ifdef KW_VECTORS
template <bool reverse, bool exclusive, typename T, template <typename, int> class Monoid, typename A>
KW_DEVICE void scan_eight(T* r, Monoid<A, 1>& state) {
    Monoid<A, 1> nothing;
    nothing.clear();
    const A e = nothing.value(0), b = state.value(0);
    const Eight<A> neutral = {e, e, e, e, e, e, e, e}, before = {b, b, b, b, b, b, b, b};
    Eight<T> taken;
    __builtin_memcpy(&taken, r, sizeof taken);
    Monoid<Eight<A>, 1> own{{__builtin_convertvector(taken, Eight<A>)}};
    own.add(0, eight_later<reverse, 1>(own.value(0), neutral));
    own.add(0, eight_later<reverse, 2>(own.value(0), neutral));
    own.add(0, eight_later<reverse, 4>(own.value(0), neutral));
    state.add(0, own.value(0)[reverse ? 0 : 7]);
    if constexpr (exclusive) own = {{eight_later<reverse, 1>(own.value(0), neutral)}};
    own.add(0, before);
    const Eight<T> given = __builtin_convertvector(own.value(0), Eight<T>);
    __builtin_memcpy(r, &given, sizeof given);
}
#endif

// kw: ScanAlong
// N places of one row.
template <bool reverse> struct ScanAlong {
    template <bool exclusive, typename T, int N, template <typename, int> class Monoid, typename A>
    KW_DEVICE static void scan(Vec<T, N> (&r)[1], Monoid<A, 1>& state) {
#ifdef KW_VECTORS
        if constexpr (N % 8 == 0 && !is_same<T, bool>) {
            for (int k = 0; k < N; k += 8) scan_eight<reverse, exclusive>(r[0].v + (reverse ? N - 8 - k : k), state);
            return;
        }
#endif
        for (int k = 0; k < N; ++k) {
            const int i = reverse ? N - 1 - k : k;
            const T before = T(state.value(0));
            state.add(0, r[0][i]);
            r[0][i] = exclusive ? before : T(state.value(0));
        }
    }
};

// kw: ScanTotal
// What N places of one row add up to; what the scan would give at each of them is not asked for.
struct ScanTotal {
    template <bool exclusive, typename T, int N, template <typename, int> class Monoid, typename A>
    KW_DEVICE static void scan(Vec<T, N> (&r)[1], Monoid<A, 1>& state) {
        constexpr int lanes = N < 16 ? N : 16;
        Monoid<A, lanes> parts;
        parts.clear();
        for (int k = 0; k < N; k += lanes)
            KW_LANES for (int i = 0; i < lanes; ++i) parts.add(i, r[0][k + i]);
        for (int half = lanes / 2; half > 0; half /= 2)
            KW_LANES for (int i = 0; i < half; ++i) parts.add(i, parts.value(half + i));
        state.add(0, parts.value(0));
    }
};

// kw: ScanAcross
// The next place of N rows.
struct ScanAcross {
    template <bool exclusive, typename T, int N, typename State>
    KW_DEVICE static void scan(Vec<T, N> (&r)[1], State& state) {
        KW_LANES for (int i = 0; i < N; ++i) {
            const T before = T(state.value(i));
            state.add(i, r[0][i]);
            r[0][i] = exclusive ? before : T(state.value(i));
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
template <typename Body, int stage, int end, typename Walk, typename X, typename R, typename S>
KW_DEVICE void scan_stages(Walk& walk, const X& x, R& r, S& s) {
    if constexpr (stage < end) {
        Body::template feed<stage>(x, r, 0);
        Body::template scan<stage>(walk, r, s);
        scan_stages<Body, stage + 1, end>(walk, x, r, s);
    }
}

// kw: scan_begin
// Lane `lane` stands where its chunk begins: for the stages that are known, after all chunks before it.
template <typename Body, int known, typename S, typename One>
KW_DEVICE void scan_begin(S& s, int lane, const One& start) {
    const auto put = [lane](auto& state, const auto& before) { state.add(lane, before.value(0)); };
    scan_each<Body, 0, known>(put, s, start);
}

// kw: scan_total
// What the sweep for one stage found in a chunk.
template <typename Body, int stage, typename S, typename One>
KW_DEVICE void scan_total(One& total, const S& s, int lane) {
    const auto keep = [lane](auto& one, const auto& state) {
        one.clear();
        one.add(0, state.value(lane));
    };
    scan_each<Body, stage, stage + 1>(keep, total, s);
}

// kw: scan_starts
// Totals of chunks, `apart` from each other, become what lies before each.
template <typename Body, int stage, typename One> void scan_starts(One* totals, int64_t chunks, int64_t apart) {
    One before;
    scan_each<Body, stage, stage + 1>([](auto& state) { state.clear(); }, before);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const auto step = [](auto& total, auto& sum) {
            const auto own = total;
            total = sum;
            sum.add(0, own.value(0));
        };
        scan_each<Body, stage, stage + 1>(step, totals[chunk * apart], before);
    }
}

// kw: scan_run
// N neighbours of a row at a time, from place `place` on, as long as N of them are left; where it stopped.
template <typename Body, int sweep, int N>
KW_DEVICE int64_t scan_run(const typename Body::Args& args, int64_t row, int64_t place, int64_t end,
                           typename Body::template State<1>& s) {
    ScanAlong<Body::reverse> walk;
    ScanTotal total;
    for (; place + N <= end; place += N) {
        const int64_t column = Body::reverse ? Body::columns - place - N : place;
        const auto x = Body::template load<N>(args, row, column);
        typename Body::template Running<N, 1> r;
        scan_stages<Body, 0, sweep>(walk, x, r, s);
        if constexpr (sweep == Body::stages) Body::store(args, row, column, x, r, 0);
        else scan_stages<Body, sweep, sweep + 1>(total, x, r, s);
    }
    return place;
}

// kw: scan_along_sweep
template <typename Body, int sweep, int lanes, int64_t chunk>
void scan_along_sweep(const typename Body::Args& args, typename Body::template State<1>* totals) {
    constexpr int64_t chunks = (Body::columns + chunk - 1) / chunk;
    constexpr int narrow = 16;
#pragma omp parallel for schedule(static) if (Body::rows * Body::columns > 16384)
    for (int64_t piece = 0; piece < Body::rows * chunks; ++piece) {
        const int64_t row = piece / chunks, begin = piece % chunks * chunk;
        const int64_t end = begin + chunk < Body::columns ? begin + chunk : Body::columns;
        typename Body::template State<1> s;
        scan_each<Body, 0, Body::stages>([](auto& state) { state.clear(); }, s);
        if constexpr (chunks > 1) scan_begin<Body, sweep>(s, 0, totals[piece]);
        int64_t place = scan_run<Body, sweep, lanes>(args, row, begin, end, s);
        if constexpr (Body::columns % lanes >= narrow) place = scan_run<Body, sweep, narrow>(args, row, place, end, s);
        if constexpr (Body::columns % narrow != 0) scan_run<Body, sweep, 1>(args, row, place, end, s);
        if constexpr (sweep < Body::stages) scan_total<Body, sweep>(totals[piece], s, 0);
    }
    if constexpr (sweep < Body::stages) {
        for (int64_t row = 0; row < Body::rows; ++row) scan_starts<Body, sweep>(totals + row * chunks, chunks, 1);
        scan_along_sweep<Body, sweep + 1, lanes, chunk>(args, totals);
    }
}

// kw: scan_along
template <typename Body, int lanes, int64_t chunk> void scan_along(const typename Body::Args& args, void* workspace) {
    static_assert(chunk % lanes == 0 || chunk >= Body::columns, "only the end of a row fills no vector");
    constexpr int first = chunk < Body::columns ? 0 : Body::stages;
    auto* totals = static_cast<typename Body::template State<1>*>(workspace);
    scan_along_sweep<Body, first, lanes, chunk>(args, totals);
}

// kw: scan_lanes
// The places of one chunk, from the first to the last, of `vectors` times N neighbouring rows.
template <typename Body, int sweep, int N, int together>
void scan_lanes(const typename Body::Args& args, typename Body::template State<1>* starts, int64_t row, int64_t column,
                int vectors, int64_t begin, int64_t end) {
    constexpr bool last = sweep == Body::stages;
    typename Body::template State<N> s[together];
    ScanAcross walk;
    for (int v = 0; v < vectors; ++v) {
        scan_each<Body, 0, Body::stages>([](auto& state) { state.clear(); }, s[v]);
        if (starts)
            for (int i = 0; i < N; ++i) scan_begin<Body, sweep>(s[v], i, starts[v * N + i]);
    }
    for (int64_t place = begin; place < end; ++place) {
        const int64_t level = Body::reverse ? Body::depth - 1 - place : place;
        for (int v = 0; v < vectors; ++v) {
            const auto x = Body::template load<N>(args, row, level, column + v * N);
            typename Body::template Running<N, 1> r;
            scan_stages<Body, 0, last ? sweep : sweep + 1>(walk, x, r, s[v]);
            if constexpr (last) Body::store(args, row, level, column + v * N, x, r, 0);
        }
    }
    if constexpr (!last)
        for (int v = 0; v < vectors; ++v)
            for (int i = 0; i < N; ++i) scan_total<Body, sweep>(starts[v * N + i], s[v], i);
}

// kw: scan_across_sweep
template <typename Body, int sweep, int lanes, int together, int64_t chunk>
void scan_across_sweep(const typename Body::Args& args, typename Body::template State<1>* totals) {
    constexpr int64_t width = lanes * together, blocks = (Body::columns + width - 1) / width;
    constexpr int64_t chunks = (Body::depth + chunk - 1) / chunk;
    constexpr int narrow = 16;
    static_assert(lanes % narrow == 0 && together >= narrow, "what is left of a line fits side by side");
#pragma omp parallel for schedule(static) if (Body::rows * Body::depth * Body::columns > 16384)
    for (int64_t piece = 0; piece < Body::rows * chunks * blocks; ++piece) {
        const int64_t row = piece / (chunks * blocks), number = piece / blocks % chunks;
        const int64_t begin = number * chunk, end = begin + chunk < Body::depth ? begin + chunk : Body::depth;
        int64_t column = piece % blocks * width;
        auto* starts = totals ? totals + (row * chunks + number) * Body::columns + column : nullptr;
        const int64_t left = Body::columns - column < width ? Body::columns - column : width;
        const int whole = int(left / lanes), some = int(left % lanes / narrow), single = int(left % narrow);
        scan_lanes<Body, sweep, lanes, together>(args, starts, row, column, whole, begin, end);
        if constexpr (Body::columns % lanes >= narrow) {
            const int64_t at = whole * lanes;
            auto* own = starts ? starts + at : nullptr;
            if (some) scan_lanes<Body, sweep, narrow, together>(args, own, row, column + at, some, begin, end);
        }
        if constexpr (Body::columns % narrow != 0) {
            const int64_t at = left - single;
            auto* own = starts ? starts + at : nullptr;
            if (single) scan_lanes<Body, sweep, 1, together>(args, own, row, column + at, single, begin, end);
        }
    }
    if constexpr (sweep < Body::stages) {
        for (int64_t row = 0; row < Body::rows; ++row)
            for (int64_t column = 0; column < Body::columns; ++column)
                scan_starts<Body, sweep>(totals + row * chunks * Body::columns + column, chunks, Body::columns);
        scan_across_sweep<Body, sweep + 1, lanes, together, chunk>(args, totals);
    }
}

// kw: scan_across
// `together` vectors of rows side by side: what is read at one place is then long enough for the memory to like it.
template <typename Body, int lanes, int together, int64_t chunk>
void scan_across(const typename Body::Args& args, void* workspace) {
    constexpr bool cut = chunk < Body::depth;
    auto* totals = cut ? static_cast<typename Body::template State<1>*>(workspace) : nullptr;
    scan_across_sweep<Body, cut ? 0 : Body::stages, lanes, together, chunk>(args, totals);
}

}  // namespace kw
