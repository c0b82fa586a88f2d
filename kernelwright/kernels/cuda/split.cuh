// Float32 as pairs of float16 under exact power-of-two scales, and the kernels that pack weights and pad activations.
#pragma once

#include "../device/arithmetic.cuh"
#include "gemm_prologue.cuh"
#include "launch.cuh"
#include "ptx90.cuh"

// kw: __half __half2
#include <cuda_fp16.h>

namespace kw::split {

// --- pairs and scales
//
//   x * scale = hi + lo,   hi = float16(x * scale),   lo = float16(x * scale - hi)
//
// hi alone has the 11 bits of TF32.
//
// The scale brings the largest magnitude of a row to [2^14, 2^15), just under float16's largest value, so that hi + lo
// keeps 22 to 23 bits of every element within 2^-15 of the largest and an absolute 2^-39 of the largest below that.
// Of a matrix that is read once, a panel of a row has a scale of its own.

// kw: to_pairs
KW_DEVICE void to_pairs(float x, float y, uint32_t& hi, uint32_t& lo) {
    const __half2 high = __floats2half2_rn(x, y);
    const float2 kept = __half22float2(high);
    const __half2 low = __floats2half2_rn(x - kept.x, y - kept.y);
    hi = *reinterpret_cast<const uint32_t*>(&high);
    lo = *reinterpret_cast<const uint32_t*>(&low);
}

// kw: exponent_one
constexpr uint32_t exponent_one = 1u << 23;
// kw: exponent_mask
constexpr uint32_t exponent_mask = 255u << 23;

// kw: scale_bits
// 2^s as float bits, with `largest` * 2^s in [2^14, 2^15); at most 2^126, so that its inverse is a normal number.
// Branch-free: biased exponents of a number and its scale add up to 127 + 127 + 14. Inf and NaN stay what they are.
KW_DEVICE uint32_t scale_bits(float largest) {
    return min(268 * exponent_one - (__float_as_uint(largest) & exponent_mask), 253 * exponent_one);
}
// kw: scale_of
KW_DEVICE float scale_of(uint32_t bits) { return __uint_as_float(bits); }
// kw: inverse_of
KW_DEVICE float inverse_of(uint32_t bits) { return __uint_as_float(254 * exponent_one - bits); }

// kw: finite_magnitude
KW_DEVICE float finite_magnitude(float x) { return isfinite(x) ? fabsf(x) : 0.f; }

// --- packed weights

// kw: packed_block
// For every 32 of K, 32 hi halves and then 32 lo halves: one 128-byte row of a swizzled tile.
// Inside each 16 of K the order is 0 1 4 5 8 9 12 13 2 3 6 7 10 11 14 15: then the four neighbours that a thread reads
// from A with one 16-byte load are the two pairs that wgmma wants from it. Where A is read in another way, k stays in
// order.
constexpr int packed_block = 32;

// kw: k_of_position
KW_DEVICE int k_of_position(int position) {
    const int i = position & 15;
    return (position & ~15) + (i < 8 ? 4 * (i >> 1) + (i & 1) : 4 * ((i - 8) >> 1) + 2 + (i & 1));
}

// kw: k_of_panel
constexpr int k_of_panel = 512;

// kw: panels_of
__host__ __device__ inline int panels_of(int k) { return (k + k_of_panel - 1) / k_of_panel; }

// kw: Packed
// Where each part lies in the one buffer that holds packed rows: pairs (two halves an element), or hi alone (one).
struct Packed {
    __half* pairs;      // [batches][rows][halves * padded_k]
    float* inverse;     // [batches][panels][padded_rows]: undoes the scale of a row; 1 beyond the last row
    uint32_t* largest;  // [batches][padded_rows]: bits of the largest finite magnitude of a row
    int rows, k, padded_rows, padded_k, batches, halves, panels;

