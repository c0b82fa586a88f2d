// Inputs and weights of conv_sm90_kept.cuh on their way to shared memory: which tiles a block has, weights once, inputs by
// warpgroups that only carry them.
#pragma once

#include "../device/arithmetic.cuh"
#include "conv_kept_ends.cuh"

namespace kw::conv_sm90_kept {

// --- which tiles a block has: those of its shelf, some apart, so that neighbours are written at the same time

// kw: Walk
template <class C> struct Walk {
    using L = Layout<C>;
    static constexpr unsigned phases = C::phases / C::w_phases / C::turns / C::sets;

    KW_DEVICE static unsigned shelf() { return blockIdx.x % L::shelves / C::sets; }  // of channels
    KW_DEVICE static unsigned set() { return blockIdx.x % C::sets; }
    KW_DEVICE static int first_phase() { return (int)set() * L::phases_of_set; }
    KW_DEVICE static unsigned apart() { return gridDim.x / L::shelves; }
    KW_DEVICE static unsigned at(unsigned number) { return blockIdx.x / L::shelves + number * apart(); }
    KW_DEVICE static bool has(unsigned number) { return at(number) < (unsigned)L::tiles; }
    // As the team has it that is number `which` of those abreast.
    KW_DEVICE static Tile<C> tile(const Problem<C>& problem, unsigned number, unsigned which = 0) {
        unsigned phase = at(number) % phases;
        // Phases have different numbers of taps: where a block would always get the same one, it gets all in turn.
        if (phases > 1 && apart() % phases == 0) phase = (phase + number) % phases;
        const unsigned channels = shelf() * C::abreast + which;
        return Tile<C>(problem,
                       ((at(number) / phases * (L::shelves / C::sets * C::abreast) + channels) * (C::sets * phases) +
                        set() * phases + phase) *
                           C::turns);
    }
};

// --- shared memory

// kw: Largest
// Magnitudes that the warps of a crew found: as bits, and without Inf and NaN.
template <class C> struct Largest {
    uint32_t bits[Layout<C>::crew_threads / 32];
    float finite[Layout<C>::crew_threads / 32];
};

// kw: Weights
// Weights that stay: 64 channels by 16 of k each.
template <class C, bool = Layout<C>::streams> struct Weights {
    uint4 kept[C::abreast][C::kept][128];  // [team][phase][chunk][step][hi, lo]
};
// kw: Shared
template <class C> struct Shared {
    using S = Sizes<C>;
    int offset[C::phases][S::most_steps == 0 ? 2 : 2 * S::most_steps];  // of every 8 of k, in the region
    Largest<C> largest[Layout<C>::crews][2];  // of a chunk and of the next
    uint32_t scale[Layout<C>::rings][C::stages];  // an odd one: not all of these inputs are finite
    alignas(8) uint64_t full[Layout<C>::rings][C::stages];
    uint64_t empty[Layout<C>::rings][C::stages];
    Weights<C> weights;
    uint4 region[Layout<C>::rings][C::stages][S::halves][S::units + C::behind];
};

// kw: first_kept
// Where a phase's weights begin among those that are kept.
template <class C> KW_DEVICE int first_kept(const Problem<C>& problem, const Phase& phase) {
    const int64_t first = C::sets == 1 ? 0 : problem.phases[Walk<C>::first_phase()].fragment;
    return (int)((phase.fragment - first) / (C::groups * Sizes<C>::fragments_m));
}
// kw: steps_in
template <class C> KW_DEVICE int steps_in(const Phase& phase) {
    return C::phases == 1 ? Sizes<C>::most_steps : conv_mma::steps_of<C>(conv_mma::taps_of<C>(phase));
}

// kw: keep_weights
// From the order in which lanes hold them to wgmma's: 8 channels by 8 of k lie together, then those of the next channels.
template <class C> KW_DEVICE void keep_weights(const Problem<C>& problem, Shared<C>& shared) {
    using S = Sizes<C>;
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int part = 0; part < Layout<C>::phases_of_set * C::abreast; part++) {
        const int which = part % C::abreast, shelf = Walk<C>::shelf() * C::abreast + which;
        const Phase& phase = problem.phases[Walk<C>::first_phase() + part / C::abreast];
        const int count = S::chunks * steps_in<C>(phase) * S::halves, first = first_kept<C>(problem, phase);
        const uint4* from = problem.fragments + phase.fragment * 32 + (int64_t)shelf * 4 * count * 32;
#pragma unroll 4
        for (int i = threadIdx.x; i < count * 128; i += Layout<C>::threads) {
            const int sixteen = i / 32 % 4;
            const uint4 v = __ldg(from + (int64_t)sixteen * count * 32 + i / 128 * 32 + lane);
            uint32_t* to = (uint32_t*)shared.weights.kept[which][first + i / 128] + sixteen * 64 + lane;
            to[0] = v.x, to[32] = v.y, to[256] = v.z, to[256 + 32] = v.w;
        }
    }
    conv_sm90::fence_for_tensor_cores();
}

