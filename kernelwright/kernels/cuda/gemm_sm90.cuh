// C = Epilogue(A W^T) on Hopper's float16 tensor cores with float32's accuracy: A [m, k] float32, W [n, k] packed.
//
// Every float32 is a pair hi + lo of float16 under a power-of-two scale (split.cuh). A chunk of k (`Config::promote`)
// is three products, lo*hi, hi*lo, hi*hi, in one tensor-core sum, corrections first so that they are cut at their own
// size. The sum then leaves the tensor core, which truncates, for a float32 register, which rounds ("promotion").
//
//   warp 0       one thread keeps the copy engine busy: a ring of 16 KB slots, A, then W, each slot freed on its own
//   2 warpgroups 64 rows each: read A, find the scale of each row and chunk, split, multiply, promote; they take turns.
//                Tiles of 64 rows: the same rows, and half of the columns each
//
// Inf, NaN and overflow: a result that is not finite is computed again in plain float32 by the warp that found it, in
// the same launch: no flag, no second kernel, no host. docs/gemm.md has the reasons and the measurements.
#pragma once

#include "gemm_epilogue.cuh"
#include "gemm_prologue.cuh"
#include "ptx90.cuh"
#include "split.cuh"

namespace kw::gemm_sm90 {

using namespace kw::ptx90;

// A build fixes these; the generated file writes such a struct.
struct DefaultConfig {
    static constexpr int tile_m = 128;          // rows of a tile: 128, or 64
    static constexpr int tile_n = 256;          // columns of a tile: 64, 128, 192 or 256; 128 or 256 with 64 rows
    static constexpr int promote = 64;          // k between promotions: 32 or 64
    static constexpr int splits = 1;            // parts of k, summed in a second kernel
    static constexpr int vector = 4;            // neighbours of one Epilogue::store: 4, 2 or 1; n is a multiple
    static constexpr int raster = 16;           // tiles of a column strip that run together and share W through L2
    static constexpr int under_way = 2;         // parts of a chunk; 1 where registers are short
    static constexpr bool one_chunk = false;    // of k: a tile is over when it has begun
    static constexpr bool panels = false;       // W was packed by panels, each with scales of its own
    static constexpr bool packed_before = false;  // by the launch before this one, at whose end it may begin
    static constexpr bool undo_truncation = true;  // give back, on average, what the tensor core cuts off
};

constexpr int k_of_slot = 32;
constexpr int gathered = 64;  // columns whose results are handled together: one trip to memory for all their operands
constexpr int slot_bytes = 128 * 128, slots = 14;
constexpr int threads = 384, consumer_warps = 8;
constexpr int smem_bytes = slots * slot_bytes + 1024;  // 1024: the 128-byte swizzle repeats every 8 rows of 128 bytes

// Sizes that follow from a Config.
template <class Config> struct Sizes {
    static constexpr bool same_rows = Config::tile_m == 64;  // for both warpgroups
    static constexpr int wgmma_n = same_rows || Config::tile_n > 128 ? Config::tile_n / 2 : Config::tile_n;
    static constexpr int blocks = Config::tile_n / wgmma_n;      // column blocks of a tile, one W slot high
    static constexpr int own_blocks = same_rows ? 1 : blocks;    // of a warpgroup
    static constexpr int halves = wgmma_n == 128 ? 2 : 1;        // of a block
    static constexpr int columns = wgmma_n / halves;             // of one wgmma
    static constexpr int parts = own_blocks * halves;            // of a chunk, each multiplied by itself
    static constexpr int first_blocks = halves == 1 && parts > 1 ? 2 : 1;  // that the first two parts want
    static constexpr int k_slots = Config::promote / k_of_slot;  // slots of one operand in a chunk
    static constexpr int chunk_slots = k_slots * (1 + blocks);
    static constexpr int steps = Config::promote / 16;  // wgmma steps along k for each product
    static_assert(Config::tile_m == 128 || Config::tile_m == 64, "tile_m is 128 or 64");
    static_assert(Config::tile_n == 256 || Config::tile_n == 128 ||
                      (!same_rows && (Config::tile_n == 192 || Config::tile_n == 64)),
                  "tile_n is 64, 128, 192 or 256; 128 or 256 with 64 rows");
    static_assert(Config::promote == 32 || Config::promote == 64, "promote is 32 or 64");
    static_assert(Config::under_way == 1 || (Config::under_way == 2 && !Config::panels), "2, or 1 and panels");
    static_assert(Config::vector == 1 || Config::vector == 2 || Config::vector == 4, "vector is 1, 2 or 4");
    static_assert(chunk_slots < slots, "a chunk fits the ring with room to prefetch");
};

// W: split::Packed, or another order of the same (gemm_sm90_bricks.cuh).
template <class W> struct Problem {
    TensorMap a_map, w_map;
    const float* a;  // the same A, for results that are computed again
    int64_t a_row_pitch, a_batch_pitch;
    W w;
    int m, n, k, batches;
};

// --- the ring of slots

struct Cursor {
    int slot;
    uint32_t phase;
};

KW_DEVICE Cursor advance(Cursor at, int count) {
    at.slot += count;
    if (at.slot >= slots) {
        at.slot -= slots;
        at.phase ^= 1;
    }
    return at;
}

struct Ring {
    uint32_t data, full, empty;  // shared-memory addresses

