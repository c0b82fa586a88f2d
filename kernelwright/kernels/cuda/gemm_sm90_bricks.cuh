// gemm_sm90 for a W that is an activation with rows side by side (the second operand of a @ b): packed in each call, as
// bricks, before the product or beside it.
//
// A brick is 128 rows x 32 of k as pairs: 16 KB that lie together in the order in which the product's ring wants them.
// Bricks of neighbouring k follow each other. So packing writes, and the product reads, 16 KB at a time, where rows of
// packed W are 4 k bytes apart.
//
// Work on W comes in tickets: 32 rows and a panel of 512 of k, in the order in which tiles will need them. `beside`:
// one launch packs and multiplies.
//
//   warp 0         one thread keeps the copy engine busy, and waits for bricks before it asks for them
//   warps 1 to 3   take tickets until there are none. Few registers and no shared memory: W is read twice, then from L2
//   2 warpgroups   take tickets too until all that their first tile begins with have been taken; then as ever
//
// Nobody who has a ticket waits for anybody. So every ticket that was taken is finished, however many blocks run at
// once, and whoever waits for bricks waits for a ticket that a running warp has or will take: no order of blocks locks up.
// Who packs a brick does not change its bits.
#pragma once

#include "gemm_sm90.cuh"

namespace kw::gemm_sm90_bricks {

using namespace kw::ptx90;
using gemm_sm90::Cursor;
using gemm_sm90::Ring;
using gemm_sm90::Schedule;
using gemm_sm90::Sizes;
using gemm_sm90::Work;

// What a build fixes besides what gemm_sm90 has; W is always packed by panels.
struct DefaultConfig : gemm_sm90::DefaultConfig {
    static constexpr bool panels = true;
    static constexpr bool beside = true;  // packed by the launch that multiplies, else by one before
};

constexpr int rows_of_brick = 128, halves_of_brick = rows_of_brick * 2 * split::packed_block;
constexpr int rows_of_ticket = 32, tickets_of_brick = rows_of_brick / rows_of_ticket;
constexpr int k_of_panel = split::k_of_panel, packers = 3;

// W as it lies, n along memory, and where its bricks, their scales and the marks of what is done are.
struct Bricks {
    const float* x;  // element (row, k) of a batch at row + k * k_pitch
    int64_t k_pitch, batch_pitch;
    __half* pairs;   // [batches][brick_rows][bricks along k][128 rows][32 hi | 32 lo]
    float* inverse;  // [batches][panels][padded_rows]
    uint32_t* taken;  // tickets, and then marks, [batches][brick_rows][panels]: tickets done of each brick row's panel
    int rows, k, padded_rows, padded_k, batches, panels, brick_rows;

