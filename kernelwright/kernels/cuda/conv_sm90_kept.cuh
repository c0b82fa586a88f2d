// conv_sm90.cuh with weights that stay: a block keeps those of 64 output channels in shared memory for all its tiles;
// or of 128, of which two warpgroups abreast have 64 each of every tile, whose inputs are then carried once.
//
// One or two warpgroups only carry: they fetch, scale and round inputs, halo and all, into rings of stages. Two or three
// others take tiles in turn, each all by itself: both operands of its products lie in shared memory, so that it only
// issues them, tap after tap, and while it sends its results to memory the tensor cores work for another one. A row of a
// tile is one instruction, of any width that is a multiple of 8. Results leave through shared memory, a whole row of a
// channel after the other; rows that make up whole planes are one run. Where Config::sent, the copy engine takes them.
#pragma once

#include "conv_sm90.cuh"
#include "wgmma_rows.cuh"

namespace kw::conv_sm90_kept {

using conv::Phase;
using conv::Place;
using conv_mma::ceil_div;
using conv_mma::Part;
using conv_mma::Problem;
using conv_mma::Sizes;
using conv_mma::Tile;
using conv_mma::Work;

// Sizes beside those of conv_mma.cuh, whose block is here one warpgroup with its tile.
template <class C> struct Layout {
    using S = Sizes<C>;
    static constexpr int threads = (C::teams + C::carriers) * 128;
    static constexpr int shelves = C::groups * S::tiles_m / C::abreast;  // weights of 64 channels, or of 128
    static constexpr int tiles = (int)(conv_mma::tiles_of<C>() / (C::groups * S::tiles_m * C::turns));
    // A tile is multiplied and stored in laps, some rows of one phase of d and h at a time, all of inputs that are
    // carried once.
    static constexpr int rows = C::tile_d * C::tile_h, row_laps = rows / C::lap_rows, laps = row_laps * C::turns;
    static constexpr int rings = C::teams / C::abreast;  // teams abreast have one ring of stages
    static constexpr int crews = C::carriers < rings ? C::carriers : rings;  // for one ring all carry together
    static constexpr int crew_threads = C::carriers / crews * 128;
    // Of a thread. A block begins with the same for all, as many as its launch bounds leave (ptxas takes them all where
    // they are handed on); who wants more waits until others have handed theirs back.
    static constexpr int begin = 65536 / threads / 8 * 8;
    // So divided, configs that were compiled do not spill.
    static constexpr bool many_sums = C::lap_rows * C::tile_w * C::w_phases > 128;
    static constexpr int carrier_registers = C::carriers == 2 ? (many_sums ? 104 : 112) : C::teams == 3 ? 128 : 136;
    static constexpr int registers = C::carriers == 2 ? (many_sums ? 152 : 144) : C::teams == 3 ? 128 : 184;
    static_assert(128 * (C::carriers * carrier_registers + C::teams * registers) <= threads * begin, "else they wait for ever");
    static_assert(C::warps == 4 && C::warps_m == 4 && C::tile_m == 64 && C::tile_b == 1, "a warpgroup has a tile");
    static_assert(C::tile_w % 8 == 0 && C::tile_w * C::tile_h * C::tile_d == C::tile_n, "a row is an instruction");
    static_assert(rings % crews == 0 && C::carriers % crews == 0, "who carries for a team always does");
    static_assert(C::teams % C::abreast == 0 && S::tiles_m % C::abreast == 0, "each team has channels of its own");
    static_assert(C::octets % 2 == 0 || (C::octets == 1 && C::stride_w == 1), "the second 8 of k lie behind the first");
    static_assert(rows % C::lap_rows == 0 && (laps == 1 || C::tile_d == 1 || C::tile_h == 1), "rows at one distance");
    static_assert(laps == 1 || C::stages >= S::chunks, "a tile's inputs are there until its last lap");
    static_assert(C::turns == 1 || C::turns == C::phases / C::w_phases, "one phase of d and h, or all");
};

// --- which tiles a block has: those of its shelf, some apart, so that neighbours are written at the same time

template <class C> struct Walk {
    using L = Layout<C>;
    static constexpr unsigned phases = C::phases / C::w_phases / C::turns;

    KW_DEVICE static unsigned shelf() { return blockIdx.x % L::shelves; }
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
                       ((at(number) / phases * (L::shelves * C::abreast) + channels) * phases + phase) * C::turns);
    }
};

// --- results on their way to memory: 8 channels of a row at a time, or of all rows where those are one run

