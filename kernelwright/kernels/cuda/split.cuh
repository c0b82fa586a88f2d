// Float32 as pairs of float16 under exact power-of-two scales, and the kernels that pack weights and pad activations.
//
//   x * scale = hi + lo,   hi = float16(x * scale),   lo = float16(x * scale - hi)
//
// hi alone has the 11 bits of TF32, and is what `pack<1>` writes.
//
// The scale brings the largest magnitude of a row to [2^14, 2^15), just under float16's largest value, so that hi + lo
// keeps 22 to 23 bits of every element within 2^-15 of the largest and an absolute 2^-39 of the largest below that.
#pragma once

#include "ptx90.cuh"
#include <cuda_fp16.h>

namespace kw::split {

// --- pairs and scales

KW_DEVICE void to_pairs(float x, float y, uint32_t& hi, uint32_t& lo) {
    const __half2 high = __floats2half2_rn(x, y);
    const float2 kept = __half22float2(high);
    const __half2 low = __floats2half2_rn(x - kept.x, y - kept.y);
    hi = *reinterpret_cast<const uint32_t*>(&high);
    lo = *reinterpret_cast<const uint32_t*>(&low);
}

constexpr uint32_t exponent_one = 1u << 23, exponent_mask = 255u << 23;

// 2^s as float bits, with `largest` * 2^s in [2^14, 2^15); at most 2^126, so that its inverse is a normal number.
// Branch-free: biased exponents of a number and its scale add up to 127 + 127 + 14. Inf and NaN stay what they are.
KW_DEVICE uint32_t scale_bits(float largest) {
    return min(268 * exponent_one - (__float_as_uint(largest) & exponent_mask), 253 * exponent_one);
}
KW_DEVICE float scale_of(uint32_t bits) { return __uint_as_float(bits); }
KW_DEVICE float inverse_of(uint32_t bits) { return __uint_as_float(254 * exponent_one - bits); }

// --- packed weights: for every 32 of K, 32 hi halves and then 32 lo halves: one 128-byte row of a swizzled tile.
// Inside each 16 of K the order is 0 1 4 5 8 9 12 13 2 3 6 7 10 11 14 15: then the four neighbours that a thread reads
// from A with one 16-byte load are the two pairs that wgmma wants from it.

constexpr int packed_block = 32;

KW_DEVICE int k_of_position(int position) {
    const int i = position & 15;
    return (position & ~15) + (i < 8 ? 4 * (i >> 1) + (i & 1) : 4 * ((i - 8) >> 1) + 2 + (i & 1));
}

// Where each part lies in the one buffer that holds packed rows: pairs (two halves an element), or hi alone (one).
struct Packed {
    __half* pairs;      // [batches][rows][halves * padded_k]
    float* inverse;     // [batches][padded_rows]: undoes the scale of a row; 1 beyond the last row
    uint32_t* largest;  // [batches][padded_rows]: bits of the largest finite magnitude of a row
    int rows, k, padded_rows, padded_k, batches, halves;

