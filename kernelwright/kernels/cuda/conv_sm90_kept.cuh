// kw: conv_sm90_kept::launch
// conv_sm90.cuh with weights that stay: a block keeps those of 64 output channels in shared memory for all its tiles;
// or of 128, of which two warpgroups abreast have 64 each of every tile, whose inputs are then carried once.
//
// One or two warpgroups only carry: they fetch, scale and round inputs, halo and all, into rings of stages. Two or three
// others take tiles in turn, each all by itself: both operands of its products lie in shared memory, so that it only
// issues them, tap after tap, and while it sends its results to memory the tensor cores work for another one. A row of a
// tile is one instruction, of any width that is a multiple of 8. Results leave through shared memory, a whole row of a
// channel after the other; rows that make up whole planes are one run. Where Config::sent, the copy engine takes them.
//
// Weights that do not fit stream through a ring in shared memory (conv_kept_stream.cuh), for tiles that are as large as
// registers have room for their sums.
#pragma once

#include "conv_kept_stream.cuh"
#include "wgmma_rows.cuh"

namespace kw::conv_sm90_kept {

// --- those who multiply

// kw: Sums
template <class C> struct Sums {
    using S = Sizes<C>;
    static constexpr int rows = C::lap_rows;
    // Where the inputs of a row follow those of the row before at once, an instruction takes all rows.
    static constexpr int parts = C::seamless ? 1 : rows, wide = ceil_div(rows / parts * C::tile_w, 8) * 8;
    static constexpr int M = 1, N = parts * wide / 8;
    // Nothing to add outside of the tensor cores.
    static constexpr bool one_sum = C::phases == 1 && S::chunks == 1 && S::most_steps <= C::group;
    static constexpr bool pairs_at_once = C::products == 3 && one_sum;
    static constexpr bool all_at_once =
        C::products == 1 && C::phases == 1 && S::most_steps * C::lap_rows <= 48 && !Layout<C>::streams;
    // Whether products are still on their way after `add`: then those of all phases are.
    static constexpr bool left_open = C::products == 1 && !all_at_once;
    using Row = float[wide / 2];
    Row total[parts];

    // Of the table: where a step's first 8 of k lie, and how far the second 8 are from there, for a descriptor.
    KW_DEVICE static int entry(int, int first, int second) { return first | (second - first) << 16; }
    // The same of the only phase, known to the compiler: as conv_mma::offset_of, with the first input for a base.
    __host__ __device__ static constexpr int place_of(int block) {
        constexpr int along_w = C::taps_w, along_h = C::taps_h, last = C::octets * C::taps_d * along_h * along_w - 1;
        block = block < last ? block : last;
        const int tap = block / C::octets, w = tap % along_w * C::fold * C::x_step_w;
        const int h = tap / along_w % along_h * C::x_step_h, d = tap / (along_w * along_h) * C::x_step_d;
        return block % C::octets * S::pixels + (d * C::region_h + h) * S::row + w % C::stride_w * S::alike +
               w / C::stride_w;
    }
    __host__ __device__ static constexpr int known_entry(int step) {
        return place_of(2 * step) | (place_of(2 * step + 1) - place_of(2 * step)) << 16;
    }
    KW_DEVICE float at(int, int n, int i) const { return total[n * 8 / wide][n * 8 % wide / 2 + i]; }
    KW_DEVICE void rescale(float factor) {
#pragma unroll
        for (int r = 0; r < parts; r++)
#pragma unroll
            for (int i = 0; i < wide / 2; i++) total[r][i] *= factor;
    }
    KW_DEVICE void undo_truncation() {
#pragma unroll
        for (int r = 0; r < parts; r++)
#pragma unroll
            for (int i = 0; i < wide / 2; i++) total[r][i] = split::undo_truncation_or_not(total[r][i]);
    }
    KW_DEVICE void clear() {
#pragma unroll
        for (int r = 0; r < parts; r++)
#pragma unroll
            for (int i = 0; i < wide / 2; i++) total[r][i] = 0.f;
    }
    KW_DEVICE static void pin_all(Row (&sums)[parts]) {
#pragma unroll
        for (int r = 0; r < parts; r++) ptx90::pin(sums[r]);
    }
    // Of descriptors the lower half, to which distances are added; the upper half says that the next 8 lie behind these.
    static constexpr uint32_t next_sixteen = 64 << 16;  // of weights: from 8 of k to the next 8
    static constexpr uint64_t next_eight = (uint64_t)8 << 32;
    // All rows, 16 of k.
    KW_DEVICE static void multiply(Row (&sums)[parts], uint32_t pixels, uint32_t weights, bool follows) {
#pragma unroll
        for (int r = 0; r < parts; r++)
            wgmma_rows::wgmma_f16_shared(sums[r], next_eight | weights,
                                         next_eight | (pixels + conv_mma::region_place<C>(r * wide)), follows);
    }
    // Corrections first: the tensor core cuts off what lies under the last bit of a sum, and they are small.
    KW_DEVICE static void add_pairs(Row (&sums)[parts], uint32_t region, const int* offset, uint32_t weights) {
        constexpr int count = one_sum ? S::most_steps : C::group;
        const auto from = [=](int i) { return region + (one_sum ? known_entry(i) : offset[2 * i]); };
#pragma unroll
        for (int i = 0; i < count; i++) {
            multiply(sums, from(i), weights + i * 256 + 128, i > 0);
            multiply(sums, from(i) + S::units, weights + i * 256, true);
        }
#pragma unroll
        for (int i = 0; i < count; i++) multiply(sums, from(i), weights + i * 256, true);
    }
    // One chunk. `region` and `weights` begin descriptors: addresses in shared memory, in 16 bytes. What is there stays if it `follows`.
    KW_DEVICE void add(uint32_t region, const int* offset, uint32_t weights, int steps, bool follows) {
        if constexpr (pairs_at_once) {
            pin_all(total);
            ptx90::wgmma_fence();
            add_pairs(total, region, offset, weights);
            ptx90::wgmma_commit();
            ptx90::wgmma_wait<0>();
            pin_all(total);
        } else if constexpr (all_at_once) {
            pin_all(total);
            ptx90::wgmma_fence();
#pragma unroll
            for (int i = 0; i < S::most_steps; i++)
                multiply(total, region + known_entry(i), weights + i * 128, follows || i > 0);
            ptx90::wgmma_commit();
            ptx90::wgmma_wait<0>();
            pin_all(total);
        } else if constexpr (C::products == 1) {
            // Of one tap all octets at once: how far apart those lie is known.
            constexpr int pairs = C::octets < 2 ? 1 : C::octets / 2;
            auto add_tap = [&](int i, bool keep) {
                const uint32_t first = region + offset[2 * i], of_tap = weights + i * 128;
                ptx90::wgmma_fence();
#pragma unroll
                for (int j = 0; j < pairs; j++)
                    multiply(total, first + j * 2 * S::pixels, of_tap + j * 128, keep || j > 0);
                ptx90::wgmma_commit();
            };
            // The first one by itself, and not cleared: else ptxas has each product wait for the one before.
            if (C::least_taps == 0 && steps == 0) {
                if (!follows) clear();
                return;
            }
            add_tap(0, follows);
#pragma unroll 1
            for (int i = pairs; i < steps; i += pairs) add_tap(i, true);
        } else {
            if (!follows) clear();
#pragma unroll 1
            for (int i = 0; i < steps; i += C::group) {
                Row sum[parts];
                pin_all(sum);
                ptx90::wgmma_fence();
                add_pairs(sum, region, offset + 2 * i, weights + i * 256);
                ptx90::wgmma_commit();
                ptx90::wgmma_wait<0>();
                pin_all(sum);
#pragma unroll
                for (int r = 0; r < parts; r++)
#pragma unroll
                    for (int j = 0; j < wide / 2; j++) total[r][j] += sum[r][j];
            }
        }
    }
};

// kw: Lap
// What a lap has: rows of the tile from one on, of a phase; and what is to be known of its sums.
struct Lap {
    int phase, row;
    bool is_last;            // of the tile: its inputs are no longer needed
    uint32_t scale = 0;      // of the inputs, as the sums have it
    bool are_finite = true;  // all of the inputs
};

// kw: Turns
// Two teams whose tiles each are products issued all at once multiply in turn, so that one ends its tile while the other
// multiplies. Left alone, teams that happen to multiply at the same time go on doing so, and the tensor cores idle while
// both end their tiles: 8 -> 64 channels on an H200 took anything from 184 to 222 us.
template <class C, class End> struct Turns {
    using L = Layout<C>;
    static constexpr bool at_once = Sizes<C>::chunks == 1 && (Sums<C>::all_at_once || Sums<C>::pairs_at_once);
    static constexpr bool taken = is_same<End, Stored> && L::rings == 2 && L::laps == 1 && at_once;
    static constexpr int barrier = 8;  // named, of the first team's turn
    static_assert(1 + L::crews + L::rings <= barrier, "crews and teams abreast have those before");

    // Of tile `number`.
    KW_DEVICE static void await(unsigned number) {
        if (taken && number > 0) ptx90::named_sync(barrier + number % 2, 256);
    }
    KW_DEVICE static void hand_on(unsigned number) {
        if (taken && Walk<C>::has(number + 1)) ptx90::named_arrive(barrier + (number + 1) % 2, 256);
    }
};

// kw: multiply
// Tile `number` of the block, by its team.
template <class C, class End>
KW_DEVICE void multiply(const Problem<C>& problem, Shared<C>& shared, unsigned number, Cursor& at, int ring,
                        Given<C>& weights, Lap& lap, Sums<C> (&sums)[C::w_phases]) {
    using S = Sizes<C>;
    int steps[C::w_phases];
#pragma unroll
    for (int p = 0; p < C::w_phases; p++) {
        const Phase& phase = problem.phases[lap.phase + p];
        steps[p] = steps_in<C>(phase);
        weights.begin(problem, p, phase);
    }
#pragma unroll 1
    for (int chunk = 0; chunk < S::chunks; chunk++, at.advance<C::stages>()) {
        ptx90::barrier_wait(ptx90::shared_address(&shared.full[ring][at.stage]), at.phase);
        const uint32_t given = shared.scale[ring][at.stage];
        lap.are_finite = lap.are_finite && given % 2 == 0;
        lap.scale = chunk == 0 ? given & ~1u : conv_mma::followed<C>(sums, lap.scale, given & ~1u);
        uint32_t region = (ptx90::shared_address(shared.region[ring][at.stage]) >> 4) +
                          conv_mma::region_place<C>(lap.row * C::tile_w);
        asm volatile("" : "+r"(region));  // else the compiler finds it anew for each product
#pragma unroll
        for (int p = 0; p < C::w_phases && Sums<C>::left_open; p++) Sums<C>::pin_all(sums[p].total);
        Turns<C, End>::await(number);
#pragma unroll
        for (int p = 0; p < C::w_phases; p++) {
            weights.add_to(sums[p], p, region, shared.offset[lap.phase + p], steps[p], chunk > 0);
        }
        if constexpr (Sums<C>::left_open) {
            ptx90::wgmma_wait<0>();
#pragma unroll
            for (int p = 0; p < C::w_phases; p++) Sums<C>::pin_all(sums[p].total);
        }
        Turns<C, End>::hand_on(number);
        weights.end_chunk();
        __syncwarp();
        if (lap.is_last && threadIdx.x % 32 == 0)
            ptx90::barrier_arrive(ptx90::shared_address(&shared.empty[ring][at.stage]));
    }
    if constexpr (C::products == 3) {
#pragma unroll
        for (int p = 0; p < C::w_phases; p++) sums[p].undo_truncation();
    }
}

// kw: is_outside
// Whether nothing of a lap lies inside: phases have different numbers of places.
template <class C> KW_DEVICE bool is_outside(const Problem<C>& problem, const Work& work, const Lap& lap) {
    const conv::Axis(&axes)[3] = problem.phases[lap.phase].axis;
    const Place at = conv_mma::place_of<C>(work, lap.row * C::tile_w);
    return at.d >= axes[0].count || at.h >= axes[1].count || at.w >= axes[2].count;
}

// kw: multiply_all
template <class C, class Epilogue, class End>
KW_DEVICE void multiply_all(const Problem<C>& problem, const typename Epilogue::Args& args, Shared<C>& shared) {
    using L = Layout<C>;
    const int team = threadIdx.x / 128;
    char* memory = (char*)(&shared + 1) + Abreast<C>::number() * end_bytes<C, Epilogue, End>();
    Cursor at;
    Given<C> weights(shared, team % C::abreast);
#pragma unroll 1
    for (unsigned number = team / C::abreast; Walk<C>::has(number); number += L::rings) {
        Work work = Walk<C>::tile(problem, number, team % C::abreast).work;
        const int first_phase = work.phase;
        const Cursor begin = at;
#pragma unroll 1
        for (int i = 0; i < L::laps; i++) {
            Lap lap;
            lap.phase = first_phase + i / L::row_laps * C::w_phases, lap.row = i % L::row_laps * C::lap_rows;
            lap.is_last = i == L::laps - 1;
            Sums<C> sums[C::w_phases];
            at = begin;
            multiply<C, End>(problem, shared, number, at, team / C::abreast, weights, lap, sums);
            work.phase = lap.phase;
            if (is_outside(problem, work, lap)) {
                End::template skip_of_warp<C, Epilogue>(args, work);
                continue;
            }
            const float inverse = split::inverse_of(lap.scale);
            if constexpr (End::of_teams) {
                End::template take_of_teams<C, Epilogue, Abreast<C>>(problem, args, work, lap.row, sums, inverse,
                                                                     lap.are_finite, memory);
            } else {
                float* slab = (float*)(memory + Abreast<C>::rank() / 32 * End::template warp_bytes<C>());
                End::template take_of_warp<C, Epilogue>(problem, args, work, lap.row, sums, inverse, lap.are_finite, slab);
            }
        }
    }
    if constexpr (C::sent > 0) ptx90::send_wait<0>();  // shared memory ends with the block
}

// kw: block_bytes
template <class C, class Epilogue, class End> constexpr int block_bytes() {
    return (int)sizeof(Shared<C>) + Layout<C>::rings * end_bytes<C, Epilogue, End>();
}

// kw: convolve_kernel
template <class C, class Epilogue, class End>
__global__ void __launch_bounds__(Layout<C>::threads, 1)
    convolve_kernel(const __grid_constant__ Problem<C> problem, const __grid_constant__ typename Epilogue::Args args) {
    using L = Layout<C>;
    extern __shared__ uint4 dynamic[];
    Shared<C>& shared = *(Shared<C>*)dynamic;
    conv_mma::fill_offsets<C, Sums<C>>(&shared.offset[0][0], problem.offsets, C::phases);
    Supply<C>::begin(problem, shared);
    if (threadIdx.x < L::rings * C::stages) {
        ptx90::barrier_init(ptx90::shared_address(&shared.full[0][0] + threadIdx.x), L::crew_threads);
        ptx90::barrier_init(ptx90::shared_address(&shared.empty[0][0] + threadIdx.x), 4 * C::abreast);
    }
    __syncthreads();
    if (threadIdx.x >= C::teams * 128) {
        if constexpr (L::carrier_registers < L::begin) ptx90::registers_shrink_to<L::carrier_registers>();
        Supply<C>::carry(problem, shared);
    } else {
        if constexpr (L::registers > L::begin) ptx90::registers_grow_to<L::registers>();
        multiply_all<C, Epilogue, End>(problem, args, shared);
    }
}

#ifndef __CUDACC_RTC__
// kw: launch
// Weights are packed by conv_mma::pack. As many blocks as run at once, equally many for each shelf.
template <class C, class Epilogue, class End = Stored>
cudaError_t launch(const Problem<C>& problem, const typename Epilogue::Args& args, cudaStream_t stream) {
    using L = Layout<C>;
    constexpr int bytes = block_bytes<C, Epilogue, End>();
    if (const cudaError_t status = ptx90::allow_shared_memory(convolve_kernel<C, Epilogue, End>, bytes)) return status;
    int count = 0;
    if (const cudaError_t status = ptx90::multiprocessors(&count)) return status;
    int each = count / L::shelves;
    if (each > L::tiles) each = L::tiles;
    if (each < 1) each = 1;
    conv_sm90_kept::convolve_kernel<C, Epilogue, End><<<each * L::shelves, L::threads, bytes, stream>>>(problem, args);
    return cudaGetLastError();
}
#endif

}  // namespace kw::conv_sm90_kept