template <class C> struct Leaving {
    static constexpr int P = C::w_phases, rows = C::lap_rows;
    static constexpr bool one_run = C::run_vector > 0;  // rows of a tile follow each other in memory
    static constexpr int V = one_run ? C::run_vector : C::vector;
    static constexpr int results = one_run ? rows * C::y_w : C::tile_w * P;  // of a channel
    static constexpr int pitch = ceil_div(results, 32) * 32 + 8;  // 4 lanes by 4 channels write to banks of their own
    static constexpr int bytes = 8 * pitch * 4;
    static_assert(C::sent == 0 || (Sizes<C>::joined && !one_run), "a row's results are neighbours, and leave alone");
    static_assert(!one_run || (C::flat && C::phases == 1 && C::tile_d == 1 && C::tile_w >= C::y_w && C::y_w % 2 == 0 &&
                               C::y_h * C::y_w % V == 0 && results % V == 0),
                  "a run begins and ends with whole vectors");

    // Sums of a row that a thread has, scaled; they are of one channel, so that where Config::valued what becomes of them
    // is computed here, with operands that are the same for all of them.
    template <class Epilogue, class Sums>
    KW_DEVICE static void put(float* slab, const typename Epilogue::Args& args, const Sums (&sums)[P], float inverse,
                              int64_t plane, const Place& at, int row, int half) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < C::tile_w / 8; i++) {
            float v[2 * P];
#pragma unroll
            for (int j = 0; j < 2 * P; j++)
                v[j] = sums[j % P].at(0, row * (C::tile_w / 8) + i, half * 2 + j / P) * inverse;
            const int column = i * 8 + lane % 4 * 2;
            if (one_run && i * 8 + 8 > C::y_w && column >= C::y_w) continue;
            float* to = slab + lane / 4 * pitch + (one_run ? row * C::y_w : 0) + column * P;
            if constexpr (C::valued) {
                const auto y = conv::values_in<C, Epilogue, 2 * P>(args, v, plane, at.d, at.h);
#pragma unroll
                for (int j = 0; j < 2 * P; j++) v[j] = y.v[j];
            }
#pragma unroll
            for (int j = 0; j < 2 * P; j += 2) *(float2*)(to + j) = make_float2(v[j], v[j + 1]);
        }
    }

    // `output`: the first channel of the slab; `row`: of the tile.
    template <class Epilogue>
    KW_DEVICE static void store(const float* slab, const typename Epilogue::Args& args, const Work& work,
                                const Phase& phase, int output, int row) {
        const int lane = threadIdx.x % 32;
        const int64_t plane = (int64_t)work.first.image * (C::groups * C::outputs) + work.group * C::outputs + output;
#pragma unroll
        for (int i = 0; i < ceil_div(results / V, 32); i++) {
            const int result = (lane + i * 32) * V;
            if (results / V % 32 != 0 && result >= results) continue;
            int d, h, w;
            if constexpr (one_run) {
                d = work.first.d, h = work.first.h + row, w = result;
                if (h * C::y_w + w >= C::y_h * C::y_w) continue;
            } else {
                const Place at = conv_mma::place_of<C>(work, row * C::tile_w + result / P);
                d = phase.axis[0].y_first + at.d * C::y_step_d, h = phase.axis[1].y_first + at.h * C::y_step_h;
                w = Sizes<C>::joined ? at.w * P + result % P : phase.axis[2].y_first + at.w * C::y_step_w;
                if (!conv_mma::is_inside<C>(phase, at) || (P > 1 && w >= C::y_w)) continue;
            }
#pragma unroll
            for (int j = 0; j < 8; j++) {
                if (C::outputs % 64 != 0 && output + j >= C::outputs) continue;
                const auto sums = kw::load<V>(slab + j * pitch + result);
                if constexpr (C::valued) kw::store<V>(conv::place_in<C, Epilogue>(args, plane + j, d, h, w), sums);
                else conv::store_in<C, Epilogue, V>(args, sums.v, plane + j, d, h, w);
            }
        }
    }

    // Results that the copy engine takes to memory: a thread computes what becomes of its sums, which are all of one
    // channel, and is done. A row lies in its slab as it does in memory, from a multiple of 16 bytes on; what is before
    // the first such multiple and behind the last one, three results at most, threads store.
    struct Row {
        int d, h, w, count;  // where it begins, and how many of its results are inside
    };
    KW_DEVICE static Row row_of(const Work& work, const Phase& phase, int row) {
        const Place at = conv_mma::place_of<C>(work, row * C::tile_w);
        const int left = C::y_w - at.w * P;
        return {phase.axis[0].y_first + at.d * C::y_step_d, phase.axis[1].y_first + at.h * C::y_step_h, at.w * P,
                !conv_mma::is_inside<C>(phase, at) ? 0 : left < results ? left : results};
    }
    template <class Epilogue>
    KW_DEVICE static float* place(const typename Epilogue::Args& args, int64_t plane, const Row& row) {
        return conv::place_in<C, Epilogue>(args, plane, row.d, row.h, row.w);
    }
    KW_DEVICE static int behind_sixteen(const float* place) { return V == 4 ? 0 : (int)((uintptr_t)place / 4 % 4); }

    template <class Epilogue, class Sums>
    KW_DEVICE static void put_values(float* to, const typename Epilogue::Args& args, const Sums (&sums)[P], float inverse,
                                     int64_t plane, const Row& at, int row, int half) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < C::tile_w / 8; i++) {
            float v[2 * P];
#pragma unroll
            for (int j = 0; j < 2 * P; j++)
                v[j] = sums[j % P].at(0, row * (C::tile_w / 8) + i, half * 2 + j / P) * inverse;
            const int column = i * 8 + lane % 4 * 2;
            const auto y = conv::values_in<C, Epilogue, 2 * P>(args, v, plane, at.d, at.h);
#pragma unroll
            for (int j = 0; j < 2 * P; j += 2) {
                if constexpr (V > 1) *(float2*)(to + column * P + j) = make_float2(y.v[j], y.v[j + 1]);
                else to[column * P + j] = y.v[j], to[column * P + j + 1] = y.v[j + 1];
            }
        }
    }
    // Eight channels of a slab, of which `channels` exist; of each a lane has the run, others what is at its ends.
    template <class Epilogue>
    KW_DEVICE static void hand_over(const float* slab, const typename Epilogue::Args& args, int64_t plane, int channels,
                                    const Row& row) {
        const int channel = threadIdx.x % 8, end = (int)(threadIdx.x % 32 / 8) - 1;
        if (row.count == 0 || channel >= channels || (V == 4 && end >= 0)) return;
        float* to = place<Epilogue>(args, plane + channel, row);
        const int shift = behind_sixteen(to), before = (4 - shift) % 4, head = before < row.count ? before : row.count,
                  run = (row.count - head) / 4 * 4;
        const float* from = slab + channel * pitch + shift;
        if (end < 0) {
            if (run > 0) ptx90::send_bytes(to + head, ptx90::shared_address(from + head), run * 4);
        } else {
            if (end < head) to[end] = from[end];
            if (head + run + end < row.count) to[head + run + end] = from[head + run + end];
        }
    }
    template <class Epilogue, class Sums>
    KW_DEVICE static void send(const typename Epilogue::Args& args, const Work& work, const Phase& phase, int first_row,
                               const Sums (&sums)[P], const float (&inverse)[2], int output, float* slabs) {
        const int mine = threadIdx.x % 32 / 4;
#pragma unroll
        for (int i = 0; i < 2 * rows; i++) {
            const int half = i / rows, row = i % rows, first = output + half * 8, left = C::outputs - first;
            float* slab = slabs + i % C::sent * (bytes / 4);
            ptx90::send_wait<C::sent - 1>();
            __syncwarp();
            if (C::outputs % 64 == 0 || left > 0) {
                const int64_t plane =
                    (int64_t)work.first.image * (C::groups * C::outputs) + work.group * C::outputs + first;
                const Row at = row_of(work, phase, first_row + row);
                const int64_t my_plane = plane + (C::outputs % 8 == 0 || mine < left ? mine : left - 1);
                float* to = slab + mine * pitch + behind_sixteen(place<Epilogue>(args, my_plane, at));
                put_values<Epilogue>(to, args, sums, inverse[half], my_plane, at, row, half);
                conv_sm90::fence_for_tensor_cores();
                __syncwarp();
                hand_over<Epilogue>(slab, args, plane, left < 8 ? left : 8, at);
            }
            ptx90::send_commit();  // of every slab, so that each turn waits for the one that had the same memory
        }
    }

    // Rows of a tile from `first_row` on. Finite inputs and weights, of at most 2^15 each, have finite sums: only where
    // not all inputs are, sums are looked at.
    template <class Epilogue, class Sums>
    KW_DEVICE static void take(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                               int first_row, const Sums (&sums)[P], float inverse_x, bool are_finite, float* slab) {
        const int lane = threadIdx.x % 32, output = work.first_output + threadIdx.x / 32 % 4 * 16;
        Part<C> part;
        part.first_output = output + lane / 4, part.first_column = first_row * C::tile_w + lane % 4 * 2;
        float inverse[2];
        bool finite = conv_mma::scales_back(inverse, problem, work, part, inverse_x);
        if (!are_finite) finite = finite && conv_mma::all_finite(sums);
        if (!__all_sync(~0u, finite)) {
            conv_mma::finish_plainly<C, Epilogue, 2, Sums::N>(problem, args, work, part);
            return;
        }
        const Phase& phase = problem.phases[work.phase];
        if constexpr (C::sent > 0) {
            send<Epilogue>(args, work, phase, first_row, sums, inverse, output, slab);
        } else {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int first = output + half * 8, mine = first + lane / 4;
                if (C::outputs % 64 != 0 && first >= C::outputs) return;
                const int64_t plane = (int64_t)work.first.image * (C::groups * C::outputs) + work.group * C::outputs +
                                      (C::outputs % 8 == 0 || mine < C::outputs ? mine : C::outputs - 1);
#pragma unroll
                for (int row = 0; row < rows; row++) {
                    const Place at = conv_mma::place_of<C>(work, (first_row + row) * C::tile_w);
                    const Place of_result = {at.image, phase.axis[0].y_first + at.d * C::y_step_d,
                                             phase.axis[1].y_first + at.h * C::y_step_h, 0};
                    put<Epilogue>(slab, args, sums, inverse[half], plane, of_result, row, half);
                    if (one_run && row + 1 < rows) continue;
                    __syncwarp();
                    store<Epilogue>(slab, args, work, phase, first, first_row + (one_run ? 0 : row));
                    __syncwarp();
                }
            }
        }
    }
};

