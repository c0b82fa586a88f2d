// kw: gemm::applied
// What is computed of a product's operand, element by element, on its way from memory to the tensor cores.
//
//   struct Prologue {
//     struct Args { ... };
//     static constexpr int vector;  // the most neighbours of one call: 4 or 1
//     template <int N> static __device__ void apply(const Args&, float (&x)[N], int64_t row, int64_t k);
//   };
//
// `x` are N neighbours along k of the operand's row `row`, all inside it, as they lie in memory; k is a multiple of N. Rows
// of batch b are b * M ... b * M + M - 1. What lies beyond the operand is zero and stays so: it is never handed over.
#pragma once

#include "../device/base.cuh"

namespace kw::gemm {

// kw: AsItLies is_as_it_lies
// The operand itself.
struct AsItLies {
    struct Args {};
    static constexpr int vector = 4;
    template <int N> KW_DEVICE static void apply(const Args&, float (&)[N], int64_t, int64_t) {}
};
template <class Prologue> constexpr bool is_as_it_lies = false;
template <> constexpr bool is_as_it_lies<AsItLies> = true;

// kw: applied
template <class Prologue> KW_DEVICE float applied(const typename Prologue::Args& args, float x, int64_t row, int64_t k) {
    float one[1] = {x};
    Prologue::template apply<1>(args, one, row, k);
    return one[0];
}

// kw: apply_four
// Four neighbours, from a multiple of 4 on; those before `k_count` are inside.
template <class Prologue>
KW_DEVICE void apply_four(const typename Prologue::Args& args, float (&x)[4], int64_t row, int k, int k_count) {
    if constexpr (Prologue::vector == 4) {  // k_count is a multiple of 4, too
        if (k < k_count) Prologue::template apply<4>(args, x, row, k);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (k + i < k_count) x[i] = applied<Prologue>(args, x[i], row, k + i);
    }
}

}  // namespace kw::gemm