    KW_DEVICE uint32_t slot(Cursor at) const { return data + at.slot * slot_bytes; }
    // Of the tile that begins in this slot, what its Work is: 16 bytes.
    KW_DEVICE uint32_t work(Cursor at) const { return empty + slots * 8 + at.slot * 16; }
    // After all of these, for who needs more (Leaving).
    KW_DEVICE uint32_t end() const { return empty + slots * 24; }
    KW_DEVICE void wait_full(Cursor at) const { barrier_wait(full + at.slot * 8, at.phase); }
    KW_DEVICE void wait_empty(Cursor at) const { barrier_wait(empty + at.slot * 8, at.phase ^ 1); }
    // A slot is free after `consumer_warps` arrivals, by a lane of each warp: one, or two where one warpgroup reads it.
    template <int Arrivals = 1> KW_DEVICE void release(Cursor at, bool releases) const {
        barrier_arrive_if<Arrivals>(releases, empty + at.slot * 8);
    }
    KW_DEVICE void expect(Cursor at, int bytes) const {
        wait_empty(at);
        barrier_arrive_and_expect(full + at.slot * 8, bytes);
    }
    KW_DEVICE void fill(Cursor at, const TensorMap* map, int bytes, int x, int y, int z) const {
        expect(at, bytes);
        load_box(slot(at), map, full + at.slot * 8, x, y, z);
    }
};

// --- which tile, batch and part of k a block works on

struct Work {
    int m, n, batch, split;  // first row and column of the tile
};

// Where packed W comes from. Here it is there when the launch begins. Or it is packed beside the product, by blocks that
// have no tiles and by idle warps of those that have (gemm_sm90_beside.cuh).
template <class W> struct Supply {
    static constexpr bool is_beside = false;
    static constexpr int packers = 0;           // blocks
    static constexpr bool packs_aside = false;  // warps
};

template <class Config> struct Schedule {
    int tiles_m, tiles_n, per_batch, count, chunks;
    int first, step;  // of this block's tiles

    template <class W> KW_DEVICE explicit Schedule(const Problem<W>& problem) {
        first = blockIdx.x - Supply<W>::packers, step = gridDim.x - Supply<W>::packers;
        tiles_m = (problem.m + Config::tile_m - 1) / Config::tile_m;
        tiles_n = (problem.n + Config::tile_n - 1) / Config::tile_n;
        per_batch = tiles_m * tiles_n;
        count = per_batch * problem.batches * Config::splits;
        chunks = (problem.k + Config::promote - 1) / Config::promote;
    }
    // Splits outermost, then batches; inside a batch strips of `raster` row tiles, column by column.
    KW_DEVICE Work operator[](int index) const {
        const int unit = index / per_batch, tile = index - unit * per_batch;
        const int strip_tiles = Config::raster * tiles_n, strip = tile / strip_tiles;
        const int inside = tile - strip * strip_tiles;
        const int height = min(Config::raster, tiles_m - strip * Config::raster), column = inside / height;
        const int batches = count / (per_batch * Config::splits), split = Config::splits == 1 ? 0 : unit / batches;
        return {(strip * Config::raster + inside - column * height) * Config::tile_m, column * Config::tile_n,
                unit - split * batches, split};
    }
    KW_DEVICE int first_chunk(int split) const {
        return Config::splits == 1 ? 0 : (int)((int64_t)chunks * split / Config::splits);
    }
    KW_DEVICE int end_chunk(int split) const { return Config::splits == 1 ? chunks : first_chunk(split + 1); }
};

// What depends on how A lies and on where sums go: here rows of A are rows of the result, and k is contiguous. There is
// another form of it, in which rows of A are columns of the result and W is in the order of k (gemm_sm90_turned.cuh).
template <class W, bool in_order = W::in_order> struct Roles;

// How the results of a tile leave. Here threads store them. Or they stay in slots of the ring until the copy engine has
// taken them from there (gemm_sm90_sent.cuh).
template <class Epilogue> struct Leaving {
    static constexpr bool by_ring = false;
    static constexpr int words = 0;  // of 8 bytes after those of the ring
};

// Of the ring: two barriers and a Work for each slot; and what comes after.
template <class Epilogue> constexpr int barriers_and_more = 4 * slots + Leaving<Epilogue>::words;

// --- producer: one thread. It also says which tile comes: to divide for that would take those who multiply longer

struct Corner {  // of a box in its map
    int x, y, z;
};

// Block number `block` of 32 of k, from row n on.
KW_DEVICE Corner corner(const split::Packed&, int batch, int n, int block) { return {block * 2 * k_of_slot, n, batch}; }

template <class Config, class Epilogue, class W> KW_DEVICE void produce(const Problem<W>& problem, const Ring& ring) {
    using S = Sizes<Config>;
    using Leaves = Leaving<Epilogue>;
    const Schedule<Config> schedule(problem);
    Cursor at = {0, 0};
    // Where W is packed beside, it is found out while the ring is full what the next tile is, and whether that is packed:
    // between tiles others would wait.
    [[maybe_unused]] Work coming;
    if constexpr (Supply<W>::is_beside) coming = schedule[schedule.first];
    [[maybe_unused]] bool is_there = false;
    [[maybe_unused]] const float* scales = nullptr;  // of the tile before
    for (int index = schedule.first; index < schedule.count; index += schedule.step) {
        const Work work = Supply<W>::is_beside ? coming : schedule[index];
        const int w_batch = problem.w.batch_of(work.batch);
        if constexpr (Supply<W>::is_beside) {
            while (!is_there) is_there = Supply<W>::template ask<Config>(problem.w, w_batch, work.n, scales);
            scales = Supply<W>::scales(problem.w, w_batch, work.n);
            is_there = false;
        }
        ring.wait_empty(at);  // who had this slot before has read what was said there
        const uint32_t said[4] = {(uint32_t)work.m, (uint32_t)work.n, (uint32_t)work.batch, (uint32_t)work.split};
        store_shared(ring.work(at), said);
        for (int chunk = schedule.first_chunk(work.split); chunk < schedule.end_chunk(work.split); chunk++) {
#pragma unroll 1
            for (int i = 0; i < S::k_slots; i++, at = advance(at, 1))
                Roles<W>::template fill<Config>(ring, at, problem, work, (chunk * S::k_slots + i) * k_of_slot);
#pragma unroll 1
            for (int b = 0; b < S::blocks; b++)
#pragma unroll 1
                for (int i = 0; i < S::k_slots; i++, at = advance(at, 1)) {
                    const Corner from = corner(problem.w, w_batch, work.n + b * S::wgmma_n, chunk * S::k_slots + i);
                    ring.fill(at, &problem.w_map, S::wgmma_n * 128, from.x, from.y, from.z);
                }
            if constexpr (Leaves::by_ring) {
                if (Leaves::has_results_after(schedule, index, chunk))
                    at = Leaves::template lend<Config>(ring, at);
            }
            if constexpr (Supply<W>::is_beside) {
                if (chunk == schedule.first_chunk(work.split)) coming = schedule[index + schedule.step];
                if (chunk + 2 == schedule.end_chunk(work.split) && index + schedule.step < schedule.count)
                    is_there = Supply<W>::template ask<Config>(problem.w, problem.w.batch_of(coming.batch), coming.n, scales);
            }
        }
        if constexpr (Leaves::by_ring) {
            if (Leaves::has_results_at_end(schedule, index)) at = Leaves::template lend<Config>(ring, at);
        }
    }
}

// --- consumers

template <class Config> struct Fragments {  // a chunk of the thread's two rows of A, as wgmma wants it
    uint32_t hi[Sizes<Config>::steps][4], lo[Sizes<Config>::steps][4];
};

// What is computed of A by those who read it: of rows `row` and 8 below, as far as they are in the result.
template <class Prologue> struct Made {
    const typename Prologue::Args& args;
    int64_t row[2];
    int k_count;

    template <class W>
    KW_DEVICE Made(const typename Prologue::Args& args, const Problem<W>& problem, const Work& work, int in_tile)
        : args(args), k_count(problem.k) {
#pragma unroll
        for (int r = 0; r < 2; r++)
            row[r] = (int64_t)work.batch * problem.m + min(work.m + in_tile + 8 * r, problem.m - 1);
    }
    KW_DEVICE void apply(float (&x)[4], int r, int k) const {
        gemm::apply_four<Prologue>(args, x, row[r], k, k_count);
    }
};

template <class Config> using Chunk = float[Sizes<Config>::steps][2][4];  // of the thread's two rows of A, as it lies

template <class Config> KW_DEVICE void await_slots(const Ring& ring, Cursor at) {
#pragma unroll
    for (int i = 0; i < Sizes<Config>::k_slots; i++) ring.wait_full(advance(at, i));
}
// Reads slots of a chunk that is there; then they may be freed.
template <class W, int Steps>
KW_DEVICE void read_slots(float (&v)[Steps][2][4], const Ring& ring, Cursor at, uint32_t place) {
#pragma unroll
    for (int i = 0; i < Steps / 2; i++) Roles<W>::read(v[i * 2], v[i * 2 + 1], ring.slot(advance(at, i)) + place);
}
template <class Config, int Arrivals = 1> KW_DEVICE void free_slots(const Ring& ring, Cursor at, bool releases) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Sizes<Config>::k_slots; i++) ring.template release<Arrivals>(advance(at, i), releases);
}

