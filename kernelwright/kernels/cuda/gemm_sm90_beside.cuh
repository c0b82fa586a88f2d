// gemm_sm90 whose W, an activation, is packed beside the product.
//
// What the first tiles want is packed before, by a launch of its own. Then there are two that pack, rows of W in the order
// in which tiles want them:
//
//   packers   blocks without tiles: 512 tiles on 132 multiprocessors are four rounds of 128, in which four have nothing
//             to do. The copy engine brings rows to shared memory, twelve warps pack them
//   aside     two warps of each block that has tiles, which would be idle. They have few registers and no shared memory, read
//             a row twice, and take twenty clocks for an instruction beside the tensor cores; but they are many
//
// A word for the rows of a tile counts those that are packed; the thread that fills the ring waits for all of them. Packers
// wait for nobody and are the blocks with the lowest numbers, which are placed first; of what is packed aside, whoever comes
// takes the next rows. So no tile waits for a block that has no place. W lies along k, at multiples of 16 bytes, and rows
// are packed in the bits of split::pack.
//
//   struct Packing {
//     static constexpr int packers;        // blocks that pack, or 0
//     static constexpr int ahead;          // tiles, in their order, whose rows were packed before
//     static constexpr int aside;          // and after these, whose rows are packed aside; packers have the others
//     static constexpr int batches, rows;  // of W, for which it is called
//     static constexpr int k;              // of a row: a multiple of 4, aside of 512, and 4096 at most
//   };
#pragma once

#include "gemm_sm90_sent.cuh"

namespace kw::gemm_sm90_beside {

using namespace kw::ptx90;

// Rows on their way from memory to shared memory, for each warp or warpgroup that packs them.
constexpr int rows_under_way = 4;

// W as `Order` packs it. A row of up to 1024 of k is a warp's, a longer one a warpgroup's; both hold it in registers.
template <class Order, class Packing> struct Beside : Order {
    static constexpr int packers = Packing::packers, ahead = Packing::ahead, aside = Packing::aside;
    static constexpr int all_batches = Packing::batches, batch_rows = Packing::rows, row_k = Packing::k;
    static constexpr int warps_of_row = row_k <= 1024 ? 1 : 4, threads_of_row = warps_of_row * 32;
    static constexpr int fours = (row_k + 4 * threads_of_row - 1) / (4 * threads_of_row);  // of a row, in a thread
    static constexpr int padded_row_k = (row_k + 63) / 64 * 64;
    static_assert(row_k % 4 == 0 && row_k <= 4096, "eight vectors of four, or fewer, in each thread");
    static_assert(aside == 0 || row_k % 512 == 0, "what is packed aside has no ends of rows");
    const float* from;  // as it lies
    int64_t row_pitch, batch_pitch;

    // Of tile_n rows that begin at n, which are packed: counted by warps. No other use is made of these words here.
    KW_DEVICE uint32_t* count(int batch, int n) const { return this->largest + (int64_t)batch * this->padded_rows + n; }
    // One that counts nothing of the kind, since tiles have more than one row: what has been taken to be packed aside.
    KW_DEVICE uint32_t* taken() const { return this->largest + 1; }
};

// Rows of all batches are numbered through: so many are those of the first tiles.
template <class Config, class W> __host__ __device__ constexpr int rows_of_first(int tiles) {
    const int per_batch = (W::batch_rows + Config::tile_n - 1) / Config::tile_n, batch = tiles / per_batch;
    return batch < W::all_batches ? batch * W::batch_rows + tiles % per_batch * Config::tile_n
                                  : W::all_batches * W::batch_rows;
}

template <class W> struct Held {  // what a thread has of a row
    float4 v[W::fours];
    int batch, row;
};

// Of thread `thread` of a row, in vector i.
template <class W> KW_DEVICE int k_of(int thread, int i) { return (i * W::threads_of_row + thread) * 4; }
template <class W> KW_DEVICE bool has(int thread, int i, int k_count) {
    return (i + 1) * W::threads_of_row * 4 <= k_count || k_of<W>(thread, i) < k_count;
}

// A thread's vectors of a row in memory.
template <class W> KW_DEVICE void take(Held<W>& held, const float* row, int thread) {
#pragma unroll
    for (int i = 0; i < W::fours; i++)
        held.v[i] = has<W>(thread, i, W::row_k) ? *(const float4*)(row + k_of<W>(thread, i))
                                                : make_float4(0.f, 0.f, 0.f, 0.f);
}

// Over the threads of a row. `of_warps`: shared memory for the four warps of a row, which do not come here again before
// all have left: rows take two such places in turn.
template <int Warps> KW_DEVICE float largest_of_row(float largest, float* of_warps, int barrier) {
    largest = split::largest_of_warp(largest);
    if constexpr (Warps > 1) {
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32 % Warps] = largest;
        named_sync(barrier, Warps * 32);
#pragma unroll
        for (int i = 0; i < Warps; i++) largest = fmaxf(largest, of_warps[i]);
    }
    return largest;
}