// --- shared memory

// Magnitudes that the warps of a crew found: as bits, and without Inf and NaN.
template <class C> struct Largest {
    uint32_t bits[Layout<C>::crew_threads / 32];
    float finite[Layout<C>::crew_threads / 32];
};

template <class C> struct Shared {
    using S = Sizes<C>;
    int offset[C::phases][S::most_steps == 0 ? 2 : 2 * S::most_steps];  // of every 8 of k, in the region
    Largest<C> largest[Layout<C>::crews][2];  // of a chunk and of the next
    uint32_t scale[Layout<C>::rings][C::stages];  // an odd one: not all of these inputs are finite
    alignas(8) uint64_t full[Layout<C>::rings][C::stages];
    uint64_t empty[Layout<C>::rings][C::stages];
    uint4 kept[C::abreast][C::kept][128];  // [phase][chunk][step][hi, lo]: 64 channels by 16 of k
    uint4 region[Layout<C>::rings][C::stages][S::halves][S::units];
};

// The end of a lap over a tile: every result is stored. Where an epilogue pools windows: conv_windows.cuh; where it reduces
// over space: conv_pieces.cuh, along the channels: conv_rows.cuh. A warp has a slab of its own, behind all that is shared;
// teams abreast may have one.
struct Stored {
    static constexpr bool of_teams = false;
    template <class C> __host__ __device__ static constexpr int warp_bytes() {
        return (C::sent == 0 ? 1 : C::sent) * Leaving<C>::bytes;
    }

