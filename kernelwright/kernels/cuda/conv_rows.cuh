// The end of a convolution's tile where its epilogue reduces along the channels, all of which the tile has.
//
// Rows of the epilogue are pixels, its columns are channels. It is a struct as reduce.cuh runs it, across its rows: in
// each phase a thread adds the channels that it has of some pixels to their states; the eight lanes of a warp that have
// the same pixels merge theirs, then the warps do, in a fixed order; one thread finishes the pixel. Where that is told
// to all, the next phase sees the same sums, which have never left their registers. Of the struct that reduce.cuh runs it
// has more:
//
//   given(operands)                where sums of N neighbouring pixels in a channel go
//   State<phase, N>::lane(i)       what is known of pixel i
//   beside<N>(rows)                what is known of N pixels, from each of them
//
// and, where what its last phase stores is one result whose rows lie whole in memory (conv_sm90_kept.cuh has slabs for
// those),
//
//   values(args, row, channel, operands, r)   what the last phase would store
//   place(args, row, channel)                 where
#pragma once

#include "conv_mma.cuh"

namespace kw::conv_rows {

using conv::Phase;
using conv::Place;
using conv_mma::Part;
using conv_mma::Problem;
using conv_mma::Sizes;
using conv_mma::Work;

// Those who have all channels of some pixels: a block with its tile, or teams that are abreast (conv_sm90_kept.cuh).
// Slots: pixels of all phases that they compute together, column by column, the phases of a column side by side.
template <class C> struct Block : conv_mma::All<C> {
    static constexpr int warps_m = C::warps_m, slots = C::tile_n * C::w_phases, outputs = C::tile_m;
    static constexpr int vector = C::vector;
    static constexpr bool by_rows = false, alike = false;
    template <class Epilogue> __host__ __device__ static constexpr int leaving_bytes() { return 0; }
    KW_DEVICE static bool any(bool mine, void*) { return __syncthreads_or(mine); }
};

template <class Group, class Epilogue> __host__ __device__ constexpr int rows_bytes() {
    constexpr int bytes = (Group::slots * (int)sizeof(typename Epilogue::template Row<1>) + 15) / 16 * 16;
    return bytes > 4 * Group::warps_m ? bytes : 4 * Group::warps_m;  // see Group::any
}

// A pixel: where its place is in its phase, and its number among all rows.
template <class C, class Index> struct Pixel {
    const Phase* phase;
    Place place;
    Index row;

    KW_DEVICE Pixel(const Problem<C>& problem, const Work& work, int slot) {
        constexpr unsigned together = C::w_phases;
        phase = &problem.phases[work.phase + (unsigned)slot % together];
        place = conv_mma::place_of<C>(work, (unsigned)slot / together);
        const int d = phase->axis[0].y_first + place.d * C::y_step_d, h = phase->axis[1].y_first + place.h * C::y_step_h,
                  w = phase->axis[2].y_first + place.w * C::y_step_w;
        row = ((Index(place.image) * C::y_d + d) * C::y_h + h) * C::y_w + w;
    }
    KW_DEVICE bool is_inside() const { return conv_mma::is_inside<C>(*phase, place); }
};

// --- states of eight lanes that are `apart` = 16, 8, 4 lanes from each other

template <class State> struct Words {
    static constexpr int count = ((int)sizeof(State) + 3) / 4;
    uint32_t word[count] = {};

    KW_DEVICE void set(const State& state) { __builtin_memcpy(word, &state, sizeof state); }
    KW_DEVICE State state() const {
        State made;
        __builtin_memcpy(&made, word, sizeof made);
        return made;
    }
    KW_DEVICE void merge(const Words& sent, int apart) {
        Words received;
#pragma unroll
        for (int i = 0; i < count; i++) received.word[i] = __shfl_xor_sync(~0u, sent.word[i], apart);
        State both = state();
        both.merge(received.state());
        set(both);
    }
};

// As long as a lane has several pixels it keeps the half that it is to speak for, and gives the other half away.
template <int pixels, int apart, class State> KW_DEVICE void merge_lanes(Words<State>* states) {
    if constexpr (apart >= 4) {
        constexpr int half = pixels / 2;
        if constexpr (half == 0) {
            const Words<State> own = states[0];
            states[0].merge(own, apart);
        }
        const bool upper = threadIdx.x & apart;
#pragma unroll
        for (int i = 0; i < half; i++) {
            Words<State> sent;
#pragma unroll
            for (int j = 0; j < Words<State>::count; j++) {
                const uint32_t low = states[i].word[j], high = states[i + half].word[j];
                sent.word[j] = upper ? low : high;
                states[i].word[j] = upper ? high : low;
            }
            states[i].merge(sent, apart);
        }
        merge_lanes<(half == 0 ? 1 : half), apart / 2>(states);
    }
}

// --- phases over the registers of a block

template <class C, class Epilogue, class Group, int phase, class Sums>
KW_DEVICE void run_phases(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                          const Part<C>& part, int first_slot, const Sums (&sums)[C::w_phases],
                          const float (&inverse)[Sums::M * 2], char* memory) {
    using Index = typename Epilogue::Index;
    using Row = typename Epilogue::template Row<1>;
    using State = typename Epilogue::template State<phase, 1>;
    constexpr int M = Sums::M * 2, N = Sums::N, P = C::w_phases, V = Group::vector;
    Row* const rows = (Row*)memory;
    State* const states = (State*)(memory + rows_bytes<Group, Epilogue>());  // [warps along the channels][slots]
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 2 * P; i += V) {
            const int slot = (part.first_column + n * 8) * P + i;
            const Pixel<C, Index> pixel(problem, work, first_slot + slot);
            typename Epilogue::template State<phase, V> state;
            state.clear();
            if (Group::alike || pixel.is_inside()) {
                typename Epilogue::template Row<V> r;
                if constexpr (phase == 0) r = Epilogue::template begin<V>(args, pixel.row);
                else r = Epilogue::template beside<V>(rows + slot);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    const int channel = part.first_output + m * 8;
                    if (C::outputs % C::tile_m != 0 && channel >= C::outputs) continue;
                    auto x = Epilogue::template load<V>(args, pixel.row, channel);
#pragma unroll
                    for (int j = 0; j < V; j++)
                        Epilogue::given(x)[j] = sums[(i + j) % P].at(m / 2, n, m % 2 * 2 + (i + j) / P) * inverse[m];
                    Epilogue::step(args, pixel.row, channel, x, r, state);
                }
            }
            if constexpr (phase < Epilogue::reductions) {
                const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
                Words<State> lanes[V];
#pragma unroll
                for (int j = 0; j < V; j++) lanes[j].set(state.lane(j));
                merge_lanes<V, 16>(lanes);
                // Lane bits that chose between pixels say which one is here; where the others are 0, it is told.
                constexpr unsigned chose = V == 4 ? 24 : V == 2 ? 16 : 0;
                const unsigned which = V == 4 ? lane / 8 : V == 2 ? lane / 16 : 0;
                if ((lane & ~chose & 28) == 0)
                    states[warp % Group::warps_m * Group::slots + slot + which % V] = lanes[0].state();
            }
        }
    if constexpr (phase < Epilogue::reductions) {
        Group::sync();
#pragma unroll 1
        for (int slot = Group::rank(); slot < Group::slots; slot += Group::threads) {
            const Pixel<C, Index> pixel(problem, work, first_slot + slot);
            if (!Group::alike && !pixel.is_inside()) continue;
            typename Epilogue::template State<phase, 1> state = states[slot];
#pragma unroll
            for (int i = 1; i < Group::warps_m; i++) state.merge(states[i * Group::slots + slot]);
            Row r;
            if constexpr (phase == 0) r = Epilogue::template begin<1>(args, pixel.row);
            else r = rows[slot];
            Epilogue::finish(state, r);
            if constexpr (phase + 1 < Epilogue::phases) rows[slot] = r;
            if constexpr (phase + 1 == Epilogue::reductions)
                if (!Group::alike || pixel.is_inside()) Epilogue::store_row(args, pixel.row, r);
        }
    }
    if constexpr (phase + 1 < Epilogue::phases) {
        Group::sync();
        if constexpr (Group::by_rows && phase + 1 == Epilogue::reductions)
            Group::template leave<Epilogue, Pixel<C, Index>>(problem, args, work, first_slot / (C::tile_w * P), sums,
                                                             inverse, rows, (char*)states);
        else run_phases<C, Epilogue, Group, phase + 1>(problem, args, work, part, first_slot, sums, inverse, memory);
    }
}