// Where a thread's vectors go in a packed row: 8 bytes of hi, and 32 of k on 8 of lo.
template <class W> KW_DEVICE int first_place(int thread) {
    const int k = thread * 4, inside = W::in_order ? k & 31 : (k & 16) + (k & 4) * 2 + (k & 8) / 2;
    return (k >> 5) * W::block_pitch + inside;
}

// Of two neighbouring lanes, where pairs are not in the order of k, the even one has the first pairs of both, the odd
// one the second.
template <class W> KW_DEVICE uint2 traded(const uint32_t (&pairs)[2], bool odd) {
    if constexpr (W::in_order) return make_uint2(pairs[0], pairs[1]);
    const uint32_t other = __shfl_xor_sync(~0u, odd ? pairs[0] : pairs[1], 1);
    return odd ? make_uint2(other, pairs[1]) : make_uint2(pairs[0], other);
}

// The pairs of a thread's vector to their place, if there is one. `Special`: some of the row may not be finite.
template <bool Special, class W>
KW_DEVICE void store_four(const float4& v, __half* out, int thread, float scale, bool inside) {
    uint32_t hi[2], lo[2];
    split::to_pairs(v.x * scale, v.y * scale, hi[0], lo[0]);
    split::to_pairs(v.z * scale, v.w * scale, hi[1], lo[1]);
    if constexpr (Special)
        lo[0] = split::without_special(lo[0], v.x, v.y), lo[1] = split::without_special(lo[1], v.z, v.w);
    const uint2 high = traded<W>(hi, thread & 1), low = traded<W>(lo, thread & 1);
    if (!inside) return;
    *(uint2*)out = high;
    *(uint2*)(out + split::packed_block) = low;
}

// A row's pairs to their places.
template <bool Special, class W> KW_DEVICE void store_pairs(const Held<W>& held, __half* out, int thread, float scale) {
#pragma unroll
    for (int i = 0; i < W::fours; i++)
        store_four<Special, W>(held.v[i], out + i * (W::threads_of_row / 8) * W::block_pitch, thread, scale,
                               has<W>(thread, i, W::padded_row_k));
}

