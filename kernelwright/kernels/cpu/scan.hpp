// Running values of rows: tiles are loaded, computed with, scanned one element after another, and stored.
//
// Along: neighbours are in one row; several rows, or pieces of one, go side by side, so that the additions of one need
// not wait for each other. Across: each lane is a row. Few long rows are cut into chunks: one pass for each stage finds
// the total of every chunk, and what comes before it is where the next pass starts.
#pragma once

#include "../device/monoids.cuh"
#include "pointwise.hpp"

namespace kw {

// kw: ScanAlong
// Place after place, of V rows abreast; row q's state is lane q.
template <bool reverse> struct ScanAlong {
    template <bool exclusive, typename T, int N, int V, typename State>
    KW_DEVICE static void scan(Vec<T, N> (&r)[V], State& state) {
        for (int k = 0; k < N; ++k) {
            const int i = reverse ? N - 1 - k : k;
#pragma GCC unroll 16
            for (int q = 0; q < V; ++q) {
                const T before = T(state.value(q));
                state.add(q, r[q][i]);
                r[q][i] = exclusive ? before : T(state.value(q));
            }
        }
    }
};

// kw: ScanAcross
// The next place of N rows.
struct ScanAcross {
    template <bool exclusive, typename T, int N, int V, typename State>
    KW_DEVICE static void scan(Vec<T, N> (&r)[V], State& state) {
        for (int u = 0; u < V; ++u) {
            KW_LANES for (int i = 0; i < N; ++i) {
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
        for (int u = 0; u < V; ++u) Body::template feed<stage>(x[u], r, u);
        Body::template scan<stage>(walk, r, s);
        scan_stages<Body, stage + 1, end, V>(walk, x, r, s);
    }
}

// kw: scan_begin
// Lane `lane` stands where its chunk begins: for the stages that are known, after all chunks before it.
template <typename Body, int known, typename S, typename One> KW_DEVICE void scan_begin(S& s, int lane, const One& start) {
    const auto put = [lane](auto& state, const auto& before) { state.add(lane, before.value(0)); };
    scan_each<Body, 0, known>(put, s, start);
}

// kw: scan_total
// What the pass for one stage found in a chunk.
template <typename Body, int stage, typename S, typename One> KW_DEVICE void scan_total(One& total, const S& s, int lane) {
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

// kw: scan_tiles
// N neighbours of V strands at a time, from place `done` of each strand on, as long as N of them are left; where it stopped.
template <typename Body, int pass, int N, int V>
KW_DEVICE int64_t scan_tiles(const typename Body::Args& args, const int64_t (&row)[V], const int64_t (&begin)[V],
                             int64_t done, int64_t length, typename Body::template State<V>& s) {
    constexpr bool last = pass == Body::stages;
    ScanAlong<Body::reverse> walk;
    for (; done + N <= length; done += N) {
        typename Body::template Operands<N> x[V];
        typename Body::template Running<N, V> r;
        int64_t column[V];
        for (int q = 0; q < V; ++q) {
            column[q] = Body::reverse ? Body::columns - (begin[q] + done) - N : begin[q] + done;
            x[q] = Body::template load<N>(args, row[q], column[q]);
        }
        scan_stages<Body, 0, last ? pass : pass + 1, V>(walk, x, r, s);
        if constexpr (last)
            for (int q = 0; q < V; ++q) Body::store(args, row[q], column[q], x[q], r, q);
    }
    return done;
}

// kw: scan_strands
// V chunks of the same length, or V whole rows.
template <typename Body, int pass, int lanes, int64_t chunk, int V>
void scan_strands(const typename Body::Args& args, typename Body::template State<1>* totals, int64_t first) {
    constexpr int64_t chunks = (Body::columns + chunk - 1) / chunk;
    constexpr int narrow = 16;
    int64_t row[V], begin[V];
    typename Body::template State<V> s;
    scan_each<Body, 0, Body::stages>([](auto& state) { state.clear(); }, s);
    for (int q = 0; q < V; ++q) {
        row[q] = (first + q) / chunks;
        begin[q] = (first + q) % chunks * chunk;
        if constexpr (chunks > 1) scan_begin<Body, pass>(s, q, totals[first + q]);
    }
    const int64_t left = Body::columns - begin[0], length = left < chunk ? left : chunk;
    int64_t done = scan_tiles<Body, pass, lanes, V>(args, row, begin, 0, length, s);
    if constexpr (Body::columns % lanes >= narrow)
        done = scan_tiles<Body, pass, narrow, V>(args, row, begin, done, length, s);
    if constexpr (Body::columns % narrow != 0) scan_tiles<Body, pass, 1, V>(args, row, begin, done, length, s);
    if constexpr (pass < Body::stages)
        for (int q = 0; q < V; ++q) scan_total<Body, pass>(totals[first + q], s, q);
}

// kw: scan_along_pass
template <typename Body, int pass, int lanes, int together, int64_t chunk>
void scan_along_pass(const typename Body::Args& args, typename Body::template State<1>* totals) {
    constexpr int64_t chunks = (Body::columns + chunk - 1) / chunk, strands = Body::rows * chunks;
    constexpr bool even = Body::columns % chunk == 0 || chunks == 1;
    constexpr int64_t groups = (strands + together - 1) / together;
#pragma omp parallel for schedule(static) if (Body::rows * Body::columns > 16384)
    for (int64_t group = 0; group < groups; ++group) {
        const int64_t first = group * together, end = first + together < strands ? first + together : strands;
        // The last chunk of a row may be shorter, and the last group smaller.
        const bool ragged = !even && first % chunks + (end - first) >= chunks;
        if (end - first == together && !ragged) scan_strands<Body, pass, lanes, chunk, together>(args, totals, first);
        else for (int64_t strand = first; strand < end; ++strand)
            scan_strands<Body, pass, lanes, chunk, 1>(args, totals, strand);
    }
    if constexpr (pass < Body::stages) {
        for (int64_t row = 0; row < Body::rows; ++row) scan_starts<Body, pass>(totals + row * chunks, chunks, 1);
        scan_along_pass<Body, pass + 1, lanes, together, chunk>(args, totals);
    }
}

// kw: scan_along
// `together` strands abreast. Rows longer than a chunk are cut, whatever the number of threads.
template <typename Body, int lanes, int together, int64_t chunk>
void scan_along(const typename Body::Args& args, void* workspace) {
    static_assert(chunk % lanes == 0 || chunk >= Body::columns, "only the end of a row fills no vector");
    constexpr int first = chunk < Body::columns ? 0 : Body::stages;
    auto* totals = static_cast<typename Body::template State<1>*>(workspace);
    scan_along_pass<Body, first, lanes, together, chunk>(args, totals);
}

// kw: scan_lanes
// The places of one chunk, from the first to the last, of `vectors` times N neighbouring rows.
template <typename Body, int pass, int N, int together>
void scan_lanes(const typename Body::Args& args, typename Body::template State<1>* starts, int64_t row, int64_t column,
                int vectors, int64_t begin, int64_t end) {
    constexpr bool last = pass == Body::stages;
    typename Body::template State<N> s[together];
    ScanAcross walk;
    for (int v = 0; v < vectors; ++v) {
        scan_each<Body, 0, Body::stages>([](auto& state) { state.clear(); }, s[v]);
        if (starts)
            for (int i = 0; i < N; ++i) scan_begin<Body, pass>(s[v], i, starts[v * N + i]);
    }
    for (int64_t place = begin; place < end; ++place) {
        const int64_t level = Body::reverse ? Body::depth - 1 - place : place;
        for (int v = 0; v < vectors; ++v) {
            const typename Body::template Operands<N> x[1] = {
                Body::template load<N>(args, row, level, column + v * N)};
            typename Body::template Running<N, 1> r;
            scan_stages<Body, 0, last ? pass : pass + 1, 1>(walk, x, r, s[v]);
            if constexpr (last) Body::store(args, row, level, column + v * N, x[0], r, 0);
        }
    }
    if constexpr (!last)
        for (int v = 0; v < vectors; ++v)
            for (int i = 0; i < N; ++i) scan_total<Body, pass>(starts[v * N + i], s[v], i);
}

// kw: scan_across_pass
template <typename Body, int pass, int lanes, int together, int64_t chunk>
void scan_across_pass(const typename Body::Args& args, typename Body::template State<1>* totals) {
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
        scan_lanes<Body, pass, lanes, together>(args, starts, row, column, whole, begin, end);
        if constexpr (Body::columns % lanes >= narrow) {
            const int64_t at = whole * lanes;
            auto* own = starts ? starts + at : nullptr;
            if (some) scan_lanes<Body, pass, narrow, together>(args, own, row, column + at, some, begin, end);
        }
        if constexpr (Body::columns % narrow != 0) {
            const int64_t at = left - single;
            auto* own = starts ? starts + at : nullptr;
            if (single) scan_lanes<Body, pass, 1, together>(args, own, row, column + at, single, begin, end);
        }
    }
    if constexpr (pass < Body::stages) {
        for (int64_t row = 0; row < Body::rows; ++row)
            for (int64_t column = 0; column < Body::columns; ++column)
                scan_starts<Body, pass>(totals + row * chunks * Body::columns + column, chunks, Body::columns);
        scan_across_pass<Body, pass + 1, lanes, together, chunk>(args, totals);
    }
}

// kw: scan_across
// `together` vectors of rows side by side: what is read at one place is then long enough for the memory to like it.
template <typename Body, int lanes, int together, int64_t chunk>
void scan_across(const typename Body::Args& args, void* workspace) {
    constexpr bool cut = chunk < Body::depth;
    auto* totals = cut ? static_cast<typename Body::template State<1>*>(workspace) : nullptr;
    scan_across_pass<Body, cut ? 0 : Body::stages, lanes, together, chunk>(args, totals);
}

}  // namespace kw