    template <class C, class Epilogue, class Sums>
    KW_DEVICE static void take_of_warp(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                                       int first_row, const Sums (&sums)[C::w_phases], float inverse_x, bool are_finite,
                                       float* slab) {
        Leaving<C>::template take<Epilogue>(problem, args, work, first_row, sums, inverse_x, are_finite, slab);
    }
    // Of a lap that has no pixels.
    template <class C, class Epilogue> KW_DEVICE static void skip_of_warp(const typename Epilogue::Args&, const Work&) {}
};

// Teams that have the same tile, all channels of it.
template <class C> struct Abreast {
    static constexpr int threads = 128 * C::abreast, warps_m = 4 * C::abreast, outputs = 64 * C::abreast;
    static constexpr int slots = C::lap_rows * C::tile_w * C::w_phases;
    KW_DEVICE static int number() { return (int)threadIdx.x / threads; }
    KW_DEVICE static int rank() { return (int)threadIdx.x % threads; }
    KW_DEVICE static void sync() { ptx90::named_sync(1 + Layout<C>::crews + number(), threads); }
    // Said by each warp at the begin of what they have of shared memory, which nobody reads any more; and nobody writes
    // there before all have met once more.
    KW_DEVICE static bool any(bool mine, void* memory) {
        uint32_t* said = (uint32_t*)memory;
        sync();
        const bool ours = __any_sync(~0u, mine);
        if (threadIdx.x % 32 == 0) said[rank() / 32] = ours;
        sync();
        bool all = false;
#pragma unroll
        for (int i = 0; i < warps_m; i++) all = all || said[i] != 0;
        return all;
    }
};

// Of shared memory, for the ends of tiles: of teams abreast.
template <class C, class Epilogue, class End> __host__ __device__ constexpr int end_bytes() {
    if constexpr (End::of_teams) {
        return ceil_div(End::template group_bytes<Abreast<C>, Epilogue>(), 16) * 16;
    } else {
        return Abreast<C>::warps_m * End::template warp_bytes<C>();
    }
}
template <class C, class Epilogue, class End> constexpr int block_bytes() {
    return (int)sizeof(Shared<C>) + Layout<C>::rings * end_bytes<C, Epilogue, End>();
}

