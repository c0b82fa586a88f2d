// kw: conv_mma::Sizes
// Y = Epilogue(convolution of X) on the tensor cores by mma.sync: any stride, dilation, padding and groups, one to three
// axes of space, transposed by phases; sm_80 and later.
//
// Rows of the product are output channels, columns are pixels. A block takes a tile of pixels. What its taps read of X,
// some channels at a time, goes into shared memory once, as float16, eight channels of a pixel ("octet") side by side.
// ldmatrix takes an address for each of its rows, so a tap is only an offset added to them: nothing is copied for each
// tap. Eight of k are one octet under one tap; weights lie in that order, packed as the lanes of a warp hold them.
//
// float16 has the 11 bits of TF32 but not its range: the input of a block is scaled by a power of two, as is each output
// channel of the weights. With three products every float32 is a pair of float16 (split.cuh), and every 32 of k leave
// the tensor core, which truncates, for float32 registers, which round. A sum that is not finite is computed again.
#pragma once

#include "../device/arithmetic.cuh"
#include "conv_space.cuh"
#include "ptx80.cuh"
#include "split.cuh"

namespace kw::conv_mma {

// kw: Axis Phase Place
using conv::Axis;
using conv::Phase;
using conv::Place;

// kw: DefaultConfig
// A build fixes these; the generated file writes such a struct. Axes of space are d, h, w; pitches are in elements.
struct DefaultConfig {
    using Type = float;
    static constexpr int products = 1;                      // 1: as TF32; 3: as float32
    static constexpr int tile_m = 64, tile_n = 256;         // output channels and pixels of a block
    static constexpr int warps = 8, warps_m = 2;            // of a block, and how many of them lie along the channels
    static constexpr int octets = 1;                        // of channels in shared memory at once
    static constexpr int fold = 1;                          // taps along w in an octet: 2, 4 or 8 where channels are few
    static constexpr int group = 1;                         // steps of 16 of k that belong together; 2 for three products
    static constexpr int blocks_at_once = 2;                // on a multiprocessor
    static constexpr bool ahead = false;                    // whether a block asks for a tile while it ends another
    static constexpr int vector = 2;                        // neighbours of one Epilogue::store: 4, 2 or 1
    static constexpr int w_phases = 1;                      // phases of the last axis that a block computes together
    static constexpr int turns = 1;                         // phases of d and h that a tile has, one after the other
    static constexpr bool flat = true;                      // columns of the epilogue are places in a plane
    static constexpr int tile_b = 1, tile_d = 1, tile_h = 8, tile_w = 32;      // the tile: images and outputs
    static constexpr int region_d = 1, region_h = 10, region_w = 34;           // the inputs it reads of one image
    static constexpr int images = 128, groups = 1, channels = 8, outputs = 64;  // channels and outputs of a group
    static constexpr int phases = 1, most_taps = 9, most_d = 1, most_h = 126, most_w = 126;  // outputs of any phase
    static constexpr int stride_d = 1, stride_h = 1, stride_w = 1;
    static constexpr int x_d = 1, x_h = 128, x_w = 128, y_d = 1, y_h = 126, y_w = 126;
    static constexpr int y_step_d = 1, y_step_h = 1, y_step_w = 1;
    static constexpr int64_t x_image_pitch = 131072, x_channel_pitch = 16384, x_d_pitch = 16384, x_h_pitch = 128,
                             x_w_pitch = 1;
    static constexpr int64_t w_group_pitch = 4608, w_output_pitch = 72, w_channel_pitch = 9, w_d_pitch = 9,
                             w_h_pitch = 3, w_w_pitch = 1;
};

// kw: ceil_div
__host__ __device__ constexpr int ceil_div(int value, int divisor) { return (value + divisor - 1) / divisor; }

// kw: Sizes
// Sizes that follow from a Config.
template <class C> struct Sizes {
    static constexpr int threads = C::warps * 32, warps_n = C::warps / C::warps_m;
    static constexpr int warp_m = C::tile_m / C::warps_m, warp_n = C::tile_n / warps_n;
    static constexpr int halves = C::products == 3 ? 2 : 1;  // of an element
    // Inputs of a row whose columns leave the same remainder by the stride lie side by side, as the outputs do.
    static constexpr int alike = ceil_div(C::region_w, C::stride_w), row = alike * C::stride_w;
    static constexpr int pixels = C::tile_b * C::region_d * C::region_h * row;
    static constexpr int units = C::octets * pixels;
    static constexpr int lanes = 8 / C::fold;  // channels of an octet
    static constexpr int chunks = ceil_div(C::channels, lanes * C::octets), buffers = chunks > 1 ? 2 : 1;
    static constexpr bool ragged = C::channels % (lanes * C::octets) != 0;  // the last chunk has fewer channels
    static constexpr int tiles_m = ceil_div(C::outputs, C::tile_m), fragments_m = tiles_m * C::tile_m / 16;
    static constexpr int most_steps = ceil_div(ceil_div(C::octets * C::most_taps, 2), C::group) * C::group;
    static constexpr int tile = C::tile_b * C::tile_d * C::tile_h * C::tile_w;
    static_assert(C::warps % C::warps_m == 0 && warp_m % 16 == 0 && warp_n % 8 == 0, "a warp has whole products");
    static_assert(tile <= C::tile_n, "the tile's pixels are columns");
    // All phases of the last axis together: two places are 2 * w_phases neighbours of the result.
    static constexpr bool joined = C::w_phases == C::y_step_w;
    static_assert(C::tile_w % 2 == 0 && C::phases % C::w_phases == 0, "two places lie in one row");
    static_assert(C::vector == 1 || (joined && C::tile_w * C::w_phases % C::vector == 0 && C::y_w % C::vector == 0),
                  "vectors begin at whole vectors of a row");
};

// kw: taps_of
// Taps of a phase, those that share an octet counted as one.
template <class C> KW_DEVICE int taps_of(const Phase& phase) {
    return phase.axis[0].taps * phase.axis[1].taps * ceil_div(phase.axis[2].taps, C::fold);
}

// kw: steps_of
// Steps of 16 of k in a chunk of channels.
template <class C> __host__ __device__ constexpr int steps_of(int taps) {
    return ceil_div(ceil_div(C::octets * taps, 2), C::group) * C::group;
}

// kw: Problem
template <class C> struct Problem {
    const typename C::Type *x, *weight;
    const uint4* fragments;  // [phase][group][16 channels][chunk][step][hi, lo][lane]
    const float* inverse;    // [group][channel]: undoes the weight's scale
    const int* offsets;      // [phase][step][first, second 8 of k]: where a tap's octet lies in the region
    Phase phases[C::phases];
};

// kw: Shared
template <class C> struct Shared {
    using S = Sizes<C>;
    int from[C::fold][S::pixels];                         // where a pixel of the region lies in X; -1: nowhere
    int offset[C::w_phases * C::turns][S::most_steps == 0 ? 2 : 2 * S::most_steps];  // of every 8 of k, in the region
    float largest[C::warps];
    uint4 region[S::buffers][S::halves][S::units];        // when the tile was multiplied, `End` has this memory
};

// --- which outputs a tile has. Phases and channels of one place run together, so that they find X in L2.

// kw: Work
struct Work {
    int phase, group, first_output;  // phase: the first of `w_phases`
    Place first;
};

// kw: work_of
template <class C> KW_DEVICE Work work_of(unsigned index) {
    auto take = [&](int count) {
        const int digit = index % (unsigned)count;
        index /= (unsigned)count;
        return digit;
    };
    Work work;
    work.phase = take(C::phases / C::w_phases) * C::w_phases;
    work.first_output = take(Sizes<C>::tiles_m) * C::tile_m;
    work.group = take(C::groups);
    work.first.w = take(ceil_div(C::most_w, C::tile_w)) * C::tile_w;
    work.first.h = take(ceil_div(C::most_h, C::tile_h)) * C::tile_h;
    work.first.d = take(ceil_div(C::most_d, C::tile_d)) * C::tile_d;
    work.first.image = (int)index * C::tile_b;
    return work;
}

// kw: tiles_of
template <class C> __host__ __device__ constexpr int64_t tiles_of() {
    return (int64_t)(C::phases / C::w_phases) * Sizes<C>::tiles_m * C::groups * ceil_div(C::most_w, C::tile_w) *
           ceil_div(C::most_h, C::tile_h) * ceil_div(C::most_d, C::tile_d) * ceil_div(C::images, C::tile_b);
}

// kw: in_tile
// Column n of a block's product as a place in its tile. Unsigned: to divide those takes fewer instructions.
template <class C> KW_DEVICE Place in_tile(unsigned n) {
    constexpr unsigned w = C::tile_w, h = C::tile_h, d = C::tile_d;
    return {(int)(n / (w * h * d)), (int)(n / (w * h) % d), (int)(n / w % h), (int)(n % w)};
}

// --- tables, once for a tile

// kw: All
// Those who carry inputs together: here, all threads of a block.
template <class C> struct All {
    static constexpr int threads = Sizes<C>::threads;
    KW_DEVICE static int rank() { return threadIdx.x; }
    KW_DEVICE static void sync() { __syncthreads(); }
};

// kw: fill_from
template <class C, class Team>
KW_DEVICE void fill_from(int (&from)[C::fold][Sizes<C>::pixels], const Phase& phase, const Work& work) {
    using S = Sizes<C>;
    const int first_d = work.first.d * C::stride_d + phase.axis[0].x_base,
              first_h = work.first.h * C::stride_h + phase.axis[1].x_base,
              first_w = work.first.w * C::stride_w + phase.axis[2].x_base;
    for (unsigned i = Team::rank(); i < (unsigned)S::pixels; i += Team::threads) {
        constexpr unsigned row_of = S::row, plane_of = row_of * C::region_h, alike = S::alike;
        const unsigned column = i % row_of;
        const int w = first_w + (int)(column % alike * C::stride_w + column / alike),
                  h = first_h + (int)(i / row_of % C::region_h), d = first_d + (int)(i / plane_of % C::region_d),
                  image = (int)(i / (plane_of * C::region_d));
        const bool row_inside = h >= 0 && h < C::x_h && d >= 0 && d < C::x_d && work.first.image + image < C::images;
        const int row = (int)(image * C::x_image_pitch + d * C::x_d_pitch + h * C::x_h_pitch);
#pragma unroll
        for (int f = 0; f < C::fold; f++) {
            const int at = w + f * phase.axis[2].x_step;
            from[f][i] = row_inside && at >= 0 && at < C::x_w ? row + (int)(at * C::x_w_pitch) : -1;
        }
    }
}

// kw: fill_offsets
// Of `phases` that follow each other, from `offsets` on.
template <class C, class Sums> KW_DEVICE void fill_offsets(int* to, const int* offsets, int phases) {
    for (int i = threadIdx.x; i < phases * 2 * Sizes<C>::most_steps; i += blockDim.x)
        to[i] = Sums::entry(i, __ldg(offsets + (i & ~1)), __ldg(offsets + (i | 1)));
}

// --- X on its way from memory to shared memory: a thread carries octets of pixels

// kw: Carrier
template <class C, class Team = All<C>> struct Carrier {
    using S = Sizes<C>;
    static constexpr int rounds = ceil_div(S::units, Team::threads);
    float held[rounds][8];

    KW_DEVICE void fetch(const typename C::Type* x, const int (&from_table)[C::fold][S::pixels], int chunk) {
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            const int unit = Team::rank() + i * Team::threads;
            const bool is_unit = S::units % Team::threads == 0 || unit < S::units;
            const int octet = C::octets == 1 ? 0 : (unsigned)unit / (unsigned)S::pixels;
            const int pixel = unit - octet * S::pixels;
            const int channel = (chunk * C::octets + octet) * S::lanes;
#pragma unroll
            for (int f = 0; f < C::fold; f++) {
                const int from = is_unit ? from_table[f][pixel] : -1;
                const typename C::Type* first = x + channel * C::x_channel_pitch + from;
#pragma unroll
                for (int c = 0; c < S::lanes; c++) {
                    const bool exists = C::channels % (S::lanes * C::octets) == 0 || channel + c < C::channels;
                    held[i][f * S::lanes + c] =
                        from >= 0 && exists ? widen(load_constant<1>(first + c * C::x_channel_pitch)[0]) : 0.f;
                }
            }
        }
    }
    KW_DEVICE static bool every(int) { return true; }
    // The largest finite magnitude that they hold, in rounds that they have.
    template <class Has> KW_DEVICE float largest(float (&of_warp)[Team::threads / 32], const Has& has) const {
        float mine = 0.f;
#pragma unroll
        for (int i = 0; i < rounds; i++)
#pragma unroll
            for (int j = 0; j < 8 && has(i); j++) mine = fmaxf(mine, split::finite_magnitude(held[i][j]));
#pragma unroll
        for (int step = 16; step; step >>= 1) mine = fmaxf(mine, __shfl_xor_sync(~0u, mine, step));
        if (Team::rank() % 32 == 0) of_warp[Team::rank() / 32] = mine;
        Team::sync();
#pragma unroll
        for (int i = 0; i < Team::threads / 32; i++) mine = fmaxf(mine, of_warp[i]);
        return mine;
    }
    KW_DEVICE float largest(float (&of_warp)[Team::threads / 32]) const { return largest(of_warp, every); }
    KW_DEVICE void deliver(uint4 (&region)[S::halves][S::units], float scale) const { deliver(region, scale, every); }
    template <class Has>
    KW_DEVICE void deliver(uint4 (&region)[S::halves][S::units], float scale, const Has& has) const {
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            if (!has(i)) continue;
            const int unit = Team::rank() + i * Team::threads;
            uint32_t hi[4], lo[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                split::to_pairs(held[i][2 * j] * scale, held[i][2 * j + 1] * scale, hi[j], lo[j]);
            if (S::units % Team::threads != 0 && unit >= S::units) continue;
            region[0][unit] = make_uint4(hi[0], hi[1], hi[2], hi[3]);
            if constexpr (S::halves == 2) region[1][unit] = make_uint4(lo[0], lo[1], lo[2], lo[3]);
        }
    }
};