// kw: Cursor
struct Cursor {
    int stage = 0;
    uint32_t phase = 0;  // of the stage's barriers

    template <int Count> KW_DEVICE void advance() {
        if (++stage == Count) stage = 0, phase ^= 1;
    }
};

// --- those who carry

// kw: Crew
template <class C> struct Crew {
    static constexpr int threads = Layout<C>::crew_threads;
    KW_DEVICE static int number() { return ((int)threadIdx.x - C::teams * 128) / threads; }
    KW_DEVICE static int rank() { return ((int)threadIdx.x - C::teams * 128) % threads; }
    KW_DEVICE static void sync() { ptx90::named_sync(1 + number(), threads); }
};

// kw: largest_of_crew
// What the crew has the most of; nobody else may be between this and the next but one, which has the same memory.
template <class C> KW_DEVICE uint32_t largest_of_crew(Largest<C>& shared, uint32_t bits) {
    bits = __reduce_max_sync(~0u, bits);
    if (threadIdx.x % 32 == 0) shared.bits[Crew<C>::rank() / 32] = bits;
    Crew<C>::sync();
#pragma unroll
    for (int i = 0; i < Crew<C>::threads / 32; i++) bits = max(bits, shared.bits[i]);
    return bits;
}

// kw: Corner
// Whether h and w of an input, both in one register, lie inside: two additions for both. Each has 16 bits and is 2^14 too
// large, so that bit 14 of it tells whether it is 0 or more, and bit 14 of what it lacks to the last whether it is inside.
template <class C> struct Corner {
    static constexpr uint32_t bias = 0x4000, signs = bias << 16 | bias;
    static constexpr uint32_t last = (uint32_t)(C::x_h - 1 + 2 * bias) << 16 | (C::x_w - 1 + 2 * bias);
    static constexpr bool fits = Layout<C>::corners_fit;

    KW_DEVICE static uint32_t of(int h, int w) { return (uint32_t)(h + (int)bias) << 16 | (uint32_t)(w + (int)bias); }
    KW_DEVICE static bool is_inside(uint32_t at) { return (at & (last - at) & signs) == signs; }
};

// kw: Spot
// An octet of a region: how far from the tile's first input it lies, and where.
template <class C> struct Spot {
    using S = Sizes<C>;
    int away;
    uint32_t h_and_w, octet_and_d;

    KW_DEVICE Spot() = default;
    KW_DEVICE explicit Spot(unsigned unit) {
        const unsigned octet = unit / S::pixels, pixel = unit % S::pixels;
        const unsigned column = pixel % S::row, w = column % S::alike * C::stride_w + column / S::alike,
                       h = pixel / S::row % C::region_h, d = pixel / (S::row * C::region_h);
        away = (int)(octet * (unsigned)(S::lanes * C::x_channel_pitch) + d * (unsigned)C::x_d_pitch +
                     h * (unsigned)C::x_h_pitch + w * (unsigned)C::x_w_pitch);
        h_and_w = h << 16 | w, octet_and_d = octet << 16 | d;
    }
};

// kw: Spots
// The octets that a thread carries, the same of every tile.
template <class C> struct Spots {
    using S = Sizes<C>;
    static constexpr int rounds = ceil_div(S::units, Crew<C>::threads);
    static constexpr bool deep = C::region_d > 1;
    // Whether there are registers for them beside one chunk of inputs on its way, or two (seen by compiling).
    static constexpr int held = Layout<C>::crews == 1 ? 16 : 8, of_spot = deep || S::ragged ? 6 : 2;
    static constexpr bool crowded = Layout<C>::many_sums || (Layout<C>::much_held && Layout<C>::in_pieces);
    static constexpr bool stay = rounds * (held + of_spot) < 80 && S::halves == 1 && !crowded;
    Spot<C> spot[rounds];

    KW_DEVICE Spots() {
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            spot[i] = Spot<C>(Crew<C>::rank() + i * Crew<C>::threads);
            // From each lane to itself: what came so is kept, and else found anew for every chunk.
            if constexpr (stay) {
                spot[i].away = __shfl_sync(~0u, spot[i].away, threadIdx.x % 32);
                spot[i].h_and_w = __shfl_sync(~0u, spot[i].h_and_w, threadIdx.x % 32);
            }
        }
    }
};