// undo[r]: the inverse scale of row r in this chunk.
template <class Config, class Prologue>
KW_DEVICE void split_chunk(Fragments<Config>& fragments, float (&undo)[2], Chunk<Config>& v, const Made<Prologue>& made,
                           int chunk, int lane) {
    using S = Sizes<Config>;
#pragma unroll
    for (int i = 0; i < S::steps; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) made.apply(v[i][r], r, chunk * Config::promote + i * 16 + (lane & 3) * 4);
    float scale[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float largest = 0.f;
#pragma unroll
        for (int i = 0; i < S::steps; i++)
            largest = fmaxf(largest, fmaxf(fmaxf(fabsf(v[i][r][0]), fabsf(v[i][r][1])),
                                           fmaxf(fabsf(v[i][r][2]), fabsf(v[i][r][3]))));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
        const uint32_t bits = split::scale_bits(largest);
        scale[r] = split::scale_of(bits);
        undo[r] = split::inverse_of(bits);
    }
#pragma unroll
    for (int i = 0; i < S::steps; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float (&x)[4] = v[i][r];
            split::to_pairs(x[0] * scale[r], x[1] * scale[r], fragments.hi[i][r], fragments.lo[i][r]);
            split::to_pairs(x[2] * scale[r], x[3] * scale[r], fragments.hi[i][r + 2], fragments.lo[i][r + 2]);
        }
}

// The three products of a chunk for half a column block, or all of it, corrections first. `before_last` runs before the
// last of the three.
template <class Config, class Before>
KW_DEVICE void multiply(float (&sum)[Sizes<Config>::columns / 2], const Fragments<Config>& a, const Ring& ring, Cursor w,
                        int half, const Before& before_last) {
    using S = Sizes<Config>;
    uint64_t hi[S::k_slots];
#pragma unroll
    for (int i = 0; i < S::k_slots; i++) hi[i] = descriptor_128b(ring.slot(advance(w, i)) + half * S::columns * 128);
    constexpr int lo = 4;  // 64 bytes on: the lo halves of the same 32 of k
    pin(sum);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < S::steps; i++) {
        if (i == 0) wgmma_f16<false>(sum, a.lo[i], hi[0]);
        else wgmma_f16<true>(sum, a.lo[i], hi[i / 2] + (i & 1) * 2);
    }
