// kw: conv_sm90_kept::pack
// Weights of conv_sm90_kept.cuh that have no room in shared memory stream through a ring of places there, and inputs of
// which registers hold only a piece of a chunk at once are carried piece by piece.
//
// All teams have the same tile, and so take the same taps in the same order: one copy of a tap's weights, from L2,
// serves them all. A warp asks the copy engine for it as soon as every team is done with what had its place.
#pragma once

#include "conv_kept_carry.cuh"

namespace kw::conv_sm90_kept {

// What a streamed convolution has in place of another's is named after `pack`, which no other calls.

// --- packed weights, in the order in which they stream: [phase][shelf][chunk][step][team], each 64 channels by 16 of k
// as wgmma wants them: 8 channels by 8 of k lie together, then those of the next channels

// kw: ByPlaces
template <class C> struct ByPlaces {
    static constexpr int low = 0;  // one product: what rounding leaves is not kept
    KW_DEVICE static int64_t place(const Phase& phase, int group, int row, int steps, int chunk, int step, int k) {
        using S = Sizes<C>;
        const int team = group * S::tiles_m + row / 64;
        const int64_t shelf = (int64_t)(team / C::abreast) * S::chunks * steps + chunk * steps + step;
        return phase.fragment * 128 + (shelf * C::abreast + team % C::abreast) * 512 + k / 8 * 256 + row % 64 / 8 * 32 +
               row % 8 * 4 + k % 8 / 2;
    }
};

// kw: pack
// A place of their ring has those of one tap in a chunk, of all teams.
template <class C> struct Weights<C, true> {
    static constexpr int steps = C::octets < 2 ? 1 : C::octets / 2;  // of a place; of one octet, two taps are one step
    static constexpr int bytes = steps * C::abreast * 2048;
    alignas(8) uint64_t full[C::streamed];
    uint64_t empty[C::streamed];
    alignas(16) uint4 place[C::streamed][steps][C::abreast][128];
};

// --- the warp that asks for them: one lane of it

// kw: stream_weights
template <class C> KW_DEVICE void stream_weights(const Problem<C>& problem, Shared<C>& shared) {
    using S = Sizes<C>;
    using L = Layout<C>;
    using W = Weights<C, true>;
    if (threadIdx.x % 32 != 0) return;
    Cursor at;
#pragma unroll 1
    for (unsigned number = 0; Walk<C>::has(number); number++) {
        const int first_phase = Walk<C>::tile(problem, number).work.phase;
#pragma unroll 1
        for (int i = 0; i < L::laps * S::chunks * C::w_phases; i++) {
            const int chunk = i / C::w_phases % S::chunks, lap = i / (C::w_phases * S::chunks);
            const Phase& phase = problem.phases[first_phase + lap / L::row_laps * C::w_phases + i % C::w_phases];
            const int steps = steps_in<C>(phase);
            const char* from = (const char*)problem.fragments + phase.fragment * 512 +
                               ((int64_t)Walk<C>::shelf() * S::chunks + chunk) * steps * (C::abreast * 2048);
#pragma unroll 1
            for (int step = 0; step < steps; step += W::steps, from += W::bytes, at.advance<C::streamed>()) {
                const uint32_t full = ptx90::shared_address(&shared.weights.full[at.stage]);
                ptx90::barrier_wait(ptx90::shared_address(&shared.weights.empty[at.stage]), at.phase ^ 1);
                ptx90::barrier_arrive_and_expect(full, W::bytes);
                ptx90::load_bytes(ptx90::shared_address(shared.weights.place[at.stage]), from, W::bytes, full);
            }
        }
    }
}

// --- inputs, piece by piece

// kw: Piece
// Some octets of a chunk in registers.
template <class C> struct Piece {
    using S = Sizes<C>;
    static constexpr int rounds = C::piece, octets = rounds * Crew<C>::threads, count = ceil_div(S::units, octets);
    float held[rounds][8];

    // A chunk begins with a piece in the middle of its first octet: at the edge of an image the first inputs of a tile
    // are all outside, and tell nothing of the scale.
    KW_DEVICE static int turned(int number) {
        constexpr int middle = count / (2 * C::octets);
        return number + middle < count ? number + middle : number + middle - count;
    }
    KW_DEVICE static unsigned unit(int number, int i) {
        return (unsigned)(number * octets + i * Crew<C>::threads + Crew<C>::rank());
    }
    KW_DEVICE void fetch(const Source<C>& source, int chunk, int number) {
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            const unsigned mine = unit(number, i);
            source.fetch(held[i], Spot<C>(mine), mine < (unsigned)S::units, chunk);
        }
    }
    // Of this thread: as bits, for those of Inf and NaN are larger; or of those that are finite.
    KW_DEVICE uint32_t largest() const {
        float mine = 0.f;
#pragma unroll
        for (int i = 0; i < rounds; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) mine = maximum(mine, fabsf(held[i][j]));
        return __float_as_uint(mine);
    }
    KW_DEVICE uint32_t largest_finite() const {
        float mine = 0.f;
#pragma unroll
        for (int i = 0; i < rounds; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) mine = fmaxf(mine, split::finite_magnitude(held[i][j]));
        return __float_as_uint(mine);
    }
    KW_DEVICE void deliver(uint4* region, float scale, int number) const {
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            uint32_t pair[4], rest[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                split::to_pairs(held[i][2 * j] * scale, held[i][2 * j + 1] * scale, pair[j], rest[j]);
            const unsigned mine = unit(number, i);
            if (mine < (unsigned)S::units) region[mine] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
        }
    }
};