    KW_DEVICE __half* row(int batch, int row) const {
        return pairs + ((int64_t)batch * rows + row) * padded_k * halves;
    }
};

__host__ __device__ inline int round_up(int value, int multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

__host__ __device__ inline Packed packed_view(void* buffer, int rows, int k, int batches, int halves = 2) {
    Packed view;
    view.rows = rows, view.k = k, view.batches = batches, view.halves = halves;
    view.padded_rows = round_up(rows, 768);  // tiles of 128, 192 and 256 columns read the scales of all their columns
    view.padded_k = round_up(k, 64);
    const int64_t pair_bytes = (int64_t)batches * rows * view.padded_k * 2 * halves;
    view.pairs = (__half*)buffer;
    view.inverse = (float*)((char*)buffer + pair_bytes);
    view.largest = (uint32_t*)(view.inverse + (int64_t)batches * view.padded_rows);
    return view;
}

__host__ __device__ inline int64_t packed_bytes(int rows, int k, int batches, int halves = 2) {
    const Packed view = packed_view(nullptr, rows, k, batches, halves);
    return ((int64_t)rows * view.padded_k * 2 * halves + (int64_t)view.padded_rows * 8) * batches;
}

// What eight neighbouring pairs stand for, `position` a multiple of 8.
KW_DEVICE void packed_values(float (&values)[8], const __half* row, int position, float inverse) {
    const __half* block = row + (position / packed_block) * (2 * packed_block) + position % packed_block;
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

// Four neighbours of K, from a multiple of 4, to their places. lo of Inf or NaN would be NaN: it is 0, hi tells.
template <int Halves> KW_DEVICE void store_four(__half* row, int k, float4 v, float scale) {
    uint32_t hi[2], lo[2];
    to_pairs(v.x * scale, v.y * scale, hi[0], lo[0]);
    to_pairs(v.z * scale, v.w * scale, hi[1], lo[1]);
    if constexpr (Halves == 1) {  // in the order of k
        *(uint2*)(row + k) = make_uint2(hi[0], hi[1]);
        return;
    }
    const float x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (!isfinite(x[i])) lo[i / 2] &= i % 2 ? 0x0000ffffu : 0xffff0000u;
    const int inside = k & 31, place = (inside & 16) + (inside & 15) / 2;
    __half* block = row + (k >> 5) * (2 * packed_block) + place;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        *(uint32_t*)(block + 8 * i) = hi[i];
        *(uint32_t*)(block + packed_block + 8 * i) = lo[i];
    }
}

KW_DEVICE float finite_magnitude(float x) { return isfinite(x) ? fabsf(x) : 0.f; }

// A row of contiguous k, zero beyond its end.
struct Row {
    const float* x;
    int k_count;
    bool aligned;

    KW_DEVICE Row(const float* first, int count)
        : x(first), k_count(count), aligned((count & 3) == 0 && ((uint64_t)first & 15) == 0) {}
    KW_DEVICE float4 four(int k) const {
        if (aligned && k < k_count) return *(const float4*)(x + k);
        return make_float4(k < k_count ? x[k] : 0.f, k + 1 < k_count ? x[k + 1] : 0.f, k + 2 < k_count ? x[k + 2] : 0.f,
                           k + 3 < k_count ? x[k + 3] : 0.f);
    }
};

KW_DEVICE float largest_of_four(float4 v) {
    return fmaxf(fmaxf(finite_magnitude(v.x), finite_magnitude(v.y)),
                 fmaxf(finite_magnitude(v.z), finite_magnitude(v.w)));
}
KW_DEVICE float largest_of_warp(float largest) {
#pragma unroll
    for (int step = 16; step; step >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    return largest;
}
// Of a block of 256 threads; every thread gets it.
KW_DEVICE float largest_of_block(float largest) {
    largest = largest_of_warp(largest);
    __shared__ float of_warp[8];
    if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x >> 5] = largest;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) largest = fmaxf(largest, of_warp[i]);
    return largest;
}

// The largest finite magnitude in [first, last) of a row, by a block of 256 threads; every thread gets it.
KW_DEVICE float largest_in(const Row& row, int first, int last) {
    float largest = 0.f;
    for (int k = first + threadIdx.x * 4; k < last; k += 1024) largest = fmaxf(largest, largest_of_four(row.four(k)));
    return largest_of_block(largest);
}

// Rows that a warp (k up to 1024) or a block (up to 8192) can hold in registers: each is read once.
constexpr int held_fours = 8;  // of a thread
constexpr int k_of_warp = held_fours * 32 * 4, k_of_block = held_fours * 256 * 4;

template <int Halves, int WarpsOfRow>
static __global__ void __launch_bounds__(256)
    pack_held(const float* __restrict__ w, int64_t row_pitch, int64_t batch_pitch, Packed packed) {
    constexpr int threads_of_row = WarpsOfRow * 32, rows_of_block = 8 / WarpsOfRow;
    const int row = blockIdx.x * rows_of_block + threadIdx.x / threads_of_row, batch = blockIdx.y;
    const int thread = threadIdx.x % threads_of_row;
    float* inverse = packed.inverse + (int64_t)batch * packed.padded_rows + row;
    if (row >= packed.rows) {  // all of a warp; all of a block, where that holds a row
        if (thread == 0) *inverse = 1.f;
        return;
    }
    const Row x(w + batch * batch_pitch + row * row_pitch, packed.k);
    float4 v[held_fours];
#pragma unroll
    for (int i = 0; i < held_fours; i++) v[i] = x.four((i * threads_of_row + thread) * 4);
    float largest = 0.f;
#pragma unroll
    for (int i = 0; i < held_fours; i++) largest = fmaxf(largest, largest_of_four(v[i]));
    if constexpr (WarpsOfRow == 1) largest = largest_of_warp(largest);
    else largest = largest_of_block(largest);
    const uint32_t bits = scale_bits(largest);
    if (thread == 0) *inverse = inverse_of(bits);
    __half* out = packed.row(batch, row);
#pragma unroll
    for (int i = 0; i < held_fours; i++) {
        const int k = (i * threads_of_row + thread) * 4;
        if (k < packed.padded_k) store_four<Halves>(out, k, v[i], scale_of(bits));
    }
}

// Many longer rows: a block for each, which it reads twice, the second time from cache.
template <int Halves>
static __global__ void __launch_bounds__(256)
    pack_rows(const float* __restrict__ w, int64_t row_pitch, int64_t batch_pitch, Packed packed) {
    const int row = blockIdx.x, batch = blockIdx.y;
    float* inverse = packed.inverse + (int64_t)batch * packed.padded_rows + row;
    if (row >= packed.rows) {
        if (threadIdx.x == 0) *inverse = 1.f;
        return;
    }
    const Row x(w + batch * batch_pitch + row * row_pitch, packed.k);
    const uint32_t bits = scale_bits(largest_in(x, 0, packed.k));
    if (threadIdx.x == 0) *inverse = inverse_of(bits);
    __half* out = packed.row(batch, row);
    for (int k = threadIdx.x * 4; k < packed.padded_k; k += 1024) store_four<Halves>(out, k, x.four(k), scale_of(bits));
}

// Few long rows: a block for each `k_of_part` of a row, and a kernel of its own for the scales. That does not depend on
// Halves: a kernel is a template here so that it is compiled where it is launched, and nowhere else.
constexpr int k_of_part = 16384;

template <int Halves>
static __global__ void __launch_bounds__(256)
    largest_of_parts(const float* __restrict__ w, int64_t row_pitch, int64_t batch_pitch, Packed packed) {
    const int row = blockIdx.y, batch = blockIdx.z, first = blockIdx.x * k_of_part;
    const Row x(w + batch * batch_pitch + row * row_pitch, packed.k);
    const float largest = largest_in(x, first, min(first + k_of_part, packed.k));
    if (threadIdx.x == 0)
        atomicMax(packed.largest + (int64_t)batch * packed.padded_rows + row, __float_as_uint(largest));
}

template <int Halves>
static __global__ void __launch_bounds__(256)
    pack_parts(const float* __restrict__ w, int64_t row_pitch, int64_t batch_pitch, Packed packed) {
    const int row = blockIdx.y, batch = blockIdx.z, first = blockIdx.x * k_of_part;
    const int64_t scale_index = (int64_t)batch * packed.padded_rows + row;
    if (row >= packed.rows) {
        if (blockIdx.x == 0 && threadIdx.x == 0) packed.inverse[scale_index] = 1.f;
        return;
    }
    const Row x(w + batch * batch_pitch + row * row_pitch, packed.k);
    const uint32_t bits = scale_bits(__uint_as_float(packed.largest[scale_index]));
    if (blockIdx.x == 0 && threadIdx.x == 0) packed.inverse[scale_index] = inverse_of(bits);
    __half* out = packed.row(batch, row);
#pragma unroll 4
    for (int k = first + threadIdx.x * 4; k < min(first + k_of_part, packed.padded_k); k += 1024)
        store_four<Halves>(out, k, x.four(k), scale_of(bits));
}

// Any strides, meant for contiguous rows (a transposed matrix): 32 rows and 256 of k for a block of 32 x 8 threads.
template <int Halves>
static __global__ void __launch_bounds__(256) largest_of_columns(const float* __restrict__ w, int64_t row_pitch,
                                                                 int64_t k_pitch, int64_t batch_pitch, Packed packed) {
    const int row = blockIdx.x * 32 + threadIdx.x, batch = blockIdx.z,
              last = min(packed.k, (int)(blockIdx.y + 1) * 256);
    if (row >= packed.rows) return;
    const float* x = w + batch * batch_pitch + row * row_pitch;
    float largest = 0.f;
#pragma unroll 4
    for (int k = blockIdx.y * 256 + threadIdx.y; k < last; k += 8)
        largest = fmaxf(largest, finite_magnitude(x[k * k_pitch]));
    atomicMax(packed.largest + (int64_t)batch * packed.padded_rows + row,
              __float_as_uint(largest));  // a maximum has no order
}

template <int Halves>
static __global__ void __launch_bounds__(256)
    pack_columns(const float* __restrict__ w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, Packed packed) {
    __shared__ float tile[32][33];  // 33: a column of 32 rows falls into 32 banks
    const int first_row = blockIdx.x * 32, batch = blockIdx.z, thread = threadIdx.y * 32 + threadIdx.x;
    const float* x = w + batch * batch_pitch + (first_row + threadIdx.x) * row_pitch;
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
                k < packed.k && first_row + threadIdx.x < packed.rows ? x[k * k_pitch] : 0.f;
        }
        __syncthreads();
        const float4 v = make_float4(tile[k_in_tile][thread / 8], tile[k_in_tile + 1][thread / 8],
                                     tile[k_in_tile + 2][thread / 8], tile[k_in_tile + 3][thread / 8]);
        if (row < packed.rows) store_four<Halves>(out, k0 + k_in_tile, v, scale_of(bits));
        __syncthreads();
    }
}