    KW_DEVICE __half* row(int batch, int row) const {
        return pairs + ((int64_t)batch * rows + row) * padded_k * halves;
    }
    static constexpr int block_pitch = 2 * packed_block;  // halves from 32 of k of a row to the next 32
    static constexpr bool in_order = false;               // of k
    KW_DEVICE int kept_rows() const { return rows; }
    // That a batch of the product multiplies: one W is of all of them.
    KW_DEVICE int batch_of(int batch) const { return batches == 1 ? 0 : batch; }
    // Of the panel in which k lies; there is one, or each has k_of_panel.
    KW_DEVICE float* inverses(int batch, int k) const {
        return inverse + ((int64_t)batch * panels + (panels == 1 ? 0 : k / k_of_panel)) * padded_rows;
    }
};

// kw: InOrder
struct InOrder : Packed {
    static constexpr bool in_order = true;
};

// kw: round_up
__host__ __device__ inline int round_up(int value, int multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// kw: padded_rows_of
// Tiles of 128, 192 and 256 columns read the scales of all their columns.
__host__ __device__ constexpr int padded_rows_of(int rows) { return (rows + 767) / 768 * 768; }

// kw: packed_view
__host__ __device__ inline Packed packed_view(void* buffer, int rows, int k, int batches, int halves = 2,
                                              int panels = 1) {
    Packed view;
    view.rows = rows, view.k = k, view.batches = batches, view.halves = halves, view.panels = panels;
    view.padded_rows = padded_rows_of(rows);
    view.padded_k = round_up(k, 64);
    const int64_t pair_bytes = (int64_t)batches * rows * view.padded_k * 2 * halves;
    view.pairs = (__half*)buffer;
    view.inverse = (float*)((char*)buffer + pair_bytes);
    view.largest = (uint32_t*)(view.inverse + (int64_t)batches * panels * view.padded_rows);
    return view;
}

// kw: packed_bytes
__host__ __device__ inline int64_t packed_bytes(int rows, int k, int batches, int halves = 2) {
    const Packed view = packed_view(nullptr, rows, k, batches, halves);
    return ((int64_t)rows * view.padded_k * 2 * halves + (int64_t)view.padded_rows * 8) * batches;
}

// kw: packed_values
// What eight neighbouring pairs stand for, `position` a multiple of 8.
template <class Packed>
KW_DEVICE void packed_values(float (&values)[8], const __half* row, int position, float inverse) {
    const __half* block = row + (position / packed_block) * Packed::block_pitch + position % packed_block;
    const uint4 hi = *(const uint4*)block, lo = *(const uint4*)(block + packed_block);
    const uint32_t high[4] = {hi.x, hi.y, hi.z, hi.w}, low[4] = {lo.x, lo.y, lo.z, lo.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 h = __half22float2(*reinterpret_cast<const __half2*>(&high[i])),
                     l = __half22float2(*reinterpret_cast<const __half2*>(&low[i]));
        values[2 * i] = (h.x + l.x) * inverse;
        values[2 * i + 1] = (h.y + l.y) * inverse;
    }
}

// kw: without_special
// lo of Inf or NaN would be NaN: it is 0, hi tells.
KW_DEVICE uint32_t without_special(uint32_t lo, float x, float y) {
    return lo & (isfinite(x) ? ~0u : 0xffff0000u) & (isfinite(y) ? ~0u : 0x0000ffffu);
}

// kw: store_four
// Four neighbours of K, from a multiple of 4, to their places.
template <int Halves> KW_DEVICE void store_four(__half* row, int k, float4 v, float scale) {
    uint32_t hi[2], lo[2];
    to_pairs(v.x * scale, v.y * scale, hi[0], lo[0]);
    to_pairs(v.z * scale, v.w * scale, hi[1], lo[1]);
    if constexpr (Halves == 1) {  // in the order of k
        *(uint2*)(row + k) = make_uint2(hi[0], hi[1]);
        return;
    }
    lo[0] = without_special(lo[0], v.x, v.y), lo[1] = without_special(lo[1], v.z, v.w);
    const int inside = k & 31, place = (inside & 16) + (inside & 15) / 2;
    __half* block = row + (k >> 5) * (2 * packed_block) + place;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        *(uint32_t*)(block + 8 * i) = hi[i];
        *(uint32_t*)(block + packed_block + 8 * i) = lo[i];
    }
}

// kw: store_fours
// The same of all lanes of a warp, `k` 4 from lane to lane and `inside` alike for every four lanes: those trade words, so
// that each writes 16 bytes and a warp whole lines.
template <class Packed> KW_DEVICE void store_fours(__half* row, int k, float4 v, float scale, bool inside) {
    uint32_t hi[2], lo[2];
    to_pairs(v.x * scale, v.y * scale, hi[0], lo[0]);
    to_pairs(v.z * scale, v.w * scale, hi[1], lo[1]);
    lo[0] = without_special(lo[0], v.x, v.y), lo[1] = without_special(lo[1], v.z, v.w);
    const bool odd = k & 4, upper = k & 8;
    __half* block = row + (k >> 5) * Packed::block_pitch;
    if constexpr (Packed::in_order) {  // even lanes write hi of two lanes, odd ones lo
        uint32_t theirs[2];
#pragma unroll
        for (int i = 0; i < 2; i++) theirs[i] = __shfl_xor_sync(~0u, odd ? hi[i] : lo[i], 1);
        const uint4 both = odd ? make_uint4(theirs[0], theirs[1], lo[0], lo[1])
                               : make_uint4(hi[0], hi[1], theirs[0], theirs[1]);
        if (inside) *(uint4*)(block + (k & 24) + (odd ? packed_block : 0)) = both;
    } else {  // of four lanes, one writes the first pairs' hi, one the second pairs', two the same of lo
        uint32_t high[2], low[2];  // of this lane and its neighbour
        const uint32_t other_hi = __shfl_xor_sync(~0u, odd ? hi[0] : hi[1], 1),
                       other_lo = __shfl_xor_sync(~0u, odd ? lo[0] : lo[1], 1);
        high[0] = odd ? other_hi : hi[0], high[1] = odd ? hi[1] : other_hi;
        low[0] = odd ? other_lo : lo[0], low[1] = odd ? lo[1] : other_lo;
        uint32_t theirs[2];
#pragma unroll
        for (int i = 0; i < 2; i++) theirs[i] = __shfl_xor_sync(~0u, upper ? high[i] : low[i], 2);
        const uint4 all = upper ? make_uint4(theirs[0], theirs[1], low[0], low[1])
                                : make_uint4(high[0], high[1], theirs[0], theirs[1]);
        if (inside) *(uint4*)(block + (k & 16) + (odd ? 8 : 0) + (upper ? packed_block : 0)) = all;
    }
}

// kw: Source
// An operand in memory, x[batch * batch_pitch + row * row_pitch + k * k_pitch], and what is computed of it. Made of a
// pointer that is a kernel's own __restrict__ parameter: only then are its loads gathered across stores (seen by compiling).
template <class Prologue> struct Source {
    const float* x;
    int64_t row_pitch, k_pitch, batch_pitch;
    int rows;  // of a batch
    const typename Prologue::Args& args;

    KW_DEVICE float at(int batch, int row, int k) const {
        const float value = x[batch * batch_pitch + row * row_pitch + k * k_pitch];
        return gemm::applied<Prologue>(args, value, (int64_t)batch * rows + row, k);
    }
};

// kw: Row
// A row of contiguous k, zero beyond its end.
template <class Prologue> struct Row {
    const float* x;
    const typename Prologue::Args& args;
    int64_t row;
    int k_count;
    bool aligned;

    KW_DEVICE Row(const Source<Prologue>& source, int batch, int row, int count)
        : x(source.x + batch * source.batch_pitch + row * source.row_pitch),
          args(source.args),
          row((int64_t)batch * source.rows + row),
          k_count(count),
          aligned((count & 3) == 0 && ((uint64_t)x & 15) == 0) {}
    KW_DEVICE float one(int k) const { return k < k_count ? x[k] : 0.f; }
    KW_DEVICE float4 four(int k) const {
        float4 v;
        if (aligned && k < k_count) v = *(const float4*)(x + k);
        else v = make_float4(one(k), one(k + 1), one(k + 2), one(k + 3));
        float made[4] = {v.x, v.y, v.z, v.w};
        gemm::apply_four<Prologue>(args, made, row, k, k_count);
        return make_float4(made[0], made[1], made[2], made[3]);
    }
};

// kw: largest_of_four
KW_DEVICE float largest_of_four(float4 v) {
    return fmaxf(fmaxf(finite_magnitude(v.x), finite_magnitude(v.y)),
                 fmaxf(finite_magnitude(v.z), finite_magnitude(v.w)));
}
// kw: largest_of_warp
KW_DEVICE float largest_of_warp(float largest) {
#pragma unroll
    for (int step = 16; step; step >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    return largest;
}
// kw: largest_of_block
// Of every `Warps` warps of a block of 256 threads, or of all; every thread gets it.
template <int Warps = 8> KW_DEVICE float largest_of_block(float largest) {
    largest = largest_of_warp(largest);
    __shared__ float of_warp[8];
    const int warp = threadIdx.x >> 5;
    if ((threadIdx.x & 31) == 0) of_warp[warp] = largest;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Warps; i++) largest = fmaxf(largest, of_warp[warp / Warps * Warps + i]);
    return largest;
}

// kw: largest_in
// The largest finite magnitude in [first, last) of a row, by a block of 256 threads; every thread gets it.
template <class Prologue> KW_DEVICE float largest_in(const Row<Prologue>& row, int first, int last) {
    float largest = 0.f;
    for (int k = first + threadIdx.x * 4; k < last; k += 1024) largest = fmaxf(largest, largest_of_four(row.four(k)));
    return largest_of_block(largest);
}

// kw: held_fours
// Rows that a warp (k up to 1024), four (4096) or a block (8192) can hold in registers: each is read once.
constexpr int held_fours = 8;  // of a thread

// kw: pack_held
template <int Halves, int WarpsOfRow, class Prologue, class Packed>
static __global__ void __launch_bounds__(256)
    pack_held(const float* __restrict__ w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, Packed packed,
              const __grid_constant__ typename Prologue::Args made) {
    let_launch_begin();
    const Source<Prologue> source = {w, row_pitch, k_pitch, batch_pitch, packed.rows, made};
    constexpr int threads_of_row = WarpsOfRow * 32, rows_of_block = 8 / WarpsOfRow;
    const int row = blockIdx.x * rows_of_block + threadIdx.x / threads_of_row, batch = blockIdx.y;
    const int thread = threadIdx.x % threads_of_row;
    float* inverse = packed.inverse + (int64_t)batch * packed.padded_rows + row;
    const bool inside = row < packed.rows;
    if (!inside && thread == 0) *inverse = 1.f;
    // All of a warp, or of a block. Warps that share a block with another row meet it at a barrier.
    if ((WarpsOfRow == 1 || WarpsOfRow == 8) && !inside) return;
    const Row<Prologue> x(source, batch, inside ? row : 0, packed.k);
    float4 v[held_fours];
#pragma unroll
    for (int i = 0; i < held_fours; i++) v[i] = x.four((i * threads_of_row + thread) * 4);
    float largest = 0.f;
#pragma unroll
    for (int i = 0; i < held_fours; i++) largest = fmaxf(largest, largest_of_four(v[i]));
    if constexpr (WarpsOfRow == 1) largest = largest_of_warp(largest);
    else largest = largest_of_block<WarpsOfRow>(largest);
    if (!inside) return;
    const uint32_t bits = scale_bits(largest);
    if (thread == 0) *inverse = inverse_of(bits);
    __half* out = packed.row(batch, row);
#pragma unroll
    for (int i = 0; i < held_fours; i++) {
        const int k = (i * threads_of_row + thread) * 4;
        if constexpr (Halves == 2) store_fours<Packed>(out, k, v[i], scale_of(bits), k < packed.padded_k);
        else if (k < packed.padded_k) store_four<Halves>(out, k, v[i], scale_of(bits));
    }
}

// kw: pack_rows
// Many longer rows: a block for each, which it reads twice, the second time from cache.
template <int Halves, class Prologue>
static __global__ void __launch_bounds__(256)
    pack_rows(const float* __restrict__ w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, Packed packed,
              const __grid_constant__ typename Prologue::Args made) {
    const Source<Prologue> source = {w, row_pitch, k_pitch, batch_pitch, packed.rows, made};
    const int row = blockIdx.x, batch = blockIdx.y;
    float* inverse = packed.inverse + (int64_t)batch * packed.padded_rows + row;
    if (row >= packed.rows) {
        if (threadIdx.x == 0) *inverse = 1.f;
        return;
    }
    const Row<Prologue> x(source, batch, row, packed.k);
    const uint32_t bits = scale_bits(largest_in(x, 0, packed.k));
    if (threadIdx.x == 0) *inverse = inverse_of(bits);
    __half* out = packed.row(batch, row);
    for (int k = threadIdx.x * 4; k < packed.padded_k; k += 1024) store_four<Halves>(out, k, x.four(k), scale_of(bits));
}

// kw: k_of_part
// Few long rows: a block for each `k_of_part` of a row, and a kernel of its own for the scales. That does not depend on
// Halves: a kernel is a template here so that it is compiled where it is launched, and nowhere else.
constexpr int k_of_part = 16384;

// kw: largest_of_parts
template <int Halves, class Prologue>
static __global__ void __launch_bounds__(256)
    largest_of_parts(const float* __restrict__ w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, Packed packed,
                     const __grid_constant__ typename Prologue::Args made) {
    const Source<Prologue> source = {w, row_pitch, k_pitch, batch_pitch, packed.rows, made};
    const int row = blockIdx.y, batch = blockIdx.z, first = blockIdx.x * k_of_part;
    const Row<Prologue> x(source, batch, row, packed.k);
    const float largest = largest_in(x, first, min(first + k_of_part, packed.k));
    if (threadIdx.x == 0)
        atomicMax(packed.largest + (int64_t)batch * packed.padded_rows + row, __float_as_uint(largest));
}

// kw: pack_parts
template <int Halves, class Prologue>
static __global__ void __launch_bounds__(256)
    pack_parts(const float* __restrict__ w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, Packed packed,
               const __grid_constant__ typename Prologue::Args made) {
    const Source<Prologue> source = {w, row_pitch, k_pitch, batch_pitch, packed.rows, made};
    const int row = blockIdx.y, batch = blockIdx.z, first = blockIdx.x * k_of_part;
    const int64_t scale_index = (int64_t)batch * packed.padded_rows + row;
    if (row >= packed.rows) {
        if (blockIdx.x == 0 && threadIdx.x == 0) packed.inverse[scale_index] = 1.f;
        return;
    }
    const Row<Prologue> x(source, batch, row, packed.k);
    const uint32_t bits = scale_bits(__uint_as_float(packed.largest[scale_index]));
    if (blockIdx.x == 0 && threadIdx.x == 0) packed.inverse[scale_index] = inverse_of(bits);
    __half* out = packed.row(batch, row);
#pragma unroll 4
    for (int k = first + threadIdx.x * 4; k < min(first + k_of_part, packed.padded_k); k += 1024)
        store_four<Halves>(out, k, x.four(k), scale_of(bits));
}

// kw: largest_of_columns
// Any strides, meant for contiguous rows (a transposed matrix): 32 rows and 256 of k for a block of 32 x 8 threads.
template <int Halves, class Prologue>
static __global__ void __launch_bounds__(256)
    largest_of_columns(const float* __restrict__ w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, Packed packed,
                       const __grid_constant__ typename Prologue::Args made) {
    const Source<Prologue> source = {w, row_pitch, k_pitch, batch_pitch, packed.rows, made};
    const int row = blockIdx.x * 32 + threadIdx.x, batch = blockIdx.z,
              last = min(packed.k, (int)(blockIdx.y + 1) * 256);
    if (row >= packed.rows) return;
    float largest = 0.f;
#pragma unroll 4
    for (int k = blockIdx.y * 256 + threadIdx.y; k < last; k += 8)
        largest = fmaxf(largest, finite_magnitude(source.at(batch, row, k)));
    atomicMax(packed.largest + (int64_t)batch * packed.padded_rows + row,
              __float_as_uint(largest));  // a maximum has no order
}

// kw: pack_columns
template <int Halves, class Prologue>
static __global__ void __launch_bounds__(256)
    pack_columns(const float* __restrict__ w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, Packed packed,
                 const __grid_constant__ typename Prologue::Args made) {
    const Source<Prologue> source = {w, row_pitch, k_pitch, batch_pitch, packed.rows, made};
    __shared__ float tile[32][33];  // 33: a column of 32 rows falls into 32 banks
    const int first_row = blockIdx.x * 32, batch = blockIdx.z, thread = threadIdx.y * 32 + threadIdx.x;
    const int row = first_row + thread / 8, k_in_tile = thread % 8 * 4;
    const int64_t scale_index = (int64_t)batch * packed.padded_rows + row;
    const uint32_t bits = scale_bits(row < packed.rows ? __uint_as_float(packed.largest[scale_index]) : 0.f);
    if (blockIdx.y == 0 && k_in_tile == 0 && row < packed.padded_rows)
        packed.inverse[scale_index] = row < packed.rows ? inverse_of(bits) : 1.f;
    __half* out = packed.row(batch, row);
    for (int k0 = blockIdx.y * 256; k0 < min(packed.padded_k, (int)(blockIdx.y + 1) * 256); k0 += 32) {
#pragma unroll
        for (int i = 0; i < 32; i += 8) {
            const int k = k0 + threadIdx.y + i;
            tile[threadIdx.y + i][threadIdx.x] =
                k < packed.k && first_row + threadIdx.x < packed.rows ? source.at(batch, first_row + threadIdx.x, k) : 0.f;
        }
        __syncthreads();
        const float4 v = make_float4(tile[k_in_tile][thread / 8], tile[k_in_tile + 1][thread / 8],
                                     tile[k_in_tile + 2][thread / 8], tile[k_in_tile + 3][thread / 8]);
        if (row < packed.rows) store_four<Halves>(out, k0 + k_in_tile, v, scale_of(bits));
        __syncthreads();
    }
}

// kw: four_rows
// Contiguous rows, read once: a block holds 32 rows and a panel of k in its registers, 4 rows and 16 of k in a thread,
// which are 32 bytes of hi and 32 of lo in each row.
KW_DEVICE float4 four_rows(const float* x, int count, bool aligned) {
    if (aligned && count >= 4) return *(const float4*)x;
    return make_float4(count > 0 ? x[0] : 0.f, count > 1 ? x[1] : 0.f, count > 2 ? x[2] : 0.f, count > 3 ? x[3] : 0.f);
}
// kw: larger
KW_DEVICE float4 larger(float4 x, float4 y) {
    return make_float4(fmaxf(x.x, y.x), fmaxf(x.y, y.y), fmaxf(x.z, y.z), fmaxf(x.w, y.w));
}
// kw: store_together
// Two neighbouring lanes have 32 bytes each, for two places (null: nowhere). Each writes a half of both, so that memory
// is written 32 bytes at a time.
KW_DEVICE void store_together(__half* of_even, __half* of_odd, const uint32_t (&mine)[8], bool odd) {
    uint32_t theirs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) theirs[i] = __shfl_xor_sync(~0u, odd ? mine[i] : mine[i + 4], 1);
    const uint4 received = make_uint4(theirs[0], theirs[1], theirs[2], theirs[3]);
    if (of_even) *(uint4*)(of_even + 8 * odd) = odd ? received : make_uint4(mine[0], mine[1], mine[2], mine[3]);
    if (of_odd) *(uint4*)(of_odd + 8 * odd) = odd ? make_uint4(mine[4], mine[5], mine[6], mine[7]) : received;
}