// Where a phase's weights begin among those that are kept.
template <class C> KW_DEVICE int first_kept(const Phase& phase) {
    return (int)(phase.fragment / (C::groups * Sizes<C>::fragments_m));
}
template <class C> KW_DEVICE int steps_in(const Phase& phase) {
    return C::phases == 1 ? Sizes<C>::most_steps : conv_mma::steps_of<C>(conv_mma::taps_of<C>(phase));
}

// From the order in which lanes hold them to wgmma's: 8 channels by 8 of k lie together, then those of the next channels.
template <class C> KW_DEVICE void keep_weights(const Problem<C>& problem, Shared<C>& shared) {
    using S = Sizes<C>;
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int part = 0; part < C::phases * C::abreast; part++) {
        const int which = part % C::abreast, shelf = Walk<C>::shelf() * C::abreast + which;
        const Phase& phase = problem.phases[part / C::abreast];
        const int count = S::chunks * steps_in<C>(phase) * S::halves, first = first_kept<C>(phase);
        const uint4* from = problem.fragments + phase.fragment * 32 + (int64_t)shelf * 4 * count * 32;
#pragma unroll 4
        for (int i = threadIdx.x; i < count * 128; i += Layout<C>::threads) {
            const int sixteen = i / 32 % 4;
            const uint4 v = __ldg(from + (int64_t)sixteen * count * 32 + i / 128 * 32 + lane);
            uint32_t* to = (uint32_t*)shared.kept[which][first + i / 128] + sixteen * 64 + lane;
            to[0] = v.x, to[32] = v.y, to[256] = v.z, to[256 + 32] = v.w;
        }
    }
    conv_sm90::fence_for_tensor_cores();
}

struct Cursor {
    int stage = 0;
    uint32_t phase = 0;  // of the stage's barriers

    template <class C> KW_DEVICE void advance() {
        if (++stage == C::stages) stage = 0, phase ^= 1;
    }
};

// --- those who carry

template <class C> struct Crew {
    static constexpr int threads = Layout<C>::crew_threads;
    KW_DEVICE static int number() { return ((int)threadIdx.x - C::teams * 128) / threads; }
    KW_DEVICE static int rank() { return ((int)threadIdx.x - C::teams * 128) % threads; }
    KW_DEVICE static void sync() { ptx90::named_sync(1 + number(), threads); }
};

// Whether h and w of an input, both in one register, lie inside: two additions for both. Each has 16 bits and is 2^14 too
// large, so that bit 14 of it tells whether it is 0 or more, and bit 14 of what it lacks to the last whether it is inside.
template <class C> struct Corner {
    static constexpr uint32_t bias = 0x4000, signs = bias << 16 | bias;
    static constexpr uint32_t last = (uint32_t)(C::x_h - 1 + 2 * bias) << 16 | (C::x_w - 1 + 2 * bias);
    static constexpr bool fits = C::most_h * C::stride_h + C::region_h + C::x_h < (int)bias &&
                                 C::most_w * C::stride_w + C::region_w + C::x_w < (int)bias;

    KW_DEVICE static uint32_t of(int h, int w) { return (uint32_t)(h + (int)bias) << 16 | (uint32_t)(w + (int)bias); }
    KW_DEVICE static bool is_inside(uint32_t at) { return (at & (last - at) & signs) == signs; }
};

// The octets that a thread carries, the same of every tile: how far from its first input they lie, and where.
template <class C> struct Spots {
    using S = Sizes<C>;
    static constexpr int rounds = ceil_div(S::units, Crew<C>::threads);
    static constexpr bool deep = C::region_d > 1;
    // Whether there are registers for them beside one chunk of inputs on its way, or two (seen by compiling).
    static constexpr int held = Layout<C>::crews == 1 ? 16 : 8, of_spot = deep || S::ragged ? 6 : 2;
    static constexpr bool stay = rounds * (held + of_spot) < 80 && S::halves == 1 && !Layout<C>::many_sums;
    int away[rounds];
    uint32_t h_and_w[rounds], octet_and_d[deep || S::ragged ? rounds : 1];

    KW_DEVICE Spots() {
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            const unsigned unit = Crew<C>::rank() + i * Crew<C>::threads, octet = unit / S::pixels, pixel = unit % S::pixels;
            const unsigned column = pixel % S::row, w = column % S::alike * C::stride_w + column / S::alike,
                           h = pixel / S::row % C::region_h, d = pixel / (S::row * C::region_h);
            away[i] = (int)(octet * (unsigned)(S::lanes * C::x_channel_pitch) + d * (unsigned)C::x_d_pitch +
                            h * (unsigned)C::x_h_pitch + w * (unsigned)C::x_w_pitch);
            h_and_w[i] = h << 16 | w;
            // From each lane to itself: what came so is kept, and else found anew for every chunk.
            if constexpr (stay) {
                away[i] = __shfl_sync(~0u, away[i], threadIdx.x % 32);
                h_and_w[i] = __shfl_sync(~0u, h_and_w[i], threadIdx.x % 32);
            }
            if constexpr (deep || S::ragged) octet_and_d[i] = octet << 16 | d;
        }
    }
    KW_DEVICE int octet(int i) const { return S::ragged ? octet_and_d[i] >> 16 : 0; }
    KW_DEVICE int d(int i) const { return deep ? octet_and_d[i] & 0xffff : 0; }
    KW_DEVICE int h(int i) const { return h_and_w[i] >> 16; }
    KW_DEVICE int w(int i) const { return h_and_w[i] & 0xffff; }
};