// --- activations that the copy engine cannot read (a pitch or an address off 16 bytes, k not contiguous): a padded
// copy

template <bool contiguous>
static __global__ void __launch_bounds__(256)
    copy_rows(const float* __restrict__ a, int64_t row_pitch, int64_t batch_pitch, int rows, int k_count,
              float* __restrict__ out, int out_pitch) {
    const int row = blockIdx.x % rows, batch = blockIdx.x / rows;
    const float* x = a + batch * batch_pitch + row * row_pitch;
    float* y = out + (int64_t)blockIdx.x * out_pitch;
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int k = blockIdx.y * 1024 + i * 256 + threadIdx.x;
        v[i] = k < k_count ? x[k] : 0.f;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int k = blockIdx.y * 1024 + i * 256 + threadIdx.x;
        if (k < out_pitch) y[k] = v[i];
    }
}

template <bool contiguous>
static __global__ void __launch_bounds__(256)
    copy_columns(const float* __restrict__ a, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows,
                 int k_count, float* __restrict__ out, int out_pitch) {
    __shared__ float tile[32][33];
    const int first_row = blockIdx.x * 32, first_k = blockIdx.y * 32;
    const float* x = a + blockIdx.z * batch_pitch + (first_row + threadIdx.x) * row_pitch;
#pragma unroll
    for (int i = threadIdx.y; i < 32; i += 8)
        tile[i][threadIdx.x] =
            first_k + i < k_count && first_row + threadIdx.x < rows ? x[(first_k + i) * k_pitch] : 0.f;
    __syncthreads();
#pragma unroll
    for (int i = threadIdx.y; i < 32; i += 8)
        if (first_row + i < rows && first_k + threadIdx.x < out_pitch)
            out[((int64_t)blockIdx.z * rows + first_row + i) * out_pitch + first_k + threadIdx.x] =
                tile[threadIdx.x][i];
}