    KW_DEVICE int64_t brick(int batch, int row, int k) const {
        return ((int64_t)batch * brick_rows + row / rows_of_brick) * (padded_k / split::packed_block) +
               k / split::packed_block;
    }
    KW_DEVICE __half* at(int batch, int row, int k) const {
        return pairs + brick(batch, row, k) * halves_of_brick + row % rows_of_brick * (2 * split::packed_block);
    }
    KW_DEVICE float* inverses(int batch, int k) const {
        return inverse + ((int64_t)batch * panels + k / k_of_panel) * padded_rows;
    }
    KW_DEVICE const __half* eight(int batch, int row, int position) const {
        return at(batch, row, position) + position % split::packed_block;
    }
    KW_DEVICE uint32_t* mark(int batch, int row, int panel) const {
        return taken + 1 + ((int64_t)batch * brick_rows + row / rows_of_brick) * panels + panel;
    }
};

__host__ __device__ inline int64_t pair_bytes(const Bricks& w) {
    return (int64_t)w.batches * w.brick_rows * rows_of_brick * w.padded_k * 4;
}
__host__ __device__ inline int64_t scale_bytes(const Bricks& w) {
    return (int64_t)w.batches * w.panels * w.padded_rows * 4;
}
__host__ __device__ inline int64_t mark_bytes(const Bricks& w) {
    return ((int64_t)w.batches * w.brick_rows * w.panels + 1) * 4;
}

__host__ __device__ inline Bricks bricks_view(void* buffer, int rows, int k, int batches) {
    Bricks w = {};
    w.rows = rows, w.k = k, w.batches = batches;
    w.padded_rows = split::round_up(rows, 256);  // the widest tile
    w.padded_k = split::round_up(k, 64);
    w.brick_rows = w.padded_rows / rows_of_brick, w.panels = split::panels_of(k);
    w.pairs = (__half*)buffer;
    w.inverse = (float*)((char*)buffer + pair_bytes(w));
    w.taken = (uint32_t*)((char*)w.inverse + scale_bytes(w));
    return w;
}

struct Problem : gemm_sm90::Problem {
    Bricks w;  // stands before the packed rows of the base
};

// --- memory that other blocks write while this kernel runs

KW_DEVICE uint32_t load_acquire(const uint32_t* word) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}
KW_DEVICE void add_release(uint32_t* word) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(1) : "memory");
}
// Between what threads wrote and what the copy engine reads, on both sides of a mark.
KW_DEVICE void fence_for_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// volatile: the compiler leaves loads where they are, and does not want registers for those of the next round.
KW_DEVICE float load_one(const float* pointer) {
    float value;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(pointer));
    return value;
}
KW_DEVICE void prefetch_to_l2(const void* pointer) { asm volatile("prefetch.global.L2 [%0];" ::"l"(pointer)); }

// --- tickets: groups of the strips of columns that run together; in a group panel by panel, for all of its strips

struct Ticket {
    int batch, row, panel;  // row: the first
    bool is_one;
};

template <class Config> struct Tickets {
    int tiles_n, strips, panels, of_strip, strips_of_group, of_round, of_group, count;

    KW_DEVICE void count_for(const Problem& problem) {
        const int tiles_m = min((problem.m + Config::tile_m - 1) / Config::tile_m, Config::raster);
        tiles_n = (problem.n + Config::tile_n - 1) / Config::tile_n;
        strips = problem.w.batches * tiles_n, panels = problem.w.panels;
        constexpr int of_tile = Config::tile_n / rows_of_ticket;
        of_strip = (panels + Config::splits - 1) / Config::splits;
        strips_of_group = max(1, (int)gridDim.x / (tiles_m * Config::splits));
        of_round = strips_of_group * Config::splits * of_tile;
        of_group = of_round * of_strip;
        count = (strips + strips_of_group - 1) / strips_of_group * of_group;
    }
    // Some numbers stand for nothing: strips of the last group, panels of shorter parts of k.
    KW_DEVICE Ticket operator[](int number) const {
        constexpr int of_tile = Config::tile_n / rows_of_ticket;
        const int group = number / of_group, in_group = number - group * of_group;
        const int round = in_group / of_round, in_round = in_group - round * of_round;
        const int part = in_round / (strips_of_group * of_tile), in_part = in_round - part * strips_of_group * of_tile;
        const int strip = group * strips_of_group + in_part / of_tile, batch = strip / tiles_n;
        const int first = (int)((int64_t)panels * part / Config::splits),
                  end = (int)((int64_t)panels * (part + 1) / Config::splits);
        return {batch, (strip - batch * tiles_n) * Config::tile_n + in_part % of_tile * rows_of_ticket, first + round,
                number < count && strip < strips && first + round < end};
    }
    // Before a tile begins, all before this number should have been taken: its first two panels.
    KW_DEVICE int wanted(const Work& work, int w_batch) const {
        const int strip = w_batch * tiles_n + work.n / Config::tile_n;
        return strip / strips_of_group * of_group + min(of_strip, 2) * of_round;
    }
};

// --- packing by 256 threads: all of a ticket in registers, 4 rows and 16 of k in a thread, so that W is read once