// kw: Source
// Where the inputs of a tile begin: its first one lies at `x`; `step`: from a tap that shares an octet to the next.
template <class C> struct Source {
    using S = Sizes<C>;
    static constexpr bool deep = C::region_d > 1;
    const typename C::Type* x;
    int d, h, w, step;

    // An octet of a chunk; of none that is there, zeros.
    KW_DEVICE void fetch(float (&held)[8], const Spot<C>& spot, bool is_unit, int chunk) const {
        const typename C::Type* at = x + (int64_t)chunk * (C::octets * S::lanes) * C::x_channel_pitch;
        const bool is_plane = deep || (unsigned)d < (unsigned)C::x_d;
        const uint32_t corner = is_plane ? Corner<C>::of(h, w) : 0;  // 0: nothing is inside
        const bool d_inside = is_unit && (!deep || (unsigned)(d + (int)(spot.octet_and_d & 0xffff)) < (unsigned)C::x_d);
        const int octet = S::ragged ? spot.octet_and_d >> 16 : 0;
#pragma unroll
        for (int f = 0; f < C::fold; f++) {
            bool inside;
            if constexpr (Corner<C>::fits) {
                inside = d_inside && Corner<C>::is_inside(corner + spot.h_and_w + f * step);
            } else {
                inside = d_inside && is_plane && (unsigned)(h + (int)(spot.h_and_w >> 16)) < (unsigned)C::x_h &&
                         (unsigned)(w + (int)(spot.h_and_w & 0xffff) + f * step) < (unsigned)C::x_w;
            }
            const typename C::Type* from = at + spot.away + f * step * C::x_w_pitch;
            asm volatile("" : "+l"(from));  // else the compiler finds it anew for each channel
            const int channel = (chunk * C::octets + octet) * S::lanes;
#pragma unroll
            for (int c = 0; c < S::lanes; c++)
                held[f * S::lanes + c] = inside && (!S::ragged || channel + c < C::channels)
                                             ? widen(load_constant<1>(from + c * C::x_channel_pitch)[0])
                                             : 0.f;
        }
    }
};

// kw: Carrier
template <class C> struct Carrier : conv_mma::Carrier<C, Crew<C>> {
    using S = Sizes<C>;
    using Base = conv_mma::Carrier<C, Crew<C>>;
    using Base::held, Base::rounds;

    // Whether a warp has octets in a round. Of the last one maybe few: the other warps leave it out.
    KW_DEVICE static bool has(int i) {
        return (i + 1) * Crew<C>::threads <= S::units || (Crew<C>::rank() & ~31) + i * Crew<C>::threads < S::units;
    }
    KW_DEVICE void fetch(const Source<C>& source, const Spots<C>& spots, int chunk) {
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            if (!has(i)) continue;
            const bool is_unit = (i + 1) * Crew<C>::threads <= S::units ||
                                 Crew<C>::rank() + i * Crew<C>::threads < S::units;
            source.fetch(held[i], spots.spot[i], is_unit, chunk);
        }
    }
    // The largest finite magnitude, and whether there is no other. As bits, for those of Inf and NaN are larger; if there
    // are any, all look again.
    KW_DEVICE float largest(Largest<C>& shared, bool& finite) const {
        float mine = 0.f;
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            if (!has(i)) continue;
#pragma unroll
            for (int j = 0; j < 8; j++) mine = maximum(mine, fabsf(held[i][j]));
        }
        const uint32_t bits = largest_of_crew(shared, __float_as_uint(mine));
        finite = bits < split::exponent_mask;
        if (finite) return __uint_as_float(bits);
        return Base::largest(shared.finite, [](int i) { return has(i); });
    }
    KW_DEVICE void deliver(uint4 (&region)[S::halves][S::units], float scale) const {
        Base::deliver(region, scale, [](int i) { return has(i); });
    }
};