// --- results of products of pairs: what truncation took is given back, and what is not finite is computed again. A
// Problem has A (`a`, `a_row_pitch`, `a_batch_pitch`), the packed `w`, and the sizes `m`, `n`, `k`.

// The tensor core truncates, so its sums are short by about 2^-23 on data of one sign. One unit in the last place is
// that loss on average. Sums with four zero bits at the end are taken for exact (integers up to 2^20) and left alone.
KW_DEVICE float undo_truncation(float x) {
    const uint32_t bits = __float_as_uint(x);
    return __uint_as_float(bits + ((bits & 15u) != 0));
}

KW_DEVICE bool all_finite(const float (&v)[4]) {
    return fmaf(v[0], 0.f, fmaf(v[1], 0.f, fmaf(v[2], 0.f, v[3] * 0.f))) == 0.f;  // Inf * 0 and NaN * 0 are NaN
}

// Adds Steps times 256 of k, eight neighbours of the packed order for each lane and step. Nothing stands between the
// loads of the steps: a warp that computes a row again is alone and waits for memory, so they have to be many at once.
template <int Steps>
KW_DEVICE void plain_steps(float (&sum)[4], const float* a, const __half* const (&w)[4], const float (&inverse)[4],
                           int position, int k_count) {
    float x[Steps][8], value[Steps][4][8];
#pragma unroll
    for (int s = 0; s < Steps; s++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int k = k_of_position(position + s * 256 + i);
            x[s][i] = k < k_count ? a[k] : 0.f;
        }
#pragma unroll
        for (int c = 0; c < 4; c++) packed_values(value[s][c], w[c], position + s * 256, inverse[c]);
    }