// --- products of one warp

// kw: Part
// What a warp multiplies: rows and columns of its part of the block's product, and where its weights lie.
template <class C> struct Part {
    int first_output, first_column;  // of this lane, in the layout of mma's D: rows lane / 4, columns 2 (lane % 4)
    const uint4* fragments;
    int steps, pitch;  // steps of 16 of k in a chunk; from 16 output channels to the next

    KW_DEVICE void set(const Problem<C>& problem, const Work& work, int number) {
        using S = Sizes<C>;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int first = work.first_output + warp % C::warps_m * S::warp_m;
        first_output = first + lane / 4;
        first_column = warp / C::warps_m * S::warp_n + lane % 4 * 2;
        const Phase& phase = problem.phases[work.phase + number];
        steps = steps_of<C>(taps_of<C>(phase)), pitch = S::chunks * steps * S::halves * 32;
        fragments = problem.fragments + phase.fragment * 32 + (int64_t)(work.group * S::fragments_m + first / 16) * pitch +
                    lane;
    }
    KW_DEVICE const uint4* of_chunk(int chunk) const {
        return fragments + (int64_t)chunk * steps * Sizes<C>::halves * 32;
    }
};

// kw: region_place
// Where column n of a block's product begins in the region; columns beyond the tile read what the first one does.
template <class C> KW_DEVICE int region_place(int n) {
    const Place at = in_tile<C>(n < Sizes<C>::tile ? n : 0);
    return ((at.image * C::region_d + at.d * C::stride_d) * C::region_h + at.h * C::stride_h) * Sizes<C>::row + at.w;
}