// kw: pack_panels
template <int Halves, class Packed>
static __global__ void __launch_bounds__(256)
    pack_panels(const float* __restrict__ w, int64_t k_pitch, int64_t batch_pitch, Packed packed) {
    let_launch_begin();
    __shared__ float4 of_warp[8][8];
    const int in_row = threadIdx.x & 7, warp = threadIdx.x >> 5, batch = blockIdx.z;
    const int row = blockIdx.x * 32 + in_row * 4, k0 = blockIdx.y * k_of_panel + (threadIdx.x >> 3) * 16;
    const float* x = w + batch * batch_pitch + row;
    const bool aligned = ((k_pitch | batch_pitch) & 3) == 0 && ((uint64_t)w & 15) == 0;
    float4 v[16];
#pragma unroll
    for (int i = 0; i < 16; i++)
        v[i] = four_rows(x + (k0 + i) * k_pitch, k0 + i < packed.k ? packed.rows - row : 0, aligned);
    float4 largest = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int i = 0; i < 16; i++)
        largest = larger(largest, make_float4(finite_magnitude(v[i].x), finite_magnitude(v[i].y),
                                              finite_magnitude(v[i].z), finite_magnitude(v[i].w)));
#pragma unroll
    for (int step = 8; step < 32; step *= 2)
        largest = larger(largest, make_float4(__shfl_xor_sync(~0u, largest.x, step), __shfl_xor_sync(~0u, largest.y, step),
                                              __shfl_xor_sync(~0u, largest.z, step), __shfl_xor_sync(~0u, largest.w, step)));
    if ((threadIdx.x & 31) < 8) of_warp[warp][in_row] = largest;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) largest = larger(largest, of_warp[i][in_row]);
    const float of_row[4] = {largest.x, largest.y, largest.z, largest.w};
    float* inverse = packed.inverses(batch, k0) + row;
    const bool odd = in_row & 1;
    const auto place = (k0 >> 5) * Packed::block_pitch + (k0 & 16);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        // A panel of zeros has the scale 1: sums that change from its neighbour's scale to it stay in range.
        const uint32_t bits = of_row[j] == 0.f ? 127 * exponent_one : scale_bits(of_row[j]);
        if (threadIdx.x < 8) inverse[j] = inverse_of(bits);
        uint32_t hi[8], lo[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {  // in the packed order
            const int k = Packed::in_order ? 2 * i : i < 4 ? 4 * i : 4 * i - 14;
            const float4 first = v[k], second = v[k + 1];
            const float x = j == 0 ? first.x : j == 1 ? first.y : j == 2 ? first.z : first.w;
            const float y = j == 0 ? second.x : j == 1 ? second.y : j == 2 ? second.z : second.w;
            to_pairs(x * scale_of(bits), y * scale_of(bits), hi[i], lo[i]);
            lo[i] = without_special(lo[i], x, y);
        }
        const int of_even = row + j - 4 * odd, of_odd = of_even + 4;
        const bool inside = k0 < packed.padded_k;
        __half* even = inside && of_even < packed.kept_rows() ? packed.row(batch, of_even) + place : nullptr;
        __half* other = inside && of_odd < packed.kept_rows() ? packed.row(batch, of_odd) + place : nullptr;
        store_together(even, other, hi, odd);
        store_together(even ? even + packed_block : even, other ? other + packed_block : other, lo, odd);
    }
}