#pragma unroll
    for (int s = 0; s < Steps; s++)
#pragma unroll
        for (int c = 0; c < 4; c++)
#pragma unroll
            for (int i = 0; i < 8; i++) sum[c] = fmaf(x[s][i], value[s][c][i], sum[c]);
}

KW_DEVICE bool all_are_nan(const float (&sum)[4]) {
    bool all = true;
#pragma unroll
    for (int c = 0; c < 4; c++) all = all && __any_sync(~0u, sum[c] != sum[c]);
    return all;
}

// Elements (m, n) ... (m, n + 3) in plain float32, by a whole warp; every lane gets them. NaN is final: it ends the sums.
template <int Steps, class Problem>
KW_DEVICE void plain_dots(float (&sum)[4], const Problem& problem, int batch, int m, int n, int lane) {
    const int w_batch = problem.w.batches == 1 ? 0 : batch, padded_k = problem.w.padded_k;
    const float* a = problem.a + batch * problem.a_batch_pitch + m * problem.a_row_pitch;
    const __half* w[4];
    float inverse[4];
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const int row = min(n + c, problem.n - 1);
        w[c] = problem.w.row(w_batch, row);
        inverse[c] = problem.w.inverse[(int64_t)w_batch * problem.w.padded_rows + row];
        sum[c] = 0.f;
    }
    int first = 0;
#pragma unroll 1
    for (; first + Steps * 256 <= padded_k && !all_are_nan(sum); first += Steps * 256)
        plain_steps<Steps>(sum, a, w, inverse, first + lane * 8, problem.k);
#pragma unroll 1
    for (; first < padded_k && !all_are_nan(sum); first += 256)
        if (first + lane * 8 < padded_k) plain_steps<1>(sum, a, w, inverse, first + lane * 8, problem.k);
#pragma unroll
    for (int c = 0; c < 4; c++)
#pragma unroll
        for (int step = 16; step; step >>= 1) sum[c] += __shfl_xor_sync(~0u, sum[c], step);
}

// Four neighbours at (m, n), which some lane found not finite, again.
template <int Steps, class Epilogue, class Problem>
KW_DEVICE void store_plain(const Problem& problem, const typename Epilogue::Args& args, int batch, int m, int n,
                           int lane) {
    float sum[4];
    plain_dots<Steps>(sum, problem, batch, m, n, lane);
    const float mine[1] = {lane & 2 ? (lane & 1 ? sum[3] : sum[2]) : (lane & 1 ? sum[1] : sum[0])};
    if (lane < 4 && n + lane < problem.n)
        Epilogue::template store<1>(args, mine, (int64_t)batch * problem.m + m, n + lane);
}


#ifndef __CUDACC_RTC__
// How W is packed; one of several, so that a file compiles no other.
enum class Way { by_warps, by_blocks, by_rows, by_parts, by_columns };

constexpr Way way_of(int64_t k_pitch, int rows, int k, int batches) {
    if (k_pitch != 1) return Way::by_columns;
    if (k <= k_of_block) return k <= k_of_warp ? Way::by_warps : Way::by_blocks;
    // 1024 blocks, about eight for each multiprocessor, keep the memory busy; rows have to be worth a second kernel.
    return (int64_t)rows * batches < 1024 && k >= 2 * k_of_part ? Way::by_parts : Way::by_rows;
}