// kw: Course
// The chunks of a crew's tiles, one after the other.
template <class C> struct Course {
    const Problem<C>& problem;
    unsigned number;
    int chunk;
    Source<C> source;

    KW_DEVICE Course(const Problem<C>& given) : Course(given, Crew<C>::number(), 0) {}
    KW_DEVICE Course(const Problem<C>& given, unsigned tile, int first) : problem(given), number(tile), chunk(first) {
        begin();
    }
    KW_DEVICE bool more() const { return Walk<C>::has(number); }
    KW_DEVICE void begin() {
        if (!more()) return;
        const Tile<C> tile = Walk<C>::tile(problem, number);
        const Phase& phase = problem.phases[tile.work.phase];
        source.d = tile.work.first.d * C::stride_d + phase.axis[0].x_base;
        source.h = tile.work.first.h * C::stride_h + phase.axis[1].x_base;
        source.w = tile.work.first.w * C::stride_w + phase.axis[2].x_base;
        source.step = phase.axis[2].x_step;
        source.x = tile.x + source.d * C::x_d_pitch + source.h * C::x_h_pitch + source.w * C::x_w_pitch;
    }
    KW_DEVICE void advance() {
        if (++chunk < Sizes<C>::chunks) return;
        chunk = 0, number += Layout<C>::crews;
        begin();
    }
    KW_DEVICE void fetch(Carrier<C>& carrier, const Spots<C>& spots) const {
        carrier.fetch(source, spots, chunk);
    }
};

// kw: Delivery
// Tiles go to the teams in turn, each to the team's own ring; all rings of a crew are equally far.
template <class C> struct Delivery {
    Cursor at, round;
    uint32_t scale;
    int chunk = 0, ring = Crew<C>::number();
    unsigned count = 0;

    // Larger values than before take a smaller scale; smaller ones do not matter beside what is there.
    KW_DEVICE void put(Shared<C>& shared, const Carrier<C>& carrier) {
        bool finite;
        const uint32_t wanted = split::scale_bits(carrier.largest(shared.largest[Crew<C>::number()][count++ % 2], finite));
        scale = chunk == 0 || wanted < scale ? wanted : scale;
        ptx90::barrier_wait(ptx90::shared_address(&shared.empty[ring][at.stage]), at.phase ^ 1);
        carrier.deliver(shared.region[ring][at.stage], split::scale_of(scale));
        if (Crew<C>::rank() == 0) shared.scale[ring][at.stage] = scale | !finite;
        conv_sm90::fence_for_tensor_cores();
        ptx90::barrier_arrive(ptx90::shared_address(&shared.full[ring][at.stage]));
        at.advance<C::stages>();
        if (++chunk < Sizes<C>::chunks) return;
        chunk = 0, ring += Layout<C>::crews;
        if (ring >= Layout<C>::rings) ring -= Layout<C>::rings, round = at;
        at = round;
    }
};

// kw: carry
template <class C> KW_DEVICE void carry(const Problem<C>& problem, Shared<C>& shared) {
    Course<C> course(problem);
    const Spots<C> spots;
    Delivery<C> delivery;
    if constexpr (Layout<C>::crews == 2) {  // while one crew waits for memory, the other one works
        Carrier<C> carrier;
#pragma unroll 1
        for (; course.more(); course.advance()) {
            course.fetch(carrier, spots);
            delivery.put(shared, carrier);
        }
    } else {  // one chunk is on its way while another one is delivered
        Carrier<C> even, odd;
        if (!course.more()) return;
        course.fetch(even, spots);
#pragma unroll 1
        while (true) {
            course.advance();
            if (course.more()) course.fetch(odd, spots);
            delivery.put(shared, even);
            if (!course.more()) return;
            course.advance();
            if (course.more()) course.fetch(even, spots);
            delivery.put(shared, odd);
            if (!course.more()) return;
        }
    }
}

// --- what a block does for those who multiply, and what a team of them multiplies by; weights that stream have their own

// kw: Supply
template <class C, bool = Layout<C>::streams> struct Supply {
    KW_DEVICE static void begin(const Problem<C>& problem, Shared<C>& shared) { keep_weights(problem, shared); }
    KW_DEVICE static void carry(const Problem<C>& problem, Shared<C>& shared) {
        conv_sm90_kept::carry<C>(problem, shared);
    }
};

// kw: Sums
template <class C> struct Sums;

// kw: Given
// What a team multiplies by: weights that stay, chunk by chunk.
template <class C, bool = Layout<C>::streams> struct Given {
    uint32_t first, of_phase[C::w_phases];  // of the next chunk, for descriptors

    KW_DEVICE Given(const Shared<C>& shared, int team)
        : first((ptx90::shared_address(shared.weights.kept[team]) >> 4) + Sums<C>::next_sixteen) {}
    KW_DEVICE void begin(const Problem<C>& problem, int p, const Phase& phase) {
        of_phase[p] = first + first_kept<C>(problem, phase) * 128;
    }
    KW_DEVICE void add_to(Sums<C>& sums, int p, uint32_t region, const int* offset, int steps, bool follows) {
        sums.add(region, offset, of_phase[p], steps, follows);
        of_phase[p] += steps * Sizes<C>::halves * 128;
    }
    KW_DEVICE void end_chunk() {}
};

}  // namespace kw::conv_sm90_kept