// --- activations that the copy engine cannot read (a pitch or an address off 16 bytes, k not contiguous): a padded
// copy

// kw: copy_rows
template <class Prologue>
static __global__ void __launch_bounds__(256)
    copy_rows(const float* __restrict__ a, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k_count,
              float* __restrict__ out, int out_pitch, const __grid_constant__ typename Prologue::Args made) {
    const Source<Prologue> source = {a, row_pitch, k_pitch, batch_pitch, rows, made};
    const int row = blockIdx.x % rows, batch = blockIdx.x / rows;
    float* y = out + (int64_t)blockIdx.x * out_pitch;
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int k = blockIdx.y * 1024 + i * 256 + threadIdx.x;
        v[i] = k < k_count ? source.at(batch, row, k) : 0.f;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int k = blockIdx.y * 1024 + i * 256 + threadIdx.x;
        if (k < out_pitch) y[k] = v[i];
    }
}

// kw: copy_columns
template <class Prologue>
static __global__ void __launch_bounds__(256)
    copy_columns(const float* __restrict__ a, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows,
                 int k_count, float* __restrict__ out, int out_pitch,
                 const __grid_constant__ typename Prologue::Args made) {
    const Source<Prologue> source = {a, row_pitch, k_pitch, batch_pitch, rows, made};
    __shared__ float tile[32][33];
    const int first_row = blockIdx.x * 32, first_k = blockIdx.y * 32;
#pragma unroll
    for (int i = threadIdx.y; i < 32; i += 8)
        tile[i][threadIdx.x] = first_k + i < k_count && first_row + threadIdx.x < rows
                                   ? source.at(blockIdx.z, first_row + threadIdx.x, first_k + i)
                                   : 0.f;
    __syncthreads();
#pragma unroll
    for (int i = threadIdx.y; i < 32; i += 8)
        if (first_row + i < rows && first_k + threadIdx.x < out_pitch)
            out[((int64_t)blockIdx.z * rows + first_row + i) * out_pitch + first_k + threadIdx.x] =
                tile[threadIdx.x][i];
}

