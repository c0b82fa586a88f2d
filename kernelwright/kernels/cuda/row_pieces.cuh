// Rows that lie in pieces: many threads of a product's or convolution's kernel leave what each knows of a row in a
// workspace, at a place of its own; a second launch merges the parts of a row, always in the same order, and finishes
// it. The epilogue is a struct as reduce.cuh runs it, with one phase, along its rows. It has more:
//
//   given(operands)     where N neighbouring sums of a row go
//   workspace(args)     where states are left: [rows][parts]
//   placeless           whether a step needs nothing but the sums, wherever in the row they lie
#pragma once

#include "reduce.cuh"

namespace kw::row_pieces {

template <class Epilogue> using State = typename Epilogue::template State<0, 1>;

// The state of the lane `apart` from this one, merged into its own.
template <class S> KW_DEVICE void merge_lane(S& state, int apart) {
    constexpr int words = ((int)sizeof(S) + 3) / 4;
    uint32_t word[words] = {};
    __builtin_memcpy(word, &state, sizeof state);
#pragma unroll
    for (int i = 0; i < words; i++) word[i] = __shfl_xor_sync(~0u, word[i], apart);
    S other;
    __builtin_memcpy(&other, word, sizeof other);
    state.merge(other);
}

template <class Epilogue>
KW_DEVICE void leave(const typename Epilogue::Args& args, int64_t at, const State<Epilogue>& state) {
    ((State<Epilogue>*)Epilogue::workspace(args))[at] = state;
}

// --- rows from their parts: by a warp, or by a block where there are many

template <class Epilogue, int64_t rows, int64_t parts>
__global__ void __launch_bounds__(256) finish_kernel(const __grid_constant__ typename Epilogue::Args args) {
    constexpr int team = parts > 512 ? 256 : 32;
    const int64_t row = (int64_t)blockIdx.x * (256 / team) + threadIdx.x / team;
    const State<Epilogue>* const states = (const State<Epilogue>*)Epilogue::workspace(args) + row * parts;
    State<Epilogue> state;
    state.clear();
    if (row < rows)
        for (int part = threadIdx.x % team; part < parts; part += team) state.merge(states[part]);
    if constexpr (team == 32) state = merged_in_warp<32>(state);
    else state = merged_in_block<256, 0>(state);
    if (row >= rows || threadIdx.x % team != 0) return;
    auto r = Epilogue::template begin<1>(args, (typename Epilogue::Index)row);
    Epilogue::finish(state, r);
    Epilogue::store_row(args, (typename Epilogue::Index)row, r);
}

#ifndef __CUDACC_RTC__
template <class Epilogue, int64_t rows, int64_t parts, int64_t workspace_bytes>
cudaError_t finish(const typename Epilogue::Args& args, cudaStream_t stream) {
    static_assert(rows * parts * (int64_t)sizeof(State<Epilogue>) <= workspace_bytes);
    static_assert(Epilogue::reductions == 1 && Epilogue::phases == 1, "what sees a row again is another kernel");
    constexpr int at_once = parts > 512 ? 1 : 8;
    finish_kernel<Epilogue, rows, parts><<<(unsigned)((rows + at_once - 1) / at_once), 256, 0, stream>>>(args);
    return cudaGetLastError();
}
#endif

}  // namespace kw::row_pieces