// kw: Sums
template <class C> struct Sums {
    using S = Sizes<C>;
    static constexpr int M = S::warp_m / 16, N = S::warp_n / 8;
    static_assert(N % 2 == 0, "two products have their pixels from one ldmatrix");
    using Fragment = uint32_t[4];
    float total[M][N][4];
    int rows[N / 2];  // of the region: where this lane's row of every ldmatrix begins

    KW_DEVICE Sums() {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < M * N * 4; i++) (&total[0][0][0])[i] = 0.f;
#pragma unroll
        for (int n = 0; n < N / 2; n++)
            rows[n] = region_place<C>(warp / C::warps_m * S::warp_n + n * 16 + lane / 16 * 8 + lane % 8);
    }
    // Of the table: where the first or the second 8 of a step lie.
    KW_DEVICE static int entry(int i, int first, int second) { return i % 2 ? second : first; }
    KW_DEVICE static void delivered() {}
    KW_DEVICE float at(int m, int n, int i) const { return total[m][n][i]; }
    KW_DEVICE void rescale(float factor) {
#pragma unroll
        for (int i = 0; i < M * N * 4; i++) (&total[0][0][0])[i] *= factor;
    }
    KW_DEVICE static void load_weights(Fragment (&a)[M], const uint4* fragments, int pitch) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            const uint4 v = __ldg(fragments + (int64_t)m * pitch);
            a[m][0] = v.x, a[m][1] = v.y, a[m][2] = v.z, a[m][3] = v.w;
        }
    }
    KW_DEVICE void load_pixels(Fragment (&b)[N / 2], const uint4* region, int offset) const {
#pragma unroll
        for (int n = 0; n < N / 2; n++) ptx80::load_matrices(b[n], region + rows[n] + offset);
    }
    KW_DEVICE static void multiply(float (&sums)[M][N][4], const Fragment (&a)[M], const Fragment (&b)[N / 2]) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N; n++) ptx80::mma_f16(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
    // One chunk of channels.
    KW_DEVICE void add(const uint4 (&region)[S::halves][S::units], const int* offset, const Part<C>& part, int chunk) {
        offset += threadIdx.x / 8 % 2;  // of the first or second 8 of every 16 of k
        if constexpr (C::products == 1) add_rounded(region, offset, part.of_chunk(chunk), part);
        else add_pairs(region, offset, part.of_chunk(chunk), part);
    }
    // The weights of the next step travel while this one is multiplied.
    KW_DEVICE void add_rounded(const uint4 (&region)[S::halves][S::units], const int* offset, const uint4* fragments,
                               const Part<C>& part) {
        Fragment a[M], next[M], b[N / 2];
        load_weights(next, fragments, part.pitch);
#pragma unroll 2
        for (int step = 0; step < part.steps; step++) {
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) a[m][i] = next[m][i];
            load_pixels(b, region[0], offset[2 * step]);
            fragments += step + 1 < part.steps ? 32 : 0;
            load_weights(next, fragments, part.pitch);
            multiply(total, a, b);
        }
    }
    // Corrections first: the tensor core cuts off what lies under the last bit of a sum, and they are small.
    KW_DEVICE void add_pairs(const uint4 (&region)[S::halves][S::units], const int* offset, const uint4* fragments,
                             const Part<C>& part) {
        for (int step = 0; step < part.steps; step += 2, fragments += 4 * 32) {
            Fragment high[2][M], low[M], pixels[N / 2];
            float sum[M][N][4];
#pragma unroll
            for (int i = 0; i < M * N * 4; i++) (&sum[0][0][0])[i] = 0.f;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                load_weights(high[i], fragments + i * 2 * 32, part.pitch);
                load_weights(low, fragments + (i * 2 + 1) * 32, part.pitch);
                load_pixels(pixels, region[1], offset[2 * (step + i)]);
                multiply(sum, high[i], pixels);
                load_pixels(pixels, region[0], offset[2 * (step + i)]);
                multiply(sum, low, pixels);
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                load_pixels(pixels, region[0], offset[2 * (step + i)]);
                multiply(sum, high[i], pixels);
            }
#pragma unroll
            for (int i = 0; i < M * N * 4; i++) (&total[0][0][0])[i] += (&sum[0][0][0])[i];
        }
    }
};