// --- results of products of pairs: what truncation took is given back, and what is not finite is computed again. A
// Problem has A (`a`, `a_row_pitch`, `a_batch_pitch`), the packed `w`, and the sizes `m`, `n`, `k`; Prologue makes A of it.

// kw: undo_truncation
// The tensor core truncates, so its sums are short by about 2^-23 on data of one sign. One unit in the last place is
// that loss on average. Sums with four zero bits at the end are taken for exact (integers up to 2^20) and left alone.
// In two instructions, where the compiler has three.
KW_DEVICE float undo_truncation(float x) {
    uint32_t bits = __float_as_uint(x);
    asm("{\n.reg .pred inexact;\n.reg .b32 end;\nand.b32 end, %0, 15;\nsetp.ne.u32 inexact, end, 0;\n"
        "@inexact add.u32 %0, %0, 1;\n}"
        : "+r"(bits));
    return __uint_as_float(bits);
}

// kw: undo_truncation_or_not
// The same of a sum that may not be finite: half a unit or more in the last place, which is one when it is rounded.
KW_DEVICE float undo_truncation_or_not(float x) {
    return (__float_as_uint(x) & 15u) != 0 ? fmaf(x, 0x1p-24f, x) : x;
}

// kw: all_finite
KW_DEVICE bool all_finite(const float (&v)[4]) {
    return fmaf(v[0], 0.f, fmaf(v[1], 0.f, fmaf(v[2], 0.f, v[3] * 0.f))) == 0.f;  // Inf * 0 and NaN * 0 are NaN
}
// kw: all_finite
KW_DEVICE bool all_finite(const float (&v)[2]) { return fmaf(v[0], 0.f, v[1] * 0.f) == 0.f; }