#pragma unroll
    for (int i = 0; i < S::steps; i++) wgmma_f16<true>(sum, a.hi[i], hi[i / 2] + (i & 1) * 2 + lo);
    before_last();
#pragma unroll
    for (int i = 0; i < S::steps; i++) wgmma_f16<true>(sum, a.hi[i], hi[i / 2] + (i & 1) * 2);
    wgmma_commit();
}

// Adds a chunk's sums, in their units, to a tile's, from `first` on.
template <int M, int N> KW_DEVICE void promote(float (&total)[M], int first, float (&sum)[N], const float (&undo)[2]) {
    pin(sum);
#pragma unroll
    for (int i = 0; i < N; i++) {
        total[first + i] = fmaf(sum[i], undo[i >> 1 & 1], total[first + i]);
        asm volatile("" : "+f"(total[first + i])::"memory");
    }
}

// Sums are in units of the scales of W's panel. From one panel to the next they change, exactly, unless they leave
// float32's range: then they are computed again. `columns` is this thread's first.
template <class Config>
KW_DEVICE void change_scales(float (&total)[Sizes<Config>::own_blocks][Sizes<Config>::wgmma_n / 2],
                             const split::Packed& w, int batch, int k, int columns) {
    using S = Sizes<Config>;
    const float *before = w.inverses(batch, k - 1) + columns, *after = w.inverses(batch, k) + columns;
#pragma unroll
    for (int b = 0; b < S::own_blocks; b++)
#pragma unroll
        for (int i = 0; i < S::wgmma_n / 2; i += 4) {
            const int column = b * S::wgmma_n + i * 2;
            const float2 old = __ldg((const float2*)(before + column)), now = __ldg((const float2*)(after + column));
            const float x = old.x * split::inverse_of(__float_as_uint(now.x)),
                        y = old.y * split::inverse_of(__float_as_uint(now.y));
            total[b][i] *= x, total[b][i + 1] *= y, total[b][i + 2] *= x, total[b][i + 3] *= y;
        }
}

// --- results