KW_DEVICE uint32_t scale_of_panel(float largest) {
    // A panel of zeros has the scale 1: sums that change from its neighbour's scale to it stay in range.
    return largest == 0.f ? 127 * split::exponent_one : split::scale_bits(largest);
}

template <int Barrier>
KW_DEVICE void pack_by_block(const Bricks& w, const Ticket& ticket, float4 (&of_warp)[8][8], int thread) {
    const int in_row = thread & 7, warp = thread >> 5;
    const int row = ticket.row + in_row * 4, k0 = ticket.panel * k_of_panel + (thread >> 3) * 16;
    const float* x = w.x + ticket.batch * w.batch_pitch + row;
    float4 v[16];
#pragma unroll
    for (int i = 0; i < 16; i++)
        v[i] = split::four_rows(x + (k0 + i) * w.k_pitch, k0 + i < w.k ? w.rows - row : 0, true);
    float4 largest = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int i = 0; i < 16; i++)
        largest = split::larger(
            largest, make_float4(split::finite_magnitude(v[i].x), split::finite_magnitude(v[i].y),
                                 split::finite_magnitude(v[i].z), split::finite_magnitude(v[i].w)));
#pragma unroll
    for (int step = 8; step < 32; step *= 2)
        largest = split::larger(
            largest, make_float4(__shfl_xor_sync(~0u, largest.x, step), __shfl_xor_sync(~0u, largest.y, step),
                                 __shfl_xor_sync(~0u, largest.z, step), __shfl_xor_sync(~0u, largest.w, step)));
    if ((thread & 31) < 8) of_warp[warp][in_row] = largest;
    named_sync(Barrier, 256);
#pragma unroll
    for (int i = 0; i < 8; i++) largest = split::larger(largest, of_warp[i][in_row]);
    const float of_row[4] = {largest.x, largest.y, largest.z, largest.w};
    float* inverse = w.inverses(ticket.batch, ticket.panel * k_of_panel) + row;
    const bool odd = in_row & 1, inside = k0 < w.padded_k;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t bits = scale_of_panel(of_row[j]);
        if (thread < 8) inverse[j] = split::inverse_of(bits);
        uint32_t hi[8], lo[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {  // in the packed order
            const float4 first = v[i < 4 ? 4 * i : 4 * i - 14], second = v[i < 4 ? 4 * i + 1 : 4 * i - 13];
            const float a = j == 0 ? first.x : j == 1 ? first.y : j == 2 ? first.z : first.w;
            const float b = j == 0 ? second.x : j == 1 ? second.y : j == 2 ? second.z : second.w;
            split::to_pairs(a * split::scale_of(bits), b * split::scale_of(bits), hi[i], lo[i]);
            lo[i] = split::without_special(lo[i], a, b);
        }
        const int of_even = row + j - 4 * odd;  // rows beyond the last are zeros, and there is room for them
        __half* even = inside ? w.at(ticket.batch, of_even, k0) + (k0 & 16) : nullptr;
        __half* other = inside ? even + 4 * 2 * split::packed_block : nullptr;
        split::store_together(even, other, hi, odd);
        split::store_together(inside ? even + split::packed_block : nullptr,
                              inside ? other + split::packed_block : nullptr, lo, odd);
    }
}

// --- packing by one warp that has few registers: the largest of each row first, then 16 of k of one row in a lane

template <bool Finite> KW_DEVICE float magnitude(float x) { return Finite ? split::finite_magnitude(x) : fabsf(x); }

