// Y = Epilogue(convolution of X) in IEEE float32 on the CUDA cores: for depthwise convolutions and small groups, which
// move more bytes than they multiply, and for whatever the tensor cores do not take. Plain and transposed, one to three
// axes of space, any stride, dilation and padding.
//
// A thread computes a small rectangle of outputs of one plane: of every row of inputs it reads what all its outputs
// need into registers, once, and uses it for all of them. All sizes are constants, so that the loops over taps unroll
// and nothing is asked or computed about a tap while the kernel runs.
//
// Straight: a thread reads X itself, many rows ahead of their use; what neighbours read too is in the L1 cache. Nobody
// waits for anybody. Staged: a block copies what its outputs read of X into shared memory, zeros around the edges
// included, and its weights; for where many threads, of several outputs, read the same.
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
    static constexpr bool staged = false;                   // X goes through shared memory
    static constexpr int vector = 2;                        // neighbours of one Epilogue::store: 4, 2 or 1
    static constexpr int x_vector = 4;                      // neighbours that X can load at once, from multiples of it
    static constexpr int lanes = 2, rows = 8;               // of a thread: places along w and along h
    static constexpr int thread_outputs = 1;                // channels of a thread
    static constexpr int threads_o = 1, threads_p = 1, threads_d = 1, threads_h = 4, threads_w = 64;  // of a block
    static constexpr int resident = 4;                      // blocks that registers of a multiprocessor are to be for
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
__host__ __device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }

// The largest of 4, 2 and 1 that divides n.
__host__ __device__ constexpr int vector_in(int n) { return n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1; }

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
    // A line is what a thread reads of a row, in slots. Slot 0 lies up to 3 columns before the first that is read,
    // so that it is a multiple of `line_vector` in columns of X, and of a row in shared memory: vectors begin there.
    static constexpr int skip = (W::lowest % 4 + 4) % 4;
    static constexpr int first_column = W::lowest - skip;  // of place 0
    static constexpr int slots = (skip + W::span(C::lanes) + 3) / 4 * 4;
    static constexpr int line_vector = vector_in(C::lanes * W::step);
    static constexpr int copy_vector = smaller(C::x_vector, vector_in(tile_w * W::step));
    static constexpr int straight_vector = smaller(C::x_vector, line_vector);
    // Rows in shared memory; another 4, so that threads one above the other read other banks.
    static constexpr int row_slots = ceil_div(skip + region_w, copy_vector) * copy_vector;
    static constexpr int pitch = (skip + region_w + 3) / 4 * 4 + (line_vector == 4 ? 4 : 0);
    static constexpr int plane = region_d * region_h * pitch;  // of one channel in shared memory
    static constexpr int taps = C::taps_d * C::taps_h * C::taps_w;
    static constexpr int chunks = ceil_div(C::channels, C::chunk);
    static constexpr int results = C::lanes * W::phases;  // neighbours of a thread's row of outputs
    static constexpr int bytes =
        C::staged ? 4 * (C::threads_p * C::chunk * plane + (C::threads_p * tile_o * C::chunk * taps + 3) / 4 * 4) : 0;
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

// --- lines

// How many slots of a line, of `count` from `first` on, some output of the thread reads.
template <class C> __host__ __device__ constexpr int read_of(int first, int count) {
    using S = Sizes<C>;
    int found = 0;
    for (int slot = first; slot < first + count; slot++) {
        bool is_read = false;
        for (int lane = 0; lane < C::lanes; lane++)
            for (int kw = 0; kw < C::taps_w; kw++)
                is_read = is_read || slot == S::skip + lane * S::W::step + S::W::at(kw);
        found += is_read;
    }
    return found;
}

// Whether some output of the thread reads row i.
template <class C> __host__ __device__ constexpr bool reads_row(int i) {
    using H = typename Sizes<C>::H;
    for (int row = 0; row < C::rows; row++)
        for (int kh = 0; kh < C::taps_h; kh++)
            if (row * H::step + H::at(kh) == i) return true;
    return false;
}

