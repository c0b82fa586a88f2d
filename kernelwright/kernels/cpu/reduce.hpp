// Reductions over the columns of rows, in phases: each walks over a row, merges what it found in a fixed tree, and
// finishes values of the row that the next phase uses.
//
// Along: lanes of a vector are neighbours in one row, and are folded at the end; `together` rows, or parts of one, are
// walked over at the same time. Across: each lane is a row, and `together` vectors of them lie side by side.
#pragma once

#include "../device/monoids.cuh"
#include "pointwise.hpp"

namespace kw {

// kw: Found
// What is known of a row, or across, of `lanes` rows.
template <typename Body, int phase, int lanes>
using Found = typename Body::template State<phase, Body::across ? lanes : 1>;

// kw: reduce_vectors
// Whole vectors from `column` on; where it stopped.
template <typename Body, int phase, int N, typename Row>
KW_DEVICE int64_t reduce_vectors(const typename Body::Args& args, int64_t row, int64_t column, int64_t end,
                                 const Row& r, typename Body::template State<phase, N>& state) {
    constexpr int each = Body::across ? 1 : N;
    for (; column + each <= end; column += each)
        Body::step(args, row, column, Body::template load<N>(args, row, column), r, state);
    return column;
}

// kw: reduce_chunk
// So few columns that their order does not matter: one after another, in as many lanes as fit.
template <typename Body, int phase, int lanes, typename Row>
KW_DEVICE Found<Body, phase, lanes> reduce_chunk(const typename Body::Args& args, int64_t row, int64_t begin,
                                                 int64_t end, const Row& r) {
    typename Body::template State<phase, lanes> wide;
    wide.clear();
    if constexpr (Body::across) {
        reduce_vectors<Body, phase, lanes>(args, row, begin, end, r, wide);
        return wide;
    } else {
        constexpr int64_t line = Body::line;
        constexpr int narrow = lanes < 16 ? 1 : 16;
        typename Body::template State<phase, narrow> some;
        typename Body::template State<phase, 1> single;
        some.clear();
        single.clear();
        for (int64_t column = begin; column < end;) {
            const int64_t next = (column / line + 1) * line, stop = next < end ? next : end;
            column = reduce_vectors<Body, phase, lanes>(args, row, column, stop, r, wide);
            if constexpr (line % lanes != 0) {
                column = reduce_vectors<Body, phase, narrow>(args, row, column, stop, r, some);
                if constexpr (line % narrow != 0)
                    column = reduce_vectors<Body, phase, 1>(args, row, column, stop, r, single);
            }
        }
        auto total = wide.folded();
        if constexpr (line % lanes != 0) total.merge(some.folded());
        if constexpr (line % narrow != 0) total.merge(single);
        return total;
    }
}

// kw: reduce_span
// Chunks merged pairwise, so that errors grow with the logarithm of the length.
template <typename Body, int phase, int lanes, int64_t chunk, typename Row>
Found<Body, phase, lanes> reduce_span(const typename Body::Args& args, int64_t row, int64_t begin, int64_t end,
                                      const Row& r) {
    const int64_t chunks = (end - begin + chunk - 1) / chunk;
    if (chunks <= 1) return reduce_chunk<Body, phase, lanes>(args, row, begin, end, r);
    const int64_t middle = begin + chunks / 2 * chunk;
    auto left = reduce_span<Body, phase, lanes, chunk>(args, row, begin, middle, r);
    left.merge(reduce_span<Body, phase, lanes, chunk>(args, row, middle, end, r));
    return left;
}

// kw: reduce_short
// A row of few whole vectors, each known when this is compiled.
template <typename Body, int phase, int lanes, typename Row>
KW_DEVICE Found<Body, phase, lanes> reduce_short(const typename Body::Args& args, int64_t row, const Row& r) {
    typename Body::template State<phase, lanes> wide;
    wide.clear();
#pragma GCC unroll 8
    for (int64_t column = 0; column < Body::columns; column += lanes)
        Body::step(args, row, column, Body::template load<lanes>(args, row, column), r, wide);
    return wide.folded();
}

// kw: reduce_streams
// Along, `together` walks at once, over columns from `begin` to `end` of neighbouring rows (down = 1) or from there on,
// `apart` from each other, in one row (down = 0). A walk waits wherever a page ends, for what fetches ahead stops
// there: the others go on meanwhile. Each has states of its own, in registers, and no addition waits for another.
template <typename Body, int phase, int lanes, int together, int64_t chunk, int down, typename Row>
void reduce_streams(const typename Body::Args& args, int64_t row, int64_t begin, int64_t end, int64_t apart,
                    const Row* r, typename Body::template State<phase, 1>* found) {
    const int64_t chunks = (end - begin + chunk - 1) / chunk;
    if (chunks > 1) {
        const int64_t middle = begin + chunks / 2 * chunk;
        typename Body::template State<phase, 1> right[together];
        reduce_streams<Body, phase, lanes, together, chunk, down>(args, row, begin, middle, apart, r, found);
        reduce_streams<Body, phase, lanes, together, chunk, down>(args, row, middle, end, apart, r, right);
        for (int v = 0; v < together; ++v) found[v].merge(right[v]);
        return;
    }
    typename Body::template State<phase, lanes> wide[together];
    for (int v = 0; v < together; ++v) wide[v].clear();
    for (int64_t column = begin; column < end; column += lanes)
#pragma GCC unroll 8
        for (int v = 0; v < together; ++v) {
            const int64_t at = column + v * apart;
            Body::step(args, row + v * down, at, Body::template load<lanes>(args, row + v * down, at), r[v * down],
                       wide[v]);
        }
    for (int v = 0; v < together; ++v) found[v] = wide[v].folded();
}

// kw: reduce_piece
// What one thread has of a row that several share: `together` parts of it at once, and then what is left.
template <typename Body, int phase, int lanes, int64_t chunk, int together, typename Row>
KW_DEVICE Found<Body, phase, lanes> reduce_piece(const typename Body::Args& args, int64_t row, int64_t begin,
                                                 int64_t end, const Row& r) {
    if constexpr (together == 1) {
        return reduce_span<Body, phase, lanes, chunk>(args, row, begin, end, r);
    } else {
        const int64_t part = (end - begin) / together / lanes * lanes;
        typename Body::template State<phase, 1> found[together + 1];
        reduce_streams<Body, phase, lanes, together, chunk, 0>(args, row, begin, begin + part, part, &r, found);
        found[together] = reduce_span<Body, phase, lanes, chunk>(args, row, begin + together * part, end, r);
        for (int v = 1; v <= together; ++v) found[0].merge(found[v]);
        return found[0];
    }
}

// kw: reduce_columns
// All columns of a row, or of `lanes` rows; with a grain, shared by threads in pieces that do not depend on their number.
template <typename Body, int phase, int lanes, int64_t chunk, int64_t grain, int together, typename Row>
KW_DEVICE Found<Body, phase, lanes> reduce_columns(const typename Body::Args& args, int64_t row, const Row& r) {
    if constexpr (!Body::across && Body::columns <= 8 * lanes && Body::line % lanes == 0) {
        return reduce_short<Body, phase, lanes>(args, row, r);
    } else if constexpr (Body::columns <= chunk) {
        return reduce_chunk<Body, phase, lanes>(args, row, 0, Body::columns, r);
    } else if constexpr (grain == 0) {
        return reduce_span<Body, phase, lanes, chunk>(args, row, 0, Body::columns, r);
    } else {
        constexpr int64_t pieces = (Body::columns + grain - 1) / grain;
        Found<Body, phase, lanes> found[pieces];
#pragma omp parallel for schedule(static)
        for (int64_t piece = 0; piece < pieces; ++piece) {
            const int64_t begin = piece * grain, end = begin + grain;
            found[piece] = reduce_piece<Body, phase, lanes, chunk, together>(
                args, row, begin, end < Body::columns ? end : Body::columns, r);
        }
        for (int64_t apart = 1; apart < pieces; apart *= 2)
            for (int64_t piece = 0; piece + apart < pieces; piece += 2 * apart) found[piece].merge(found[piece + apart]);
        return found[0];
    }
}

// kw: reduce_phases
template <typename Body, int phase, int lanes, int64_t chunk, int64_t grain, int together, typename Row>
KW_DEVICE void reduce_phases(const typename Body::Args& args, int64_t row, Row& r) {
    const auto state = reduce_columns<Body, phase, lanes, chunk, grain, together>(args, row, r);
    if constexpr (phase < Body::reductions) Body::finish(state, r);
    if constexpr (phase + 1 < Body::phases) reduce_phases<Body, phase + 1, lanes, chunk, grain, together>(args, row, r);
}

// kw: reduce_rows
// One row, or `lanes` rows side by side, from the first phase to the last.
template <typename Body, int lanes, int64_t chunk, int64_t grain, int together>
KW_DEVICE void reduce_rows(const typename Body::Args& args, int64_t row) {
    constexpr int rows = Body::across ? lanes : 1;
    auto r = Body::template begin<rows>(args, row);
    reduce_phases<Body, 0, lanes, chunk, grain, together>(args, row, r);
    Body::store_row(args, row, r);
}

// kw: reduce_stream_phases
template <typename Body, int phase, int lanes, int together, int64_t chunk, typename Row>
KW_DEVICE void reduce_stream_phases(const typename Body::Args& args, int64_t row, Row (&r)[together]) {
    typename Body::template State<phase, 1> found[together];
    reduce_streams<Body, phase, lanes, together, chunk, 1>(args, row, 0, Body::columns, 0, r, found);
    if constexpr (phase < Body::reductions)
        for (int v = 0; v < together; ++v) Body::finish(found[v], r[v]);
    if constexpr (phase + 1 < Body::phases) reduce_stream_phases<Body, phase + 1, lanes, together, chunk>(args, row, r);
}

// kw: reduce_row_streams
// Along: `together` rows at once, from the first phase to the last.
template <typename Body, int lanes, int together, int64_t chunk>
KW_DEVICE void reduce_row_streams(const typename Body::Args& args, int64_t row) {
    typename Body::template Row<1> r[together];
    for (int v = 0; v < together; ++v) r[v] = Body::template begin<1>(args, row + v);
    reduce_stream_phases<Body, 0, lanes, together, chunk>(args, row, r);
    for (int v = 0; v < together; ++v) Body::store_row(args, row + v, r[v]);
}

// kw: reduce_few_columns
// So few that each is known when this is compiled, and with it where it lies: the places of a small window.
template <typename Body, int phase, int lanes, typename Row, typename State>
KW_DEVICE void reduce_few_columns(const typename Body::Args& args, int64_t row, const Row& r, State& state) {
#pragma GCC unroll 32
    for (int64_t column = 0; column < Body::columns; ++column)
        Body::step(args, row, column, Body::template load<lanes>(args, row, column), r, state);
}

// kw: reduce_side_by_side
// A few columns of one vector after another: as many streams through memory, of neighbours each, while the states of
// all vectors stay in the first cache. Chunks are merged pairwise, as along a row.
template <typename Body, int phase, int lanes, int together, int64_t chunk, typename Row, typename State>
void reduce_side_by_side(const typename Body::Args& args, int64_t row, int64_t begin, int64_t end, const Row* r,
                         State* s) {
    const int64_t chunks = (end - begin + chunk - 1) / chunk;
    if (chunks > 1) {
        const int64_t middle = begin + chunks / 2 * chunk;
        State right[together];
        reduce_side_by_side<Body, phase, lanes, together, chunk>(args, row, begin, middle, r, s);
        reduce_side_by_side<Body, phase, lanes, together, chunk>(args, row, middle, end, r, right);
        for (int v = 0; v < together; ++v) s[v].merge(right[v]);
        return;
    }
    for (int v = 0; v < together; ++v) s[v].clear();
    constexpr int64_t streams = 8;  // known to the compiler, which then keeps a state in registers over all of them
    int64_t column = begin;
    for (; column + streams <= end; column += streams) {
        for (int v = 0; v < together; ++v) {
            const int64_t first = row + v * lanes;
            State state = s[v];
#pragma GCC unroll 8
            for (int64_t c = column; c < column + streams; ++c)
                Body::step(args, first, c, Body::template load<lanes>(args, first, c), r[v], state);
            s[v] = state;
        }
    }
    for (int v = 0; v < together; ++v)
        reduce_vectors<Body, phase, lanes>(args, row + v * lanes, column, end, r[v], s[v]);
}

// kw: reduce_line_phases
template <typename Body, int phase, int lanes, int together, int64_t chunk, typename Row>
KW_DEVICE void reduce_line_phases(const typename Body::Args& args, int64_t row, Row (&r)[together]) {
    using State = typename Body::template State<phase, lanes>;
    if constexpr (Body::columns <= 32) {
        for (int v = 0; v < together; ++v) {
            State state;
            state.clear();
            reduce_few_columns<Body, phase, lanes>(args, row + v * lanes, r[v], state);
            if constexpr (phase < Body::reductions) Body::finish(state, r[v]);
        }
    } else {
        State s[together];
        reduce_side_by_side<Body, phase, lanes, together, chunk>(args, row, 0, Body::columns, r, s);
        if constexpr (phase < Body::reductions)
            for (int v = 0; v < together; ++v) Body::finish(s[v], r[v]);
    }
    if constexpr (phase + 1 < Body::phases) reduce_line_phases<Body, phase + 1, lanes, together, chunk>(args, row, r);
}

// kw: reduce_line
// Across: `together` vectors of rows, from the first phase to the last.
template <typename Body, int lanes, int together, int64_t chunk>
KW_DEVICE void reduce_line(const typename Body::Args& args, int64_t row) {
    typename Body::template Row<lanes> r[together];
    for (int v = 0; v < together; ++v) r[v] = Body::template begin<lanes>(args, row + v * lanes);
    reduce_line_phases<Body, 0, lanes, together, chunk>(args, row, r);
    for (int v = 0; v < together; ++v) Body::store_row(args, row + v * lanes, r[v]);
}

// kw: reduce_some_rows
// Across: `lanes` rows, their columns shared by threads if there is a grain.
template <typename Body, int lanes, int64_t chunk, int64_t grain>
KW_DEVICE void reduce_some_rows(const typename Body::Args& args, int64_t row) {
    if constexpr (grain > 0) reduce_rows<Body, lanes, chunk, grain, 1>(args, row);
    else reduce_line<Body, lanes, 1, chunk>(args, row);
}

// kw: reduce_tile
// What one thread takes at a time: a row, or several at once; across, as many side by side, or those that are left of
// a line.
template <typename Body, int lanes, int64_t chunk, int64_t grain, int together>
KW_DEVICE void reduce_tile(const typename Body::Args& args, int64_t tile) {
    if constexpr (Body::across) {
        constexpr int64_t width = lanes * together, each = (Body::line + width - 1) / width;
        int64_t row = tile / each * Body::line + tile % each * width;
        const int64_t line_end = (tile / each + 1) * Body::line, end = row + width < line_end ? row + width : line_end;
        if constexpr (together > 1)
            if (row + width == end) return reduce_line<Body, lanes, together, chunk>(args, row);
        for (; row + lanes <= end; row += lanes) reduce_some_rows<Body, lanes, chunk, grain>(args, row);
        if constexpr (Body::line % lanes >= 16 && lanes > 16)
            for (; row + 16 <= end; row += 16) reduce_some_rows<Body, 16, chunk, grain>(args, row);
        if constexpr (Body::line % (lanes < 16 ? lanes : 16) >= 4 && lanes > 4)
            for (; row + 4 <= end; row += 4) reduce_some_rows<Body, 4, chunk, grain>(args, row);
        for (; row < end; ++row) reduce_some_rows<Body, 1, chunk, grain>(args, row);
    } else if constexpr (grain > 0 || together == 1) {
        reduce_rows<Body, lanes, chunk, grain, together>(args, tile);
    } else {
        int64_t row = tile * together;
        if (row + together <= Body::rows) return reduce_row_streams<Body, lanes, together, chunk>(args, row);
        for (; row < Body::rows; ++row) reduce_rows<Body, lanes, chunk, 0, 1>(args, row);
    }
}

// kw: reduce
// Threads share the rows; where there are few, and so a grain, the columns of each.
template <typename Body, int lanes, int64_t chunk, int64_t grain, int together>
void reduce(const typename Body::Args& args) {
    constexpr bool fits = Body::across ? grain == 0 : Body::line % lanes == 0;  // whole rows; whole vectors
    constexpr int side_by_side = fits ? together : 1;
    constexpr int64_t line = Body::across ? Body::line : Body::rows;
    constexpr int64_t width = Body::across ? lanes * side_by_side : grain > 0 ? 1 : side_by_side;
    constexpr int64_t tiles = Body::rows / line * ((line + width - 1) / width);
    if constexpr (grain > 0) {
        for (int64_t tile = 0; tile < tiles; ++tile) reduce_tile<Body, lanes, chunk, grain, side_by_side>(args, tile);
    } else {
#pragma omp parallel for schedule(static) if (Body::rows * Body::columns > 16384)
        for (int64_t tile = 0; tile < tiles; ++tile) reduce_tile<Body, lanes, chunk, grain, side_by_side>(args, tile);
    }
}

}  // namespace kw