// Of four neighbouring rows for each of 8 lanes; the other lanes have the same. Without `Finite` Inf is the largest.
template <bool Finite>
KW_DEVICE float4 largest_by_warp(const float* x, int64_t k_pitch, int k_count, bool inside, int lane) {
    float4 largest = make_float4(0.f, 0.f, 0.f, 0.f);
    x += (lane >> 3) * k_pitch;
#pragma unroll 1
    for (int first = lane >> 3; first < k_of_panel; first += 16) {
        float4 v[4];
#pragma unroll
        for (int i = 0; i < 4; i++, x += 4 * k_pitch)
            v[i] = inside && first + i * 4 < k_count ? load_constants(x) : make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
        for (int i = 0; i < 4; i++)
            largest = split::larger(largest, make_float4(magnitude<Finite>(v[i].x), magnitude<Finite>(v[i].y),
                                                         magnitude<Finite>(v[i].z), magnitude<Finite>(v[i].w)));
    }
#pragma unroll
    for (int step = 8; step < 32; step *= 2)
        largest = split::larger(
            largest, make_float4(__shfl_xor_sync(~0u, largest.x, step), __shfl_xor_sync(~0u, largest.y, step),
                                 __shfl_xor_sync(~0u, largest.z, step), __shfl_xor_sync(~0u, largest.w, step)));
    return largest;
}

KW_DEVICE void pack_by_warp(const Bricks& w, const Ticket& ticket, int lane) {
    const int k0 = ticket.panel * k_of_panel, fours = ticket.row + (lane & 7) * 4;
    const float* x = w.x + ticket.batch * w.batch_pitch + k0 * w.k_pitch;
    float4 largest = largest_by_warp<false>(x + fours, w.k_pitch, w.k - k0, fours < w.rows, lane);
    const float together = fmaxf(fmaxf(largest.x, largest.y), fmaxf(largest.z, largest.w));
    if (__any_sync(~0u, !isfinite(together)))
        largest = largest_by_warp<true>(x + fours, w.k_pitch, w.k - k0, fours < w.rows, lane);
    if (lane < 8)
        *(float4*)(w.inverses(ticket.batch, k0) + fours) =
            make_float4(split::inverse_of(scale_of_panel(largest.x)), split::inverse_of(scale_of_panel(largest.y)),
                        split::inverse_of(scale_of_panel(largest.z)), split::inverse_of(scale_of_panel(largest.w)));
    const float of_four[4] = {
        __shfl_sync(~0u, largest.x, lane >> 2), __shfl_sync(~0u, largest.y, lane >> 2),
        __shfl_sync(~0u, largest.z, lane >> 2), __shfl_sync(~0u, largest.w, lane >> 2)};
    const float own = lane & 2 ? (lane & 1 ? of_four[3] : of_four[2]) : (lane & 1 ? of_four[1] : of_four[0]);
    const float scale = split::scale_of(scale_of_panel(own));
    const int row = ticket.row + lane, end = min(k0 + k_of_panel, w.padded_k);
    const bool inside = row < w.rows;
    x += row;  // steps on by one of k: sixteen addresses would not fit the registers
    __half* out = w.at(ticket.batch, row, k0);
#pragma unroll 1
    for (int k = k0; k < end; k += 16) {
        float v[16];
#pragma unroll
        for (int i = 0; i < 16; i++, x += w.k_pitch) v[i] = inside && k + i < w.k ? load_one(x) : 0.f;
#pragma unroll
        for (int piece = 0; piece < 2; piece++) {  // eight of k in the packed order: 16 bytes of hi and 16 of lo
            uint32_t hi[4], lo[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float a = v[4 * i + 2 * piece], b = v[4 * i + 2 * piece + 1];
                split::to_pairs(a * scale, b * scale, hi[i], lo[i]);
                lo[i] = split::without_special(lo[i], a, b);
            }
            *(uint4*)(out + 8 * piece) = make_uint4(hi[0], hi[1], hi[2], hi[3]);
            *(uint4*)(out + 8 * piece + split::packed_block) = make_uint4(lo[0], lo[1], lo[2], lo[3]);
        }
        out += k & 16 ? halves_of_brick - 16 : 16;  // two 16s of k in a brick
    }
}

// --- one launch that packs and multiplies

// The widest tile wants 240 registers with 64 of k between promotions. With 8 less it spills a few between the products
// of a chunk; with 32 of k it wants 16 less.
template <class Config> struct Registers {
    static constexpr bool some = Config::promote == 32 || Config::tile_n < 256;
    static constexpr int of_packers = some ? 56 : 40, of_consumers = some ? 224 : 232;
};