// --- the same in plain float32, for a tile in which something is not finite: a thread for each pixel

template <class C, class Epilogue, int phase, class Row, class Index>
KW_DEVICE void run_plainly(const Problem<C>& problem, const typename Epilogue::Args& args, const Pixel<C, Index>& pixel,
                           Row& r) {
    typename Epilogue::template State<phase, 1> state;
    state.clear();
#pragma unroll 1
    for (int channel = 0; channel < C::outputs; channel++) {
        auto x = Epilogue::template load<1>(args, pixel.row, channel);
        Epilogue::given(x)[0] = conv::plain_sum<C>(problem.x, problem.weight, pixel.phase, pixel.place, 0, channel);
        Epilogue::step(args, pixel.row, channel, x, r, state);
    }
    if constexpr (phase < Epilogue::reductions) Epilogue::finish(state, r);
    if constexpr (phase + 1 < Epilogue::phases) run_plainly<C, Epilogue, phase + 1>(problem, args, pixel, r);
}

template <class C, class Epilogue, class Group>
KW_DEVICE void reduce_plainly(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                              int first_slot) {
#pragma unroll 1
    for (int slot = Group::rank(); slot < Group::slots; slot += Group::threads) {
        const Pixel<C, typename Epilogue::Index> pixel(problem, work, first_slot + slot);
        if (!pixel.is_inside()) continue;
        auto r = Epilogue::template begin<1>(args, pixel.row);
        run_plainly<C, Epilogue, 0>(problem, args, pixel, r);
        Epilogue::store_row(args, pixel.row, r);
    }
}