template <class Config, int N> KW_DEVICE void correct(float (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        if (Config::undo_truncation) v[i] = split::undo_truncation(v[i]);
}

// Bit 2 i + r of a lane's `again` is its four neighbours in the sixteen columns number i of row m + 8 r.
template <class Prologue, class End, class W>
KW_DEVICE void take_again(End& end, const Problem<W>& problem, const typename Prologue::Args& made, const Work& work, int m,
                          int columns, uint32_t again) {
#pragma unroll 1
    for (int source = 0; source < 32; source++) {
        uint32_t left = __shfl_sync(~0u, again, source);
        const int first_m = __shfl_sync(~0u, m, source), first_n = columns + gemm::first_of_four(source);
#pragma unroll 1
        for (; left; left &= left - 1) {
            const int bit = __ffs(left) - 1;
            split::take_plain<4, Prologue>(end, bit & 1, problem, made, work.batch, first_m + 8 * (bit & 1),
                                           first_n + (bit >> 1) * 16, source);
        }
    }
}

// The scales of sixteen columns, four of each `vectors / 2`, for a lane's neighbours.
template <int Count> KW_DEVICE void load_scales(float4 (&scale)[Count], const float* inverse) {
#pragma unroll
    for (int j = 0; j < Count; j++) scale[j] = load_constants(inverse + j * 16);
}

// A warpgroup's sums: of `own_blocks` column blocks that begin at column `columns`.
template <class Config, class Epilogue, class Prologue, class W>
KW_DEVICE void finish(const Problem<W>& problem, const typename Epilogue::Args& args,
                      const typename Prologue::Args& made, const Work& work, int row, int columns, int lane,
                      int last_chunk,
                      const float (&total)[Sizes<Config>::own_blocks][Sizes<Config>::wgmma_n / 2]) {
    using S = Sizes<Config>;
    constexpr int per_block = S::wgmma_n / 8;
    const int m = work.m + row, n = columns + gemm::first_of_four(lane);
    const int last_k = Config::panels ? last_chunk * Config::promote : 0;
    const float* inverse = problem.w.inverses(problem.w.batch_of(work.batch), last_k) + n;
    const int64_t first_row = ((int64_t)work.split * problem.batches + work.batch) * problem.m + m;
    const bool tile_inside = work.m + Config::tile_m <= problem.m && work.n + Config::tile_n <= problem.n;
    gemm::Ending<Epilogue, 2, Config::vector> end(args);
#pragma unroll
    for (int r = 0; r < 2; r++) end.begin(r, first_row - m + min(m + 8 * r, problem.m - 1));
    uint32_t again = 0;
    constexpr int vectors = gathered / 8;
    float4 next[vectors / 2];
    load_scales(next, inverse);
#pragma unroll
    for (int group = 0; group < S::own_blocks * S::wgmma_n; group += gathered) {
        float4 scale[vectors / 2];
#pragma unroll
        for (int j = 0; j < vectors / 2; j++) scale[j] = next[j];
        // Asked for before this group's results are stored: behind them it would wait for as long as they take.
        if (group + gathered < S::own_blocks * S::wgmma_n) load_scales(next, inverse + group + gathered);
        float v[vectors][4];  // [2 * sixteen columns + row]
        bool finite = true;
#pragma unroll
        for (int i = 0; i < vectors; i++) {
            const int eight = group / 8 + (i & ~1);
            const float* left = &total[eight / per_block][eight % per_block * 4 + 2 * (i & 1)];
            gemm::trade(v[i], left, left + 4, lane & 1);
            v[i][0] *= scale[i / 2].x, v[i][1] *= scale[i / 2].y, v[i][2] *= scale[i / 2].z, v[i][3] *= scale[i / 2].w;
            finite = finite && split::all_finite(v[i]);
        }
        // With nothing to ask for each store, the compiler gathers the epilogue's loads.
        if (tile_inside && __all_sync(~0u, finite)) {
#pragma unroll
            for (int i = 0; i < vectors; i++) {
                correct<Config>(v[i]);
                gemm::take_four(end, v[i], i & 1, first_row + 8 * (i & 1), n + group + (i >> 1) * 16);
            }
        } else {
#pragma unroll
            for (int i = 0; i < vectors; i++) {
                const int column = n + group + (i >> 1) * 16;
                if (m + 8 * (i & 1) >= problem.m || column >= problem.n) continue;
                if (Config::splits > 1 || split::all_finite(v[i])) {
                    correct<Config>(v[i]);
                    gemm::take_some(end, v[i], i & 1, first_row + 8 * (i & 1), column, problem.n);
                } else {
                    again |= 1u << (group / 8 + i);
                }
            }
        }
    }
    if constexpr (Config::splits == 1) {
        if (__any_sync(~0u, again)) take_again<Prologue>(end, problem, made, work, m, columns, again);
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        end.template leave<4>(r, first_row + 8 * r, m + 8 * r < problem.m, columns / (S::own_blocks * S::wgmma_n));
}

template <class W> struct Roles<W, false> {
    __host__ __device__ static int rows(const Problem<W>& problem) { return problem.m; }  // of the result
    __host__ __device__ static int columns(const Problem<W>& problem) { return problem.n; }
    template <class Config>
    KW_DEVICE static void fill(const Ring& ring, Cursor at, const Problem<W>& problem, const Work& work, int k) {
        ring.fill(at, &problem.a_map, Config::tile_m * 128, k, work.m, work.batch);
    }
    // Thread's rows: the row of A that lies in the fragment's row g has g's three bits backwards, and 8 below it. So
    // ordered, the eight threads that one phase of a 16-byte load of A serves touch all 32 banks, and so do the sixteen
    // of an 8-byte store of results.
    KW_DEVICE static int row_in_tile(int first, int warp, int lane) {
        const int g = lane >> 2;
        return first + warp * 16 + ((g & 1) << 2 | (g & 2) | g >> 2);
    }
    // Where a thread's part of a slot begins. Slots begin at multiples of 1024 bytes: what is mixed here stays mixed.
    KW_DEVICE static uint32_t place(int row, int lane) { return row * 128 + (((lane & 3) ^ (row & 7)) << 4); }
    // The thread's two rows, in the first and in the second 16 of k.
    KW_DEVICE static void read(float (&first)[2][4], float (&second)[2][4], uint32_t place) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            load_shared(first[r], place + r * 8 * 128);
            load_shared(second[r], (place ^ 64) + r * 8 * 128);
        }
    }
    // Where a thread's sums lie in the part of a tile that its warpgroup has, 64 rows of the result, by groups of 64
    // columns: of a group, sums pair[i][0] and pair[i][1] are at (first_y + y(i), first_x + x(i)) and right of that.
    static constexpr bool groups_are_rows = false;
    static constexpr int steps_again = 4;  // of 256 of k, at once
    static constexpr int lane_beside = 1;  // with the next two columns, of each pair of lanes
    using Scales = float2[gathered / 8];
    KW_DEVICE static int first_y(int warp, int lane) { return row_in_tile(0, warp, lane); }
    KW_DEVICE static int first_x(int warp, int lane) { return (lane & 3) * 2; }
    KW_DEVICE static constexpr int y(int i) { return i % 2 * 8; }
    KW_DEVICE static constexpr int x(int i) { return i / 2 * 8; }
    KW_DEVICE static void load(Scales& scales, const float* inverse) {
#pragma unroll
        for (int j = 0; j < gathered / 8; j++) scales[j] = load_two(inverse + j * 8);
    }
    // `eight`: the four sums of number i / 2 of the group's eights of columns.
    KW_DEVICE static void scaled(float (&pair)[2], const float* eight, const Scales& scales, int i) {
        pair[0] = eight[i % 2 * 2] * scales[i / 2].x, pair[1] = eight[i % 2 * 2 + 1] * scales[i / 2].y;
    }
    template <class Config, class Epilogue, class Prologue, class... Rest>
    KW_DEVICE static void finish(const Problem<W>& problem, const Rest&... rest) {
        gemm_sm90::finish<Config, Epilogue, Prologue>(problem, rest...);
    }
    template <int Steps, class Prologue, class End>
    KW_DEVICE static void take_plain(End& end, int which, const Problem<W>& problem,
                                     const typename Prologue::Args& made, int batch, int m, int n, int owner) {
        split::take_plain<Steps, Prologue>(end, which, problem, made, batch, m, n, owner);
    }
#ifndef __CUDACC_RTC__
    template <class Config, class Operands> static cudaError_t describe_a(TensorMap* map, const Operands& operands) {
        return encode_map(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, operands.a,
                          {operands.k, operands.m, operands.batches}, {operands.a_row_pitch, operands.a_batch_pitch},
                          {k_of_slot, Config::tile_m});
    }
#endif
};

// What the tile is that begins in this slot, once something of it is there. One lane reads it, the same that says later
// that the slot is free: what the thread that writes there next waits for.
template <class Config> KW_DEVICE Work awaited_work(const Ring& ring, Cursor at) {
    ring.wait_full(at);
    uint32_t said[4] = {};
    load_shared_if(threadIdx.x % 32 == 0, said, ring.work(at));
#pragma unroll
    for (int i = 0; i < 4; i++) said[i] = __shfl_sync(~0u, said[i], 0);
    return {(int)said[0], (int)said[1], (int)said[2], Config::splits == 1 ? 0 : (int)said[3]};
}