// kw: PiecesInTurn
// The scale of a chunk must be known before all of it has been seen: it is what the first piece wants, with room for
// numbers 8 times as large. Larger ones, and those that are not finite, have the chunk carried once more.
template <class C> struct PiecesInTurn {
    static constexpr int room = 3;  // powers of two
    Cursor at;
    uint32_t scale, guess, seen;  // of the tile so far, of this chunk, magnitudes in it
    int chunk = 0, piece = 0;
    unsigned number = 0, count = 0;

    KW_DEVICE uint32_t agreed(Shared<C>& shared, uint32_t mine) {
        return largest_of_crew<C>(shared.largest[0][count++ % 2], mine);
    }
    // Larger values than before take a smaller scale; smaller ones do not matter beside what is there.
    KW_DEVICE uint32_t followed(uint32_t wanted) const { return chunk == 0 || wanted < scale ? wanted : scale; }
    KW_DEVICE static uint32_t guessed(uint32_t bits) {
        return bits == 0 ? 127 * split::exponent_one
                         : split::scale_bits(__uint_as_float(bits)) - room * split::exponent_one;
    }

    KW_DEVICE void put(const Problem<C>& problem, Shared<C>& shared, Piece<C>& carried) {
        uint4* region = shared.region[0][at.stage][0];
        const uint32_t mine = carried.largest();
        if (piece == 0) {
            guess = followed(guessed(agreed(shared, mine)));
            seen = 0;
            ptx90::barrier_wait(ptx90::shared_address(&shared.empty[0][at.stage]), at.phase ^ 1);
        }
        seen = max(seen, mine);
        carried.deliver(region, split::scale_of(guess), Piece<C>::turned(piece));
        if (++piece < Piece<C>::count) return;
        const uint32_t bits = agreed(shared, seen);
        const bool finite = bits < split::exponent_mask;
        if (!finite || split::scale_bits(__uint_as_float(bits)) < guess) put_again(problem, shared, carried, region);
        scale = guess;
        if (Crew<C>::rank() == 0) shared.scale[0][at.stage] = scale | !finite;
        conv_sm90::fence_for_tensor_cores();
        ptx90::barrier_arrive(ptx90::shared_address(&shared.full[0][at.stage]));
        at.advance<C::stages>();
        piece = 0;
        if (++chunk < Sizes<C>::chunks) return;
        chunk = 0, number++;
    }
    KW_DEVICE void put_again(const Problem<C>& problem, Shared<C>& shared, Piece<C>& carried, uint4* region) {
        const Course<C> course(problem, number, chunk);
        uint32_t mine = 0;
#pragma unroll 1
        for (int i = 0; i < Piece<C>::count; i++) {
            carried.fetch(course.source, chunk, i);
            mine = max(mine, carried.largest_finite());
        }
        guess = followed(split::scale_bits(__uint_as_float(agreed(shared, mine))));
#pragma unroll 1
        for (int i = 0; i < Piece<C>::count; i++) {
            carried.fetch(course.source, chunk, i);
            carried.deliver(region, split::scale_of(guess), i);
        }
    }
};