template <class C> using Line = float[Sizes<C>::slots];

// Slots [At, At + Count) from a row: as one vector, or in halves where one of them is not read.
template <class C, int At, int Count, class Row> KW_DEVICE void read_part(Line<C>& line, const Row& row) {
    constexpr int half = Count / 2;
    if constexpr (Count > 1 && (read_of<C>(At, half) == 0 || read_of<C>(At + half, half) == 0)) {
        read_part<C, At, half>(line, row);
        read_part<C, At + half, half>(line, row);
    } else if constexpr (read_of<C>(At, Count) > 0) {
        const Vec<float, Count> part = row.template read<At, Count>();
#pragma unroll
        for (int i = 0; i < Count; i++) line[At + i] = part[i];
    }
}

template <class C, int Vector, int At = 0, class Row> KW_DEVICE void read_line(Line<C>& line, const Row& row) {
    if constexpr (At < Sizes<C>::slots) {
        read_part<C, At, Vector>(line, row);
        read_line<C, Vector, At + Vector>(line, row);
    }
}

template <class T, int N> KW_DEVICE Vec<float, N> widened(const Vec<T, N>& x) {
    Vec<float, N> y;
#pragma unroll
    for (int i = 0; i < N; i++) y[i] = widen(x[i]);
    return y;
}

struct SharedRow {
    const float* first;  // slot 0

    template <int At, int Count> KW_DEVICE Vec<float, Count> read() const { return load<Count>(first + At); }
};

template <class C> struct GlobalRow {
    const typename C::Type* first;  // slot 0, which may lie outside of X
    int w;                          // its column
    bool inside;                    // the row

    template <int At, int Count> KW_DEVICE Vec<float, Count> read() const {
        using S = Sizes<C>;
        // A column that is inside for every thread is not asked about.
        constexpr int last_place = (ceil_div(C::places_w, C::lanes) - 1) * C::lanes, column = S::first_column + At;
        constexpr bool always = column >= 0 && last_place * S::W::step + column + Count <= C::x_w;
        if (inside && (always || (unsigned)(w + At) < (unsigned)C::x_w))
            return widened(load_constant<Count>(first + At * C::x_w_pitch));
        return fill<Count>(0.f);
    }
};

// --- staged: through shared memory