template <class Config, class Epilogue, class Prologue, class W>
KW_DEVICE void consume(const Problem<W>& problem, const typename Epilogue::Args& args,
                       const typename Prologue::Args& made, const Ring& ring, int consumer) {
    using S = Sizes<Config>;
    using Leaves = Leaving<Epilogue>;
    const int lane = threadIdx.x & 31;
    const int row = Roles<W>::row_in_tile(S::same_rows ? 0 : consumer * 64, threadIdx.x >> 5 & 3, lane);
    const uint32_t place = Roles<W>::place(row, lane);
    const int first_block = S::same_rows ? consumer : 0;
    const auto columns = [=](const Work& work) { return work.n + first_block * S::wgmma_n; };
    const Schedule<Config> schedule(problem);
    // The warpgroups take turns at the tensor cores: named barrier 1 + c is the turn of consumer c. Where each has its own
    // W (tiles of 64 rows) turns are also what keeps one from waiting at a barrier that is two phases behind: its slot may
    // have been the other's, for which it did not wait.
    const int my_turn = 1 + consumer, next_turn = 2 - consumer;
    if (consumer == 1) named_arrive(next_turn, 256);
    Cursor at = {0, 0};
    // Where two parts are under way, A is read a chunk ahead. Where W is packed beside, beyond the end of a tile, too, so that
    // results wait until the next tile's first W is there. (Elsewhere that gains little, and what becomes of sums wants the
    // registers.)
    constexpr int parts = S::parts, under_way = Config::under_way;
    constexpr bool reads_ahead = under_way == 2;
    constexpr bool reads_across = reads_ahead && Supply<W>::is_beside && gemm::is_as_it_lies<Prologue>;
    const auto block_of = [=](Cursor chunk, int b) { return advance(chunk, S::k_slots * (1 + first_block + b)); };
    Chunk<Config> v;
    const auto read = [&](Cursor chunk) {
        await_slots<Config>(ring, chunk);
        read_slots<W>(v, ring, chunk, place);
#pragma unroll
        for (int b = 0; b < S::first_blocks; b++) await_slots<Config>(ring, block_of(chunk, b));
        free_slots<Config>(ring, chunk, lane == 0);
    };
    Work coming;
    if constexpr (reads_across) {
        coming = awaited_work<Config>(ring, at);
        read(at);
    }
    // Counted, as that is a number less to be kept while a tile is multiplied.
    for (int tile = 0; schedule.first + tile * schedule.step < schedule.count; tile++) {
        const int index = schedule.first + tile * schedule.step;
        float total[S::own_blocks][S::wgmma_n / 2];
#pragma unroll
        for (int b = 0; b < S::own_blocks; b++)
#pragma unroll
            for (int i = 0; i < S::wgmma_n / 2; i++) total[b][i] = 0.f;
        const Work work = reads_across ? coming : awaited_work<Config>(ring, at);
        const Made<Prologue> of_a(made, problem, work, row);
        // The scales that the end of the tile will want are on their way to the first cache meanwhile, 32 bytes a lane.
        const int last_k = Config::panels ? (schedule.end_chunk(work.split) - 1) * Config::promote : 0;
        if (!Supply<W>::is_beside && lane * 8 < Config::tile_n)
            prefetch_near(problem.w.inverses(problem.w.batch_of(work.batch), last_k) + work.n + lane * 8);
        const int first_chunk = schedule.first_chunk(work.split), end_chunk = schedule.end_chunk(work.split);
        bool last_tile = true;
        if constexpr (Leaves::by_ring) last_tile = Leaves::has_results_at_end(schedule, index);
        if (reads_ahead && !reads_across) read(at);
#pragma unroll 1
        for (int chunk = first_chunk; chunk < end_chunk; chunk++) {
            if constexpr (Config::panels) {
                if (chunk > first_chunk && chunk % (split::k_of_panel / Config::promote) == 0)
                    change_scales<Config>(total, problem.w, problem.w.batch_of(work.batch),
                                          chunk * Config::promote, columns(work) + (lane & 3) * 2);
            }
            if (!reads_ahead) read(at);
            Fragments<Config> a;
            float undo[2], sum[under_way][S::columns / 2];
            split_chunk<Config>(a, undo, v, of_a, chunk, lane);
            Cursor next = advance(at, S::chunk_slots);
            if constexpr (Leaves::by_ring) {
                if (Leaves::has_results_after(schedule, index, chunk))
                    next = advance(next, Leaves::template slots_of_tile<Config>);
            }
            // A chunk is multiplied in parts, of which two are under way: one is promoted beside the other. What comes next
            // is waited for meanwhile. After the last chunk that is the last block again: what it gives is of no use, but
            // there is no branch.
            const bool more = chunk + 1 < end_chunk, another = more || (reads_across && !last_tile);
            const Cursor last_block = block_of(at, S::own_blocks - 1), following = another ? next : last_block;
            const auto begin = [&](int part) {
                if (part >= parts) return;
                // The turn is handed over a product early: the other warpgroup takes its time to wake and to begin.
                multiply<Config>(sum[part % under_way], a, ring, block_of(at, part / S::halves), part % S::halves, [=] {
                    if (part == parts - 1) named_arrive(next_turn, 256);
                });
            };
            named_sync_when_computed(my_turn, 256);
#pragma unroll
            for (int part = 0; part < under_way - 1; part++) begin(part);
            // Two loops and not one over parts: of that one, where blocks have one half, nvcc keeps all sums in local memory.
#pragma unroll
            for (int block = 0; block < S::own_blocks; block++) {
#pragma unroll
                for (int half = 0; half < S::halves; half++) {
                    const int part = block * S::halves + half, after = part + 2;
                    begin(part + under_way - 1);
                    if (after < parts && after % S::halves == 0)
                        await_slots<Config>(ring, block_of(at, after / S::halves));
                    if (part + 1 < parts) {
                        wgmma_wait<under_way - 1>();
                    } else if (reads_ahead) {
                        await_slots<Config>(ring, following);
#pragma unroll
                        for (int b = 0; b < S::first_blocks; b++)
                            await_slots<Config>(ring, another ? block_of(next, b) : last_block);
                        wgmma_wait<0>();
                        read_slots<W>(v, ring, following, place);
                        // Before W's: who fills the ring waits for those first, and finds these free.
                        free_slots<Config>(ring, next, more && lane == 0);
                    } else {
                        wgmma_wait<0>();
                    }
                    promote(total[block], half * (S::columns / 2), sum[part % under_way], undo);
                }
                free_slots<Config, S::same_rows ? 2 : 1>(ring, block_of(at, block), lane == 0);
            }
            at = next;
        }
        if constexpr (Leaves::by_ring) {
            Leaves::template has_read<Config>(consumer);
            if (reads_across && !last_tile) {
                coming = awaited_work<Config>(ring, at);
                free_slots<Config>(ring, at, lane == 0);
            }
            const Cursor to = last_tile ? at : advance(at, S::chunk_slots);
            Leaves::template finish<Config, Prologue>(problem, args, made, work, columns(work), consumer, ring, to,
                                                      tile & 1, total);
            if (last_tile) at = advance(at, Leaves::template slots_of_tile<Config>);
        } else {
            const int thread = anew(threadIdx.x);
            const int row_again = Roles<W>::row_in_tile(S::same_rows ? 0 : consumer * 64, thread >> 5 & 3, thread & 31);
            Roles<W>::template finish<Config, Epilogue, Prologue>(problem, args, made, work, row_again, columns(work),
                                                                  thread & 31, end_chunk - 1, total);
        }
    }
    if (consumer == 0) named_sync(my_turn, 256);  // the turn that consumer 1 hands over last
}