template <class Config> struct Shared {
    float4 of_warp[8][8];
    Tickets<Config> tickets;  // here, and not in registers, of which there are none to spare
    int next;             // ticket of the consumers
    volatile int known;  // tickets that this block knows to have been taken
};

// Warps 1 to 3. Each asks for what some warp will soon want to be brought to L2: loads then take a third of the time.
template <class Config> KW_DEVICE void pack_on(const Bricks& w, Shared<Config>& shared) {
    const int lane = threadIdx.x & 31;
    named_sync(3, 256 + packers * 32);  // what the first tiles need is packed by those who can do it fastest
#pragma unroll 1
    while (true) {
        int number = 0;
        if (lane == 0) {
            number = (int)atomicAdd(w.taken, 1u);
            shared.known = number + 1;
        }
        number = __shfl_sync(~0u, number, 0);
        if (number >= shared.tickets.count) return;
        if (const Ticket ahead = shared.tickets[number + packers * (int)gridDim.x]; ahead.is_one) {
            const int k0 = ahead.panel * k_of_panel, end = min(w.k - k0, k_of_panel);
            const float* x = w.x + ahead.batch * w.batch_pitch + k0 * w.k_pitch + min(ahead.row, w.rows - 1);
#pragma unroll 1
            for (int k = lane; k < end; k += 32) prefetch_to_l2(x + k * w.k_pitch);
        }
        const Ticket ticket = shared.tickets[number];
        if (!ticket.is_one) continue;
        pack_by_warp(w, ticket, lane);
        fence_for_copies();
        __syncwarp();
        if (lane == 0) add_release(w.mark(ticket.batch, ticket.row, ticket.panel));
    }
}

// Both warpgroups, ahead of their first tile.
template <class Config> KW_DEVICE void help(const Bricks& w, Shared<Config>& shared, int wanted) {
    constexpr int barrier = 4;
    const int thread = threadIdx.x - 128;
#pragma unroll 1
    while (true) {
        if (thread == 0) {
            int next = -1;
            if (shared.known < wanted) {
                next = (int)atomicAdd(w.taken, 1u);
                shared.known = next + 1;
            }
            shared.next = next;
        }
        named_sync(barrier, 256);
        const int number = shared.next;
        if (number < 0) break;
        const Ticket ticket = shared.tickets[number];
        if (ticket.is_one) {
            pack_by_block<barrier>(w, ticket, shared.of_warp, thread);
            fence_for_copies();
        }
        named_sync(barrier, 256);
        if (thread == 0 && ticket.is_one) add_release(w.mark(ticket.batch, ticket.row, ticket.panel));
    }
}

KW_DEVICE void wait_for(const uint32_t* mark) {
    while (load_acquire(mark) < tickets_of_brick) {
    }
}

template <class Config> KW_DEVICE void produce(const Problem& problem, const Ring& ring) {
    using S = Sizes<Config>;
    constexpr int chunks_of_panel = k_of_panel / Config::promote;
    const Schedule<Config> schedule(problem);
    Cursor at = {0, 0};
    for (int index = blockIdx.x; index < schedule.count; index += gridDim.x) {
        const Work work = schedule[index];
        const int w_batch = problem.w.batches == 1 ? 0 : work.batch, first = schedule.first_chunk(work.split);
        for (int chunk = first; chunk < schedule.end_chunk(work.split); chunk++) {
            // Ahead of A as well: who has A of this chunk may read the scales of its panel.
            if (Config::beside && (chunk == first || chunk % chunks_of_panel == 0)) {
#pragma unroll 1
                for (int n = work.n; n < work.n + Config::tile_n; n += rows_of_brick)
                    wait_for(problem.w.mark(w_batch, n, chunk / chunks_of_panel));
                fence_for_copies();
            }
#pragma unroll 1
            for (int i = 0; i < S::k_slots; i++, at = advance(at, 1))
                ring.fill(at, &problem.a_map, Config::tile_m * 128, (chunk * S::k_slots + i) * gemm_sm90::k_of_slot,
                          work.m, work.batch);
#pragma unroll 1
            for (int b = 0; b < S::blocks; b++) {
                const int n = work.n + b * S::wgmma_n;
                const int brick = (int)problem.w.brick(w_batch, n, chunk * Config::promote);
#pragma unroll 1
                for (int i = 0; i < S::k_slots; i++, at = advance(at, 1))
                    ring.fill(at, &problem.w_map, S::wgmma_n * 128, 0,
                              (brick + i) * rows_of_brick + n % rows_of_brick, 0);
            }
        }
    }
}

