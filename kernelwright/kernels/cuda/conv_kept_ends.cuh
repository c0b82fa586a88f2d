// kw: conv_sm90_kept::Layout
// How a tile of conv_sm90_kept.cuh ends: sizes of its block, and results on their way to memory, by threads or by the copy
// engine. Other ends: where an epilogue pools windows, conv_windows.cuh; where it reduces over space, conv_pieces.cuh;
// along the channels, conv_rows.cuh.
#pragma once

#include "conv_sm90.cuh"

namespace kw::conv_sm90_kept {

// kw: Phase Place ceil_div OfWarp Problem Run Sizes Tile Work
using conv::Phase;
using conv::Place;
using conv_mma::ceil_div;
using conv_mma::OfWarp;
using conv_mma::Problem;
using conv_mma::Run;
using conv_mma::Sizes;
using conv_mma::Tile;
using conv_mma::Work;

// kw: Layout
// Sizes beside those of conv_mma.cuh, whose block is here one warpgroup with its tile.
template <class C> struct Layout {
    using S = Sizes<C>;
    static constexpr int threads = (C::teams + C::carriers) * 128;
    // Weights of 64 channels, or of 128; of all phases of d and h, or of one of so many sets of them.
    static constexpr int shelves = C::groups * S::tiles_m / C::abreast * C::sets, phases_of_set = C::phases / C::sets;
    static constexpr int tiles = (int)(conv_mma::tiles_of<C>() / (C::groups * S::tiles_m * C::turns * C::sets));
    // A tile is multiplied and stored in laps, some rows of one phase of d and h at a time, all of inputs that are
    // carried once.
    static constexpr int rows = C::tile_d * C::tile_h, row_laps = rows / C::lap_rows, laps = row_laps * C::turns;
    static constexpr int rings = C::teams / C::abreast;  // teams abreast have one ring of stages
    static constexpr int crews = C::carriers < rings ? C::carriers : rings;  // for one ring all carry together
    static constexpr bool streams = C::streamed > 0;  // a warp of those who carry has the weights instead
    static constexpr int crew_threads = C::carriers / crews * 128 - (streams ? 32 : 0);
    // Of a thread. A block begins with the same for all, as many as its launch bounds leave (ptxas takes them all where
    // they are handed on); who wants more waits until others have handed theirs back.
    static constexpr int begin = 65536 / threads / 8 * 8;
    // So divided, configs that were compiled do not spill.
    static constexpr bool many_sums = C::lap_rows * C::tile_w * C::w_phases > 128;
    static constexpr bool mostly_sums = streams || (S::halves == 2 && many_sums);
    static constexpr bool corners_fit = C::most_h * C::stride_h + C::region_h + C::x_h < 0x4000 &&
                                        C::most_w * C::stride_w + C::region_w + C::x_w < 0x4000;
    // Many inputs on their way, of one chunk of several, at a stride, whose h and w have no room in one register (Corner):
    // two who carry get more, or where rows lie in pieces, which those who multiply have to know of, hold less beside (Spots).
    static constexpr int held = (crews == 1 ? 16 : 8) * ceil_div(S::units, crew_threads);
    static constexpr bool much_held = C::carriers == 2 && held >= 56 && S::chunks > 1 && C::stride_w > 1 && !corners_fit;
    static constexpr bool in_pieces = C::slab_vector > 0, mostly_held = much_held && !in_pieces;
    static constexpr int of_two = many_sums ? 104 : mostly_held ? 120 : 112;
    static constexpr int of_one = C::teams == 3 ? 128 : mostly_sums ? 120 : 136;
    static constexpr int carrier_registers = C::carriers == 2 ? of_two : of_one;
    static constexpr int beside_one = C::teams == 3 ? 128 : mostly_sums ? 192 : 184;
    static constexpr int beside_two = many_sums ? 152 : mostly_held ? 136 : 144;
    static constexpr int registers = C::carriers == 2 ? beside_two : beside_one;
    static_assert(128 * (C::carriers * carrier_registers + C::teams * registers) <= threads * begin, "else they wait for ever");
    static_assert(C::warps == 4 && C::warps_m == 4 && C::tile_m == 64 && C::tile_b == 1, "a warpgroup has a tile");
    static_assert(C::seamless || (C::tile_w % 8 == 0 && rows * C::tile_w == C::tile_n), "a row is an instruction");
    static_assert(rings % crews == 0 && C::carriers % crews == 0, "who carries for a team always does");
    static_assert(C::teams % C::abreast == 0 && S::tiles_m % C::abreast == 0, "each team has channels of its own");
    static_assert(C::octets % 2 == 0 || (C::octets == 1 && C::stride_w == 1), "the second 8 of k lie behind the first");
    static_assert(rows % C::lap_rows == 0 && (laps == 1 || C::tile_d == 1 || C::tile_h == 1), "rows at one distance");
    static_assert(laps == 1 || C::stages >= S::chunks, "a tile's inputs are there until its last lap");
    static_assert(!streams || (C::abreast == C::teams && C::carriers == 1 && C::products == 1), "all want one tap");
    static_assert(C::tile_w % 8 == 0 || (C::tile_w % 2 == 0 && C::run_vector > 0), "a row begins where ends expect it");
    static_assert(!C::seamless || (C::tile_d == 1 && C::stride_h == 1 && C::stride_w == 1 && C::region_w == C::tile_w),
                  "a row of inputs begins where the one before ends");
    static_assert((C::turns == 1 && C::sets == 1) || C::turns * C::sets * C::w_phases == C::phases,
                  "one phase of d and h, or all of them, or all of a set");
};

// --- results on their way to memory: 8 channels of a row at a time, or of all rows where those are one run

// kw: Leaving
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
                              int64_t plane, const Run& at, int row, int half) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < C::tile_w / 8; i++) {
            float v[2 * P];
            conv_mma::scale_places(v, sums, 0, row * (C::tile_w / 8) + i, half, inverse);
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

    // The same of all rows of a run that are seamless: eight columns may have the end of a row and the begin of the
    // next.
    template <class Epilogue, class Sums>
    KW_DEVICE static void put_rows(float* slab, const typename Epilogue::Args& args, const Sums (&sums)[P],
                                   float inverse, int64_t plane, const Run& first, int half) {
        static_assert(!C::seamless || !one_run || P == 1, "a run has one phase");
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < Sums::N; i++) {
            int row = i * 8 / C::tile_w, column = i * 8 % C::tile_w + lane % 4 * 2;
            if (i * 8 % C::tile_w + 8 > C::tile_w && column >= C::tile_w) column -= C::tile_w, row++;
            if (column >= C::y_w || row >= rows) continue;
            float v[2];
            conv_mma::scale_places(v, sums, 0, i, half, inverse);
            if constexpr (C::valued) {
                const auto y = conv::values_in<C, Epilogue, 2>(args, v, plane, first.d, first.h + row);
                v[0] = y.v[0], v[1] = y.v[1];
            }
            *(float2*)(slab + lane / 4 * pitch + row * C::y_w + column) = make_float2(v[0], v[1]);
        }
    }

    // `output`: the first channel of the slab; `row`: of the tile. `take` gets V neighbours of channel `output + j`.
    template <class Take>
    KW_DEVICE static void walk(const float* slab, const Work& work, const Phase& phase, int output, int row,
                               const Take& take) {
        const int lane = threadIdx.x % 32;
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
                take(j, kw::load<V>(slab + j * pitch + result), d, h, w);
            }
        }
    }
    template <class Epilogue>
    KW_DEVICE static void store(const float* slab, const typename Epilogue::Args& args, const Work& work,
                                const Phase& phase, int output, int row) {
        const int64_t plane = (int64_t)work.first.image * (C::groups * C::outputs) + work.group * C::outputs + output;
        walk(slab, work, phase, output, row, [&](int j, const Vec<float, V>& sums, int d, int h, int w) {
            if constexpr (C::valued) kw::store<V>(conv::place_in<C, Epilogue>(args, plane + j, d, h, w), sums);
            else conv::store_in<C, Epilogue, V>(args, sums.v, plane + j, d, h, w);
        });
    }

    // Results that the copy engine takes to memory: a thread computes what becomes of its sums, which are all of one
    // channel, and is done. A row lies in its slab as it does in memory, from a multiple of 16 bytes on; what is before
    // the first such multiple and behind the last one, three results at most, threads store.
    template <class Epilogue>
    KW_DEVICE static float* place(const typename Epilogue::Args& args, int64_t plane, const Run& row) {
        return conv::place_in<C, Epilogue>(args, plane, row.d, row.h, row.w);
    }
    KW_DEVICE static int behind_sixteen(const float* place) { return V == 4 ? 0 : (int)((uintptr_t)place / 4 % 4); }

    template <class Epilogue, class Sums>
    KW_DEVICE static void put_values(float* to, const typename Epilogue::Args& args, const Sums (&sums)[P], float inverse,
                                     int64_t plane, const Run& at, int row, int half) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < C::tile_w / 8; i++) {
            float v[2 * P];
            conv_mma::scale_places(v, sums, 0, row * (C::tile_w / 8) + i, half, inverse);
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
                                    const Run& row) {
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
                const Run at = conv_mma::run_of<C>(phase, work, first_row + row);
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

    // Rows of a tile from `first_row` on.
    template <class Epilogue, class Sums>
    KW_DEVICE static void take(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                               int first_row, const Sums (&sums)[P], float inverse_x, bool are_finite, float* slab) {
        const OfWarp<C> of_warp(problem, work, first_row * C::tile_w, sums, inverse_x, are_finite);
        const int lane = threadIdx.x % 32, output = of_warp.output;
        if (!__all_sync(~0u, of_warp.finite)) {
            conv_mma::finish_plainly<C, Epilogue, 2, Sums::N>(problem, args, work, of_warp.part);
            return;
        }
        const Phase& phase = problem.phases[work.phase];
        if constexpr (C::sent > 0) {
            send<Epilogue>(args, work, phase, first_row, sums, of_warp.inverse, output, slab);
        } else {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int first = output + half * 8, mine = first + lane / 4;
                if (C::outputs % 64 != 0 && first >= C::outputs) return;
                const int64_t plane = (int64_t)work.first.image * (C::groups * C::outputs) + work.group * C::outputs +
                                      (C::outputs % 8 == 0 || mine < C::outputs ? mine : C::outputs - 1);
                if constexpr (one_run && C::seamless) {
                    put_rows<Epilogue>(slab, args, sums, of_warp.inverse[half], plane,
                                       conv_mma::run_of<C>(phase, work, first_row), half);
                    __syncwarp();
                    store<Epilogue>(slab, args, work, phase, first, first_row);
                    __syncwarp();
                    continue;
                }
#pragma unroll
                for (int row = 0; row < rows; row++) {
                    const Run at = conv_mma::run_of<C>(phase, work, first_row + row);
                    put<Epilogue>(slab, args, sums, of_warp.inverse[half], plane, at, row, half);
                    if (one_run && row + 1 < rows) continue;
                    __syncwarp();
                    store<Epilogue>(slab, args, work, phase, first, first_row + (one_run ? 0 : row));
                    __syncwarp();
                }
            }
        }
    }
};