// A row that its threads hold. `before_stores` runs when all of them do and nothing of it is stored yet.
template <class W, class Before>
KW_DEVICE void pack_row(const Held<W>& held, const W& w, int thread, float* of_warps, int barrier,
                        const Before& before_stores) {
    float largest = 0.f, probe = 0.f;
#pragma unroll
    for (int i = 0; i < W::fours; i++) {
        const float4 v = held.v[i];
        largest = fmaxf(largest, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
        probe = fmaf(v.x, 0.f, fmaf(v.y, 0.f, fmaf(v.z, 0.f, fmaf(v.w, 0.f, probe))));  // Inf * 0 and NaN * 0 are NaN
    }
    const bool special = __any_sync(~0u, probe != 0.f);
    if (special) {
        largest = 0.f;
#pragma unroll
        for (int i = 0; i < W::fours; i++) largest = fmaxf(largest, split::largest_of_four(held.v[i]));
    }
    const uint32_t bits = split::scale_bits(largest_of_row<W::warps_of_row>(largest, of_warps, barrier));
    before_stores();
    if (thread == 0) w.inverse[(int64_t)held.batch * w.padded_rows + held.row] = split::inverse_of(bits);
    __half* out = w.row(held.batch, held.row) + first_place<W>(thread);
    if (special) store_pairs<true>(held, out, thread, split::scale_of(bits));
    else store_pairs<false>(held, out, thread, split::scale_of(bits));
}

// To a word that others wait for, when all that this thread knows of may be seen by them.
KW_DEVICE void add_released(uint32_t* word, uint32_t count) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(count) : "memory");
}

// --- a row that a warp does not hold, but reads twice: by lines of 128 of k

// So many rows of a batch, or what is left of it, are taken together: to say that they are packed takes as long as to pack
// half a row.
constexpr int rows_of_group = 8;

// Whose numbers are a warp's own, computed anew wherever they are used: there is no register to keep them.
KW_DEVICE int lane_of_warp() {
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

template <class W> constexpr int lines_of_row = W::row_k / 128;
// Of two lines each, that the compiler puts one after the other: no more than there are, or it spills.
template <class W> constexpr int steps_together = (lines_of_row<W> % 8 == 0 ? 4 : 2) / (W::in_order ? 1 : 2);

KW_DEVICE float largest_or_nan(float largest, const float4& v) {
    return larger_or_nan(largest, larger_or_nan(larger_or_nan(fabsf(v.x), fabsf(v.y)),
                                                larger_or_nan(fabsf(v.z), fabsf(v.w))));
}

// Bits of the largest magnitude of a row: those of Inf or beyond, if it is not finite. `row` is where the lane's vectors
// begin. No kernel writes to it while this one runs.
template <class W> KW_DEVICE uint32_t largest_bits(const float* row) {
    float largest = 0.f;
#pragma unroll steps_together<W>
    for (int i = 0; i < lines_of_row<W>; i += 2) {
        const float4 v[2] = {load_constants(row + i * 128), load_constants(row + i * 128 + 128)};
        largest = largest_or_nan(largest_or_nan(largest, v[0]), v[1]);
    }
    return __reduce_max_sync(~0u, __float_as_uint(largest));
}
template <class W> KW_DEVICE float largest_finite(const float* row) {
    float largest = 0.f;
#pragma unroll 1
    for (int i = 0; i < lines_of_row<W>; i++)
        largest = fmaxf(largest, split::largest_of_four(load_constants(row + i * 128)));
    return split::largest_of_warp(largest);
}

template <class W> KW_DEVICE void pack_lines(const float* row, __half* out, int lane, float scale) {
#pragma unroll steps_together<W>
    for (int i = 0; i < lines_of_row<W>; i += 2) {
        const float4 v[2] = {load_constants(row + i * 128), load_constants(row + i * 128 + 128)};
#pragma unroll
        for (int j = 0; j < 2; j++) store_four<false, W>(v[j], out + (i + j) * 4 * W::block_pitch, lane, scale, true);
    }
}
template <class W> KW_DEVICE void pack_special_lines(const float* row, __half* out, int lane, float scale) {
#pragma unroll 1
    for (int i = 0; i < lines_of_row<W>; i++)
        store_four<true, W>(load_constants(row + i * 128), out + i * 4 * W::block_pitch, lane, scale, true);
}

// --- before

// What the first tiles want; and words that count nothing yet, and the scale 1 beyond the last row.
constexpr int threads_before = 256;

template <class Config, class W>
static __global__ void __launch_bounds__(threads_before) pack_before_kernel(const __grid_constant__ W w) {
    let_launch_begin();
    constexpr int rows_of_block = threads_before / W::threads_of_row;
    __shared__ float of_warps[threads_before / 32];
    const int team = threadIdx.x / W::threads_of_row, thread = threadIdx.x % W::threads_of_row;
    const int row = blockIdx.x * rows_of_block + team;
    const bool inside = row < rows_of_first<Config, W>(W::ahead);
    Held<W> held;
    held.batch = row / w.rows, held.row = row - held.batch * w.rows;
    if (inside) take(held, w.from + held.batch * w.batch_pitch + held.row * w.row_pitch, thread);
    const int words = w.batches * w.padded_rows;
    for (int i = blockIdx.x * threads_before + threadIdx.x; i < words; i += gridDim.x * threads_before) {
        w.largest[i] = 0;
        if (i % w.padded_rows >= w.rows) w.inverse[i] = 1.f;
    }
    if (inside) pack_row(held, w, thread, of_warps + team * W::warps_of_row, 1 + team, [] {});
}

}  // namespace kw::gemm_sm90_beside