// --- results

// kw: place_of
// Where the thread's columns 8 n + i lie. Pairs of neighbours are inside or outside together where vector is 2.
template <class C> KW_DEVICE Place place_of(const Work& work, int column) {
    const Place at = in_tile<C>(column);
    return {at.image < C::tile_b ? work.first.image + at.image : C::images, work.first.d + at.d, work.first.h + at.h,
            work.first.w + at.w};
}
// kw: is_inside
template <class C> KW_DEVICE bool is_inside(const Phase& phase, const Place& at) {
    return at.image < C::images && at.d < phase.axis[0].count && at.h < phase.axis[1].count &&
           at.w < phase.axis[2].count;
}

// kw: finish_plainly
// All of the thread's results in plain float32.
template <class C, class Epilogue, int M, int N>
KW_DEVICE void finish_plainly(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                              const Part<C>& part) {
#pragma unroll 1
    for (int i = 0; i < C::w_phases * N * M * 2; i++) {
        const Phase& phase = problem.phases[work.phase + i / (N * M * 2)];
        const int output = part.first_output + i / 2 % M * 8;
        const Place at = place_of<C>(work, part.first_column + i / (M * 2) % N * 8 + i % 2);
        if (output >= C::outputs || !is_inside<C>(phase, at)) continue;
        conv::store_at<C, Epilogue>(args, conv::plain_sum<C>(problem.x, problem.weight, &phase, at, work.group, output),
                                    phase, at, work.group * C::outputs + output);
    }
}

// kw: scales_back
// What undoes the scales of the thread's channels. False if they have left float32's range, or a weight is not finite.
template <class C, int M>
KW_DEVICE bool scales_back(float (&inverse)[M], const Problem<C>& problem, const Work& work, const Part<C>& part,
                           float inverse_x) {
    bool inside = true;
#pragma unroll
    for (int m = 0; m < M; m++) {
        const int output = part.first_output + m * 8;
        const float inverse_w = output < C::outputs ? __ldg(problem.inverse + work.group * C::outputs + output) : 1.f;
        inverse[m] = inverse_x * inverse_w;
        inside = inside && inverse[m] >= 0x1p-126f && isfinite(inverse[m]);
    }
    return inside;
}
// kw: all_finite
// Inf * 0 and NaN * 0 are NaN.
template <class Sums, int P> KW_DEVICE bool all_finite(const Sums (&sums)[P]) {
    float zero = 0.f;
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
        for (int n = 0; n < Sums::N; n++)
#pragma unroll
            for (int m = 0; m < Sums::M * 4; m++) zero = fmaf(sums[p].at(m / 4, n, m % 4), 0.f, zero);
    return zero == 0.f;
}
// kw: find_inverses
// Both: false if a sum is Inf or NaN, or the scales have left float32's range.
template <class C, class Sums>
KW_DEVICE bool find_inverses(float (&inverse)[Sums::M * 2], const Problem<C>& problem, const Work& work,
                             const Part<C>& part, const Sums (&sums)[C::w_phases], float inverse_x) {
    return scales_back(inverse, problem, work, part, inverse_x) & all_finite(sums);
}

// kw: scale_places
// Two places that a lane has of a channel, in all phases that are together: neighbours of the result, scaled back.
template <class Sums, int P>
KW_DEVICE void scale_places(float (&v)[2 * P], const Sums (&sums)[P], int m, int n, int half, float inverse) {
#pragma unroll
    for (int j = 0; j < 2 * P; j++) v[j] = sums[j % P].at(m, n, half * 2 + j / P) * inverse;
}