// Not inline, where every channel is stored again: what it needs would take registers from those who have sums. Where
// one value is, a call costs more (H200: 598 us instead of 566 for 16 -> 64 channels and the least of these).
template <class C, class Epilogue, class Group>
__device__ __noinline__ void reduce_plainly_apart(const Problem<C>& problem, const typename Epilogue::Args& args,
                                                  Work work, int first_slot) {
    reduce_plainly<C, Epilogue, Group>(problem, args, work, first_slot);
}

struct Reduced {
    static constexpr bool of_teams = true;
    template <class Group, class Epilogue, int phase = 0> __host__ __device__ static constexpr int group_bytes() {
        constexpr int rows = rows_bytes<Group, Epilogue>();
        if constexpr (phase >= Epilogue::reductions) return rows + Group::template leaving_bytes<Epilogue>();
        else {
            using State = typename Epilogue::template State<phase, 1>;
            constexpr int here = rows + Group::warps_m * Group::slots * (int)sizeof(State);
            constexpr int later = group_bytes<Group, Epilogue, phase + 1>();
            return here > later ? here : later;
        }
    }
    template <class C, class Epilogue> static constexpr int shared_bytes() { return group_bytes<Block<C>, Epilogue>(); }

    template <class C, class Epilogue, class Sums>
    KW_DEVICE static void take(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                               const Part<C>& part, const Sums (&sums)[C::w_phases], float inverse_x, void* memory) {
        float inverse[Sums::M * 2];
        const bool finite = conv_mma::find_inverses(inverse, problem, work, part, sums, inverse_x);
        // From here on the inputs are not needed: states lie where they were.
        reduce<C, Epilogue, Block<C>>(problem, args, work, part, 0, sums, inverse, finite, (char*)memory);
    }

    // By teams abreast: a lap over their tile, from a row on.
    template <class C, class Epilogue, class Group, class Sums>
    KW_DEVICE static void take_of_teams(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                                        int first_row, const Sums (&sums)[C::w_phases], float inverse_x, bool are_finite,
                                        char* memory) {
        const conv_mma::OfWarp<C> of_warp(problem, work, 0, sums, inverse_x, are_finite);
        const int first_slot = first_row * C::tile_w * C::w_phases;
        reduce<C, Epilogue, Group>(problem, args, work, of_warp.part, first_slot, sums, of_warp.inverse, of_warp.finite,
                                   memory);
    }

    template <class C, class Epilogue, class Group, class Sums>
    KW_DEVICE static void reduce(const Problem<C>& problem, const typename Epilogue::Args& args, const Work& work,
                                 const Part<C>& part, int first_slot, const Sums (&sums)[C::w_phases],
                                 const float (&inverse)[Sums::M * 2], bool finite, char* memory) {
        static_assert(C::groups == 1 && C::outputs <= Group::outputs, "they have all channels of their pixels");
        if (!Group::any(!finite, memory)) {
            run_phases<C, Epilogue, Group, 0>(problem, args, work, part, first_slot, sums, inverse, memory);
            return;
        }
        if constexpr (Group::by_rows) reduce_plainly_apart<C, Epilogue, Group>(problem, args, work, first_slot);
        else reduce_plainly<C, Epilogue, Group>(problem, args, work, first_slot);
    }
    template <class C, class Epilogue> KW_DEVICE static void skip_of_warp(const typename Epilogue::Args&, const Work&) {}
    template <class C, class Epilogue> KW_DEVICE static void skip(const typename Epilogue::Args&, const Work&) {}
};

}  // namespace kw::conv_rows