template <class C> struct Carrier : conv_mma::Carrier<C, Crew<C>> {
    using S = Sizes<C>;
    using Base = conv_mma::Carrier<C, Crew<C>>;
    using Base::held, Base::rounds;

    // Whether a warp has octets in a round. Of the last one maybe few: the other warps leave it out.
    KW_DEVICE static bool has(int i) {
        return (i + 1) * Crew<C>::threads <= S::units || (Crew<C>::rank() & ~31) + i * Crew<C>::threads < S::units;
    }
    // `d`, `h`, `w`: the first input of the tile, which lies at `x`; `step`: from a tap that shares an octet to the next.
    KW_DEVICE void fetch(const typename C::Type* x, int d, int h, int w, int step, const Spots<C>& spots, int chunk) {
        x += (int64_t)chunk * (C::octets * S::lanes) * C::x_channel_pitch;
        const bool is_plane = Spots<C>::deep || (unsigned)d < (unsigned)C::x_d;
        const uint32_t corner = is_plane ? Corner<C>::of(h, w) : 0;  // 0: nothing is inside
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            if (!has(i)) continue;
            const bool is_unit = (i + 1) * Crew<C>::threads <= S::units ||
                                 Crew<C>::rank() + i * Crew<C>::threads < S::units;
            const bool d_inside = is_unit && (!Spots<C>::deep || (unsigned)(d + spots.d(i)) < (unsigned)C::x_d);
#pragma unroll
            for (int f = 0; f < C::fold; f++) {
                bool inside;
                if constexpr (Corner<C>::fits) {
                    inside = d_inside && Corner<C>::is_inside(corner + spots.h_and_w[i] + f * step);
                } else {
                    inside = d_inside && is_plane && (unsigned)(h + spots.h(i)) < (unsigned)C::x_h &&
                             (unsigned)(w + spots.w(i) + f * step) < (unsigned)C::x_w;
                }
                const typename C::Type* from = x + spots.away[i] + f * step * C::x_w_pitch;
                asm volatile("" : "+l"(from));  // else the compiler finds it anew for each channel
                const int channel = (chunk * C::octets + spots.octet(i)) * S::lanes;
#pragma unroll
                for (int c = 0; c < S::lanes; c++)
                    held[i][f * S::lanes + c] =
                        inside && (!S::ragged || channel + c < C::channels)
                            ? widen(load_constant<1>(from + c * C::x_channel_pitch)[0])
                            : 0.f;
            }
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
        uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(mine));
        if (threadIdx.x % 32 == 0) shared.bits[Crew<C>::rank() / 32] = bits;
        Crew<C>::sync();
#pragma unroll
        for (int i = 0; i < Crew<C>::threads / 32; i++) bits = max(bits, shared.bits[i]);
        finite = bits < split::exponent_mask;
        if (finite) return __uint_as_float(bits);
        return Base::largest(shared.finite, [](int i) { return has(i); });
    }
    KW_DEVICE void deliver(uint4 (&region)[S::halves][S::units], float scale) const {
        Base::deliver(region, scale, [](int i) { return has(i); });
    }
};