template <class Config, class Epilogue, class Prologue, class W>
__global__ void __launch_bounds__(threads, 1)
    multiply_kernel(const __grid_constant__ Problem<W> problem, const __grid_constant__ typename Epilogue::Args args,
                    const __grid_constant__ typename Prologue::Args made) {
    using Leaves = Leaving<Epilogue>;
    extern __shared__ uint8_t shared[];
    __shared__ __align__(16) uint64_t barriers[barriers_and_more<Epilogue>];
    if constexpr (Supply<W>::packers > 0) {
        if (blockIdx.x < Supply<W>::packers) {
            await_launch_before();
            Supply<W>::template pack<Config>(problem.w, shared, barriers);
            return;
        }
    }
    Ring ring;
    ring.data = (shared_address(shared) + 1023) & ~1023u;
    ring.full = shared_address(barriers);
    ring.empty = ring.full + slots * 8;
    if (threadIdx.x == 0) {
        for (int i = 0; i < slots; i++) {
            barrier_init(ring.full + i * 8, 1);
            barrier_init(ring.empty + i * 8, consumer_warps);
        }
        if constexpr (Leaves::by_ring) Leaves::begin(ring);
        barrier_init_fence();
    }
    __syncthreads();
    if constexpr (Config::packed_before) await_launch_before();
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (warpgroup == 0) {
        registers_shrink_to<24>();
        if constexpr (Leaves::by_ring) {
            // Warps part first, lanes then: the other way round ptxas spills what one thread has of another's numbers. And
            // first of all those that pack: else what the others have is in registers of each lane, and spilled.
            const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
            if constexpr (Supply<W>::packs_aside) {
                if (warp >= 2) {
                    Supply<W>::template pack_aside<Config>(problem.w);
                    return;
                }
            }
            if (warp == 0) {
                if (threadIdx.x == 0) produce<Config, Epilogue>(problem, ring);
            } else if (warp == 1) {
                if (threadIdx.x % 32 == 0) Leaves::template send<Config>(problem, args.map, ring);
            }
        } else {
            static_assert(!Supply<W>::packs_aside, "warps pack aside where results are sent");
            if (threadIdx.x == 0) produce<Config, Epilogue>(problem, ring);
        }
    } else {
        registers_grow_to<240>();
        consume<Config, Epilogue, Prologue>(problem, args, made, ring, warpgroup - 1);
    }
}

// --- split k: every part writes its sums, a second kernel adds them in order and runs the epilogue

struct StorePart {
    struct Args {
        float* parts;  // [splits][batches][m][pitch]
        int64_t pitch;
    };
    template <int N> KW_DEVICE static void store(const Args& args, const float (&sums)[N], int64_t m, int64_t n) {
        static_assert(N == 4, "the pitch is a multiple of 4");
        *(float4*)(args.parts + m * args.pitch + n) = make_float4(sums[0], sums[1], sums[2], sums[3]);
    }
};

template <class Config> struct PartConfig : Config {
    static constexpr int vector = 4;
    static constexpr bool undo_truncation = false;
};