// kw: OfWarp
// What a warp of a warpgroup, which has 64 channels, knows as a tile ends: its first of 16 channels, its part of the
// sums, from a column of the tile on, and what undoes their scales. Finite inputs and weights, of at most 2^15 each, have
// finite sums: only where not all inputs are, sums are looked at.
template <class C> struct OfWarp {
    int output;
    // The same, found again: where windows follow, a kernel that keeps it took a fifth longer (H200: 1,000 us instead of
    // 824 for 64 -> 128 channels, 3 x 3, and a max pool). Why is not known; it has 72 instructions more.
    KW_DEVICE static int first_of(const Work& work) { return work.first_output + (int)threadIdx.x / 32 % 4 * 16; }
    Part<C> part;
    float inverse[2];
    bool finite;  // whether all that this thread has is

    template <class Sums>
    KW_DEVICE OfWarp(const Problem<C>& problem, const Work& work, int first_column, const Sums (&sums)[C::w_phases],
                     float inverse_x, bool are_finite) {
        const int lane = threadIdx.x % 32;
        output = first_of(work);
        part.first_output = output + lane / 4, part.first_column = first_column + lane % 4 * 2;
        finite = scales_back(inverse, problem, work, part, inverse_x);
        if (!are_finite) finite = finite && all_finite(sums);
    }
};

// kw: Run
// A row of a tile whose phases of w are all together: where its results begin, and how many of them are inside.
struct Run {
    int d, h, w, count;
};
// kw: run_of
template <class C> KW_DEVICE Run run_of(const Phase& phase, const Work& work, int row) {
    constexpr int P = C::w_phases, results = C::tile_w * P;
    const Place at = place_of<C>(work, row * C::tile_w);
    const int left = C::y_w - at.w * P;
    return {phase.axis[0].y_first + at.d * C::y_step_d, phase.axis[1].y_first + at.h * C::y_step_h, at.w * P,
            !is_inside<C>(phase, at) ? 0 : left < results ? left : results};
}

// kw: Slab
// Results on their way to memory. A warp holds them as pieces of 2 columns by 8 channels, and memory wants long runs of one
// channel. So 16 channels of some columns at a time go through a part of shared memory that is the warp's own; then a
// lane has one column, or `vector` neighbours, of one channel after the other.
template <class C> struct Slab {
    using S = Sizes<C>;
    __host__ __device__ static constexpr int at_once(int most, int count) {  // the most that divide `count`
        return most <= 1 || count % most == 0 ? (most < 1 ? 1 : most) : at_once(most / 2, count);
    }
    static constexpr int eights = at_once(8 / C::w_phases, S::warp_n / 8);  // of places
    static constexpr int results = eights * 8 * C::w_phases;                // of a channel
    static constexpr int pitch = results + 8;  // 4 lanes by 4 channels write 8 bytes each to banks of their own
    static constexpr int bytes = 16 * pitch * 4;

    static constexpr int vectors = results / C::vector;  // of a channel
    static constexpr int lanes = at_once(32, vectors);   // side by side on a channel
    static constexpr int channels = 32 / lanes;          // that lanes of a warp have at once

    template <class Sums>
    KW_DEVICE static void put(float* slab, const Sums (&sums)[C::w_phases], const float* inverse, int m, int n) {
        constexpr int P = C::w_phases;
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < eights; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float v[2 * P];
                scale_places(v, sums, m, n + i, half, inverse[m * 2 + half]);
                float* to = slab + (half * 8 + lane / 4) * pitch + (i * 8 + lane % 4 * 2) * P;
#pragma unroll
                for (int j = 0; j < 2 * P; j += 2) *(float2*)(to + j) = make_float2(v[j], v[j + 1]);
            }
    }

    // `output` and `column`: the slab's first.
    template <class Epilogue>
    KW_DEVICE static void store(const float* slab, const typename Epilogue::Args& args, const Work& work,
                                const Phase& phase, int output, int column, int lane) {
        constexpr int P = C::w_phases, V = C::vector;
#pragma unroll
        for (int i = 0; i < vectors / lanes; i++) {
            const int result = (lane % lanes + i * lanes) * V;
            const Place at = place_of<C>(work, column + result / P);
            const int d = phase.axis[0].y_first + at.d * C::y_step_d, h = phase.axis[1].y_first + at.h * C::y_step_h,
                      w = S::joined ? at.w * P + result % P : phase.axis[2].y_first + at.w * C::y_step_w;
            if (!is_inside<C>(phase, at) || (P > 1 && w >= C::y_w)) continue;
            const int first = output + lane / lanes;
            const int64_t plane = (int64_t)at.image * (C::groups * C::outputs) + work.group * C::outputs + first;
#pragma unroll
            for (int j = 0; j < 16; j += channels) {
                if (C::outputs % C::tile_m != 0 && first + j >= C::outputs) continue;
                const auto sums = kw::load<V>(slab + (j + lane / lanes) * pitch + result);
                conv::store_in<C, Epilogue, V>(args, sums.v, plane + j, d, h, w);
            }
        }
    }
};

// kw: forget
// A number that the compiler must think may have changed: what follows from it is found again in each turn of a loop, for to
// keep all of it takes more registers than there are.
KW_DEVICE void forget(int& value) { asm volatile("" : "+r"(value)); }

// kw: Stored
// The end of a tile: every result is stored.
struct Stored {
    template <class C, class Epilogue> static constexpr int shared_bytes() { return C::warps * Slab<C>::bytes; }

    template <class C, class Epilogue, class Sums>
    KW_DEVICE static void take(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                               const Part<C>& part, const Sums (&sums)[C::w_phases], float inverse_x, void* memory) {
        constexpr int M = Sums::M * 2, N = Sums::N;
        float inverse[M];
        const bool finite = find_inverses(inverse, problem, work, part, sums, inverse_x);
        if (!__all_sync(~0u, finite)) {
            finish_plainly<C, Epilogue, M, N>(problem, args, work, part);
            return;
        }
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        float* slab = (float*)memory + warp * (Slab<C>::bytes / 4);
        const int output = part.first_output - lane / 4, column = part.first_column - lane % 4 * 2;  // the warp's first
        int storing = lane;
        // Which results it stores are remainders by the phases: beside so many sums not to be kept for the next turn.
        if constexpr (C::turns > 1 && Sums::M * N * 4 * C::w_phases > 128) forget(storing);
#pragma unroll
        for (int m = 0; m < Sums::M; m++)
#pragma unroll
            for (int n = 0; n < N; n += Slab<C>::eights) {
                Slab<C>::put(slab, sums, inverse, m, n);
                __syncwarp();
                Slab<C>::template store<Epilogue>(slab, args, work, problem.phases[work.phase], output + m * 16,
                                                  column + n * 8, storing);
                __syncwarp();
            }
    }
    // A block that has no pixels.
    template <class C, class Epilogue> KW_DEVICE static void skip(const typename Epilogue::Args&, const Work&) {}
};

