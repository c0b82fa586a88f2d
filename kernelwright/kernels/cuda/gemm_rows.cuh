// The end of a product's tile where its epilogue reduces along n: a row lies in all tiles beside each other.
//
// A thread adds the sums that it has of its rows to their states; the lanes of a warp that have the same rows merge
// theirs, in a fixed order, and one of them leaves what the warp knows in the workspace. The launch that follows finishes
// the rows (row_pieces.cuh). Results that somebody else reads are stored on the way.
#pragma once

#include "gemm_epilogue.cuh"
#include "row_pieces.cuh"

namespace kw::gemm_rows {

// `parts` warps have a part in each row.
template <class Rows, int parts> struct Kept {
    using Args = typename Rows::Args;
};

}  // namespace kw::gemm_rows

namespace kw::gemm {

template <class Rows, int parts, int rows, int Vector> struct Ending<gemm_rows::Kept<Rows, parts>, rows, Vector> {
    static constexpr int vector = Vector;
    static constexpr bool keeps_rows = true;
    using Index = typename Rows::Index;
    const typename Rows::Args& args;
    typename Rows::template Row<1> known[rows];
    typename Rows::template State<0, Vector> state[rows];

    KW_DEVICE explicit Ending(const typename Rows::Args& args) : args(args) {}

    KW_DEVICE void begin(int which, int64_t m) {
        known[which] = Rows::template begin<1>(args, (Index)m);
        state[which].clear();
    }
    KW_DEVICE void take(const float (&sums)[Vector], int which, int64_t m, int64_t n) {
        auto x = Rows::template load<Vector>(args, (Index)m, (Index)n);
#pragma unroll
        for (int i = 0; i < Vector; i++) Rows::given(x)[i] = sums[i];
        Rows::step(args, (Index)m, (Index)n, x, known[which], state[which]);
    }
    KW_DEVICE void take_from_all(const float (&sums)[4], int which, int64_t m, int64_t n, int64_t columns, int owner) {
        if ((threadIdx.x & 31) != owner) return;
        // A state in registers has no address: each is asked whether it is meant.
#pragma unroll
        for (int i = 0; i < rows; i++)
            if (i == which) take_some(*this, sums, i, m, n, columns);
    }
    template <int lanes> KW_DEVICE void leave(int which, int64_t m, bool inside, int part) {
        auto one = state[which].folded();
#pragma unroll
        for (int apart = 1; apart < lanes; apart *= 2) row_pieces::merge_lane(one, apart);
        if (inside && (threadIdx.x & (lanes - 1)) == 0) row_pieces::leave<Rows>(args, m * parts + part, one);
    }
};

}  // namespace kw::gemm
