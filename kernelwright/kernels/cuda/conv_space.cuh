// kw: conv::store_in
// What the convolution templates share: phases as the host lists them, and how sums are handed to the epilogue.
//
// A phase is a dense convolution; on each of its three axes of space, output q lies at y_first + q * y_step, and its tap
// j reads the input at q * stride + x_first + j * x_step and the weight at k_first + j * k_step (plan/convolutions.py).
//
//   struct Epilogue {
//     struct Args { ... };
//     template <int N> static __device__ void store(const Args&, const float (&sums)[N], int64_t row, int64_t column);
//   };
//
// `sums` are N neighbours of one channel. Where Config::flat, row is the plane (image and channel) and column the place
// in it; else column is the place on the last axis alone, and row counts all axes before it. One that has a single
// result, whose rows lie whole in memory, and reads nothing but what is the same for a row, may offer besides
//
//     template <int N> static __device__ Vec<float, N> values(const Args&, const float (&sums)[N], int64_t row, Index);
//     static __device__ float* place(const Args&, int64_t row, Index column);
#pragma once

#include "../device/vec.cuh"

namespace kw::conv {

// kw: Axis
struct Axis {
    int count, taps, x_base, x_first, x_step, k_first, k_step, y_first;  // x_base: where a tile's inputs begin
};

// kw: Phase
struct Phase {
    Axis axis[3];      // depth, height, width; axes that are not there have one output and one tap
    int64_t fragment;  // where its packed weights begin, in 16 bytes of every lane of a warp

    KW_DEVICE int taps() const { return axis[0].taps * axis[1].taps * axis[2].taps; }
};

// kw: Place
struct Place {  // of an output in its phase
    int image, d, h, w;
};

// kw: store_in
// N neighbours along w, from a place in the plane of an image and a channel on.
template <class Config, class Epilogue, int N>
KW_DEVICE void store_in(const typename Epilogue::Args& args, const float (&sums)[N], int64_t plane, int d, int h, int w) {
    if constexpr (Config::flat)
        Epilogue::template store<N>(args, sums, plane, ((int64_t)d * Config::y_h + h) * Config::y_w + w);
    else
        Epilogue::template store<N>(args, sums, (plane * Config::y_d + d) * Config::y_h + h, w);
}

// kw: values_in
// What becomes of them, and where the first of them lies.
template <class Config, class Epilogue, int N>
KW_DEVICE Vec<float, N> values_in(const typename Epilogue::Args& args, const float (&sums)[N], int64_t plane, int d, int h) {
    if constexpr (Config::flat) return Epilogue::template values<N>(args, sums, plane, 0);
    else return Epilogue::template values<N>(args, sums, (plane * Config::y_d + d) * Config::y_h + h, 0);
}
// kw: place_in
template <class Config, class Epilogue>
KW_DEVICE float* place_in(const typename Epilogue::Args& args, int64_t plane, int d, int h, int w) {
    if constexpr (Config::flat) return Epilogue::place(args, plane, (d * Config::y_h + h) * Config::y_w + w);
    else return Epilogue::place(args, (plane * Config::y_d + d) * Config::y_h + h, w);
}

// kw: store_at
// One sum at its place in a phase.
template <class Config, class Epilogue>
KW_DEVICE void store_at(const typename Epilogue::Args& args, float sum, const Phase& phase, const Place& place,
                        int channel) {
    const float one[1] = {sum};
    const int64_t plane = (int64_t)place.image * (Config::groups * Config::outputs) + channel;
    store_in<Config, Epilogue, 1>(args, one, plane, phase.axis[0].y_first + place.d * Config::y_step_d,
                                  phase.axis[1].y_first + place.h * Config::y_step_h,
                                  phase.axis[2].y_first + place.w * Config::y_step_w);
}

// kw: plain_sum
// One sum in plain float32, straight from memory: for results that are not finite.
template <class Config>
__device__ __noinline__ float plain_sum(const typename Config::Type* x, const typename Config::Type* weight,
                                        const Phase* phase, Place place, int group, int output) {
    const Axis &ad = phase->axis[0], &ah = phase->axis[1], &aw = phase->axis[2];
    float sum = 0.f;
    for (int c = 0; c < Config::channels; c++)
        for (int d = 0; d < ad.taps; d++)
            for (int h = 0; h < ah.taps; h++)
                for (int w = 0; w < aw.taps; w++) {
                    const int xd = place.d * Config::stride_d + ad.x_first + d * ad.x_step,
                              xh = place.h * Config::stride_h + ah.x_first + h * ah.x_step,
                              xw = place.w * Config::stride_w + aw.x_first + w * aw.x_step;
                    if (xd < 0 || xd >= Config::x_d || xh < 0 || xh >= Config::x_h || xw < 0 || xw >= Config::x_w)
                        continue;
                    const int64_t at = place.image * Config::x_image_pitch +
                                       (int64_t)(group * Config::channels + c) * Config::x_channel_pitch +
                                       xd * Config::x_d_pitch + xh * Config::x_h_pitch + xw * Config::x_w_pitch;
                    const int64_t tap = (int64_t)group * Config::w_group_pitch + output * Config::w_output_pitch +
                                        c * Config::w_channel_pitch + (ad.k_first + d * ad.k_step) * Config::w_d_pitch +
                                        (ah.k_first + h * ah.k_step) * Config::w_h_pitch +
                                        (aw.k_first + w * aw.k_step) * Config::w_w_pitch;
                    sum = fmaf(widen(load_constant<1>(x + at)[0]), widen(load_constant<1>(weight + tap)[0]), sum);
                }
    return sum;
}

}  // namespace kw::conv