// kw: plain_steps
// Adds Steps times 256 of k, eight neighbours of the packed order for each lane and step. Nothing stands between the
// loads of the steps: a warp that computes a row again is alone and waits for memory, so they have to be many at once.
template <int Steps, class Prologue, class Packed>
KW_DEVICE void plain_steps(float (&sum)[4], const float* a, const typename Prologue::Args& made, int64_t row_of_a,
                           const Packed& packed, int batch, const int (&row)[4], int position, int k_count) {
    float x[Steps][8], value[Steps][4][8];
#pragma unroll
    for (int s = 0; s < Steps; s++) {
        const float* inverse = packed.inverses(batch, position + s * 256);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int k = Packed::in_order ? position + s * 256 + i : k_of_position(position + s * 256 + i);
            x[s][i] = k < k_count ? gemm::applied<Prologue>(made, a[k], row_of_a, k) : 0.f;
        }
#pragma unroll
        for (int c = 0; c < 4; c++)
            packed_values<Packed>(value[s][c], packed.row(batch, row[c]), position + s * 256, inverse[row[c]]);
    }
#pragma unroll
    for (int s = 0; s < Steps; s++)
#pragma unroll
        for (int c = 0; c < 4; c++)
#pragma unroll
            for (int i = 0; i < 8; i++) sum[c] = fmaf(x[s][i], value[s][c][i], sum[c]);
}