// The inputs of `chunk` channels of the block's planes; zeros outside X. Neighbouring threads take a row, so that only
// the number of a row is divided; a thread loads several vectors before it stores the first.
template <class C>
KW_DEVICE void copy_inputs(float* to, const typename C::Type* x, const Work& work, int first_channel) {
    using S = Sizes<C>;
    constexpr int vectors = S::row_slots / S::copy_vector;
    constexpr int beside = vectors > 16 ? 32 : vectors > 8 ? 16 : 8;  // threads of a row
    constexpr int each = ceil_div(vectors, beside), together = each < 4 ? 4 / each : 1;
    constexpr unsigned height = S::region_h, depth = S::region_d, channels = C::chunk, groups = C::groups,
                       rows = C::threads_p * channels * depth * height, apart = S::threads / beside;
    const int first_d = work.d * S::D::step + S::D::lowest, first_h = work.h * S::H::step + S::H::lowest,
              first_w = work.w * S::W::step + S::first_column, first_vector = threadIdx.x % beside;
    for (unsigned first = threadIdx.x / beside; first < rows; first += together * apart) {
        Vec<float, S::copy_vector> values[together][each];
#pragma unroll
        for (int i = 0; i < together; i++) {
            const unsigned row = first + i * apart, plane = work.plane + row / (height * depth * channels);
            const int h = first_h + (int)(row % height), d = first_d + (int)(row / height % depth);
            const int channel = first_channel + (int)(row / (height * depth) % channels);
            const int image = (int)(plane / groups), group = (int)(plane % groups);
            const bool inside = row < rows && (unsigned)h < (unsigned)C::x_h && (unsigned)d < (unsigned)C::x_d &&
                                channel < C::channels && image < C::images;
            const typename C::Type* from = x + image * C::x_image_pitch +
                                           (int64_t)(group * C::channels + channel) * C::x_channel_pitch +
                                           d * C::x_d_pitch + h * C::x_h_pitch + first_w * C::x_w_pitch;
#pragma unroll
            for (int j = 0; j < each; j++) {
                const int vector = first_vector + j * beside, slot = vector * S::copy_vector;
                values[i][j] = fill<S::copy_vector>(0.f);
                if (inside && vector < vectors && (unsigned)(first_w + slot) < (unsigned)C::x_w)
                    values[i][j] = widened(load_constant<S::copy_vector>(from + slot * C::x_w_pitch));
            }
        }
#pragma unroll
        for (int i = 0; i < together; i++)
#pragma unroll
            for (int j = 0; j < each; j++) {
                const unsigned row = first + i * apart;
                const int vector = first_vector + j * beside;
                if (row < rows && vector < vectors)
                    *reinterpret_cast<Vec<float, S::copy_vector>*>(to + row * S::pitch + vector * S::copy_vector) =
                        values[i][j];
            }
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

// [output][channel][tap] of shared memory, from the thread's first output on.
template <class C> struct SharedWeights {
    const float* first;

    KW_DEVICE float at(int output, int kd, int kh, int kw) const {
        return first[output * C::chunk * Sizes<C>::taps + (kd * C::taps_h + kh) * C::taps_w + kw];
    }
};

// --- straight

template <class C> struct GlobalWeights {
    const typename C::Type* first;
    int outputs;  // of the thread; it may have less than others

    KW_DEVICE float at(int output, int kd, int kh, int kw) const {
        if (C::outputs % C::thread_outputs != 0 && output >= outputs) return 0.f;
        return widen(load_constant<1>(first + output * C::w_output_pitch + kd * C::w_d_pitch + kh * C::w_h_pitch +
                                      kw * C::w_w_pitch)[0]);
    }
};

// Rows that a thread reads before it uses the first: as many as its registers hold.
template <class C> struct Window {
    using S = Sizes<C>;
    static constexpr int registers = 64, rows = S::H::span(C::rows);
    static constexpr int most = registers / read_of<C>(0, S::slots) > 0 ? registers / read_of<C>(0, S::slots) : 1;
    static constexpr int size = ceil_div(rows, ceil_div(rows, most));
    float lines[size][S::slots];

    // Rows [first, first + size) of the thread's; x at slot 0 of the thread's row 0, which is row h of X.
    KW_DEVICE void read(const typename C::Type* x, int first, int h, int w, bool inside) {
        // Far from the edges no row is looked at.
        if (inside && h + first >= 0 && h + smaller(first + size, rows) <= C::x_h) {
#pragma unroll
            for (int i = 0; i < size; i++)
                if (reads_row<C>(first + i))
                    read_line<C, S::straight_vector>(lines[i], GlobalRow<C>{x + (first + i) * C::x_h_pitch, w, true});
        } else {
#pragma unroll
            for (int i = 0; i < size; i++)
                if (reads_row<C>(first + i))
                    read_line<C, S::straight_vector>(
                        lines[i], GlobalRow<C>{x + (first + i) * C::x_h_pitch, w,
                                               inside && (unsigned)(h + first + i) < (unsigned)C::x_h});
        }
    }
};

// --- sums

template <class C> struct Sums {
    using S = Sizes<C>;
    float of[C::thread_outputs][S::D::phases][C::rows * S::H::phases][S::results];

    KW_DEVICE Sums() {
        constexpr int count = sizeof of / sizeof(float);
#pragma unroll
        for (int i = 0; i < count; i++) (&of[0][0][0][0])[i] = 0.f;
    }
    // Row i of the thread's inputs, under the taps of kd.
    template <class Weights> KW_DEVICE void add(const Line<C>& line, int i, int kd, const Weights& weights) {
#pragma unroll
        for (int row = 0; row < C::rows; row++)
#pragma unroll
            for (int kh = 0; kh < C::taps_h; kh++) {
                if (S::H::at(kh) + row * S::H::step != i) continue;
#pragma unroll
                for (int kw = 0; kw < C::taps_w; kw++)
#pragma unroll
                    for (int o = 0; o < C::thread_outputs; o++) {
                        const float w = weights.at(o, kd, kh, kw);
                        float(&sums)[S::results] = of[o][S::D::phase(kd)][row * S::H::phases + S::H::phase(kh)];
#pragma unroll
                        for (int lane = 0; lane < C::lanes; lane++) {
                            float& sum = sums[lane * S::W::phases + S::W::phase(kw)];
                            sum = fmaf(line[S::skip + lane * S::W::step + S::W::at(kw)], w, sum);
                        }
                    }
            }
    }
    // One channel in shared memory: x at slot 0 of the thread's first row.
    KW_DEVICE void add_staged(const float* x, const SharedWeights<C>& weights) {
#pragma unroll
        for (int kd = 0; kd < C::taps_d; kd++)
#pragma unroll
            for (int i = 0; i < S::H::span(C::rows); i++) {
                if (!reads_row<C>(i)) continue;
                float line[S::slots];
                read_line<C, S::line_vector>(line, SharedRow{x + (S::D::at(kd) * S::region_h + i) * S::pitch});
                add(line, i, kd, weights);
            }
    }
    // One channel of X: x at slot 0 of the thread's first row, which is at (d, h, w).
    KW_DEVICE void add_straight(const typename C::Type* x, int d, int h, int w, const GlobalWeights<C>& weights) {
        using Rows = Window<C>;
#pragma unroll
        for (int kd = 0; kd < C::taps_d; kd++)
#pragma unroll
            for (int first = 0; first < Rows::rows; first += Rows::size) {
                Rows window;
                const bool inside = (unsigned)(d + S::D::at(kd)) < (unsigned)C::x_d;
                window.read(x + S::D::at(kd) * C::x_d_pitch, first, h, w, inside);
#pragma unroll
                for (int i = 0; i < Rows::size; i++) add(window.lines[i], first + i, kd, weights);
            }
    }
};

// What a thread has summed up, of one output channel; plane: image * outputs of all groups + output. (d, h, w) is the
// first of its places; the others are constants away from it, in addresses too, which takes a column of 64 bits.
template <class C, class Epilogue, class Planes>
KW_DEVICE void store_places(const typename Epilogue::Args& args, const Planes& sums, typename Epilogue::Index plane,
                            int d, int h, int w) {
    using S = Sizes<C>;
    using Index = typename Epilogue::Index;
    const Index first_row = C::flat ? plane : (plane * C::y_d + d) * C::y_h + h;
    const int64_t first_column = C::flat ? (int64_t(d) * C::y_h + h) * C::y_w + w : w;
#pragma unroll
    for (int i = 0; i < S::D::phases; i++)
#pragma unroll
        for (int j = 0; j < C::rows * S::H::phases; j++)
#pragma unroll
            for (int k = 0; k < S::results; k += C::vector) {
                if (d + i >= C::y_d || h + j >= C::y_h || w + k >= C::y_w) continue;
                float v[C::vector];
#pragma unroll
                for (int lane = 0; lane < C::vector; lane++) v[lane] = sums[i][j][k + lane];
                const int64_t below = (int64_t)i * C::y_h + j;
                if constexpr (C::flat)
                    Epilogue::template store<C::vector>(args, v, first_row, first_column + (below * C::y_w + k));
                else
                    Epilogue::template store<C::vector>(args, v, first_row + Index(below), first_column + k);
            }
}

// --- the kernel

// Which outputs a thread has: from `output` on, of plane image * groups + group, from place (d, h, w) on.
struct Own {
    int output, image, group, d, h, w;
};

// Through shared memory; every thread of the block takes part.
template <class C>
KW_DEVICE void sum_staged(Sums<C>& sums, const typename C::Type* x, const typename C::Type* weight, const Work& work,
                          int to, int tp, int td, int th, int tw) {
    using S = Sizes<C>;
    extern __shared__ uint4 dynamic[];
    float* inputs = (float*)dynamic;
    float* weights = inputs + C::threads_p * C::chunk * S::plane;
    const float* own_inputs = inputs + tp * C::chunk * S::plane +
                              (td * S::D::step * S::region_h + th * C::rows * S::H::step) * S::pitch +
                              tw * C::lanes * S::W::step;
    const float* own_weights = weights + (tp * S::tile_o + to * C::thread_outputs) * C::chunk * S::taps;
#pragma unroll 1
    for (int chunk = 0; chunk < S::chunks; chunk++) {
        if (chunk > 0) __syncthreads();  // the channels before have been read
        copy_inputs<C>(inputs, x, work, chunk * C::chunk);
        copy_weights<C>(weights, weight, work, chunk * C::chunk);
        __syncthreads();
#pragma unroll 1
        for (int c = 0; c < C::chunk; c++)
            sums.add_staged(own_inputs + c * S::plane, SharedWeights<C>{own_weights + c * S::taps});
    }
}

// By the thread itself, which has outputs.
template <class C>
KW_DEVICE void sum_straight(Sums<C>& sums, const typename C::Type* x, const typename C::Type* weight, const Own& own) {
    using S = Sizes<C>;
    const int d = own.d * S::D::step + S::D::lowest, h = own.h * S::H::step + S::H::lowest,
              w = own.w * S::W::step + S::first_column;
    x += own.image * C::x_image_pitch + (int64_t)own.group * C::channels * C::x_channel_pitch + d * C::x_d_pitch +
         h * C::x_h_pitch + w * C::x_w_pitch;
    weight += own.group * C::w_group_pitch + own.output * C::w_output_pitch;
#pragma unroll 1
    for (int channel = 0; channel < C::channels; channel++) {
        sums.add_straight(x, d, h, w, GlobalWeights<C>{weight, C::outputs - own.output});
        x += C::x_channel_pitch;
        weight += C::w_channel_pitch;
    }
}

template <class C, class Epilogue>
__global__ void __launch_bounds__(Sizes<C>::threads, C::resident)
    convolve_kernel(const typename C::Type* __restrict__ x, const typename C::Type* __restrict__ weight,
                    const __grid_constant__ typename Epilogue::Args args) {
    using S = Sizes<C>;
    const Work work = work_of<C>(blockIdx.x);
    const int tw = threadIdx.x % C::threads_w, th = threadIdx.x / C::threads_w % C::threads_h,
              td = threadIdx.x / (C::threads_w * C::threads_h) % C::threads_d,
              tp = threadIdx.x / (C::threads_w * C::threads_h * C::threads_d) % C::threads_p,
              to = threadIdx.x / (C::threads_w * C::threads_h * C::threads_d * C::threads_p);
    const Own own{work.first_output + to * C::thread_outputs,
                  (work.plane + tp) / C::groups,
                  (work.plane + tp) % C::groups,
                  work.d + td,
                  work.h + th * C::rows,
                  work.w + tw * C::lanes};
    const bool has_any = own.output < C::outputs && own.image < C::images && own.d < C::places_d &&
                         own.h < C::places_h && own.w < C::places_w;
    Sums<C> sums;
    if constexpr (C::staged) {
        sum_staged<C>(sums, x, weight, work, to, tp, td, th, tw);
        if (!has_any) return;
    } else {
        if (!has_any) return;
        sum_straight<C>(sums, x, weight, own);
    }
#pragma unroll
    for (int o = 0; o < C::thread_outputs; o++) {
        using Index = typename Epilogue::Index;
        if (own.output + o >= C::outputs) continue;
        const Index plane = (Index(own.image) * C::groups + own.group) * C::outputs + own.output + o;
        store_places<C, Epilogue>(args, sums.of[o], plane, own.d * S::D::phases, own.h * S::H::phases,
                                  own.w * S::W::phases);
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
