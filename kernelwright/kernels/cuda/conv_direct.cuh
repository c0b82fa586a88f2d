// Y = Epilogue(convolution of X) in IEEE float32 on the CUDA cores: for depthwise convolutions and small groups, which
// move more bytes than they multiply, and for whatever the tensor cores do not take. Plain and transposed, one to three
// axes of space, any stride, dilation and padding.
//
// A block copies what its outputs read of X into shared memory, zeros around the edges included, and its weights. Then a
// thread computes a small rectangle of outputs of one plane: of every row of inputs it reads what all its outputs need
// into registers, once, and uses it for all of them. All sizes are constants, so that the loops over taps unroll and
// nothing is asked or computed about a tap while the kernel runs.
//
// Transposed: input i and tap k add to output i * stride - padding + k * dilation. A thread that has `lanes` neighbours
// of the input has lanes * stride neighbours of the output; which of them a tap adds to is again a constant.
#pragma once

#include "../device/vec.cuh"

namespace kw::conv_direct {

// A build fixes these; the generated file writes such a struct. Axes of space are d, h, w; pitches are in elements.
struct DefaultConfig {
    using Type = float;
    static constexpr bool transposed = false, flat = true;  // flat: columns of the epilogue are places in a plane
    static constexpr int vector = 2;                        // neighbours of one Epilogue::store: 4, 2 or 1
    static constexpr int lanes = 4, rows = 4;               // of a thread: places along w and along h
    static constexpr int thread_outputs = 1;                // channels of a thread
    static constexpr int threads_o = 1, threads_p = 1, threads_d = 1, threads_h = 8, threads_w = 32;  // of a block
    static constexpr int chunk = 1;                         // channels in shared memory at once
    static constexpr int images = 16, groups = 64, channels = 1, outputs = 1;  // channels and outputs of a group
    static constexpr int taps_d = 1, taps_h = 3, taps_w = 3, stride_d = 1, stride_h = 1, stride_w = 1;
    static constexpr int padding_d = 0, padding_h = 0, padding_w = 0, dilation_d = 1, dilation_h = 1, dilation_w = 1;
    static constexpr int places_d = 1, places_h = 510, places_w = 510;  // outputs; of transposed ones, those of a phase
    static constexpr int x_d = 1, x_h = 512, x_w = 512, y_d = 1, y_h = 510, y_w = 510;
    static constexpr int64_t x_image_pitch = 16777216, x_channel_pitch = 262144, x_d_pitch = 262144, x_h_pitch = 512,
                             x_w_pitch = 1;
    static constexpr int64_t w_group_pitch = 9, w_output_pitch = 9, w_channel_pitch = 9, w_d_pitch = 9, w_h_pitch = 3,
                             w_w_pitch = 1;
};

__host__ __device__ constexpr int ceil_div(int value, int divisor) { return (value + divisor - 1) / divisor; }

// One axis. Place q of the input side (of a plain convolution: of the output) is where a thread's outputs begin.
template <bool Transposed, int Taps, int Stride, int Padding, int Dilation> struct Axis {
    static constexpr int taps = Taps;
    static constexpr int step = Transposed ? 1 : Stride;    // inputs between neighbouring places
    static constexpr int phases = Transposed ? Stride : 1;  // outputs of a place

    // k * Dilation - Padding, divided by the stride and rounded down, and what is left.
    __host__ __device__ static constexpr int quotient(int k) {
        return (k * Dilation - Padding + Padding * Stride) / Stride - Padding;
    }
    __host__ __device__ static constexpr int phase(int k) {
        return Transposed ? k * Dilation - Padding - quotient(k) * Stride : 0;
    }
    // The first input that place 0 reads, and where tap k reads, counted from there.
    static constexpr int lowest = Transposed ? -((Taps - 1) * Dilation - Padding + Padding * Stride) / Stride + Padding
                                             : -Padding;
    __host__ __device__ static constexpr int at(int k) {
        return Transposed ? -quotient(k) - lowest : k * Dilation;
    }
    static constexpr int reach = (Transposed ? at(0) : (Taps - 1) * Dilation) + 1;
    __host__ __device__ static constexpr int span(int places) { return (places - 1) * step + reach; }
};

template <class C> struct Sizes {
    using D = Axis<C::transposed, C::taps_d, C::stride_d, C::padding_d, C::dilation_d>;
    using H = Axis<C::transposed, C::taps_h, C::stride_h, C::padding_h, C::dilation_h>;
    using W = Axis<C::transposed, C::taps_w, C::stride_w, C::padding_w, C::dilation_w>;
    static constexpr int threads = C::threads_o * C::threads_p * C::threads_d * C::threads_h * C::threads_w;
    static constexpr int tile_h = C::threads_h * C::rows, tile_w = C::threads_w * C::lanes;
    static constexpr int tile_o = C::threads_o * C::thread_outputs;
    static constexpr int region_d = D::span(C::threads_d), region_h = H::span(tile_h), region_w = W::span(tile_w);
    // What a thread reads of a row; in fours where every thread begins at a multiple of 4 and uses most of it.
    static constexpr int line = W::span(C::lanes);
    static constexpr bool in_fours = C::lanes * W::step % 4 == 0 && line <= 3 * (C::lanes + C::taps_w);
    static constexpr int pitch = (region_w + 3) / 4 * 4 + (in_fours ? 4 : 0);
    static constexpr int plane = region_d * region_h * pitch;  // of one channel in shared memory
    static constexpr int taps = C::taps_d * C::taps_h * C::taps_w;
    static constexpr int chunks = ceil_div(C::channels, C::chunk);
    static constexpr int results = C::lanes * W::phases;  // neighbours of a thread's row of outputs
    static constexpr int bytes =
        4 * (C::threads_p * C::chunk * plane + (C::threads_p * tile_o * C::chunk * taps + 3) / 4 * 4);
    static_assert(threads % 32 == 0, "whole warps");
    static_assert(results % C::vector == 0, "a row of outputs is whole vectors");
};

struct Work {
    int first_output, plane, d, h, w;  // plane: image * groups + group; d, h, w: places
};

template <class C> KW_DEVICE Work work_of(unsigned index) {
    using S = Sizes<C>;
    auto take = [&](int count) {
        const int digit = index % (unsigned)count;
        index /= (unsigned)count;
        return digit;
    };
    Work work;
    work.first_output = take(ceil_div(C::outputs, S::tile_o)) * S::tile_o;
    work.w = take(ceil_div(C::places_w, S::tile_w)) * S::tile_w;
    work.h = take(ceil_div(C::places_h, S::tile_h)) * S::tile_h;
    work.d = take(ceil_div(C::places_d, C::threads_d)) * C::threads_d;
    work.plane = index * C::threads_p;
    return work;
}

template <class C> int64_t blocks_of() {
    using S = Sizes<C>;
    return (int64_t)ceil_div(C::outputs, S::tile_o) * ceil_div(C::places_w, S::tile_w) *
           ceil_div(C::places_h, S::tile_h) * ceil_div(C::places_d, C::threads_d) *
           ceil_div(C::images * C::groups, C::threads_p);
}

// The inputs of `chunk` channels of the block's planes; zeros outside X.
template <class C>
KW_DEVICE void copy_inputs(float* to, const typename C::Type* x, const Work& work, int first_channel) {
    using S = Sizes<C>;
    // Unsigned: to divide those takes fewer instructions.
    constexpr unsigned width = S::region_w, height = S::region_h, depth = S::region_d, channels = C::chunk,
                       count = C::threads_p * channels * depth * height * width, groups = C::groups;
    const int first_d = work.d * S::D::step + S::D::lowest, first_h = work.h * S::H::step + S::H::lowest,
              first_w = work.w * S::W::step + S::W::lowest;
#pragma unroll 8
    for (unsigned i = threadIdx.x; i < count; i += S::threads) {
        const unsigned column = i % width, row = i / width, plane = work.plane + row / (height * depth * channels);
        const int h = first_h + (int)(row % height), w = first_w + (int)column, d = first_d + (int)(row / height % depth);
        const int channel = first_channel + (int)(row / (height * depth) % channels);
        const int image = (int)(plane / groups), group = (int)(plane % groups);
        const bool inside = (unsigned)w < (unsigned)C::x_w && (unsigned)h < (unsigned)C::x_h &&
                            (unsigned)d < (unsigned)C::x_d && channel < C::channels && image < C::images;
        const int64_t at = image * C::x_image_pitch + (int64_t)(group * C::channels + channel) * C::x_channel_pitch +
                           d * C::x_d_pitch + h * C::x_h_pitch + w * C::x_w_pitch;
        to[row * S::pitch + column] = inside ? widen(load_constant<1>(x + at)[0]) : 0.f;
    }
}

// The weights of the same channels, [plane][output][channel][tap]; zeros beyond the last channel.
template <class C>
KW_DEVICE void copy_weights(float* to, const typename C::Type* weight, const Work& work, int first_channel) {
    using S = Sizes<C>;
    constexpr int count = C::threads_p * S::tile_o * C::chunk * S::taps;
    for (int i = threadIdx.x; i < count; i += S::threads) {
        const int kw = i % C::taps_w, kh = i / C::taps_w % C::taps_h, kd = i / (C::taps_w * C::taps_h) % C::taps_d;
        const int channel = first_channel + i / S::taps % C::chunk,
                  output = work.first_output + i / (S::taps * C::chunk) % S::tile_o;
        const int group = (work.plane + i / (S::taps * C::chunk * S::tile_o)) % C::groups;
        const int64_t at = (int64_t)group * C::w_group_pitch + output * C::w_output_pitch +
                           channel * C::w_channel_pitch + kd * C::w_d_pitch + kh * C::w_h_pitch + kw * C::w_w_pitch;
        to[i] = channel < C::channels && output < C::outputs ? widen(load_constant<1>(weight + at)[0]) : 0.f;
    }
}

template <class C> struct Sums {
    using S = Sizes<C>;
    float of[C::thread_outputs][S::D::phases][C::rows * S::H::phases][S::results];

    KW_DEVICE Sums() {
        constexpr int count = sizeof of / sizeof(float);
#pragma unroll
        for (int i = 0; i < count; i++) (&of[0][0][0][0])[i] = 0.f;
    }
    KW_DEVICE static void read_line(float (&line)[(S::line + 3) / 4 * 4], const float* from) {
        if constexpr (S::in_fours) {
#pragma unroll
            for (int i = 0; i < S::line; i += 4) {
                const Vec<float, 4> four = load<4>(from + i);
#pragma unroll
                for (int j = 0; j < 4; j++) line[i + j] = four[j];
            }
        } else {
#pragma unroll
            for (int i = 0; i < S::line; i++) line[i] = from[i];
        }
    }
    // One channel: x at the thread's first input, weight at [output][channel][tap].
    KW_DEVICE void add(const float* x, const float* weight) {
        constexpr int weights_of_output = C::chunk * S::taps;
#pragma unroll
        for (int kd = 0; kd < C::taps_d; kd++)
#pragma unroll
            for (int i = 0; i < S::H::span(C::rows); i++) {
                float line[(S::line + 3) / 4 * 4];
                read_line(line, x + (S::D::at(kd) * S::region_h + i) * S::pitch);
#pragma unroll
                for (int row = 0; row < C::rows; row++)
#pragma unroll
                    for (int kh = 0; kh < C::taps_h; kh++) {
                        if (S::H::at(kh) + row * S::H::step != i) continue;
#pragma unroll
                        for (int kw = 0; kw < C::taps_w; kw++)
#pragma unroll
                            for (int o = 0; o < C::thread_outputs; o++) {
                                const float w = weight[o * weights_of_output + (kd * C::taps_h + kh) * C::taps_w + kw];
                                float(&sums)[S::results] = of[o][S::D::phase(kd)][row * S::H::phases + S::H::phase(kh)];
#pragma unroll
                                for (int lane = 0; lane < C::lanes; lane++) {
                                    float& sum = sums[lane * S::W::phases + S::W::phase(kw)];
                                    sum = fmaf(line[lane * S::W::step + S::W::at(kw)], w, sum);
                                }
                            }
                    }
            }
    }
};

// A row of neighbours, from place (d, h, w) of the result on.
template <class C, class Epilogue>
KW_DEVICE void store_row(const typename Epilogue::Args& args, const float (&row)[Sizes<C>::results], int64_t plane,
                         int d, int h, int w) {
#pragma unroll
    for (int i = 0; i < Sizes<C>::results; i += C::vector) {
        if (w + i >= C::y_w) return;
        float v[C::vector];
#pragma unroll
        for (int j = 0; j < C::vector; j++) v[j] = row[i + j];
        if constexpr (C::flat)
            Epilogue::template store<C::vector>(args, v, plane, ((int64_t)d * C::y_h + h) * C::y_w + w + i);
        else
            Epilogue::template store<C::vector>(args, v, (plane * C::y_d + d) * C::y_h + h, w + i);
    }
}

template <class C, class Epilogue>
__global__ void __launch_bounds__(Sizes<C>::threads, 1)
    convolve_kernel(const typename C::Type* __restrict__ x, const typename C::Type* __restrict__ weight,
                    const __grid_constant__ typename Epilogue::Args args) {
    using S = Sizes<C>;
    extern __shared__ uint4 dynamic[];
    float* inputs = (float*)dynamic;
    float* weights = inputs + C::threads_p * C::chunk * S::plane;
    const Work work = work_of<C>(blockIdx.x);
    const int tw = threadIdx.x % C::threads_w, th = threadIdx.x / C::threads_w % C::threads_h,
              td = threadIdx.x / (C::threads_w * C::threads_h) % C::threads_d,
              tp = threadIdx.x / (C::threads_w * C::threads_h * C::threads_d) % C::threads_p,
              to = threadIdx.x / (C::threads_w * C::threads_h * C::threads_d * C::threads_p);
    const float* own_inputs = inputs + tp * C::chunk * S::plane +
                              (td * S::D::step * S::region_h + th * C::rows * S::H::step) * S::pitch +
                              tw * C::lanes * S::W::step;
    const float* own_weights = weights + (tp * S::tile_o + to * C::thread_outputs) * C::chunk * S::taps;
    Sums<C> sums;
#pragma unroll 1
    for (int chunk = 0; chunk < S::chunks; chunk++) {
        if (chunk > 0) __syncthreads();  // the channels before have been read
        copy_inputs<C>(inputs, x, work, chunk * C::chunk);
        copy_weights<C>(weights, weight, work, chunk * C::chunk);
        __syncthreads();
#pragma unroll 1
        for (int c = 0; c < C::chunk; c++) sums.add(own_inputs + c * S::plane, own_weights + c * S::taps);
    }
    const int image = (work.plane + tp) / C::groups, group = (work.plane + tp) % C::groups;
    if (image >= C::images) return;
#pragma unroll
    for (int o = 0; o < C::thread_outputs; o++) {
        const int output = work.first_output + to * C::thread_outputs + o;
        if (output >= C::outputs) continue;
        const int64_t plane = ((int64_t)image * C::groups + group) * C::outputs + output;
#pragma unroll
        for (int pd = 0; pd < S::D::phases; pd++)
#pragma unroll
            for (int row = 0; row < C::rows * S::H::phases; row++) {
                const int d = (work.d + td) * S::D::phases + pd,
                          h = (work.h + th * C::rows) * S::H::phases + row,
                          w = (work.w + tw * C::lanes) * S::W::phases;
                if (d < C::y_d && h < C::y_h) store_row<C, Epilogue>(args, sums.of[o][pd][row], plane, d, h, w);
            }
    }
}

#ifndef __CUDACC_RTC__
// Enqueues the convolution; allocates nothing and waits for nothing.
template <class C, class Epilogue>
cudaError_t launch(const typename C::Type* x, const typename C::Type* weight, const typename Epilogue::Args& args,
                   cudaStream_t stream) {
    constexpr int bytes = Sizes<C>::bytes;
    auto kernel = convolve_kernel<C, Epilogue>;
    if (bytes > 48 * 1024) {
        const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        if (status != cudaSuccess) return status;
    }
    kernel<<<(unsigned)blocks_of<C>(), Sizes<C>::threads, bytes, stream>>>(x, weight, args);
    return cudaGetLastError();
}
#endif

}  // namespace kw::conv_direct