// kw: all_are_nan
KW_DEVICE bool all_are_nan(const float (&sum)[4]) {
    bool all = true;
#pragma unroll
    for (int c = 0; c < 4; c++) all = all && __any_sync(~0u, sum[c] != sum[c]);
    return all;
}

// kw: plain_dots
// Elements (m, n) ... (m, n + 3) in plain float32, by a whole warp; every lane gets them. NaN is final: it ends the sums.
template <int Steps, class Prologue, class Problem>
KW_DEVICE void plain_dots(float (&sum)[4], const Problem& problem, const typename Prologue::Args& made, int batch, int m,
                          int n, int lane) {
    const int w_batch = problem.w.batch_of(batch), padded_k = problem.w.padded_k;
    const float* a = problem.a + batch * problem.a_batch_pitch + m * problem.a_row_pitch;
    const int64_t row_of_a = (int64_t)batch * problem.m + m;
    int row[4];
#pragma unroll
    for (int c = 0; c < 4; c++) row[c] = min(n + c, problem.n - 1), sum[c] = 0.f;
    int first = 0;
#pragma unroll 1
    for (; first + Steps * 256 <= padded_k && !all_are_nan(sum); first += Steps * 256)
        plain_steps<Steps, Prologue>(sum, a, made, row_of_a, problem.w, w_batch, row, first + lane * 8, problem.k);
#pragma unroll 1
    for (; first < padded_k && !all_are_nan(sum); first += 256)
        if (first + lane * 8 < padded_k)
            plain_steps<1, Prologue>(sum, a, made, row_of_a, problem.w, w_batch, row, first + lane * 8, problem.k);
#pragma unroll
    for (int c = 0; c < 4; c++)
#pragma unroll
        for (int step = 16; step; step >>= 1) sum[c] += __shfl_xor_sync(~0u, sum[c], step);
}

// kw: take_plain
// Four neighbours at (m, n), which lane `owner` found not finite, again; they are row number `which` of that lane.
template <int Steps, class Prologue, class Problem, class End>
KW_DEVICE void take_plain(End& end, int which, const Problem& problem, const typename Prologue::Args& made, int batch,
                          int m, int n, int owner) {
    float sum[4];
    plain_dots<Steps, Prologue>(sum, problem, made, batch, m, n, threadIdx.x & 31);
    end.take_from_all(sum, which, (int64_t)batch * problem.m + m, n, problem.n, owner);
}

// --- ways to pack: a struct each, so that a file has no other than its own

#ifndef __CUDACC_RTC__
// kw: HeldBy
// Rows that so many warps hold.
template <int Warps> struct HeldBy {
    static constexpr int most_k = held_fours * Warps * 128;
    static int panels(int) { return 1; }
    template <int Halves, class Prologue, class Order>
    static cudaError_t launch(const float* w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch,
                              const Order& packed, cudaStream_t stream, const typename Prologue::Args& made) {
        if (k_pitch != 1 || packed.k > most_k) return cudaErrorInvalidValue;
        const dim3 blocks(packed.padded_rows / (8 / Warps), packed.batches);
        pack_held<Halves, Warps, Prologue, Order><<<blocks, 256, 0, stream>>>(w, row_pitch, k_pitch, batch_pitch,
                                                                              packed, made);
        return cudaGetLastError();
    }
};
// kw: ByWarps
struct ByWarps : HeldBy<1> {};
// kw: ByWarpgroups
struct ByWarpgroups : HeldBy<4> {};
// kw: ByBlocks
struct ByBlocks : HeldBy<8> {};

// kw: ByRows
struct ByRows {
    static int panels(int) { return 1; }
    template <int Halves, class Prologue, class Order>
    static cudaError_t launch(const float* w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch,
                              const Order& packed, cudaStream_t stream, const typename Prologue::Args& made) {
        static_assert(!Order::in_order, "they are packed in one order");
        if (k_pitch != 1) return cudaErrorInvalidValue;
        pack_rows<Halves, Prologue><<<dim3(packed.padded_rows, packed.batches), 256, 0, stream>>>(
            w, row_pitch, k_pitch, batch_pitch, packed, made);
        return cudaGetLastError();
    }
};

// kw: clear_largest
inline cudaError_t clear_largest(const Packed& packed, cudaStream_t stream) {
    return cudaMemsetAsync(packed.largest, 0, (size_t)packed.batches * packed.padded_rows * 4, stream);
}

// kw: ByParts
struct ByParts {
    static int panels(int) { return 1; }
    template <int Halves, class Prologue, class Order>
    static cudaError_t launch(const float* w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch,
                              const Order& packed, cudaStream_t stream, const typename Prologue::Args& made) {
        static_assert(!Order::in_order, "they are packed in one order");
        if (k_pitch != 1) return cudaErrorInvalidValue;
        const int parts = (packed.padded_k + k_of_part - 1) / k_of_part;
        if (const cudaError_t status = clear_largest(packed, stream)) return status;
        largest_of_parts<Halves, Prologue><<<dim3(parts, packed.rows, packed.batches), 256, 0, stream>>>(
            w, row_pitch, k_pitch, batch_pitch, packed, made);
        pack_parts<Halves, Prologue><<<dim3(parts, packed.padded_rows, packed.batches), 256, 0, stream>>>(
            w, row_pitch, k_pitch, batch_pitch, packed, made);
        return cudaGetLastError();
    }
};

