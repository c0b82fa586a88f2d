// C = Epilogue(A W^T) on a CPU where one operand has few rows (1 to 8): at the speed of reading the other one.
//
// A thread takes `rows` rows of the many and all of the few. Sums are vectors of neighbours along k, added up at the end;
// or of neighbouring rows, where those are neighbours in memory. Nothing is packed or copied.
#pragma once

#include "../device/vec.cuh"
#include <cstring>

namespace kw::gemm_small {

// A build fixes these; the generated file writes such a struct.
struct DefaultConfig {
    static constexpr int few = 1;            // rows of the operand with few rows
    static constexpr bool few_is_a = true;   // else W has few rows
    static constexpr bool along_k = true;    // neighbours in memory are neighbours along k, else rows of the many
    static constexpr int rows = 4;           // of the many at once
    static constexpr int64_t many = 1, k = 1, batches = 1;
    static constexpr int64_t few_row_pitch = 1, few_k_pitch = 1, few_batch_pitch = 0;
    static constexpr int64_t many_row_pitch = 1, many_k_pitch = 1, many_batch_pitch = 0;
};

typedef float Lanes __attribute__((vector_size(64)));
constexpr int lanes = 16;
constexpr int64_t worth_threads = 1 << 15;  // products; fewer take less time than to wake the threads

inline Lanes load_lanes(const float* p) {
    Lanes x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

template <class C> Lanes few_lanes(const float* p) {
    if constexpr (C::few_k_pitch == 1) return load_lanes(p);
    Lanes x;
    for (int i = 0; i < lanes; ++i) x[i] = p[i * C::few_k_pitch];
    return x;
}

// Neighbouring results of one of the few: along a row of C if A has few rows, else down a column.
template <class C, class Epilogue, int N>
void store(const typename Epilogue::Args& args, const float (&sums)[N], int64_t batch, int64_t f, int64_t first) {
    constexpr int64_t rows_of_batch = C::few_is_a ? C::few : C::many;
    if constexpr (C::few_is_a) {
        Epilogue::template store<N>(args, sums, batch * rows_of_batch + f, first);
    } else {
        for (int i = 0; i < N; ++i) {
            const float one[1] = {sums[i]};
            Epilogue::template store<1>(args, one, batch * rows_of_batch + first + i, f);
        }
    }
}

// R rows of the many, each along k.
template <class C, class Epilogue, int R>
void multiply_along_k(const float* few, const float* many, const typename Epilogue::Args& args, int64_t batch,
                      int64_t first) {
    Lanes sums[R][C::few] = {};
    const float* rows = many + first * C::many_row_pitch;
    constexpr int64_t whole = C::k / lanes * lanes;
    for (int64_t k = 0; k < whole; k += lanes) {
        Lanes x[C::few];
#pragma GCC unroll 8
        for (int f = 0; f < C::few; ++f) x[f] = few_lanes<C>(few + f * C::few_row_pitch + k * C::few_k_pitch);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const Lanes y = load_lanes(rows + r * C::many_row_pitch + k);
#pragma GCC unroll 8
            for (int f = 0; f < C::few; ++f) sums[r][f] += x[f] * y;
        }
    }
    for (int f = 0; f < C::few; ++f) {
        float results[R];
        for (int r = 0; r < R; ++r) {
            float rest = 0.f;
            for (int64_t k = whole; k < C::k; ++k)
                rest += few[f * C::few_row_pitch + k * C::few_k_pitch] * rows[r * C::many_row_pitch + k];
            float halves[lanes];
            std::memcpy(halves, &sums[r][f], sizeof halves);
            for (int width = lanes / 2; width; width /= 2)
                for (int i = 0; i < width; ++i) halves[i] += halves[i + width];
            results[r] = halves[0] + rest;
        }
        store<C, Epilogue>(args, results, batch, f, first);
    }
}

// Neighbouring rows of the many, at most C::rows: four steps of k at a time, each a stream through memory. Sums stay in
// the first cache.
template <class C, class Epilogue>
void multiply_across(const float* few, const float* many, const typename Epilogue::Args& args, int64_t batch,
                     int64_t first, int64_t width) {
    alignas(64) float sums[C::few][C::rows] = {};
    int64_t k = 0;
    for (; k + 4 <= C::k; k += 4) {
        const float* y0 = many + first + k * C::many_k_pitch;
        const float *y1 = y0 + C::many_k_pitch, *y2 = y1 + C::many_k_pitch, *y3 = y2 + C::many_k_pitch;
        for (int f = 0; f < C::few; ++f) {
            const float* x = few + f * C::few_row_pitch + k * C::few_k_pitch;
            const float x0 = x[0], x1 = x[C::few_k_pitch], x2 = x[2 * C::few_k_pitch], x3 = x[3 * C::few_k_pitch];
            KW_LANES for (int64_t i = 0; i < width; ++i)
                sums[f][i] += (x0 * y0[i] + x1 * y1[i]) + (x2 * y2[i] + x3 * y3[i]);
        }
    }
    for (; k < C::k; ++k)
        for (int f = 0; f < C::few; ++f) {
            const float x = few[f * C::few_row_pitch + k * C::few_k_pitch];
            const float* y = many + first + k * C::many_k_pitch;
            KW_LANES for (int64_t i = 0; i < width; ++i) sums[f][i] += x * y[i];
        }
    for (int f = 0; f < C::few; ++f) {
        int64_t i = 0;
        for (; i + lanes <= width; i += lanes) {
            float results[lanes];
            std::memcpy(results, &sums[f][i], sizeof results);
            store<C, Epilogue>(args, results, batch, f, first + i);
        }
        for (; i < width; ++i) {
            const float result[1] = {sums[f][i]};
            store<C, Epilogue>(args, result, batch, f, first + i);
        }
    }
}

template <class C, class Epilogue>
void multiply(const float* few, const float* many, const typename Epilogue::Args& args) {
    constexpr int64_t blocks = (C::many + C::rows - 1) / C::rows;
#pragma omp parallel for schedule(static) if (C::batches * C::many * C::few * C::k > worth_threads)
    for (int64_t block = 0; block < C::batches * blocks; ++block) {
        const int64_t batch = block / blocks, first = block % blocks * C::rows;
        const int64_t width = first + C::rows <= C::many ? C::rows : C::many - first;
        const float *x = few + batch * C::few_batch_pitch, *y = many + batch * C::many_batch_pitch;
        if constexpr (!C::along_k) {
            multiply_across<C, Epilogue>(x, y, args, batch, first, width);
        } else if (width == C::rows) {
            multiply_along_k<C, Epilogue, C::rows>(x, y, args, batch, first);
        } else {
            for (int64_t row = first; row < C::many; ++row) multiply_along_k<C, Epilogue, 1>(x, y, args, batch, row);
        }
    }
}

}  // namespace kw::gemm_small