// The chunks of a crew's tiles, one after the other.
template <class C> struct Course {
    const Problem<C>& problem;
    unsigned number;
    int chunk, d, h, w, step;
    const typename C::Type* x;

    KW_DEVICE Course(const Problem<C>& given) : problem(given), number(Crew<C>::number()), chunk(0) { begin(); }
    KW_DEVICE bool more() const { return Walk<C>::has(number); }
    KW_DEVICE void begin() {
        if (!more()) return;
        const Tile<C> tile = Walk<C>::tile(problem, number);
        const Phase& phase = problem.phases[tile.work.phase];
        d = tile.work.first.d * C::stride_d + phase.axis[0].x_base;
        h = tile.work.first.h * C::stride_h + phase.axis[1].x_base;
        w = tile.work.first.w * C::stride_w + phase.axis[2].x_base;
        step = phase.axis[2].x_step;
        x = tile.x + d * C::x_d_pitch + h * C::x_h_pitch + w * C::x_w_pitch;
    }
    KW_DEVICE void advance() {
        if (++chunk < Sizes<C>::chunks) return;
        chunk = 0, number += Layout<C>::crews;
        begin();
    }
    KW_DEVICE void fetch(Carrier<C>& carrier, const Spots<C>& spots) const {
        carrier.fetch(x, d, h, w, step, spots, chunk);
    }
};

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
        at.advance<C>();
        if (++chunk < Sizes<C>::chunks) return;
        chunk = 0, ring += Layout<C>::crews;
        if (ring >= Layout<C>::rings) ring -= Layout<C>::rings, round = at;
        at = round;
    }
};

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

// --- those who multiply

template <class C> struct Sums {
    using S = Sizes<C>;
    static constexpr int rows = C::lap_rows, M = 1, N = rows * C::tile_w / 8;
    // Nothing to add outside of the tensor cores.
    static constexpr bool one_sum = C::phases == 1 && S::chunks == 1 && S::most_steps <= C::group;
    static constexpr bool all_at_once = C::products == 1 && C::phases == 1 && S::most_steps * C::lap_rows <= 48;
    // Whether products are still on their way after `add`: then those of all phases are.
    static constexpr bool left_open = C::products == 1 && !all_at_once;
    using Row = float[C::tile_w / 2];
    Row total[rows];

    // Of the table: as in conv_sm90.cuh.
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
    KW_DEVICE float at(int, int n, int i) const { return total[n * 8 / C::tile_w][n * 8 % C::tile_w / 2 + i]; }
    KW_DEVICE void rescale(float factor) {
#pragma unroll
        for (int r = 0; r < rows; r++)
#pragma unroll
            for (int i = 0; i < C::tile_w / 2; i++) total[r][i] *= factor;
    }
    KW_DEVICE void clear() {
#pragma unroll
        for (int r = 0; r < rows; r++)
#pragma unroll
            for (int i = 0; i < C::tile_w / 2; i++) total[r][i] = 0.f;
    }
    KW_DEVICE static void pin_all(Row (&sums)[rows]) {
#pragma unroll
        for (int r = 0; r < rows; r++) ptx90::pin(sums[r]);
    }
    // Of descriptors the lower half, to which distances are added; the upper half says that the next 8 lie behind these.
    static constexpr uint32_t next_sixteen = 64 << 16;  // of weights: from 8 of k to the next 8
    static constexpr uint64_t next_eight = (uint64_t)8 << 32;
    // All rows, 16 of k.
    KW_DEVICE static void multiply(Row (&sums)[rows], uint32_t pixels, uint32_t weights, bool follows) {
#pragma unroll
        for (int r = 0; r < rows; r++)
            wgmma_rows::wgmma_f16_shared(sums[r], next_eight | weights,
                                         next_eight | (pixels + conv_mma::region_place<C>(r * C::tile_w)), follows);
    }
    // Corrections first: the tensor core cuts off what lies under the last bit of a sum, and they are small.
    KW_DEVICE static void add_pairs(Row (&sums)[rows], uint32_t region, const int* offset, uint32_t weights) {
        constexpr int count = one_sum ? S::most_steps : C::group;
#pragma unroll
        for (int i = 0; i < count; i++) {
            multiply(sums, region + offset[2 * i], weights + i * 256 + 128, i > 0);
            multiply(sums, region + offset[2 * i] + S::units, weights + i * 256, true);
        }
#pragma unroll
        for (int i = 0; i < count; i++) multiply(sums, region + offset[2 * i], weights + i * 256, true);
    }
    // One chunk. `region` and `weights` begin descriptors: addresses in shared memory, in 16 bytes. What is there stays if it `follows`.
    KW_DEVICE void add(uint32_t region, const int* offset, uint32_t weights, int steps, bool follows) {
        if constexpr (C::products == 3 && one_sum) {
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
                Row sum[rows];
                pin_all(sum);
                ptx90::wgmma_fence();
                add_pairs(sum, region, offset + 2 * i, weights + i * 256);
                ptx90::wgmma_commit();
                ptx90::wgmma_wait<0>();
                pin_all(sum);
#pragma unroll
                for (int r = 0; r < rows; r++)
#pragma unroll
                    for (int j = 0; j < C::tile_w / 2; j++) total[r][j] += sum[r][j];
            }
        }
    }
};