namespace kw::gemm_sm90 {

template <class Order, class Packing> struct Supply<gemm_sm90_beside::Beside<Order, Packing>> {
    using W = gemm_sm90_beside::Beside<Order, Packing>;
    static constexpr bool is_beside = true;
    static constexpr int packers = W::packers;
    static constexpr bool packs_aside = W::aside > 0;

    // Whoever multiplies waits for all rows: somebody has to pack them.
    template <class Config> static constexpr bool packs_all =
        packers > 0 ||
        gemm_sm90_beside::rows_of_first<Config, W>(W::ahead + W::aside) == W::all_batches * W::batch_rows;

    KW_DEVICE static const float* scales(const W& w, int batch, int n) {
        return w.inverse + (int64_t)batch * w.padded_rows + n;
    }

    // By the thread that asks the copy engine for rows n to n + tile_n: are they packed? Then their scales are on their way
    // to the first cache, and so are those of the tile before again, which will be wanted first: the answer has emptied it.
    template <class Config> KW_DEVICE static bool ask(const W& w, int batch, int n, const float* before) {
        static_assert(packs_all<Config>, "without packers, all that is not packed before is packed aside");
        if (batch * ((w.rows + Config::tile_n - 1) / Config::tile_n) + n / Config::tile_n >= W::ahead) {
            const uint32_t wanted = min(Config::tile_n, w.rows - n) * W::warps_of_row;
            const uint32_t* count = w.count(batch, n);
            // To acquire empties the first cache, through which others read meanwhile: only once all is there.
            uint32_t seen;
            asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count) : "memory");
            if (seen < wanted) {
                __nanosleep(100);
                return false;
            }
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count) : "memory");
            fence_memory_for_copy_engine();
            if (before != nullptr) prefetch<Config>(before);
        }
        prefetch<Config>(scales(w, batch, n));
        return true;
    }
    template <class Config> KW_DEVICE static void prefetch(const float* scales) {
#pragma unroll 1
        for (int i = 0; i < Config::tile_n; i += 32)
#pragma unroll
            for (int j = 0; j < 32; j += 8) prefetch_near(scales + i + j);
    }

    // All threads of a block: its share of the rows that were not packed before. `data` and `barriers`: shared memory.
    template <class Config> KW_DEVICE static void pack(const W& w, uint8_t* data, uint64_t* barriers) {
        using namespace gemm_sm90_beside;
        constexpr int teams = threads / W::threads_of_row, step = teams * W::packers, row_bytes = W::row_k * 4;
        constexpr int ring_bytes = teams * rows_under_way * row_bytes;
        static_assert(Config::packed_before, "it begins as the launch before it ends");
        static_assert(ring_bytes + teams * 2 * W::warps_of_row * 4 <= smem_bytes, "rows under way have room");
        static_assert(teams * rows_under_way <= 4 * slots, "and barriers");
        const int team = threadIdx.x / W::threads_of_row, thread = threadIdx.x % W::threads_of_row;
        const uint32_t arrived = shared_address(barriers + team * rows_under_way);
        uint8_t* const slots_of_team = data + team * rows_under_way * row_bytes;
        float* const of_warps = reinterpret_cast<float*>(data + ring_bytes) + team * 2 * W::warps_of_row;
        const int rows = w.batches * w.rows;
        const auto bring = [&](int row, int slot) {
            if (thread != 0 || row >= rows) return;
            const int batch = row / w.rows;
            const float* from = w.from + batch * w.batch_pitch + (row - batch * w.rows) * w.row_pitch;
            barrier_arrive_and_expect(arrived + slot * 8, row_bytes);
            load_bytes(shared_address(slots_of_team + slot * row_bytes), from, row_bytes, arrived + slot * 8);
        };
        if (threadIdx.x == 0) {
            for (int i = 0; i < teams * rows_under_way; i++) barrier_init(shared_address(barriers + i), 1);
            barrier_init_fence();
        }
        __syncthreads();
        const int first = rows_of_first<Config, W>(W::ahead + W::aside) + blockIdx.x * teams + team;
        for (int i = 0; i < rows_under_way; i++) bring(first + i * step, i);
        // A warp says how many rows of a tile it has packed when it is about to store one of the next tile: to say it,
        // it has to wait until all it stored is through, for longer than a row takes.
        uint32_t* unsaid = nullptr;
        uint32_t rows_unsaid = 0;
        const auto say = [&] {
            if (rows_unsaid == 0) return;
            fence_memory_for_copy_engine();
            __syncwarp();
            if (threadIdx.x % 32 == 0) add_released(unsaid, rows_unsaid);
            rows_unsaid = 0;
        };
        uint32_t turn = 0;
#pragma unroll 1
        for (int row = first; row < rows; row += step, turn++) {
            const int slot = turn % rows_under_way;
            barrier_wait(arrived + slot * 8, turn / rows_under_way & 1);
            Held<W> held;
            held.batch = row / w.rows, held.row = row - held.batch * w.rows;
            take(held, reinterpret_cast<const float*>(slots_of_team + slot * row_bytes), thread);
            uint32_t* const count = w.count(held.batch, held.row / Config::tile_n * Config::tile_n);
            pack_row(held, w, thread, of_warps + turn % 2 * W::warps_of_row, 1 + team, [&] {
                __syncwarp();  // all threads of the row have read it
                bring(row + rows_under_way * step, slot);
                if (count != unsaid) say(), unsaid = count;
            });
            rows_unsaid++;
        }
        say();
    }

    // Groups of rows, through all batches: so many are those of the first tiles.
    static constexpr int groups = (W::batch_rows + gemm_sm90_beside::rows_of_group - 1) / gemm_sm90_beside::rows_of_group;
    template <class Config> __host__ __device__ static constexpr int groups_of_first(int tiles) {
        using namespace gemm_sm90_beside;
        static_assert(Config::tile_n % rows_of_group == 0, "a group is of one tile");
        const int row = rows_of_first<Config, W>(tiles);
        return row / W::batch_rows * groups + row % W::batch_rows / rows_of_group;
    }

    // A warp of a block that has tiles: the next group that nobody has taken, as long as there is one, and the one after it
    // is asked for meanwhile. It has 24 registers: numbers of rows are kept, addresses computed of them where they are used,
    // and `row` is what the compiler knows nothing of, that it does not compute them ahead.
    template <class Config> KW_DEVICE static void pack_aside(const W& w) {
        using namespace gemm_sm90_beside;
        constexpr int first = groups_of_first<Config>(W::ahead), end = groups_of_first<Config>(W::ahead + W::aside);
        constexpr int rows = W::batch_rows, padded_rows = split::padded_rows_of(rows);
        const auto at = [&](int row, int lane) {
            return w.from + row / rows * w.batch_pitch + row % rows * w.row_pitch + lane * 4;
        };
        uint32_t next = 0;  // of lane 0
        take_next(next, w);
#pragma unroll 1
        for (;;) {
            const int group = first + (int)__reduce_max_sync(~0u, next);
            if (group >= end) return;
            take_next(next, w);
            int row = group / groups * rows + group % groups * rows_of_group;
            bool last;
#pragma unroll 1
            do {
                row = anew(row);
                const uint32_t found = largest_bits<W>(at(row, lane_of_warp()));
                const bool special = found >= split::exponent_mask;
                row = anew(row);
                const float largest = special ? largest_finite<W>(at(row, lane_of_warp())) : __uint_as_float(found);
                const uint32_t bits = split::scale_bits(largest);
                if (lane_of_warp() == 0) w.inverse[row / rows * padded_rows + row % rows] = split::inverse_of(bits);
                row = anew(row);
                const int lane = lane_of_warp();
                __half* out = w.pairs + (int64_t)row * (2 * W::padded_row_k) + first_place<W>(lane);
                if (special) pack_special_lines<W>(at(row, lane), out, lane, split::scale_of(bits));
                else pack_lines<W>(at(row, lane), out, lane, split::scale_of(bits));
                row++;
                last = row % rows % rows_of_group == 0 || row % rows == 0;
            } while (!last);
            fence_memory_for_copy_engine();
            __syncwarp();
            row--;
            const int of_batch = row % rows, packed = (of_batch % rows_of_group + 1) * W::warps_of_row;
            if (lane_of_warp() == 0)
                add_released(w.count(row / rows, of_batch / Config::tile_n * Config::tile_n), packed);
        }
    }
    // Not atomicAdd, which would be gathered for the lanes of a warp and waited for at once. The address has the lane in it
    // (which is 0): ptxas would keep it, and spill it.
    KW_DEVICE static void take_next(uint32_t& next, const W& w) {
        const int lane = gemm_sm90_beside::lane_of_warp();
        if (lane < 1)
            asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(next) : "l"(w.taken() + lane) : "memory");
    }
};

}  // namespace kw::gemm_sm90

