// conv_sm90.cuh with warps that only carry: they fetch, scale and round inputs, two chunks ahead and into the next tile,
// while the others multiply and store. Between them is a ring of stages in shared memory, each with two barriers.
#pragma once

#include "conv_sm90.cuh"

namespace kw::conv_sm90_ring {

using conv_mma::Carrier;
using conv_mma::Part;
using conv_mma::Problem;
using conv_mma::Sizes;
using conv_mma::Tile;
using conv_sm90::Sums;

constexpr int carriers = 128;  // threads; after those that multiply
// Of a thread. A block begins with 168 for each of 384; who wants more waits until others have handed theirs back.
constexpr int carrier_registers = 120, multiplier_registers = 192;
static_assert(128 * carrier_registers + 256 * multiplier_registers <= 384 * 168, "else they wait for ever");

template <class C> struct Team {
    static constexpr int threads = carriers;
    KW_DEVICE static int rank() { return (int)threadIdx.x - Sizes<C>::threads; }
    KW_DEVICE static void sync() { ptx90::named_sync(1, carriers); }
};

template <class C> struct Shared {
    using S = Sizes<C>;
    int from[C::fold][S::pixels];                                         // as in conv_mma.cuh
    int offset[C::phases][S::most_steps == 0 ? 2 : 2 * S::most_steps];
    float largest[2][carriers / 32];                                      // of one chunk and of the next
    uint32_t scale[C::stages];
    alignas(8) uint64_t full[C::stages];
    uint64_t empty[C::stages];
    uint4 region[C::stages][S::halves][S::units];
    uint4 slabs[C::warps * conv_mma::Slab<C>::bytes / 16];
};

struct Cursor {
    int stage = 0;
    uint32_t phase = 0;  // of the stage's barriers