// What a lap has: rows of the tile from one on, of a phase; and what is to be known of its sums.
struct Lap {
    int phase, row;
    bool is_last;            // of the tile: its inputs are no longer needed
    uint32_t scale = 0;      // of the inputs, as the sums have it
    bool are_finite = true;  // all of the inputs
};

template <class C>
KW_DEVICE void multiply(const Problem<C>& problem, Shared<C>& shared, Cursor& at, int team, Lap& lap,
                        Sums<C> (&sums)[C::w_phases]) {
    using S = Sizes<C>;
    const int ring = team / C::abreast;
    int steps[C::w_phases];
    uint32_t weights[C::w_phases];  // of the next chunk
#pragma unroll
    for (int p = 0; p < C::w_phases; p++) {
        const Phase& phase = problem.phases[lap.phase + p];
        steps[p] = steps_in<C>(phase);
        weights[p] = (ptx90::shared_address(shared.kept[team % C::abreast]) >> 4) + first_kept<C>(phase) * 128 +
                     Sums<C>::next_sixteen;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < S::chunks; chunk++, at.advance<C>()) {
        ptx90::barrier_wait(ptx90::shared_address(&shared.full[ring][at.stage]), at.phase);
        const uint32_t given = shared.scale[ring][at.stage];
        lap.are_finite = lap.are_finite && given % 2 == 0;
        lap.scale = chunk == 0 ? given & ~1u : conv_mma::followed<C>(sums, lap.scale, given & ~1u);
        uint32_t region = (ptx90::shared_address(shared.region[ring][at.stage]) >> 4) +
                          conv_mma::region_place<C>(lap.row * C::tile_w);
        asm volatile("" : "+r"(region));  // else the compiler finds it anew for each product
#pragma unroll
        for (int p = 0; p < C::w_phases && Sums<C>::left_open; p++) Sums<C>::pin_all(sums[p].total);
#pragma unroll
        for (int p = 0; p < C::w_phases; p++) {
            sums[p].add(region, shared.offset[lap.phase + p], weights[p], steps[p], chunk > 0);
            weights[p] += steps[p] * S::halves * 128;
        }
        if constexpr (Sums<C>::left_open) {
            ptx90::wgmma_wait<0>();
#pragma unroll
            for (int p = 0; p < C::w_phases; p++) Sums<C>::pin_all(sums[p].total);
        }
        __syncwarp();
        if (lap.is_last && threadIdx.x % 32 == 0)
            ptx90::barrier_arrive(ptx90::shared_address(&shared.empty[ring][at.stage]));
    }
}

// Whether nothing of a lap lies inside: phases have different numbers of places.
template <class C> KW_DEVICE bool is_outside(const Problem<C>& problem, const Work& work, const Lap& lap) {
    const conv::Axis(&axes)[3] = problem.phases[lap.phase].axis;
    const Place at = conv_mma::place_of<C>(work, lap.row * C::tile_w);
    return at.d >= axes[0].count || at.h >= axes[1].count || at.w >= axes[2].count;
}

template <class C, class Epilogue, class End>
KW_DEVICE void multiply_all(const Problem<C>& problem, const typename Epilogue::Args& args, Shared<C>& shared) {
    using L = Layout<C>;
    const int team = threadIdx.x / 128;
    char* memory = (char*)(&shared + 1) + Abreast<C>::number() * end_bytes<C, Epilogue, End>();
    Cursor at;
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
            multiply(problem, shared, at, team, lap, sums);
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

template <class C, class Epilogue, class End>
__global__ void __launch_bounds__(Layout<C>::threads, 1)
    convolve_kernel(const __grid_constant__ Problem<C> problem, const __grid_constant__ typename Epilogue::Args args) {
    using L = Layout<C>;
    extern __shared__ uint4 dynamic[];
    Shared<C>& shared = *(Shared<C>*)dynamic;
    conv_mma::fill_offsets<C, Sums<C>>(&shared.offset[0][0], problem.offsets, C::phases);
    keep_weights(problem, shared);
    if (threadIdx.x < L::rings * C::stages) {
        ptx90::barrier_init(ptx90::shared_address(&shared.full[0][0] + threadIdx.x), L::crew_threads);
        ptx90::barrier_init(ptx90::shared_address(&shared.empty[0][0] + threadIdx.x), 4 * C::abreast);
    }
    __syncthreads();
    if (threadIdx.x >= C::teams * 128) {
        if constexpr (L::carrier_registers < L::begin) ptx90::registers_shrink_to<L::carrier_registers>();
        carry<C>(problem, shared);
    } else {
        if constexpr (L::registers > L::begin) ptx90::registers_grow_to<L::registers>();
        multiply_all<C, Epilogue, End>(problem, args, shared);
    }
}

#ifndef __CUDACC_RTC__
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
