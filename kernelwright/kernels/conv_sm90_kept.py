"""The Hopper convolution whose weights stay (conv_sm90_kept.cuh): configs that fit, what they should cost, entries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import TypeAlias

from kernelwright.device import Device
from kernelwright.kernels import conv_mma, conv_sm90
from kernelwright.kernels.conv_mma import floor_us, packed_bytes
from kernelwright.kernels.conv_shape import ConvShape, by_axis, integers
from kernelwright.kernels.gemm_shape import LAUNCH_US, beside_us

__all__ = ["HEADERS", "Config", "arithmetic", "configs", "cost_us", "entry", "floor_us", "packed_bytes", "why_not"]

HEADERS = (*conv_sm90.HEADERS, "conv_kept_ends", "conv_kept_carry", "conv_kept_stream", "wgmma_rows", "conv_sm90_kept")

ROWS = (1, 2, 4)  # of a tile
NARROWEST, WIDEST, WIDEST_ROW = 32, 128, 256  # of a row; the last where it is alone
MOST_STAGES = 4  # or two tiles' worth, where a tile's inputs stay for several laps
MOST_COLUMNS = 256  # of an instruction
# Of weights that stream: places of their ring, of which fewer than three have teams wait for each other; and octets
# that a thread carries at once, twice. None was measured; registers for so many do not spill (seen by compiling).
FEWEST_PLACES, MOST_PLACES, PIECE = 3, 64, 3
# Weights that could stay stream only where that is so much cheaper: prices of the one were fitted, of the other not.
WORTH_STREAMING = 1.25
MOST_GROUP = 5  # steps of 16 of k that pairs may be summed in the tensor core: with 5, few channels need no further sum

# Constants of the cost model, fitted to 51 configs of seven convolutions that an H200 ran
# (benchmarks/results/2026-11-16-conv-kept-h200.jsonl), which come out within 10% (the standard deviation), and 18 of
# them that it ran once more within 11%; instructions within what the PTX has, there was no disassembler to count them
# in SASS. Those of teams abreast and of the copy engine are fitted to a later run (2026-11-16-conv-sent-h200.jsonl): 12
# configs abreast, and 35 as before, come out within 11%, 47 whose results are sent 13% too low and within 12% of that;
# all with several phases of h or d some 20% too low.
# Instructions of a warp: of one who carries, for an element of each lane, beside them for an octet, and for a chunk, on
# whose scale all agree; of one who multiplies, for a sum of each lane (is it finite? scaled, put into shared memory),
# for a store, and for each result that a lane has in it. They are those of the runs above. Since then a profile counted
# 36 instructions for each result of a strided transposed convolution, 13 of them to carry, 10 to multiply and 12 to end
# a tile, and the kernel has fewer: by the opcodes of its code 3.9 for an element and a half for its part of an octet,
# 100 for a chunk; and for a result 7, of which 4 are the epilogue's. That has not been measured: what is priced here is
# too high by as much, and the same for all configs.
ELEMENT_INSTRUCTIONS = {1: 6, 3: 9}
OCTET_INSTRUCTIONS, CHUNK_INSTRUCTIONS = 8, 120
SUM_INSTRUCTIONS, STORE_INSTRUCTIONS, RESULT_INSTRUCTIONS = 5, 8, 4
# Of a lap beyond the first, and of each chunk in it: phases looked up, stages waited for, the end of a tile begun
# (counted by opcodes, not measured).
LAP_INSTRUCTIONS, CHUNK_OF_LAP_INSTRUCTIONS = 130, 60
# Three estimates, neither counted nor measured. For a window that is pooled, beside its sums: its place, its result.
WINDOW_INSTRUCTIONS = 40
# For a sum that is added to what is known of its channel, beside what that computes.
PIECE_INSTRUCTIONS = 3
# For a pixel whose channels are reduced, of who finishes it: where it lies, and the states of all warps.
PIXEL_INSTRUCTIONS = 100
# Where inputs are carried in pieces: for an octet, where it lies, which no register keeps (an estimate, not measured).
SPOT_INSTRUCTIONS = 24
# Where every channel is stored again after that, as the source of a softmax and a sigmoid has them: for a sum of each
# walk, scaled, with what is known of its pixel; for 8 bytes of a state that lanes merge; of a sum through a slab; of a
# store, however wide; and what is left of the instructions of functions after one product. Counted in the source,
# neither measured nor counted in SASS.
WALK_INSTRUCTIONS, MERGE_INSTRUCTIONS, PUT_INSTRUCTIONS, MOVE_INSTRUCTIONS, NEAR_SHARE = 2, 4.5, 0.5, 3, 0.28
# For eight rows that are reduced along w, in which lanes merge twice: what is merged and finished, and where they lie.
LINE_INSTRUCTIONS = 150
# Merges of the states of several pixels that eight lanes have, by the pixels that a walk sees at once.
MERGES = {4: 4, 2: 3, 1: 3}
# What a warp issues of its own in a clock; and how much longer stores beyond the first take. Why is not known: their
# code is unrolled and may have to be fetched for every tile. Loops were tried with 32 stores only, and were slower.
OWN_ISSUE = 0.215
NEAR_STORES, FAR_CODE = 32, 1.5
# Clocks: of a chunk beside the instructions of those who carry, and until it comes from memory; from the end of a
# tile's products to the begin of the next ones, beside what stores; of a chunk that is waited for.
CARRYING_CLOCKS, MEMORY_CLOCKS, LEAVING_CLOCKS, STAGE_CLOCKS = 300, 1100, 400, 100
# What warps of all kinds reach together of the tensor cores, of shared memory's 128 B a clock and of four instructions
# a clock. The first has not been reached.
TENSOR_SHARE, SHARED_SHARE, ISSUE_SHARE = 0.85, 0.54, 0.475
# The second, where weights stream: tiles are large, and what shared memory does is next to all for the tensor cores,
# which read in order. An estimate, not measured.
STREAMED_SHARED_SHARE = 0.75
# Where the copy engine takes results: instructions for a result and for a slab of 8 channels, what a warp issues of
# them in a clock, for it waits for its slab, and clocks that the engine takes for a run, however short.
SENT_INSTRUCTIONS, SLAB_INSTRUCTIONS, SENT_ISSUE, SENT_RUN_CLOCKS = 7, 80, 0.15, 25
# Of memory's time, as bytes, for every run that is written; by the warpgroups that carry. Why two cost more is not
# known: that they drift apart is not all of it, for 16 -> 128 channels pays it abreast too, where they work together.
# In 1-d teams abreast seem not to pay it, and are priced 13% too high.
RUN_BYTES = {1: 52, 2: 200}


@dataclass(frozen=True, slots=True)
class Block:
    """Warpgroups that multiply and that carry, and what their threads may hold without a spill (seen by compiling):
    sums, and sums whose channels are reduced and stored again; inputs on their way: of one octet, of several, whose
    places differ, and pairs, which take more to make."""

    teams: int
    carriers: int
    most_sums: int
    most_sums_again: int
    most_held_of_one: int
    most_held: int
    most_held_of_pairs: int


# Three teams for what is bound by its results, with small tiles; two for what is bound by products.
BLOCKS = (Block(3, 1, 64, 40, 64, 48, 64), Block(2, 1, 128, 72, 80, 64, 48), Block(2, 2, 88, 40, 64, 64, 48))
# With two warpgroups that carry, sums of several phases leave fewer registers for where results go.
MOST_SUMS_OF_PHASES = 64
# Where weights stream: of several phases, and where rows lie in pieces, of which a warp has to know more.
MOST_STREAMED_OF_PHASES, MOST_STREAMED_OF_PIECES = 112, 100


@dataclass(frozen=True, slots=True)
class Config(conv_sm90.Config):
    """As for wgmma, a warpgroup with its tile instead of a block; teams and carriers: warpgroups; stages: of a team.
    sent: slabs of a warp that the copy engine takes to memory; 0: threads store what is in the one there is;
    abreast: teams that have the same tile, each with 64 channels of its own; lap_rows: rows of a tile whose sums a
    team has at once, 0: all; sets: of phases of d and h, of which a block keeps the weights of one; streamed: places of
    a ring through which weights stream, 0: they stay; seamless: whether rows of inputs lie one behind the other with
    nothing between them, so that an instruction takes all rows of a lap."""

    teams: int = 2
    carriers: int = 1
    stages: int = 2
    sent: int = 0
    abreast: int = 1
    lap_rows: int = 0
    sets: int = 1
    streamed: int = 0
    seamless: int = 0

    def row_of_region(self, needed: int) -> int:
        return self.tile_w if self.seamless else needed

    @property
    def crew_warps(self) -> int:
        """Of one crew; where weights stream, a warp asks for them instead."""
        return 4 * self.carriers // self.crews - (1 if self.streamed else 0)

    @property
    def place_steps(self) -> int:
        """Of weights that stream: steps of 16 of k in a place, those of one tap."""
        return max(1, self.octets // 2)

    @property
    def stores_slabs(self) -> bool:
        return True

    @property
    def rings(self) -> int:
        return self.teams // self.abreast

    @property
    def crews(self) -> int:
        """Those who carry for one ring do it together."""
        return min(self.carriers, self.rings)

    @property
    def rows(self) -> int:
        return self.tile_d * self.tile_h

    @property
    def rows_at_once(self) -> int:
        return self.lap_rows or self.rows

    @property
    def columns(self) -> int:
        """Of a lap, as instructions compute them."""
        return math.ceil(self.rows_at_once * self.tile_w / 8) * 8

    @property
    def laps(self) -> int:
        """In which a tile is multiplied and stored, of inputs that are carried once."""
        return self.rows // self.rows_at_once * self.turns

    def joins(self, axis: int) -> bool:
        """A set of several has one phase of d."""
        return (self.turns > 1 and self.sets == 1, self.turns > 1, self.w_phases > 1)[axis]

    @property
    def block(self) -> Block:
        return next(b for b in BLOCKS if (b.teams, b.carriers) == (self.teams, self.carriers))


# --- sizes, as conv_sm90_kept.cuh has them


def kept_steps(config: Config, shape: ConvShape) -> int:
    """Of weights that stay: steps of 16 of k of all chunks and phases, or of the set that has most; hi and lo."""
    return max(steps_of_sets(config, shape)) * conv_mma.chunks(config, shape) * conv_mma.halves(config)


def steps_of_sets(config: Config, shape: ConvShape) -> list[int]:
    """Steps of 16 of k in a chunk, of all phases of each set."""
    steps = [conv_mma.steps_of(config, conv_mma.taps_of(config, phase)) for phase in shape.phases]
    each = len(steps) // config.sets
    return [sum(steps[first : first + each]) for first in range(0, len(steps), each)]


def weight_bytes(config: Config, shape: ConvShape) -> int:
    """Of those that stay; or of the ring and its barriers."""
    if config.streamed:
        return config.streamed * place_bytes(config) + 16
    return 2048 * config.abreast * max(1, kept_steps(config, shape))


def place_bytes(config: Config) -> int:
    """With its barriers."""
    return 2048 * config.abreast * config.place_steps + 16


def behind(config: Config, shape: ConvShape) -> int:
    """Places behind a region that columns beyond the end of its last row read."""
    beyond = config.columns - config.rows_at_once * config.tile_w
    return conv_mma.reach(config, shape, 2) - 1 + beyond if config.seamless else 0


def seamless_width(config: Config, shape: ConvShape) -> int:
    """The fewest inputs of a row such that, of the next one, no place inside reads any but what is left of the image,
    where it reads what is right of it: both are zero."""
    last = shape.most(2) - 1 + conv_mma.reach(config, shape, 2) - 1
    if config.fold > 1:  # an octet has taps of its own, which may be inside where its first one is not
        return last + 1
    bases = {conv_mma.bases(config, shape, phase)[2] for phase in shape.phases}
    shared = max(max(shape.most(2), shape.x_space[2] - base, last + base + 1) for base in bases)
    return min(last + 1, shared)


def stage_bytes(config: Config, shape: ConvShape) -> int:
    octets = config.octets * conv_mma.pixels(config, shape) + behind(config, shape)
    return octets * 16 * conv_mma.halves(config)


def run_vector(config: Config, shape: ConvShape) -> int:
    """Neighbours of one store where a tile has whole rows, which follow each other in memory; else 0."""
    width = shape.y_space[2]
    plane, run = shape.y_space[1] * width, config.rows_at_once * width
    if conv_mma.leaves_by_rows(config, shape):
        return 0
    whole = shape.flat and len(shape.phases) == 1 and config.tile_d == 1 and config.tile_w >= width and width % 2 == 0
    # Of teams abreast weights that stay leave no room for whole runs.
    if not whole or config.rows_at_once == 1 or (config.abreast > 1 and not config.streamed):
        return 0
    return next(v for v in (4, 2, 1) if shape.vector % v == 0 and run % v == 0 and plane % v == 0)


def slab_bytes(config: Config, shape: ConvShape) -> int:
    """Of a warp: a row of 8 channels, or rows that are one run, or all of a lap that is pooled."""
    if is_pooled(shape):
        results = config.rows_at_once * config.tile_w
    elif run_vector(config, shape) > 0:
        results = config.rows_at_once * shape.y_space[2]
    else:
        results = config.tile_w * config.w_phases
    return 8 * 4 * (math.ceil(results / 32) * 32 + 8)


def ends_bytes(config: Config, shape: ConvShape) -> int:
    """For the ends of tiles: slabs of warps, or what teams abreast know of their pixels."""
    if shape.rows is None or shape.rows.window or shape.rows.pieces is not None or shape.rows.line:
        return 4 * config.teams * max(1, config.sent) * slab_bytes(config, shape)
    slots = config.rows_at_once * config.tile_w * config.w_phases
    warps = 4 * config.abreast
    slabs = warps * slab_bytes(config, shape) if conv_mma.leaves_by_rows(config, shape) else 0
    after_rows = max(warps * slots * max(shape.rows.state_bytes), slabs)
    return config.rings * (slots * shape.rows.row_bytes + after_rows + 64)


def is_pooled(shape: ConvShape) -> bool:
    return shape.rows is not None and bool(shape.rows.window)


def fixed_bytes(config: Config, shape: ConvShape) -> int:
    """Weights, tables, what leaves, barriers of the most stages, and what alignment may add."""
    steps = max(1, conv_mma.steps_of(config, conv_mma.most_taps(config, shape)))
    barriers = 20 * config.teams * most_stages(config, shape)
    tables = 8 * len(shape.phases) * steps + 128 * config.carriers + barriers + 64
    return weight_bytes(config, shape) + tables + ends_bytes(config, shape)


def most_stages(config: Config, shape: ConvShape) -> int:
    return MOST_STAGES if config.laps == 1 else max(MOST_STAGES, 2 * conv_mma.chunks(config, shape))


def shared_bytes(config: Config, shape: ConvShape) -> int:
    return fixed_bytes(config, shape) + config.rings * config.stages * stage_bytes(config, shape)


def sums(config: Config, shape: ConvShape) -> int:
    """Registers of one who multiplies; of pairs twice, unless all of k is summed at once."""
    total = config.columns // 2 * config.w_phases
    return total if config.products == 1 or sums_once(config, shape) else 2 * total


def sums_once(config: Config, shape: ConvShape) -> bool:
    steps = conv_mma.steps_of(config, conv_mma.most_taps(config, shape))
    return len(shape.phases) == 1 and conv_mma.chunks(config, shape) == 1 and steps <= config.group


def held(config: Config, shape: ConvShape) -> int:
    """Registers of one who carries: one chunk on its way, or two if there is no other crew; or two pieces."""
    if config.streamed:
        return 2 * 8 * PIECE
    threads = 128 * config.carriers // config.crews
    rounds = math.ceil(config.octets * conv_mma.pixels(config, shape) / threads)
    return (2 if config.crews == 1 else 1) * 8 * rounds


def most_sums(config: Config, shape: ConvShape) -> int:
    if conv_mma.leaves_by_rows(config, shape):
        return config.block.most_sums_again
    if config.streamed:
        in_pieces = shape.rows is not None and shape.rows.pieces is not None
        of_phases = MOST_STREAMED_OF_PHASES if len(shape.phases) > 1 else config.block.most_sums
        return min(of_phases, MOST_STREAMED_OF_PIECES) if in_pieces else of_phases
    several = config.carriers == 2 and len(shape.phases) > 1
    return min(config.block.most_sums, MOST_SUMS_OF_PHASES) if several else config.block.most_sums


def most_held(config: Config) -> int:
    if config.products == 3:
        return config.block.most_held_of_pairs
    return config.block.most_held_of_one if config.octets == 1 else config.block.most_held


def of_a_lap(config: Config) -> Config:
    """With a tile of one lap, of all teams abreast."""
    d, h = (config.rows_at_once, 1) if config.tile_d > 1 else (1, config.rows_at_once)
    return replace(config, tile_m=config.tile_m * config.abreast, tile_d=d, tile_h=h)


def is_sent(config: Config, shape: ConvShape) -> bool:
    """Whether the copy engine may take results: rows of one result, where what becomes of a sum is the same for a row.

    Only of phases that are together, and of odd rows, which threads store one by one. Elsewhere the best config that is
    sent was at most 2% faster than the best that is stored, and up to 21% slower (measured).
    """
    worth_it = shape.y_step(2) > 1 or shape.y_space[2] % 2 == 1
    return shape.sendable and config.w_phases == shape.y_step(2) and worth_it


def shelves(config: Config, shape: ConvShape) -> int:
    return shape.groups * (math.ceil(shape.outputs / config.tile_m) // config.abreast) * config.sets


def ways_through_phases(count: int, shape: ConvShape) -> list[tuple[int, int]]:
    """Turns and sets, of so many phases of d and h: a tile has one of them, or all, of weights that are all kept; or
    all of its set, which has one phase, or those of one d."""
    along_d = shape.y_step(0)
    return sorted({(1, 1), (count, 1), (1, count), *([(count // along_d, along_d)] if count % along_d == 0 else [])})


# --- which configs fit


def why_not(config: Config, shape: ConvShape, device: Device) -> str | None:
    """The reason a config cannot run this convolution, in words."""
    if device.arch != "sm_90a":
        return f"wgmma needs sm_90a; {device.name} is {device.arch}."
    in_pieces = shape.rows is not None and shape.rows.pieces is not None
    if in_pieces and (config.rows_at_once != config.rows or config.w_phases != shape.y_step(2)):
        return "what a warp knows of rows in pieces is of whole tiles and of whole rows."
    if config.sent and not is_sent(config, shape):
        return "the copy engine takes rows of one result that is the same function of a row's sums, odd or of phases."
    if math.ceil(shape.outputs / config.tile_m) % config.abreast:
        return f"{shape.outputs} outputs are not {config.tile_m} for each of {config.abreast} teams."
    if config.octets % 2 and (config.octets > 1 or shape.stride(2) > 1):
        return "the second 8 of every 16 of k may lie before the first, which a descriptor cannot say."
    paired = conv_mma.leaves_by_rows(config, shape) or config.tile_n % 16 == 0  # others have not been measured
    whole = config.tile_w % 8 == 0 and paired and config.tile_n == math.prod(config.tile)
    if not config.seamless and not whole:
        return f"tiles of {config.tile} are not rows of whole products."
    ways = ways_through_phases(len(shape.phases) // config.w_phases, shape)
    if config.rows % config.rows_at_once or (config.turns, config.sets) not in ways:
        return f"laps of {config.rows_at_once} of {config.rows} rows and {config.turns} phases do not make up a tile."
    if (reason := conv_mma.why_not_reduced(of_a_lap(config), shape)) is not None:
        return reason
    if config.laps > 1 and config.stages < conv_mma.chunks(config, shape):
        return f"{config.stages} stages do not hold the inputs of a tile until its last lap."
    if (reason := why_not_streamed(config, shape)) is not None:
        return reason
    if (needed := sums(config, shape)) > most_sums(config, shape):
        return f"{needed} registers for sums leave those who multiply too few."
    if (needed := held(config, shape)) > most_held(config):
        return f"{needed} registers for inputs on their way are more than those who carry have."
    if max(conv_mma.region(config, shape)) >= 2**16:
        return "a place among the inputs of a tile has 16 bits along each axis."
    needed, most = shared_bytes(config, shape), device.smem_per_block_bytes
    if needed > most:
        kept = "its ring of weights" if config.streamed else "weights that stay"
        return f"{kept}, and the stages, need {needed:,} B of shared memory; {device.arch} allows {most:,} B."
    return conv_mma.why_not_convolved(config, shape, device)


def why_not_streamed(config: Config, shape: ConvShape) -> str | None:
    """The reason weights cannot stream, or rows follow each other, in words."""
    if config.streamed and config.sets > 1:
        return "weights of a set stay."
    if config.streamed and config.products != 1:
        return "pairs would stream twice the weights for half the tile."
    if config.streamed and (config.abreast, config.carriers) != (config.teams, 1):
        return "weights stream for teams that have the same tile, and beside one warpgroup that carries."
    if not config.seamless:
        return None
    if not config.streamed or config.tile_d > 1 or shape.stride(1) > 1 or shape.stride(2) > 1:
        return "rows of inputs follow each other where weights stream, and rows along h have no strides."
    if seamless_width(config, shape) > config.tile_w:
        return f"{shape.most(2)} places of a row read more than {config.tile_w} inputs, and so some of the next row."
    if config.tile_n != math.ceil(math.prod(config.tile) / 16) * 16:
        return f"{config.tile_n} columns are not those of tiles of {config.tile}."
    if config.tile_w % 8 and (config.tile_w % 2 or shape.rows is not None or not run_vector(config, shape)):
        return "a row begins at a multiple of 8 columns, unless all of a tile is stored as one run."
    if config.rows_at_once * config.tile_w > MOST_COLUMNS:
        return f"{config.rows_at_once} rows of {config.tile_w} are more columns than an instruction has."
    return None


@cache
def configs(shape: ConvShape, device: Device) -> tuple[Config, ...]:
    """The best width for every kind of block, number of rows and of octets, way out, and with or without laps; where
    weights stream the best number of rows too; the most promising first."""
    kept, streamed = best_of_each(candidates(shape, device), shape, device), []
    all_kept = [config for config in kept if config.sets == 1]  # those of one set stay because others have no room
    if not all_kept or cost_us(all_kept[0], shape, device) > WORTH_STREAMING * floor_us(shape, device):
        streamed = best_of_each(streams(shape, device), shape, device)
    most = cost_us(all_kept[0], shape, device) / WORTH_STREAMING if all_kept else math.inf
    worth_it = [config for config in streamed if cost_us(config, shape, device) < most]
    return tuple(sorted([*kept, *worth_it], key=lambda config: cost_us(config, shape, device)))


def best_of_each(space: Iterable[Config], shape: ConvShape, device: Device) -> list[Config]:
    """Of each kind that fits the cheapest, of all kinds the cheapest first."""
    best: dict[tuple[Block, int, int, bool, int, bool, int], Config] = {}
    for config in space:
        rows = 0 if config.streamed else config.rows
        key = (config.block, rows, config.octets, config.sent > 0, config.abreast, config.laps > 1, config.sets)
        if why_not(config, shape, device) is None and (
            key not in best or cost_us(config, shape, device) < cost_us(best[key], shape, device)
        ):
            best[key] = config
    return sorted(best.values(), key=lambda config: cost_us(config, shape, device))


def candidates(shape: ConvShape, device: Device) -> Iterator[Config]:
    """Rows of a tile along h, or along d where there is one row; each with the most octets that can be carried.

    One warpgroup carries for teams abreast only where all channels are one chunk. With several it took 12 and 28% more
    than two, in the two cases that were measured, which differ in width or octets as well; where channels are stored
    again after they were reduced, teams take so long that it may carry several too. Phases of d and h are taken
    in turns, row by row where registers are few. Rows of other convolutions could be too, but then all channels must be
    there at once: with 64 of them a tile of so many rows leaves no room for the next one, or for teams abreast.
    """
    joined = shape.y_step(2) if shape.y_space[2] >= shape.y_step(2) else 1
    space = product(BLOCKS, widths(shape.most(2)), ROWS, ROWS, sorted({1, joined}))
    for (block, width, rows, at_once, phases), (turns, sets) in with_ways(space, shape):
        in_turns = turns > 1
        if width * at_once * phases // 2 > block.most_sums or (width > WIDEST and at_once > 1):
            continue
        if rows > shape.most(0) * shape.most(1) or rows % at_once or (at_once < rows and not in_turns):
            continue
        if (in_turns or sets > 1) and phases != joined:
            continue
        plain = plain_config(block, width, rows, phases, shape)
        plain = replace(plain, lap_rows=0 if at_once == rows else at_once, turns=turns, sets=sets)
        again = conv_mma.leaves_by_rows(plain, shape)
        halves = math.ceil(shape.outputs / plain.tile_m) % 2 == 0
        for abreast in (1, 2) if block.teams == 2 and halves else (1,):
            for octets in conv_sm90.octet_counts(shape):
                config = with_group(replace(plain, octets=octets, abreast=abreast), shape)
                if held(config, shape) <= most_held(config):
                    carried = abreast == 1 or block.carriers == 2 or conv_mma.chunks(config, shape) == 1 or again
                    if carried and (sets == 1 or not has_room(replace(config, sets=1), shape, device)):
                        yield from with_stages(config, shape, device)
                    break


def streams(shape: ConvShape, device: Device) -> Iterator[Config]:
    """Weights that stream: tiles with as many sums as registers hold, for all of which a tap's weights come once; with
    any number of octets, for pieces of them are carried. Phases of d and h as where weights stay, all in turns or none.
    """
    block = next(b for b in BLOCKS if (b.teams, b.carriers) == (2, 1))
    if math.ceil(shape.outputs / 64) % block.teams or (shape.dtype == "float32" and not shape.tf32):
        return
    joined = shape.y_step(2) if shape.y_space[2] >= shape.y_step(2) else 1
    tall = shape.most(1) if shape.most(1) > 1 else shape.most(0)
    for phases, in_turns, octets in product(sorted({1, joined}), (False, True), conv_sm90.octet_counts(shape)):
        turns = len(shape.phases) // phases if in_turns else 1
        if in_turns and (turns == 1 or phases != joined):
            continue
        plain = replace(plain_config(block, NARROWEST, 1, phases, shape), octets=octets, abreast=2, turns=turns)
        needed = max(NARROWEST, seamless_width(plain, shape))
        together = sorted({math.ceil(needed / n) * n for n in (2, 8)})
        for seamless, width in [(0, w) for w in widths(shape.most(2))] + [(1, w) for w in together]:
            for rows in range(1 + seamless, min(tall, 2 * block.most_sums // (width * phases)) + 1):
                d, h = (1, rows) if shape.most(1) > 1 else (rows, 1)
                sized = replace(plain, tile_d=d, tile_h=h, tile_w=width, tile_n=math.ceil(rows * width / 16) * 16)
                yield from with_places(replace(sized, seamless=seamless), shape, device)


def with_places(config: Config, shape: ConvShape, device: Device) -> Iterator[Config]:
    """Two tiles' worth of stages where inputs stay for several laps, else two or three; the ring has the rest."""
    chunks = conv_mma.chunks(config, shape)
    for stages in sorted({chunks, 2 * chunks}) if config.laps > 1 else (2, 3):
        for sent in (0, 1, 2) if is_sent(config, shape) else (0,):
            way = replace(config, stages=stages, sent=sent, streamed=1)
            room = device.smem_per_block_bytes - shared_bytes(way, shape) + place_bytes(way)
            if room // place_bytes(way) >= FEWEST_PLACES:
                yield replace(way, streamed=min(MOST_PLACES, room // place_bytes(way)))


Point: TypeAlias = tuple[Block, int, int, int, int]


def with_ways(points: Iterable[Point], shape: ConvShape) -> Iterator[tuple[Point, tuple[int, int]]]:
    """Each with all turns and sets that the phases of d and h allow."""
    for point in points:
        for way in ways_through_phases(len(shape.phases) // point[-1], shape):
            yield point, way


def has_room(config: Config, shape: ConvShape, device: Device) -> bool:
    """Whether weights of all phases leave room for a stage: then no block has others than the rest."""
    return staged(config, shape, device).stages >= 1


def plain_config(block: Block, width: int, rows: int, phases: int, shape: ConvShape) -> Config:
    products = 1 if shape.dtype != "float32" or shape.tf32 else 3
    tile = (1, 1, rows, width) if shape.most(1) > 1 else (1, rows, 1, width)
    warps, fold, ahead = (4, 4), conv_mma.folding(shape), True
    who = {"teams": block.teams, "carriers": block.carriers}
    return Config(products, 64, width * rows, *warps, 1, fold, 1, *tile, phases, 1, ahead, **who)


def widths(width: int) -> list[int]:
    """Multiples of 8 that cut a row into equal parts, and the widest row of all."""
    counts = range(math.ceil(width / WIDEST), math.ceil(width / NARROWEST) + 1)
    parts = {max(NARROWEST, math.ceil(width / count / 8) * 8) for count in counts}
    return sorted({*parts, *({WIDEST, WIDEST_ROW} if width > WIDEST else ())})


def with_group(config: Config, shape: ConvShape) -> Config:
    """Of pairs: all steps at once if they are few, else those from 2 to 4 that leave the fewest empty."""
    if config.products == 1:
        return config
    single = replace(config, group=1)
    steps = conv_mma.steps_of(single, conv_mma.most_taps(single, shape))
    if steps <= MOST_GROUP and conv_mma.chunks(config, shape) == 1 and len(shape.phases) == 1:
        return replace(config, group=max(1, steps))
    choices = [replace(config, group=n) for n in (4, 3, 2)]
    return min(choices, key=lambda c: kept_steps(c, shape))


def with_stages(config: Config, shape: ConvShape, device: Device) -> list[Config]:
    """With as many as there is room for, once for each way out that the results have."""
    found = []
    for sent in (0, 2) if is_sent(config, shape) else (0,):
        ways = [staged(replace(config, sent=n), shape, device) for n in ((2, 1) if sent else (0,))]
        fitting = [way for way in ways if way.stages >= 1]
        # Two slabs of a warp rather than many stages, but not with one stage where there could be two.
        found += fitting[1:] if len(fitting) > 1 and fitting[0].stages == 1 else fitting[:1]
    return found


def staged(config: Config, shape: ConvShape, device: Device) -> Config:
    room = device.smem_per_block_bytes - fixed_bytes(config, shape)
    return replace(config, stages=min(most_stages(config, shape), room // (config.rings * stage_bytes(config, shape))))


# --- what it takes


@cache
def cost_us(config: Config, shape: ConvShape, device: Device) -> float:
    """Tile after tile: what the busiest of the multiprocessor's units needs, and no less than a team, or who carries
    for it, takes for its tiles one after the other."""
    clocks = conv_mma.clocks_per_us(device)
    products = config.abreast * products_clocks(config, shape)
    busiest = max(products, shared_clocks(config, shape), issue_clocks(config, shape), engine_clocks(config))
    carrying = carrying_clocks(config, shape) / config.crews
    leaving = leaving_clocks(config, shape)
    team = (products + (idle_clocks(config, leaving) if config.streamed else leaving)) / config.rings
    tiles = conv_mma.grid(config, shape) // (shelves(config, shape) * config.abreast)
    blocks = max(1, device.multiprocessors // shelves(config, shape))
    waves = math.ceil(shelves(config, shape) / device.multiprocessors) * math.ceil(tiles / blocks)
    computing = waves * max(busiest, carrying, team) / clocks
    return moved_us(config, shape, device, computing)


def steps_per_tile(config: Config, shape: ConvShape) -> float:
    """Of an average phase, or of all that are together; of sets, of the one that has most: its blocks end last."""
    if config.sets > 1:
        return max(steps_of_sets(config, shape)) * conv_mma.chunks(config, shape)
    return config.phases_of_tile * conv_mma.k_of(config, shape) / 16


def products_clocks(config: Config, shape: ConvShape) -> float:
    each = config.rows // config.rows_at_once * config.columns / 2
    waiting = STAGE_CLOCKS * conv_mma.chunks(config, shape) * config.laps
    return config.products * steps_per_tile(config, shape) * each / TENSOR_SHARE + waiting


def shared_clocks(config: Config, shape: ConvShape) -> float:
    """Weights and pixels of every product, results in and out, inputs, weights that stream."""
    rows = 1 if config.seamless else config.rows_at_once  # that have an instruction of their own
    laps = config.rows // config.rows_at_once
    operands = config.products * steps_per_tile(config, shape) * laps * (rows * 2048 + 32 * config.columns)
    operands += 2048 * laps * steps_per_tile(config, shape) if config.streamed else 0
    results = 2 * 4 * config.tile_m * config.tile_n * config.phases_of_tile
    inputs = stage_bytes(config, shape) * conv_mma.chunks(config, shape)
    share = STREAMED_SHARED_SHARE if config.streamed else SHARED_SHARE
    return (config.abreast * (operands + results) + inputs) / 128 / share


def issue_clocks(config: Config, shape: ConvShape) -> float:
    leaving = 4 * config.abreast * leaving_instructions(config, shape)
    return (leaving + carrying_instructions(config, shape)) / 4 / ISSUE_SHARE


def stores(config: Config, shape: ConvShape) -> int:
    """Of each warp of a team, for a lap: 16 channels; lanes beyond the end of a row do nothing."""
    run, rows = run_vector(config, shape), config.rows_at_once
    results = rows * shape.y_space[2] if run else config.tile_w * config.w_phases
    return 16 * (1 if run else rows) * math.ceil(results / stored_vector(config, shape) / 32)


def slab_vector(config: Config, shape: ConvShape) -> int:
    """Neighbours of a row in pieces that a lane stores at once."""
    return conv_mma.widest_vector(shape, config.tile_w * config.w_phases)


def row_vector(config: Config, shape: ConvShape) -> int:
    """Pixels that a walk sees at once: a thread's two places, where neither loads nor the end of a line say fewer."""
    if shape.rows is not None and shape.rows.alike and not shape.rows.line:
        return math.gcd(4, 2 * config.w_phases)
    return conv_mma.widest_vector(shape, 2 * config.w_phases)


def stored_vector(config: Config, shape: ConvShape) -> int:
    return run_vector(config, shape) or conv_mma.vector(config, shape)


def store_instructions(config: Config, shape: ConvShape) -> int:
    return STORE_INSTRUCTIONS + stored_vector(config, shape) * RESULT_INSTRUCTIONS


def leaving_instructions(config: Config, shape: ConvShape) -> float:
    """Of the same warp, for a tile."""
    sums = config.columns * config.w_phases // 2
    if shape.rows is not None and shape.rows.window:
        size = math.prod(shape.rows.window)
        windows = math.ceil(16 * config.rows_at_once * config.tile_w / size / 32)
        each: float = windows * (WINDOW_INSTRUCTIONS + size * (2 + shape.rows.flops)) + sums * SUM_INSTRUCTIONS
    elif shape.rows is not None and shape.rows.pieces is not None:
        store = STORE_INSTRUCTIONS + slab_vector(config, shape) * RESULT_INSTRUCTIONS
        runs = 16 * config.rows_at_once * math.ceil(config.tile_w * config.w_phases / slab_vector(config, shape) / 32)
        each = sums * (shape.rows.flops + PIECE_INSTRUCTIONS + SUM_INSTRUCTIONS) + runs * store
    elif conv_mma.leaves_by_rows(config, shape):
        each = sums * channel_instructions(config, shape) + stores(config, shape) * MOVE_INSTRUCTIONS
        if shape.rows is not None and shape.rows.line:
            each += 2 * config.rows_at_once * LINE_INSTRUCTIONS
        else:
            each += PIXEL_INSTRUCTIONS * math.ceil(config.rows_at_once * config.tile_w * config.w_phases / 128)
    elif shape.rows is not None:
        stored = conv_mma.RESULT_INSTRUCTIONS if shape.rows.phases > len(shape.rows.state_bytes) else 0
        each = sums * (conv_mma.row_instructions(config, shape) + stored + SUM_INSTRUCTIONS)
        each += PIXEL_INSTRUCTIONS * math.ceil(config.rows_at_once * config.tile_w * config.w_phases / 128)
    elif config.sent:
        each = sums * SENT_INSTRUCTIONS + 2 * config.rows_at_once * SLAB_INSTRUCTIONS
    else:
        each = stores(config, shape) * store_instructions(config, shape) + sums * SUM_INSTRUCTIONS
    again = LAP_INSTRUCTIONS + CHUNK_OF_LAP_INSTRUCTIONS * conv_mma.chunks(config, shape)
    return config.laps * each + (config.laps - 1) * again


def channel_instructions(config: Config, shape: ConvShape) -> float:
    """Of a sum whose channels are reduced and stored again."""
    assert shape.rows is not None
    computed = shape.rows.flops * (NEAR_SHARE if config.products == 1 else 1.0)
    vector, states = row_vector(config, shape), sum(shape.rows.state_bytes) / 8
    merged = 0.0 if shape.rows.line else MERGES[vector] * states * MERGE_INSTRUCTIONS / (2 * vector)
    return computed + merged + WALK_INSTRUCTIONS * shape.rows.phases + PUT_INSTRUCTIONS


def carrying_instructions(config: Config, shape: ConvShape) -> float:
    """Of all warps that carry, for a tile."""
    elements = conv_mma.elements_of(config, shape)
    chunks = config.crew_warps * CHUNK_INSTRUCTIONS * conv_mma.chunks(config, shape)
    of_octet = OCTET_INSTRUCTIONS + (SPOT_INSTRUCTIONS if config.streamed else 0)
    return chunks + elements * (ELEMENT_INSTRUCTIONS[config.products] + of_octet / 8) / 32


def engine_clocks(config: Config) -> float:
    """Of the copy engine: a run of every row and channel."""
    return config.abreast * config.tile_m * config.rows * config.turns * SENT_RUN_CLOCKS if config.sent else 0.0


def leaving_clocks(config: Config, shape: ConvShape) -> float:
    """Of one team. Of two abreast one may be ahead by a stage, and begin while the other one ends (a fit)."""
    ending = config.laps * (LEAVING_CLOCKS if config.abreast == 1 else 0)
    if config.sent:
        return leaving_instructions(config, shape) / SENT_ISSUE + ending
    if shape.rows is not None:
        return leaving_instructions(config, shape) / OWN_ISSUE + ending
    fetched = config.laps * max(0, stores(config, shape) - NEAR_STORES) * store_instructions(config, shape)
    return (leaving_instructions(config, shape) + FAR_CODE * fetched) / OWN_ISSUE + ending


def idle_clocks(config: Config, leaving: float) -> float:
    """Where weights stream: of the tensor cores, while teams end the laps of a tile. One may be ahead by all places of
    the ring, and multiply alone while the other ends (arithmetic, not measured)."""
    ahead = config.laps * config.streamed * config.place_steps * config.columns / 2 / TENSOR_SHARE
    return min(leaving, max(0.0, 2 * (leaving - ahead)))


def carrying_clocks(config: Config, shape: ConvShape) -> float:
    """Of a crew. Where it has one chunk on its way it waits for it; with two, for half of it at most; and for teams
    abreast always for half (a fit): both teams must be done with a stage before it is filled again."""
    chunks = conv_mma.chunks(config, shape)
    working = carrying_instructions(config, shape) / config.crew_warps / OWN_ISSUE + CARRYING_CLOCKS * chunks
    if config.streamed:
        units = config.octets * conv_mma.pixels(config, shape)
        pieces = math.ceil(units / (32 * config.crew_warps * PIECE))
        return max(working, (working + MEMORY_CLOCKS * pieces * chunks) / 2)
    waited = working + MEMORY_CLOCKS * chunks
    if config.abreast > 1:
        return (working + waited) / 2
    return waited if config.crews == 2 else max(working, waited / 2)


def moved_us(config: Config, shape: ConvShape, device: Device, computing: float) -> float:
    """As conv_mma's; but weights are read once, or stream from L2, and rows that make up one run end once."""
    runs = conv_mma.run_bytes(replace(config, ahead=False), shape) / (config.tile_h if run_vector(config, shape) else 1)
    runs *= RUN_BYTES[config.carriers] / conv_mma.RUN_BYTES[False]
    whole = shape.y_step(2) == config.w_phases  # else lines are written by several phases in turn
    written = shape.epilogue_bytes * (1 if whole else conv_mma.SPREAD[False]) + runs
    moving = (shape.bytes_moved - shape.epilogue_bytes + written) / (device.copy_gbps * conv_mma.STREAM_SHARE) / 1e3
    streaming = steps_per_tile(config, shape) * 2048 * config.abreast if config.streamed else 0.0
    fetched = conv_mma.grid(config, shape) // config.abreast * (conv_mma.fetched_bytes(config, shape) + streaming)
    l2 = fetched / conv_mma.L2_BYTES_PER_US
    packing = 0.0 if shape.constant else LAUNCH_US
    return LAUNCH_US + packing + beside_us(computing, max(moving, l2))


# --- C++


def arithmetic(config: Config, shape: ConvShape) -> str:
    if config.products == 3:
        k = 16 * config.group
        return f"float32 as pairs of float16, three tensor-core products, summed in float32 every {k} of k"
    return conv_mma.arithmetic(config, shape)


def entry(name: str, config: Config, shape: ConvShape, epilogue: str) -> str:
    more = integers(
        teams=config.teams,
        carriers=config.carriers,
        stages=config.stages,
        kept=max(1, kept_steps(config, shape)),
        sent=config.sent,
        abreast=config.abreast,
        lap_rows=config.rows_at_once,
        streamed=config.streamed,
        piece=PIECE,
        seamless=config.seamless,
        behind=behind(config, shape),
        sets=config.sets,
        least_taps=min(conv_mma.taps_of(config, phase) for phase in shape.phases),
        run_vector=run_vector(config, shape),
        slab_vector=slab_vector(config, shape) if shape.rows is not None and shape.rows.pieces is not None else 0,
        row_vector=row_vector(config, shape),
    )
    d, h, w = shape.phases[0].axes
    taps = (d.taps, h.taps, math.ceil(w.taps / config.fold))
    steps = integers(**by_axis("taps", taps), **by_axis("x_step", (d.x_step, h.x_step, w.x_step)))  # of the first phase
    # What becomes of sums is computed where they are; not where their phases are apart, which leaves too few registers.
    said = {
        "valued": shape.sendable and config.w_phases == shape.y_step(2),
        "by_rows": conv_mma.leaves_by_rows(config, shape),
        "alike": shape.rows is not None and shape.rows.alike,
    }
    flags = ", ".join(f"{name} = {str(value).lower()}" for name, value in said.items())
    more += f"\n{steps}\n    static constexpr bool {flags};"
    packer = "conv_sm90_kept" if config.streamed else "conv_mma"
    return conv_mma.entry(name, config, shape, epilogue, "conv_sm90_kept", [more], packer)