template <class Config, class Epilogue, class Prologue, class W>
__global__ void __launch_bounds__(256, 2) sum_parts(const __grid_constant__ Problem<W> problem, StorePart::Args from,
                                                    const __grid_constant__ typename Epilogue::Args args,
                                                    const __grid_constant__ typename Prologue::Args made) {
    const int rows_of_batch = Roles<W>::rows(problem), columns = Roles<W>::columns(problem);
    const int64_t fours = from.pitch / 4, rows = (int64_t)problem.batches * rows_of_batch;
    const int64_t index = blockIdx.x * (int64_t)256 + threadIdx.x, row = index / fours;
    const int n = (int)(index - row * fours) * 4;
    static_assert(!gemm::Ending<Epilogue, 1, Config::vector>::keeps_rows, "neighbours of a row lie in other blocks");
    gemm::Ending<Epilogue, 1, Config::vector> end(args);
    bool again = false;
    if (row < rows) {
        const float* part = from.parts + row * from.pitch + n;
        float v[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 4
        for (int s = 0; s < Config::splits; s++, part += rows * from.pitch) {
            const float4 x = *(const float4*)part;
            v[0] += x.x, v[1] += x.y, v[2] += x.z, v[3] += x.w;
        }
#pragma unroll
        for (int i = 1; i < 4; i++)
            if (n + i >= columns) v[i] = 0.f;
        again = !split::all_finite(v);
        if (!again) {
            correct<Config>(v);
            gemm::take_some(end, v, 0, row, n, columns);
        }
    }
#pragma unroll 1
    for (uint32_t left = __ballot_sync(~0u, again); left; left &= left - 1) {
        const int source = __ffs(left) - 1;
        const int64_t r = __shfl_sync(~0u, row, source);
        const int batch = (int)(r / rows_of_batch);
        const int row_of_batch = (int)(r - (int64_t)batch * rows_of_batch);
        Roles<W>::template take_plain<1, Prologue>(end, 0, problem, made, batch, row_of_batch,
                                                   __shfl_sync(~0u, n, source), source);
    }
}

// --- host

#ifndef __CUDACC_RTC__
struct Operands {
    const float* a;  // [batches][m][k], k contiguous, 16-byte aligned rows (else: split::pad)
    int64_t a_row_pitch, a_batch_pitch;
    const void* w;                    // what split::pack wrote for [w_batches][n][k]
    int m, n, k, batches, w_batches;  // w_batches: 1 (shared) or batches
    const float* w_from = nullptr;    // where W lies along k, if some of it is packed beside the product
    int64_t w_row_pitch = 0, w_batch_pitch = 0;
};

template <class Config> int64_t workspace_bytes(int m, int n, int batches) {
    return Config::splits == 1 ? 0 : (int64_t)Config::splits * batches * m * split::round_up(n, 4) * 4;
}

// The packed W, and the map by which boxes of so many rows and 32 of k of it are read.
inline cudaError_t describe(split::Packed& w, TensorMap* map, const Operands& operands, int panels, int rows) {
    w = split::packed_view(const_cast<void*>(operands.w), operands.n, operands.k, operands.w_batches, 2, panels);
    const int64_t pitch = (int64_t)w.padded_k * 2;
    return encode_map(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, operands.w, {pitch, operands.n, operands.w_batches},
                      {pitch, pitch * operands.n}, {2 * k_of_slot, rows});
}

template <class Config, class Epilogue, class Prologue, class W>
cudaError_t launch_multiply(const Problem<W>& problem, const typename Epilogue::Args& args,
                            const typename Prologue::Args& made, cudaStream_t stream) {
    auto kernel = multiply_kernel<Config, Epilogue, Prologue, W>;
    cudaError_t status = allow_shared_memory(kernel, smem_bytes);
    int count = 0;
    if (status == cudaSuccess) status = multiprocessors(&count);
    if (status != cudaSuccess) return status;
    const int64_t tiles = (int64_t)((problem.m + Config::tile_m - 1) / Config::tile_m) *
                          ((problem.n + Config::tile_n - 1) / Config::tile_n) * problem.batches * Config::splits;
    constexpr int packers = Supply<W>::packers;
    if (count <= packers) return cudaErrorInvalidValue;
    const unsigned blocks = (unsigned)in_even_rounds(tiles, count - packers) + packers;
    return launch_early(kernel, blocks, threads, smem_bytes, stream, Config::packed_before, problem, args, made);
}

// Enqueues the product; allocates nothing and waits for nothing. `workspace` has workspace_bytes bytes.
template <class Config, class Epilogue, class Prologue = gemm::AsItLies, class W = split::Packed>
cudaError_t launch(const Operands& operands, void* workspace, const typename Epilogue::Args& args,
                   cudaStream_t stream, const typename Prologue::Args& made = {}) {
    using S = Sizes<Config>;
    Problem<W> problem;
    problem.a = operands.a, problem.a_row_pitch = operands.a_row_pitch, problem.a_batch_pitch = operands.a_batch_pitch;
    problem.m = operands.m, problem.n = operands.n, problem.k = operands.k, problem.batches = operands.batches;
    if (Roles<W>::columns(problem) % Config::vector != 0) return cudaErrorInvalidValue;
    cudaError_t status = Roles<W>::template describe_a<Config>(&problem.a_map, operands);
    if (status != cudaSuccess) return status;
    status = describe(problem.w, &problem.w_map, operands, Config::panels ? split::panels_of(operands.k) : 1, S::wgmma_n);
    if (status != cudaSuccess) return status;
    if constexpr (Config::splits == 1) {
        return launch_multiply<Config, Epilogue, Prologue>(problem, args, made, stream);
    } else {
        const StorePart::Args parts = {(float*)workspace, split::round_up(Roles<W>::columns(problem), 4)};
        status = launch_multiply<PartConfig<Config>, StorePart, Prologue>(problem, parts, made, stream);
        if (status != cudaSuccess) return status;
        const int64_t fours = (int64_t)problem.batches * Roles<W>::rows(problem) * (parts.pitch / 4);
        const unsigned blocks = (unsigned)((fours + 255) / 256);
        sum_parts<Config, Epilogue, Prologue, W><<<blocks, 256, 0, stream>>>(problem, parts, args, made);
        return cudaGetLastError();
    }
}
#endif

}  // namespace kw::gemm_sm90