// --- ends

// kw: Stored
// The end of a lap over a tile: every result is stored. A warp has a slab of its own, behind all that is shared; teams
// abreast may have one.
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

// kw: Abreast
// Teams that have the same tile, all channels of it.
template <class C> struct Abreast {
    static constexpr int threads = 128 * C::abreast, warps_m = 4 * C::abreast, outputs = 64 * C::abreast;
    static constexpr int slots = C::lap_rows * C::tile_w * C::w_phases;
    // Where all that is stored of every channel is one result whose rows lie whole in memory, it leaves as if nothing
    // had been reduced; how many pixels are seen at once, then only loads say.
    static constexpr bool by_rows = C::by_rows;
    // Nothing that is loaded differs from pixel to pixel: those outside need not be told apart before the end.
    static constexpr bool alike = C::by_rows && C::alike;
    static constexpr int vector = by_rows ? C::row_vector : C::vector;
    template <class Epilogue> __host__ __device__ static constexpr int leaving_bytes() {
        return by_rows && Epilogue::phases > Epilogue::reductions ? warps_m * Leaving<C>::bytes : 0;
    }
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

    // What becomes of the sums of a warp's 16 channels, of which all is known that their pixels' `rows` have to say.
    // Nobody but the warp has its slab until all meet again.
    template <class Epilogue, class Pixel, class Row, class Sums>
    KW_DEVICE static void leave(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                                int first_row, const Sums (&sums)[C::w_phases], const float (&inverse)[2],
                                const Row* rows, char* memory) {
        using Index = typename Epilogue::Index;
        using Out = Leaving<C>;
        constexpr int P = C::w_phases, V = vector;
        static_assert(Sizes<C>::joined && !Out::one_run && C::sent == 0, "rows leave one by one, stored by threads");
        float* const slab = (float*)(memory + rank() / 32 * Out::bytes);
        const int lane = threadIdx.x % 32, output = work.first_output + (int)threadIdx.x / 32 % 4 * 16;
        const Phase& phase = problem.phases[work.phase];
        float scale[2] = {inverse[0], inverse[1]};
        asm volatile("" : "+f"(scale[0]), "+f"(scale[1]));  // else all that was scaled before is kept beside the sums
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int first = output + half * 8, mine = first + lane / 4;
            if (C::outputs % 64 != 0 && first >= C::outputs) return;
            const Index channel = C::outputs % 8 == 0 || mine < C::outputs ? mine : C::outputs - 1;
#pragma unroll
            for (int row = 0; row < C::lap_rows; row++) {
#pragma unroll
                for (int n = 0; n < C::tile_w / 8; n++) {
                    float v[2 * P];
                    conv_mma::scale_places(v, sums, 0, row * (C::tile_w / 8) + n, half, scale[half]);
                    const int column = (n * 8 + lane % 4 * 2) * P;  // of the row's results
#pragma unroll
                    for (int i = 0; i < 2 * P; i += V) {
                        const int slot = row * (C::tile_w * P) + column + i;
                        const Pixel pixel(problem, work, first_row * (C::tile_w * P) + slot);
                        if (!alike && !pixel.is_inside()) continue;
                        auto x = Epilogue::template load<V>(args, pixel.row, channel);
#pragma unroll
                        for (int j = 0; j < V; j++) Epilogue::given(x)[j] = v[i + j];
                        const auto r = Epilogue::template beside<V>(rows + slot);
                        const auto y = Epilogue::values(args, pixel.row, channel, x, r);
                        *(Vec<float, V>*)(slab + lane / 4 * Out::pitch + column + i) = y;
                    }
                }
                __syncwarp();
                const int64_t image = (int64_t)work.first.image * C::y_d;
                Out::walk(slab, work, phase, first, first_row + row,
                          [&](int j, const Vec<float, Out::V>& y, int d, int h, int w) {
                              const Index at = Index(((image + d) * C::y_h + h) * C::y_w + w);
                              kw::store<Out::V>(Epilogue::place(args, at, Index(first + j)), y);
                          });
                __syncwarp();
            }
        }
    }
};

// kw: end_bytes
// Of shared memory, for the ends of tiles: of teams abreast.
template <class C, class Epilogue, class End> __host__ __device__ constexpr int end_bytes() {
    if constexpr (End::of_teams) {
        return ceil_div(End::template group_bytes<Abreast<C>, Epilogue>(), 16) * 16;
    } else {
        return Abreast<C>::warps_m * End::template warp_bytes<C>();
    }
}

}  // namespace kw::conv_sm90_kept