// w[row * row_pitch + k * k_pitch + batch * batch_pitch], pitches in elements, to `packed_bytes` bytes at `buffer`.
template <int Halves, Way way>
cudaError_t pack_by(const float* w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k,
                    int batches, void* buffer, cudaStream_t stream) {
    const Packed packed = packed_view(buffer, rows, k, batches, Halves);
    const dim3 each_row(packed.padded_rows, batches);
    if constexpr (way == Way::by_warps)
        pack_held<Halves, 1><<<dim3(packed.padded_rows / 8, batches), 256, 0, stream>>>(w, row_pitch, batch_pitch, packed);
    if constexpr (way == Way::by_blocks)
        pack_held<Halves, 8><<<each_row, 256, 0, stream>>>(w, row_pitch, batch_pitch, packed);
    if constexpr (way == Way::by_rows)
        pack_rows<Halves><<<each_row, 256, 0, stream>>>(w, row_pitch, batch_pitch, packed);
    if constexpr (way == Way::by_parts || way == Way::by_columns) {
        const size_t bytes = (size_t)batches * packed.padded_rows * 4;
        if (const cudaError_t status = cudaMemsetAsync(packed.largest, 0, bytes, stream)) return status;
    }
    if constexpr (way == Way::by_parts) {
        const int parts = (packed.padded_k + k_of_part - 1) / k_of_part;
        largest_of_parts<Halves><<<dim3(parts, rows, batches), 256, 0, stream>>>(w, row_pitch, batch_pitch, packed);
        pack_parts<Halves><<<dim3(parts, packed.padded_rows, batches), 256, 0, stream>>>(w, row_pitch, batch_pitch, packed);
    }
    if constexpr (way == Way::by_columns) {
        const dim3 grid(packed.padded_rows / 32, (packed.padded_k + 255) / 256, batches), block(32, 8);
        largest_of_columns<Halves><<<grid, block, 0, stream>>>(w, row_pitch, k_pitch, batch_pitch, packed);
        pack_columns<Halves><<<grid, block, 0, stream>>>(w, row_pitch, k_pitch, batch_pitch, packed);
    }
    return cudaGetLastError();
}

// The same where sizes are known only when it runs.
template <int Halves = 2>
cudaError_t pack(const float* w, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k,
                 int batches, void* buffer, cudaStream_t stream) {
    auto by = pack_by<Halves, Way::by_warps>;
    switch (way_of(k_pitch, rows, k, batches)) {
        case Way::by_warps: break;
        case Way::by_blocks: by = pack_by<Halves, Way::by_blocks>; break;
        case Way::by_rows: by = pack_by<Halves, Way::by_rows>; break;
        case Way::by_parts: by = pack_by<Halves, Way::by_parts>; break;
        case Way::by_columns: by = pack_by<Halves, Way::by_columns>; break;
    }
    return by(w, row_pitch, k_pitch, batch_pitch, rows, k, batches, buffer, stream);
}

// What `pad` writes: rows of this many floats, a multiple of 128 bytes.
inline int padded_pitch(int k) { return round_up(k, 32); }

// `contiguous`: k_pitch is 1.
template <bool contiguous>
cudaError_t pad(const float* a, int64_t row_pitch, int64_t k_pitch, int64_t batch_pitch, int rows, int k,
                int batches, float* out, cudaStream_t stream) {
    const int pitch = padded_pitch(k);
    if constexpr (contiguous)
        copy_rows<contiguous><<<dim3(rows * batches, (pitch + 1023) / 1024), 256, 0, stream>>>(a, row_pitch, batch_pitch, rows, k,
                                                                                   out, pitch);
    else
        copy_columns<contiguous><<<dim3((rows + 31) / 32, pitch / 32, batches), dim3(32, 8), 0, stream>>>(
            a, row_pitch, k_pitch, batch_pitch, rows, k, out, pitch);
    return cudaGetLastError();
}
#endif

}  // namespace kw::split