// --- a block

// kw: followed
// Larger values than before: the sums so far follow them. Smaller ones do not matter beside what is there.
template <class C, class Sums> KW_DEVICE uint32_t followed(Sums (&sums)[C::w_phases], uint32_t scale, uint32_t wanted) {
    if (wanted >= scale) return scale;
#pragma unroll
    for (int p = 0; p < C::w_phases; p++) sums[p].rescale(split::scale_of(wanted) * split::inverse_of(scale));
    return wanted;
}

// kw: multiply
// Chunk by chunk; the first one has been asked for. The scale of the inputs comes back, as the sums have it.
template <class C, class Sums>
KW_DEVICE uint32_t multiply(const typename C::Type* x, const Part<C> (&parts)[C::w_phases], Carrier<C>& carrier,
                            Sums (&sums)[C::w_phases], Shared<C>& shared) {
    using S = Sizes<C>;
    uint32_t scale = split::scale_bits(carrier.largest(shared.largest));
    carrier.deliver(shared.region[0], split::scale_of(scale));
    Sums::delivered();
    __syncthreads();
#pragma unroll
    for (int p = 0; p < C::w_phases; p++) sums[p] = Sums();  // not before: until here registers hold inputs
#pragma unroll 1
    for (int chunk = 0; chunk < S::chunks; chunk++) {
        const bool more = chunk + 1 < S::chunks;
        if (more) carrier.fetch(x, shared.from, chunk + 1);
#pragma unroll
        for (int p = 0; p < C::w_phases; p++)
            if (C::w_phases == 1 || parts[p].steps > 0)
                sums[p].add(shared.region[chunk % S::buffers], shared.offset[p], parts[p], chunk);
        if (!more) break;
        scale = followed<C>(sums, scale, split::scale_bits(carrier.largest(shared.largest)));
        carrier.deliver(shared.region[(chunk + 1) % S::buffers], split::scale_of(scale));
        Sums::delivered();
        __syncthreads();
    }
    return scale;
}

// kw: Tile
// A tile: what it has, and where its inputs begin.
template <class C> struct Tile {
    Work work;
    const typename C::Type* x;
    bool is_empty;

    KW_DEVICE Tile() = default;
    KW_DEVICE Tile(const Problem<C>& problem, unsigned index) : work(work_of<C>(index)) {
        is_empty = is_empty_in(problem.phases[work.phase]);
        x = problem.x + work.first.image * C::x_image_pitch + (int64_t)work.group * C::channels * C::x_channel_pitch;
    }
    KW_DEVICE bool is_empty_in(const Phase& phase) const {
        return work.first.d >= phase.axis[0].count || work.first.h >= phase.axis[1].count ||
               work.first.w >= phase.axis[2].count;
    }
    // Whether anything adds to its phases.
    KW_DEVICE bool has_taps(const Problem<C>& problem) const {
        bool taps = false;
#pragma unroll
        for (int p = 0; p < C::w_phases; p++) taps = taps || taps_of<C>(problem.phases[work.phase + p]) > 0;
        return taps;
    }
    // Asks for the first chunk of its inputs.
    template <class Sums> KW_DEVICE void ask(const Problem<C>& problem, Shared<C>& shared, Carrier<C>& carrier) const {
        fill_from<C, All<C>>(shared.from, problem.phases[work.phase], work);
        fill_offsets<C, Sums>(&shared.offset[0][0], problem.offsets + work.phase * 2 * Sizes<C>::most_steps,
                              C::w_phases * C::turns);
        __syncthreads();
        carrier.fetch(x, shared.from, 0);
    }
    template <class Sums>
    KW_DEVICE uint32_t sum(const Problem<C>& problem, Shared<C>& shared, Carrier<C>& carrier, Part<C> (&parts)[C::w_phases],
                           Sums (&sums)[C::w_phases]) const {
#pragma unroll
        for (int p = 0; p < C::w_phases; p++) parts[p].set(problem, work, p);
        uint32_t scale = 127 * split::exponent_one;
        if (has_taps(problem)) {
            scale = multiply<C>(x, parts, carrier, sums, shared);
        } else {
#pragma unroll
            for (int p = 0; p < C::w_phases; p++) sums[p] = Sums();
        }
        __syncthreads();  // the tables and the region are free again
        return scale;
    }
};

// kw: convolve_ahead
// A block takes tile after tile. The first inputs of the next one are on their way while the results of this one leave:
// one turn of the loop asks for a tile, ends the one before it, and multiplies.
template <class C, class Epilogue, class Sums, class End>
KW_DEVICE void convolve_ahead(const Problem<C>& problem, const typename Epilogue::Args& args, Shared<C>& shared) {
    Carrier<C> carrier;
    Sums sums[C::w_phases];
    Part<C> parts[C::w_phases];
    Work before;
    uint32_t scale;
    bool is_left = false;  // of a tile before, its end
#pragma unroll 1
    for (unsigned index = blockIdx.x;; index += gridDim.x) {
        const bool more = index < (unsigned)tiles_of<C>();
        const Tile<C> tile(problem, more ? index : 0);
        if (more && !tile.is_empty) tile.template ask<Sums>(problem, shared, carrier);
        if (is_left)
            End::template take<C, Epilogue>(problem, args, before, parts[0], sums, split::inverse_of(scale), shared.region);
        if (!more) return;
        is_left = !tile.is_empty;
        if (tile.is_empty) End::template skip<C, Epilogue>(args, tile.work);
        else scale = tile.sum(problem, shared, carrier, parts, sums);
        before = tile.work;
    }
}