// kw: ByColumns
struct ByColumns {
    static int panels(int) { return 1; }
    template <int Halves, class Prologue, class Order>
    static cudaError_t launch(const float* w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch,
                              const Order& packed, cudaStream_t stream, const typename Prologue::Args& made) {
        static_assert(!Order::in_order, "they are packed in one order");
        const dim3 grid(packed.padded_rows / 32, (packed.padded_k + 255) / 256, packed.batches), block(32, 8);
        if (const cudaError_t status = clear_largest(packed, stream)) return status;
        largest_of_columns<Halves, Prologue><<<grid, block, 0, stream>>>(w, row_pitch, k_pitch, batch_pitch, packed,
                                                                         made);
        pack_columns<Halves, Prologue><<<grid, block, 0, stream>>>(w, row_pitch, k_pitch, batch_pitch, packed, made);
        return cudaGetLastError();
    }
};

// kw: ByPanels
struct ByPanels {
    static int panels(int k) { return panels_of(k); }
    template <int Halves, class Prologue, class Order>
    static cudaError_t launch(const float* w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch,
                              const Order& packed, cudaStream_t stream, const typename Prologue::Args&) {
        if (row_pitch != 1) return cudaErrorInvalidValue;
        const dim3 grid(packed.padded_rows / 32, packed.panels, packed.batches);
        pack_panels<Halves, Order><<<grid, 256, 0, stream>>>(w, k_pitch, batch_pitch, packed);
        return cudaGetLastError();
    }
};

// kw: pack_by
// w[row * row_pitch + k * k_pitch + batch * batch_pitch], pitches in elements, or what `Prologue` makes of it, to
// `packed_bytes` bytes at `buffer`.
template <int Halves, class Way, class Prologue = gemm::AsItLies, class Order = Packed>
cudaError_t pack_by(const float* w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k,
                    int batches, void* buffer, cudaStream_t stream, const typename Prologue::Args& made = {}) {
    const Order packed = {packed_view(buffer, rows, k, batches, Halves, Way::panels(k))};
    return Way::template launch<Halves, Prologue>(w, row_pitch, k_pitch, batch_pitch, packed, stream, made);
}

// kw: pack
// The same where sizes are known only when it runs; never by panels, which only some kernels can read.
template <int Halves = 2, class Prologue = gemm::AsItLies>
cudaError_t pack(const float* w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k,
                 int batches, void* buffer, cudaStream_t stream, const typename Prologue::Args& made = {}) {
    auto by = pack_by<Halves, ByColumns, Prologue>;
    // 1024 blocks, about eight for each multiprocessor, keep the memory busy; rows have to be worth a second kernel.
    const bool in_parts = (int64_t)rows * batches < 1024 && k >= 2 * k_of_part;
    if (k_pitch == 1) by = in_parts ? pack_by<Halves, ByParts, Prologue> : pack_by<Halves, ByRows, Prologue>;
    if (k_pitch == 1 && k <= ByBlocks::most_k) by = pack_by<Halves, ByBlocks, Prologue>;
    if (k_pitch == 1 && k <= ByWarpgroups::most_k) by = pack_by<Halves, ByWarpgroups, Prologue>;
    if (k_pitch == 1 && k <= ByWarps::most_k) by = pack_by<Halves, ByWarps, Prologue>;
    return by(w, row_pitch, k_pitch, batch_pitch, rows, k, batches, buffer, stream, made);
}

// --- a padded copy of activations

// kw: padded_pitch
// What `pad_rows` and `pad_columns` write: rows of this many floats, a multiple of 128 bytes.
inline int padded_pitch(int k) { return round_up(k, 32); }

// kw: pad_rows
// k_pitch is 1.
template <class Prologue = gemm::AsItLies>
cudaError_t pad_rows(const float* a, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k,
                     int batches, float* out, cudaStream_t stream, const typename Prologue::Args& made = {}) {
    const int pitch = padded_pitch(k);
    const dim3 grid(rows * batches, (pitch + 1023) / 1024);
    copy_rows<Prologue><<<grid, 256, 0, stream>>>(a, row_pitch, k_pitch, batch_pitch, rows, k, out, pitch, made);
    return cudaGetLastError();
}

// kw: pad_columns
// Any pitch.
template <class Prologue = gemm::AsItLies>
cudaError_t pad_columns(const float* a, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k,
                        int batches, float* out, cudaStream_t stream, const typename Prologue::Args& made = {}) {
    const int pitch = padded_pitch(k);
    const dim3 grid((rows + 31) / 32, pitch / 32, batches);
    copy_columns<Prologue><<<grid, dim3(32, 8), 0, stream>>>(a, row_pitch, k_pitch, batch_pitch, rows, k, out, pitch,
                                                             made);
    return cudaGetLastError();
}

// kw: pad
// One of the two, where the pitch is known only when it runs.
template <class Prologue = gemm::AsItLies>
cudaError_t pad(const float* a, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k, int batches,
                float* out, cudaStream_t stream, const typename Prologue::Args& made = {}) {
    const auto by = k_pitch == 1 ? pad_rows<Prologue> : pad_columns<Prologue>;
    return by(a, row_pitch, k_pitch, batch_pitch, rows, k, batches, out, stream, made);
}
#endif

}  // namespace kw::split