template <class Config, class Epilogue>
__global__ void __launch_bounds__(gemm_sm90::threads, 1)
    multiply_kernel(const __grid_constant__ Problem problem, const __grid_constant__ typename Epilogue::Args args) {
    using AsItLies = gemm::AsItLies;
    extern __shared__ uint8_t shared[];
    __shared__ __align__(8) uint64_t barriers[2 * gemm_sm90::slots];
    __shared__ Shared<Config> packing;
    Ring ring;
    ring.data = (shared_address(shared) + 1023) & ~1023u;
    ring.full = shared_address(barriers);
    ring.empty = ring.full + gemm_sm90::slots * 8;
    if (threadIdx.x == 0) {
        for (int i = 0; i < gemm_sm90::slots; i++) {
            barrier_init(ring.full + i * 8, 1);
            barrier_init(ring.empty + i * 8, gemm_sm90::consumer_warps);
        }
        barrier_init_fence();
        packing.known = 0;
        packing.tickets.count_for(problem);
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if constexpr (!Config::beside) {
        if (warpgroup == 0) {
            registers_shrink_to<24>();
            if (threadIdx.x == 0) produce<Config>(problem, ring);
        } else {
            registers_grow_to<240>();
            gemm_sm90::consume<Config, Epilogue, AsItLies>(problem, args, {}, ring, warpgroup - 1);
        }
    } else if (warpgroup == 0) {
        registers_shrink_to<Registers<Config>::of_packers>();
        if (threadIdx.x == 0) produce<Config>(problem, ring);
        else if (threadIdx.x >= 32) pack_on(problem.w, packing);
    } else {
        registers_grow_to<Registers<Config>::of_consumers>();
        const Schedule<Config> schedule(problem);
        const Work first = schedule[blockIdx.x];
        help(problem.w, packing, packing.tickets.wanted(first, problem.w.batches == 1 ? 0 : first.batch));
        named_arrive(3, 256 + packers * 32);
        gemm_sm90::consume<Config, Epilogue, AsItLies>(problem, args, {}, ring, warpgroup - 1);
    }
}

// --- a launch of its own that packs

template <int Rows>
static __global__ void __launch_bounds__(256) pack_bricks(const __grid_constant__ Bricks w) {
    static_assert(Rows == rows_of_ticket, "a template, so that it is compiled where it is launched");
    __shared__ float4 of_warp[8][8];
    pack_by_block<1>(w, {(int)blockIdx.z, (int)blockIdx.x * Rows, (int)blockIdx.y, true}, of_warp, threadIdx.x);
}

// --- host

#ifndef __CUDACC_RTC__
struct Operands {
    const float* a;  // [batches][m][k], k contiguous, 16-byte aligned rows (else: split::pad)
    int64_t a_row_pitch, a_batch_pitch;
    const float* w;  // [w_batches][k][n], n contiguous, 16-byte aligned
    int64_t w_k_pitch, w_batch_pitch;
    int m, n, k, batches, w_batches;  // w_batches: 1 (shared) or batches
};

template <class Config, class Epilogue>
cudaError_t launch_multiply(const Problem& problem, const typename Epilogue::Args& args, cudaStream_t stream) {
    auto kernel = multiply_kernel<Config, Epilogue>;
    cudaError_t status = allow_shared_memory(kernel, gemm_sm90::smem_bytes);
    int count = 0;
    if (status == cudaSuccess) status = multiprocessors(&count);
    if (status != cudaSuccess) return status;
    const int64_t tiles = (int64_t)((problem.m + Config::tile_m - 1) / Config::tile_m) *
                          ((problem.n + Config::tile_n - 1) / Config::tile_n) * problem.batches * Config::splits;
    kernel<<<(unsigned)(tiles < count ? tiles : count), gemm_sm90::threads, gemm_sm90::smem_bytes, stream>>>(problem,
                                                                                                             args);
    return cudaGetLastError();
}

// Packs into `buffer` and enqueues the product; allocates nothing and waits for nothing. `parts` has
// gemm_sm90::workspace_bytes bytes.
template <class Config, class Epilogue>
cudaError_t launch(const Operands& operands, void* buffer, void* parts, const typename Epilogue::Args& args,
                   cudaStream_t stream) {
    using S = Sizes<Config>;
    static_assert(rows_of_brick % S::wgmma_n == 0 && Config::tile_n % rows_of_brick == 0, "slots lie inside of bricks");
    static_assert(Config::panels, "bricks have scales by panels");
    if (operands.n % 4 != 0 || operands.w_k_pitch % 4 != 0 || operands.w_batch_pitch % 4 != 0)
        return cudaErrorInvalidValue;
    Problem problem = {};
    problem.a = operands.a, problem.a_row_pitch = operands.a_row_pitch, problem.a_batch_pitch = operands.a_batch_pitch;
    problem.m = operands.m, problem.n = operands.n, problem.k = operands.k, problem.batches = operands.batches;
    problem.w = bricks_view(buffer, operands.n, operands.k, operands.w_batches);
    problem.w.x = operands.w, problem.w.k_pitch = operands.w_k_pitch, problem.w.batch_pitch = operands.w_batch_pitch;
    cudaError_t status =
        encode_map(&problem.a_map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, operands.a,
                   {operands.k, operands.m, operands.batches}, {operands.a_row_pitch, operands.a_batch_pitch},
                   {gemm_sm90::k_of_slot, Config::tile_m});
    if (status != cudaSuccess) return status;
    // All bricks as one matrix: rows of 128 bytes, one after another.
    status = encode_map(&problem.w_map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, buffer,
                        {2 * split::packed_block, pair_bytes(problem.w) / 128, 1}, {2 * split::packed_block, 0},
                        {2 * split::packed_block, S::wgmma_n});
    if (status != cudaSuccess) return status;
    if constexpr (Config::beside) {
        status = cudaMemsetAsync(problem.w.taken, 0, mark_bytes(problem.w), stream);
        if (status != cudaSuccess) return status;
    } else {
        const dim3 grid(problem.w.padded_rows / rows_of_ticket, problem.w.panels, operands.w_batches);
        pack_bricks<rows_of_ticket><<<grid, 256, 0, stream>>>(problem.w);
        status = cudaGetLastError();
        if (status != cudaSuccess) return status;
    }
    if constexpr (Config::splits == 1) {
        return launch_multiply<Config, Epilogue>(problem, args, stream);
    } else {
        using gemm_sm90::StorePart;
        const StorePart::Args sums = {(float*)parts, split::round_up(operands.n, 4)};
        status = launch_multiply<gemm_sm90::PartConfig<Config>, StorePart>(problem, sums, stream);
        if (status != cudaSuccess) return status;
        const int64_t fours = (int64_t)problem.batches * problem.m * (sums.pitch / 4);
        const unsigned blocks = (unsigned)((fours + 255) / 256);
        gemm_sm90::sum_parts<Config, Epilogue, gemm::AsItLies, Problem>
            <<<blocks, 256, 0, stream>>>(problem, sums, args, {});
        return cudaGetLastError();
    }
}
#endif

}  // namespace kw::gemm_sm90_bricks