// kw: convolve_in_turns
// A tile with all phases, one pair or row of them after the other: its inputs, all channels of them, are carried once. What
// its ends need of shared memory lies behind them.
template <class C, class Epilogue, class Sums, class End>
KW_DEVICE void convolve_in_turns(const Problem<C>& problem, const typename Epilogue::Args& args, Shared<C>& shared) {
    static_assert(Sizes<C>::chunks == 1 && !C::ahead && Sizes<C>::joined, "all inputs are there, of neighbours");
    static_assert(C::turns * C::w_phases == C::phases, "a tile has all phases");
    Tile<C> tile(problem, blockIdx.x * C::turns);
    uint32_t scale;
    {
        Carrier<C> carrier;
        tile.template ask<Sums>(problem, shared, carrier);
        scale = split::scale_bits(carrier.largest(shared.largest));
        carrier.deliver(shared.region[0], split::scale_of(scale));
    }
    Sums::delivered();
    __syncthreads();
#pragma unroll 1
    for (int turn = 0; turn < C::turns; turn++) {
        tile.work.phase = turn * C::w_phases;
        forget(tile.work.first.image), forget(tile.work.first.d), forget(tile.work.first.h), forget(tile.work.first.w);
        forget(tile.work.first_output);
        if (tile.is_empty_in(problem.phases[tile.work.phase])) {
            End::template skip<C, Epilogue>(args, tile.work);
            continue;
        }
        Sums sums[C::w_phases];
        Part<C> parts[C::w_phases];
#pragma unroll
        for (int p = 0; p < C::w_phases; p++) {
            parts[p].set(problem, tile.work, p);
            if (parts[p].steps > 0) sums[p].add(shared.region[0], shared.offset[tile.work.phase + p], parts[p], 0);
        }
        End::template take<C, Epilogue>(problem, args, tile.work, parts[0], sums, split::inverse_of(scale), &shared + 1);
    }
}

// kw: convolve
// `Sums` multiplies: on mma.sync the one above, on wgmma that of conv_sm90.cuh. `End` takes what it leaves.
template <class C, class Epilogue, class Sums, class End>
KW_DEVICE void convolve(const Problem<C>& problem, const typename Epilogue::Args& args, Shared<C>& shared) {
    if constexpr (C::ahead) {
        convolve_ahead<C, Epilogue, Sums, End>(problem, args, shared);
    } else if constexpr (C::turns > 1) {
        convolve_in_turns<C, Epilogue, Sums, End>(problem, args, shared);
    } else {
        const Tile<C> tile(problem, blockIdx.x);
        if (tile.is_empty) {
            End::template skip<C, Epilogue>(args, tile.work);
            return;
        }
        Carrier<C> carrier;
        Sums sums[C::w_phases];
        Part<C> parts[C::w_phases];
        tile.template ask<Sums>(problem, shared, carrier);
        const uint32_t scale = tile.sum(problem, shared, carrier, parts, sums);
        End::template take<C, Epilogue>(problem, args, tile.work, parts[0], sums, split::inverse_of(scale), shared.region);
    }
}

// kw: convolve_kernel
template <class C, class Epilogue, class End>
__global__ void __launch_bounds__(Sizes<C>::threads, C::blocks_at_once)
    convolve_kernel(const __grid_constant__ Problem<C> problem, const __grid_constant__ typename Epilogue::Args args) {
    extern __shared__ uint4 dynamic[];
    convolve<C, Epilogue, Sums<C>, End>(problem, args, *(Shared<C>*)dynamic);
}

// --- weights: a block for each output channel finds its scale and writes its part of every fragment

// kw: offset_of
// Where every 8 of k of a phase lie in a block's region, counted from the first input that its outputs read. What is
// beyond the last tap has no weight, and lies where the last one does.
template <class C> KW_DEVICE int offset_of(const Phase& phase, int block) {
    using S = Sizes<C>;
    const int taps = taps_of<C>(phase);
    if (taps == 0) return 0;
    block = min(block, C::octets * taps - 1);
    const int tap = block / C::octets;
    const Axis &ad = phase.axis[0], &ah = phase.axis[1], &aw = phase.axis[2];
    const int along_w = ceil_div(aw.taps, C::fold);
    const int w = aw.x_first - aw.x_base + tap % along_w * C::fold * aw.x_step,
              h = ah.x_first - ah.x_base + tap / along_w % ah.taps * ah.x_step,
              d = ad.x_first - ad.x_base + tap / (along_w * ah.taps) * ad.x_step;
    return block % C::octets * S::pixels + (d * C::region_h + h) * S::row + w % C::stride_w * S::alike + w / C::stride_w;
}

// kw: ByLanes
// Where two neighbours along k of an output channel lie among packed weights, in pairs of halves: as the lanes of a warp
// hold them. In mma's A a lane has rows lane / 4 and 8 below, k 2 (lane % 4) and 8 further.
template <class C> struct ByLanes {
    static constexpr int low = 128;  // from a pair to what its rounding left
    KW_DEVICE static int64_t place(const Phase& phase, int group, int row, int steps, int chunk, int step, int k) {
        using S = Sizes<C>;
        const int64_t step_of_row = (int64_t)(group * S::fragments_m + row / 16) * S::chunks * steps + chunk * steps + step;
        const int64_t fragment = phase.fragment + step_of_row * S::halves;
        const int lane = row % 8 * 4 + k % 8 / 2, part = row % 16 / 8 + k / 8 * 2;
        return (fragment * 32 + lane) * 4 + part;
    }
};