// kw: carry_in_pieces
// One piece is on its way while another one is delivered.
template <class C> KW_DEVICE void carry_in_pieces(const Problem<C>& problem, Shared<C>& shared) {
    Course<C> course(problem);
    PiecesInTurn<C> turn;
    Piece<C> even, odd;
    int piece = 0;
    auto fetch = [&](Piece<C>& into) { into.fetch(course.source, course.chunk, Piece<C>::turned(piece)); };
    auto advance = [&] {
        if (++piece == Piece<C>::count) piece = 0, course.advance();
    };
    if (!course.more()) return;
    fetch(even);
#pragma unroll 1
    while (true) {
        advance();
        if (course.more()) fetch(odd);
        turn.put(problem, shared, even);
        if (!course.more()) return;
        advance();
        if (course.more()) fetch(even);
        turn.put(problem, shared, odd);
        if (!course.more()) return;
    }
}

// --- once for a block

// kw: begin_streams
template <class C> KW_DEVICE void begin_streams(Shared<C>& shared) {
    if (threadIdx.x < C::streamed) {
        ptx90::barrier_init(ptx90::shared_address(&shared.weights.full[threadIdx.x]), 1);
        ptx90::barrier_init(ptx90::shared_address(&shared.weights.empty[threadIdx.x]), 4 * C::abreast);
    }
    ptx90::barrier_init_fence();
    // What lies behind a region is multiplied too, for places that are outside; nobody else writes there.
    for (int i = threadIdx.x; i < C::stages * C::behind; i += Layout<C>::threads)
        shared.region[0][i / C::behind][0][Sizes<C>::units + i % C::behind] = make_uint4(0, 0, 0, 0);
    conv_sm90::fence_for_tensor_cores();
}

// kw: pack
template <class C> struct Supply<C, true> {
    KW_DEVICE static void begin(const Problem<C>&, Shared<C>& shared) { begin_streams(shared); }
    KW_DEVICE static void carry(const Problem<C>& problem, Shared<C>& shared) {
        if (threadIdx.x >= Layout<C>::threads - 32) stream_weights<C>(problem, shared);
        else carry_in_pieces<C>(problem, shared);
    }
};

// --- a team's way through the ring

// kw: pack
template <class C> struct Given<C, true> {
    Weights<C>& ring;
    int team;
    Cursor at;
    int before = -1;  // the place that is still read

    KW_DEVICE Given(Shared<C>& shared, int number) : ring(shared.weights), team(number) {}
    KW_DEVICE void begin(const Problem<C>&, int, const Phase&) {}
    // One chunk. Of a tap, wait for its place, and leave the one before, whose products are done.
    KW_DEVICE void add_to(Sums<C>& sums, int, uint32_t region, const int* offset, int steps, bool follows) {
        constexpr int at_once = Weights<C>::steps;
        auto add_tap = [&](int i, bool keep) {
            const uint32_t first = region + offset[2 * i], of_tap = next();
            ptx90::wgmma_fence();
#pragma unroll
            for (int j = 0; j < at_once; j++)
                Sums<C>::multiply(sums.total, first + j * 2 * Sizes<C>::pixels, of_tap + j * (128 * C::abreast),
                                  keep || j > 0);
            ptx90::wgmma_commit();
            ptx90::wgmma_wait<1>();
            leave_before();
        };
        if (C::least_taps == 0 && steps == 0) {
            if (!follows) sums.clear();
            return;
        }
        add_tap(0, follows);
#pragma unroll 1
        for (int i = at_once; i < steps; i += at_once) add_tap(i, true);
    }
    // Where the next place begins, for a descriptor, once it is full.
    KW_DEVICE uint32_t next() const {
        ptx90::barrier_wait(ptx90::shared_address(&ring.full[at.stage]), at.phase);
        return (ptx90::shared_address(ring.place[at.stage][0][team]) >> 4) + Sums<C>::next_sixteen;
    }
    // All products but those of the newest place are done.
    KW_DEVICE void leave_before() {
        leave();
        before = at.stage;
        at.template advance<C::streamed>();
    }
    KW_DEVICE void end_chunk() {
        leave();
        before = -1;
    }
    KW_DEVICE void leave() const {
        __syncwarp();
        if (before >= 0 && threadIdx.x % 32 == 0) ptx90::barrier_arrive(ptx90::shared_address(&ring.empty[before]));
    }
};

#ifndef __CUDACC_RTC__
// kw: pack
template <class C> cudaError_t pack(const Problem<C>& problem, cudaStream_t stream) {
    return conv_mma::pack<C, ByPlaces<C>>(problem, stream);
}
#endif

}  // namespace kw::conv_sm90_kept