    template <class C> KW_DEVICE void advance() {
        if (++stage == C::stages) stage = 0, phase ^= 1;
    }
};

// --- those who carry

// The chunks of a block's tiles, one after the other.
template <class C> struct Course {
    const Problem<C>& problem;
    unsigned index;
    Tile<C> tile;
    int chunk;

    KW_DEVICE Course(const Problem<C>& given) : problem(given), index(blockIdx.x), chunk(0) { find(); }
    KW_DEVICE bool more() const { return index < (unsigned)conv_mma::tiles_of<C>(); }
    // The first tile from here on that has something to multiply.
    KW_DEVICE void find() {
        for (; more(); index += gridDim.x) {
            tile = Tile<C>(problem, index);
            if (!tile.is_empty && tile.has_taps(problem)) return;
        }
    }
    KW_DEVICE void advance() {
        if (++chunk < Sizes<C>::chunks) return;
        chunk = 0, index += gridDim.x;
        find();
    }
    KW_DEVICE void fetch(Shared<C>& shared, Carrier<C, Team<C>>& carrier) const {
        if (chunk == 0) {
            Team<C>::sync();  // nobody reads the tile before
            conv_mma::fill_from<C, Team<C>>(shared.from, problem.phases[tile.work.phase], tile.work);
            Team<C>::sync();
        }
        carrier.fetch(tile.x, shared.from, chunk);
    }
};

template <class C> struct Delivery {
    Cursor at;
    uint32_t scale;
    int chunk = 0;
    unsigned count = 0;

    // Larger values than before take a smaller scale; smaller ones do not matter beside what is there.
    KW_DEVICE void put(Shared<C>& shared, const Carrier<C, Team<C>>& carrier) {
        const uint32_t wanted = split::scale_bits(carrier.largest(shared.largest[count++ % 2]));
        scale = chunk == 0 || wanted < scale ? wanted : scale;
        chunk = chunk + 1 == Sizes<C>::chunks ? 0 : chunk + 1;
        ptx90::barrier_wait(ptx90::shared_address(shared.empty + at.stage), at.phase ^ 1);
        carrier.deliver(shared.region[at.stage], split::scale_of(scale));
        if (Team<C>::rank() == 0) shared.scale[at.stage] = scale;
        conv_sm90::fence_for_tensor_cores();
        ptx90::barrier_arrive(ptx90::shared_address(shared.full + at.stage));
        at.advance<C>();
    }
};

template <class C> KW_DEVICE void carry(const Problem<C>& problem, Shared<C>& shared) {
    Course<C> course(problem);
    Delivery<C> delivery;
    Carrier<C, Team<C>> even, odd;
    if (!course.more()) return;
    course.fetch(shared, even);
#pragma unroll 1
    while (true) {
        course.advance();
        if (course.more()) course.fetch(shared, odd);
        delivery.put(shared, even);
        if (!course.more()) return;
        course.advance();
        if (course.more()) course.fetch(shared, even);
        delivery.put(shared, odd);
        if (!course.more()) return;
    }
}

// --- those who multiply

template <class C>
KW_DEVICE uint32_t multiply(Shared<C>& shared, Cursor& at, const int* offsets, const Part<C> (&parts)[C::w_phases],
                            Sums<C> (&sums)[C::w_phases]) {
    uint32_t scale = 0;
#pragma unroll 1
    for (int chunk = 0; chunk < Sizes<C>::chunks; chunk++, at.advance<C>()) {
        ptx90::barrier_wait(ptx90::shared_address(shared.full + at.stage), at.phase);
        const uint32_t given = shared.scale[at.stage];
        scale = chunk == 0 ? given : conv_mma::followed<C>(sums, scale, given);
#pragma unroll
        for (int p = 0; p < C::w_phases; p++)
            if (C::w_phases == 1 || parts[p].steps > 0)
                sums[p].add(shared.region[at.stage], offsets + p * 2 * Sizes<C>::most_steps, parts[p], chunk);
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx90::barrier_arrive(ptx90::shared_address(shared.empty + at.stage));
    }
    return scale;
}

template <class C, class Epilogue>
KW_DEVICE void multiply_all(const Problem<C>& problem, const typename Epilogue::Args& args, Shared<C>& shared) {
    Cursor at;
#pragma unroll 1
    for (unsigned index = blockIdx.x; index < (unsigned)conv_mma::tiles_of<C>(); index += gridDim.x) {
        const Tile<C> tile(problem, index);
        if (tile.is_empty) continue;
        Part<C> parts[C::w_phases];
        Sums<C> sums[C::w_phases];
#pragma unroll
        for (int p = 0; p < C::w_phases; p++) parts[p].set(problem, tile.work, p);
        uint32_t scale = 127 * split::exponent_one;
        if (tile.has_taps(problem)) scale = multiply(shared, at, shared.offset[tile.work.phase], parts, sums);
        conv_mma::Stored::take<C, Epilogue>(problem, args, tile.work, parts[0], sums, split::inverse_of(scale), shared.slabs);
    }
}

template <class C, class Epilogue>
__global__ void __launch_bounds__(Sizes<C>::threads + carriers, 1)
    convolve_kernel(const __grid_constant__ Problem<C> problem, const __grid_constant__ typename Epilogue::Args args) {
    static_assert(Sizes<C>::threads == 256, "two warpgroups multiply");
    extern __shared__ uint4 dynamic[];
    Shared<C>& shared = *(Shared<C>*)dynamic;
    conv_mma::fill_offsets<C, Sums<C>>(&shared.offset[0][0], problem.offsets, C::phases);
    if (threadIdx.x == 0) {
        for (int i = 0; i < C::stages; i++) {
            ptx90::barrier_init(ptx90::shared_address(shared.full + i), carriers);
            ptx90::barrier_init(ptx90::shared_address(shared.empty + i), C::warps);
        }
    }
    __syncthreads();
    if (threadIdx.x >= Sizes<C>::threads) {
        ptx90::registers_shrink_to<carrier_registers>();
        carry<C>(problem, shared);
    } else {
        ptx90::registers_grow_to<multiplier_registers>();
        multiply_all<C, Epilogue>(problem, args, shared);
    }
}

#ifndef __CUDACC_RTC__
// Weights are packed by conv_mma::pack.
template <class C, class Epilogue>
cudaError_t launch(const Problem<C>& problem, const typename Epilogue::Args& args, cudaStream_t stream) {
    return conv_mma::enqueue<C, typename Epilogue::Args>(convolve_kernel<C, Epilogue>, Sizes<C>::threads + carriers,
                                                         (int)sizeof(Shared<C>), problem, args, stream);
}
#endif

}  // namespace kw::conv_sm90_ring
