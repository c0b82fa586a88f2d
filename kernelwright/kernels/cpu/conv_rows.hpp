// Y = Epilogue(convolution) on a CPU where a group has few input channels: a row of outputs at a time, in NCHW order.
//
// A thread takes rows of one image and group. Of a row it computes `vectors` vectors of 16 neighbours for `block` output
// channels at once, sums in registers: what is read of the input serves all of them. Only where a vector reads past an
// end of the input is each of its lanes looked at. Nothing is packed or copied.
#pragma once

#include "../device/arithmetic.cuh"
#include "../device/vec.cuh"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)  // GCC 12 and clang
#define KW_EVERY_OTHER(a, b) \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#endif
#endif

namespace kw::conv_rows {

// A build fixes these; the generated file writes such a struct. Space has three axes; those not there have extent 1.
struct DefaultConfig {
    static constexpr int block = 4, vectors = 2;
    static constexpr bool flat = true;  // the epilogue takes planes by the places in them, else rows
    static constexpr int64_t images = 1, groups = 1, channels = 1, outputs = 1;  // of a group
    static constexpr int64_t x_d = 1, x_h = 1, x_w = 1, y_d = 1, y_h = 1, y_w = 1;
    static constexpr int64_t kernel_d = 1, kernel_h = 1, kernel_w = 1, stride_d = 1, stride_h = 1, stride_w = 1;
    static constexpr int64_t padding_d = 0, padding_h = 0, padding_w = 0;
    static constexpr int64_t dilation_d = 1, dilation_h = 1, dilation_w = 1;
    static constexpr int64_t x_image_pitch = 1, x_channel_pitch = 1, x_d_pitch = 1, x_h_pitch = 1;
    static constexpr int64_t w_group_pitch = 1, w_output_pitch = 1, w_channel_pitch = 1;
    static constexpr int64_t w_d_pitch = 1, w_h_pitch = 1, w_w_pitch = 1;
};

typedef float Lanes __attribute__((vector_size(64)));
constexpr int lanes = 16;
constexpr int64_t worth_threads = 1 << 15;  // products; fewer take less time than to wake the threads

KW_DEVICE Lanes multiply_add(float a, Lanes x, Lanes sum) {
#ifdef __AVX512F__
    return Lanes(_mm512_fmadd_ps(_mm512_set1_ps(a), __m512(x), __m512(sum)));
#else
    alignas(64) float xs[lanes], sums[lanes];
    __builtin_memcpy(xs, &x, sizeof xs);
    __builtin_memcpy(sums, &sum, sizeof sums);
    KW_LANES for (int i = 0; i < lanes; ++i) sums[i] = fma(a, xs[i], sums[i]);
    __builtin_memcpy(&sum, sums, sizeof sum);
    return sum;
#endif
}

KW_DEVICE Lanes load_lanes(const float* p) {
    Lanes x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}

// 16 inputs from `place` on, `step` apart; 0 where there is none.
template <class C, bool inside, int64_t step> KW_DEVICE Lanes load_inputs(const float* row, int64_t place) {
    if constexpr (inside && step == 1) return load_lanes(row + place);
    alignas(64) float x[lanes];
    if constexpr (inside) {
        KW_LANES for (int i = 0; i < lanes; ++i) x[i] = row[place + i * step];
    } else {
        const int first = int(place);
        KW_LANES for (int i = 0; i < lanes; ++i) {
            const int at = first + i * int(step);
            x[i] = at >= 0 && at < int(C::x_w) ? row[at] : 0.0f;
        }
    }
    return load_lanes(x);
}

// The inputs that 16 neighbouring outputs see of one tap, the first at `place`.
template <class C, bool inside> KW_DEVICE Lanes load_tap(const float* row, int64_t place) {
#ifdef KW_EVERY_OTHER
    if constexpr (C::stride_w == 2)
        return KW_EVERY_OTHER((load_inputs<C, inside, 1>(row, place)), (load_inputs<C, inside, 1>(row, place + lanes)));
#endif
    return load_inputs<C, inside, C::stride_w>(row, place);
}

// Neighbouring results of one output channel: 16, or the `width` that are left of a row.
template <class Epilogue>
KW_DEVICE void store(const typename Epilogue::Args& args, Lanes sums, int64_t row, int64_t column, int64_t width) {
    alignas(64) float results[lanes];
    __builtin_memcpy(results, &sums, sizeof results);
    if (width >= lanes) return Epilogue::template store<lanes>(args, results, row, column);
    int64_t i = 0;
    for (; i + 4 <= width; i += 4) {
        const float four[4] = {results[i], results[i + 1], results[i + 2], results[i + 3]};
        Epilogue::template store<4>(args, four, row, column + i);
    }
    for (; i < width; ++i) {
        const float one[1] = {results[i]};
        Epilogue::template store<1>(args, one, row, column + i);
    }
}

// Where a row of outputs lies, and what it reads.
struct Row {
    const float *x, *weight;  // of the image's and of the group's first channel
    int64_t plane, d, h;      // of the group's first output channel
};

// `block` output channels from `output` on, `vectors` vectors from column `w` on.
template <class C, class Epilogue, int block, int vectors, bool inside>
KW_DEVICE void convolve_block(const Row& r, const typename Epilogue::Args& args, int64_t output, int64_t w) {
    Lanes sums[block][vectors] = {};
    const float* weight = r.weight + output * C::w_output_pitch;
    const int64_t place = w * C::stride_w - C::padding_w;
    for (int64_t c = 0; c < C::channels; ++c)
        for (int64_t i = 0; i < C::kernel_d; ++i) {
            const int64_t d = r.d * C::stride_d - C::padding_d + i * C::dilation_d;
            if (uint64_t(d) >= uint64_t(C::x_d)) continue;
            for (int64_t j = 0; j < C::kernel_h; ++j) {
                const int64_t h = r.h * C::stride_h - C::padding_h + j * C::dilation_h;
                if (uint64_t(h) >= uint64_t(C::x_h)) continue;
                const float* row = r.x + c * C::x_channel_pitch + d * C::x_d_pitch + h * C::x_h_pitch;
                const float* tap = weight + c * C::w_channel_pitch + i * C::w_d_pitch + j * C::w_h_pitch;
#pragma GCC unroll 8
                for (int64_t k = 0; k < C::kernel_w; ++k) {
                    Lanes x[vectors];
#pragma GCC unroll 16
                    for (int v = 0; v < vectors; ++v)
                        x[v] = load_tap<C, inside>(row, place + k * C::dilation_w + v * lanes * C::stride_w);
#pragma GCC unroll 32
                    for (int o = 0; o < block; ++o)
#pragma GCC unroll 16
                        for (int v = 0; v < vectors; ++v)
                            sums[o][v] = multiply_add(tap[o * C::w_output_pitch + k * C::w_w_pitch], x[v], sums[o][v]);
                }
            }
        }
    for (int o = 0; o < block; ++o) {
        const int64_t plane = r.plane + output + o, line = r.d * C::y_h + r.h;
        const int64_t row = C::flat ? plane : plane * (C::y_d * C::y_h) + line, column = C::flat ? line * C::y_w : 0;
        for (int v = 0; v < vectors; ++v)
            store<Epilogue>(args, sums[o][v], row, column + w + v * lanes, C::y_w - (w + v * lanes));
    }
}

// All columns of a row: in the middle `vectors` at a time, at its ends one.
template <class C, class Epilogue, int block>
KW_DEVICE void convolve_outputs(const Row& r, const typename Epilogue::Args& args, int64_t output) {
    // Of every other input, the last that is loaded is not needed.
    constexpr int64_t last_tap = (C::kernel_w - 1) * C::dilation_w - C::padding_w + (C::stride_w == 2);
    const auto reads_inside = [](int64_t w, int64_t width) {
        return w * C::stride_w >= C::padding_w && (w + width - 1) * C::stride_w + last_tap < C::x_w;
    };
    for (int64_t w = 0; w < C::y_w;) {
        if (w + C::vectors * lanes <= C::y_w && reads_inside(w, C::vectors * lanes)) {
            convolve_block<C, Epilogue, block, C::vectors, true>(r, args, output, w);
            w += C::vectors * lanes;
        } else {
            if (reads_inside(w, lanes)) convolve_block<C, Epilogue, block, 1, true>(r, args, output, w);
            else convolve_block<C, Epilogue, block, 1, false>(r, args, output, w);
            w += lanes;
        }
    }
}

template <class C, class Epilogue>
void convolve(const float* x, const float* weight, const typename Epilogue::Args& args) {
    constexpr int64_t lines = C::y_d * C::y_h, rows = C::images * C::groups * lines;
    constexpr int64_t taps = C::kernel_d * C::kernel_h * C::kernel_w;
#pragma omp parallel for schedule(static) if (rows * C::y_w * C::outputs * C::channels * taps > worth_threads)
    for (int64_t number = 0; number < rows; ++number) {
        const int64_t line = number % lines, group = number / lines % C::groups, image = number / (lines * C::groups);
        const Row r{x + image * C::x_image_pitch + group * C::channels * C::x_channel_pitch,
                    weight + group * C::w_group_pitch, (image * C::groups + group) * C::outputs, line / C::y_h,
                    line % C::y_h};
        int64_t output = 0;
        for (; output + C::block <= C::outputs; output += C::block)
            convolve_outputs<C, Epilogue, C::block>(r, args, output);
        if constexpr (C::outputs % C::block != 0)
            for (; output < C::outputs; ++output) convolve_outputs<C, Epilogue, 1>(r, args, output);
    }
}

}  // namespace kw::conv_rows