// kw: pack_kernel
template <class C, class Order>
static __global__ void __launch_bounds__(256) pack_kernel(const __grid_constant__ Problem<C> problem, uint32_t* pairs,
                                                          float* inverse, int* offsets) {
    using S = Sizes<C>;
    constexpr int rows = S::fragments_m * 16;
    const int group = blockIdx.x / rows, row = blockIdx.x % rows;
    const typename C::Type* weight = problem.weight + group * C::w_group_pitch + row * C::w_output_pitch;
    __shared__ float of_warp[8];
    float largest = 0.f;
    bool finite = true;
    for (int p = 0; p < C::phases && row < C::outputs; p++) {
        const Phase& phase = problem.phases[p];
        const Axis &d = phase.axis[0], &h = phase.axis[1], &w = phase.axis[2];
        for (int i = threadIdx.x; i < C::channels * phase.taps(); i += 256) {
            const int tap = i / C::channels, channel = i % C::channels;
            const float v = widen(weight[channel * C::w_channel_pitch +
                                         (d.k_first + tap / (w.taps * h.taps) * d.k_step) * C::w_d_pitch +
                                         (h.k_first + tap / w.taps % h.taps * h.k_step) * C::w_h_pitch +
                                         (w.k_first + tap % w.taps * w.k_step) * C::w_w_pitch]);
            largest = fmaxf(largest, split::finite_magnitude(v));
            finite = finite && isfinite(v);
        }
    }
#pragma unroll
    for (int step = 16; step; step >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
    const bool all_are = !__syncthreads_or(!finite);
#pragma unroll
    for (int i = 0; i < 8; i++) largest = fmaxf(largest, of_warp[i]);
    const uint32_t bits = split::scale_bits(largest);
    // NaN if a weight is not finite: what it takes part in is computed in plain float32.
    if (threadIdx.x == 0 && row < C::outputs)
        inverse[group * C::outputs + row] = all_are ? split::inverse_of(bits) : __uint_as_float(~0u);
    for (int p = 0; p < C::phases; p++) {
        const Phase& phase = problem.phases[p];
        const Axis &d = phase.axis[0], &h = phase.axis[1], &w = phase.axis[2];
        const int taps = taps_of<C>(phase), steps = steps_of<C>(taps), along_w = ceil_div(w.taps, C::fold);
        if (blockIdx.x == 0)
            for (int i = threadIdx.x; i < 2 * S::most_steps; i += 256)
                offsets[p * 2 * S::most_steps + i] = offset_of<C>(phase, i);
        for (int i = threadIdx.x; i < S::chunks * steps * 8; i += 256) {  // pairs of k
            const int chunk = i / (steps * 8), step = i / 8 % steps, k = i % 8 * 2;
            const int block = 2 * step + k / 8, tap = block / C::octets;
            float v[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int lane = k % 8 + j, channel = (chunk * C::octets + block % C::octets) * S::lanes + lane % S::lanes;
                const int kw = tap % along_w * C::fold + lane / S::lanes;
                const bool inside = tap < taps && kw < w.taps && channel < C::channels && row < C::outputs;
                v[j] = inside ? widen(weight[channel * C::w_channel_pitch +
                                             (d.k_first + tap / (along_w * h.taps) * d.k_step) * C::w_d_pitch +
                                             (h.k_first + tap / along_w % h.taps * h.k_step) * C::w_h_pitch +
                                             (w.k_first + kw * w.k_step) * C::w_w_pitch]) *
                                    split::scale_of(bits)
                              : 0.f;
            }
            uint32_t hi, lo;
            split::to_pairs(v[0], v[1], hi, lo);
            const int64_t at = Order::place(phase, group, row, steps, chunk, step, k);
            pairs[at] = hi;
            if (S::halves == 2) pairs[at + Order::low] = lo;
        }
    }
}

#ifndef __CUDACC_RTC__
// kw: pack
// `packed` has the fragments of all phases, then the inverse scales.
template <class C, class Order = ByLanes<C>> cudaError_t pack(const Problem<C>& problem, cudaStream_t stream) {
    pack_kernel<C, Order><<<C::groups * Sizes<C>::fragments_m * 16, 256, 0, stream>>>(
        problem, (uint32_t*)problem.fragments, (float*)problem.inverse, (int*)problem.offsets);
    return cudaGetLastError();
}

// kw: block_bytes
// Of a block: tables and inputs, and when those are no longer needed, what the end of the tile wants.
template <class C, class Epilogue, class End> constexpr int block_bytes() {
    constexpr int inputs = (int)sizeof(Shared<C>::region), end = End::template shared_bytes<C, Epilogue>();
    if (C::turns > 1) return (int)sizeof(Shared<C>) + end;
    return (int)sizeof(Shared<C>) - inputs + (inputs > end ? inputs : end);
}

// kw: blocks_of
// One for each tile; or as many as run at once, each of which takes several.
template <class C> cudaError_t blocks_of(unsigned* blocks) {
    *blocks = (unsigned)(tiles_of<C>() / C::turns);
    if (!C::ahead) return cudaSuccess;
    int count = 0;
    const cudaError_t status = ptx90::multiprocessors(&count);
    if (*blocks > (unsigned)(count * C::blocks_at_once)) *blocks = count * C::blocks_at_once;
    return status;
}

// kw: enqueue
// Enqueues a kernel over all tiles; allocates nothing and waits for nothing.
template <class C, class Args>
cudaError_t enqueue(void (*kernel)(Problem<C>, Args), int threads, int bytes, const Problem<C>& problem, const Args& args,
                    cudaStream_t stream) {
    if (bytes > 48 * 1024)
        if (const cudaError_t status = ptx90::allow_shared_memory(kernel, bytes)) return status;
    unsigned blocks = 0;
    if (const cudaError_t status = blocks_of<C>(&blocks)) return status;
    kernel<<<blocks, threads, bytes, stream>>>(problem, args);
    return cudaGetLastError();
}

// kw: launch
template <class C, class Epilogue, class End = Stored>
cudaError_t launch(const Problem<C>& problem, const typename Epilogue::Args& args, cudaStream_t stream) {
    constexpr int bytes = block_bytes<C, Epilogue, End>();
    return enqueue<C, typename Epilogue::Args>(convolve_kernel<C, Epilogue, End>, Sizes<C>::threads, bytes, problem, args,
                                               stream);
}
#endif

}  // namespace kw::conv_mma