namespace kw::gemm_sm90_beside {

#ifndef __CUDACC_RTC__
// As gemm_sm90 asks of a W.
template <class Order, class Packing>
cudaError_t describe(Beside<Order, Packing>& w, TensorMap* map, const gemm_sm90::Operands& operands, int panels,
                     int rows) {
    using gemm_sm90::describe;
    w.from = operands.w_from, w.row_pitch = operands.w_row_pitch, w.batch_pitch = operands.w_batch_pitch;
    return describe(static_cast<Order&>(w), map, operands, panels, rows);
}

// Packs what the first tiles want; gemm_sm90_sent::launch comes next.
template <class Config, class W> cudaError_t pack_before(const gemm_sm90::Operands& operands, cudaStream_t stream) {
    if (operands.k != W::row_k || operands.n != W::batch_rows || operands.w_batches != W::all_batches)
        return cudaErrorInvalidValue;
    W w;
    static_cast<split::Packed&>(w) = split::packed_view(const_cast<void*>(operands.w), operands.n, operands.k,
                                                        operands.w_batches);
    w.from = operands.w_from, w.row_pitch = operands.w_row_pitch, w.batch_pitch = operands.w_batch_pitch;
    const int rows_of_block = threads_before / W::threads_of_row, rows = rows_of_first<Config, W>(W::ahead);
    const int blocks = rows > 0 ? (rows + rows_of_block - 1) / rows_of_block : 1;
    pack_before_kernel<Config, W><<<blocks, threads_before, 0, stream>>>(w);
    return cudaGetLastError();
}
#endif

}  // namespace kw::gemm_sm90_beside
