"""The Hopper convolution whose weights stay (conv_sm90_kept.cuh): configs that fit, what they should cost, entries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from kernelwright.device import Device
from kernelwright.kernels import conv_mma, conv_sm90
from kernelwright.kernels.conv_mma import floor_us, packed_bytes
from kernelwright.kernels.conv_shape import ConvShape, by_axis, integers
from kernelwright.kernels.gemm_shape import LAUNCH_US, beside_us

__all__ = ["HEADERS", "Config", "arithmetic", "configs", "cost_us", "entry", "floor_us", "packed_bytes", "why_not"]

HEADERS = (*conv_sm90.HEADERS, "conv_kept_ends", "conv_kept_carry", "wgmma_rows", "conv_sm90_kept")

ROWS = (1, 2, 4)  # of a tile
NARROWEST, WIDEST, WIDEST_ROW = 32, 128, 256  # of a row; the last where it is alone
MOST_STAGES = 4  # or two tiles' worth, where a tile's inputs stay for several laps
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
    sums, and inputs on their way: of one octet, of several, whose places differ, and pairs, which take more to make."""

    teams: int
    carriers: int
    most_sums: int
    most_held_of_one: int
    most_held: int
    most_held_of_pairs: int


# Three teams for what is bound by its results, with small tiles; two for what is bound by products.
BLOCKS = (Block(3, 1, 64, 64, 48, 64), Block(2, 1, 128, 80, 64, 48), Block(2, 2, 88, 64, 64, 48))
# With two warpgroups that carry, sums of several phases leave fewer registers for where results go.
MOST_SUMS_OF_PHASES = 64


@dataclass(frozen=True, slots=True)
class Config(conv_sm90.Config):
    """As for wgmma, a warpgroup with its tile instead of a block; teams and carriers: warpgroups; stages: of a team.
    sent: slabs of a warp that the copy engine takes to memory; 0: threads store what is in the one there is;
    abreast: teams that have the same tile, each with 64 channels of its own; lap_rows: rows of a tile whose sums a
    team has at once, 0: all."""

    teams: int = 2
    carriers: int = 1
    stages: int = 2
    sent: int = 0
    abreast: int = 1
    lap_rows: int = 0

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
    def laps(self) -> int:
        """In which a tile is multiplied and stored, of inputs that are carried once."""
        return self.rows // self.rows_at_once * self.turns

    @property
    def block(self) -> Block:
        return next(b for b in BLOCKS if (b.teams, b.carriers) == (self.teams, self.carriers))


# --- sizes, as conv_sm90_kept.cuh has them


def kept_steps(config: Config, shape: ConvShape) -> int:
    """Of weights that stay: steps of 16 of k of all chunks and phases, hi and lo."""
    steps = sum(conv_mma.steps_of(config, conv_mma.taps_of(config, phase)) for phase in shape.phases)
    return steps * conv_mma.chunks(config, shape) * conv_mma.halves(config)


def stage_bytes(config: Config, shape: ConvShape) -> int:
    return config.octets * conv_mma.pixels(config, shape) * 16 * conv_mma.halves(config)


def run_vector(config: Config, shape: ConvShape) -> int:
    """Neighbours of one store where a tile has whole rows, which follow each other in memory; else 0."""
    width = shape.y_space[2]
    plane, run = shape.y_space[1] * width, config.rows_at_once * width
    whole = shape.flat and len(shape.phases) == 1 and config.tile_d == 1 and config.tile_w >= width and width % 2 == 0
    if not whole or config.rows_at_once == 1 or config.abreast > 1:  # where weights leave no room for whole runs
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
    if shape.rows is None or shape.rows.window or shape.rows.pieces is not None:
        return 4 * config.teams * max(1, config.sent) * slab_bytes(config, shape)
    slots = config.rows_at_once * config.tile_w * config.w_phases
    states = 4 * config.abreast * max(shape.rows.state_bytes)
    return config.rings * (slots * (shape.rows.row_bytes + states) + 64)


def is_pooled(shape: ConvShape) -> bool:
    return shape.rows is not None and bool(shape.rows.window)


def fixed_bytes(config: Config, shape: ConvShape) -> int:
    """Weights, tables, what leaves, barriers of the most stages, and what alignment may add."""
    steps = max(1, conv_mma.steps_of(config, conv_mma.most_taps(config, shape)))
    barriers = 20 * config.teams * most_stages(config, shape)
    tables = 8 * len(shape.phases) * steps + 128 * config.carriers + barriers + 64
    return 2048 * config.abreast * max(1, kept_steps(config, shape)) + tables + ends_bytes(config, shape)


def most_stages(config: Config, shape: ConvShape) -> int:
    return MOST_STAGES if config.laps == 1 else max(MOST_STAGES, 2 * conv_mma.chunks(config, shape))


def shared_bytes(config: Config, shape: ConvShape) -> int:
    return fixed_bytes(config, shape) + config.rings * config.stages * stage_bytes(config, shape)


def sums(config: Config, shape: ConvShape) -> int:
    """Registers of one who multiplies; of pairs twice, unless all of k is summed at once."""
    total = config.rows_at_once * config.tile_w // 2 * config.w_phases
    return total if config.products == 1 or sums_once(config, shape) else 2 * total


def sums_once(config: Config, shape: ConvShape) -> bool:
    steps = conv_mma.steps_of(config, conv_mma.most_taps(config, shape))
    return len(shape.phases) == 1 and conv_mma.chunks(config, shape) == 1 and steps <= config.group


def held(config: Config, shape: ConvShape) -> int:
    """Registers of one who carries: one chunk on its way, or two if there is no other crew."""
    threads = 128 * config.carriers // config.crews
    rounds = math.ceil(config.octets * conv_mma.pixels(config, shape) / threads)
    return (2 if config.crews == 1 else 1) * 8 * rounds


def most_sums(config: Config, shape: ConvShape) -> int:
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
    return shape.groups * (math.ceil(shape.outputs / config.tile_m) // config.abreast)


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
    if config.tile_w % 8 or config.tile_n % 16 or config.tile_n != math.prod(config.tile):
        return f"tiles of {config.tile} are not rows of whole products."
    if config.rows % config.rows_at_once or config.turns not in (1, len(shape.phases) // config.w_phases):
        return f"laps of {config.rows_at_once} of {config.rows} rows and {config.turns} phases do not make up a tile."
    if (reason := conv_mma.why_not_reduced(of_a_lap(config), shape)) is not None:
        return reason
    if config.laps > 1 and config.stages < conv_mma.chunks(config, shape):
        return f"{config.stages} stages do not hold the inputs of a tile until its last lap."
    if (needed := sums(config, shape)) > most_sums(config, shape):
        return f"{needed} registers for sums leave those who multiply too few."
    if (needed := held(config, shape)) > most_held(config):
        return f"{needed} registers for inputs on their way are more than those who carry have."
    if max(conv_mma.region(config, shape)) >= 2**16:
        return "a place among the inputs of a tile has 16 bits along each axis."
    needed, most = shared_bytes(config, shape), device.smem_per_block_bytes
    if needed > most:
        return (
            f"weights that stay, and the stages, need {needed:,} B of shared memory; {device.arch} allows {most:,} B."
        )
    return conv_mma.why_not_convolved(config, shape, device)


@cache
def configs(shape: ConvShape, device: Device) -> tuple[Config, ...]:
    """The best width for every kind of block, number of rows and of octets, way out, and with or without laps, the
    most promising first."""
    best: dict[tuple[Block, int, int, bool, int, bool], Config] = {}
    for config in candidates(shape, device):
        key = (config.block, config.rows, config.octets, config.sent > 0, config.abreast, config.laps > 1)
        if why_not(config, shape, device) is None and (
            key not in best or cost_us(config, shape, device) < cost_us(best[key], shape, device)
        ):
            best[key] = config
    return tuple(sorted(best.values(), key=lambda config: cost_us(config, shape, device)))


def candidates(shape: ConvShape, device: Device) -> Iterator[Config]:
    """Rows of a tile along h, or along d where there is one row; each with the most octets that can be carried.

    One warpgroup carries for teams abreast only where all channels are one chunk. With several it took 12 and 28% more
    than two, in the two cases that were measured, which differ in width or octets as well. Phases of d and h are taken
    in turns, row by row where registers are few. Rows of other convolutions could be too, but then all channels must be
    there at once: with 64 of them a tile of so many rows leaves no room for the next one, or for teams abreast.
    """
    joined = shape.y_step(2) if shape.y_space[2] >= shape.y_step(2) else 1
    space = product(BLOCKS, widths(shape.most(2)), ROWS, ROWS, sorted({1, joined}), (False, True))
    for block, width, rows, at_once, phases, in_turns in space:
        turns = len(shape.phases) // phases if in_turns else 1
        if width * at_once * phases // 2 > block.most_sums or (width > WIDEST and at_once > 1):
            continue
        if rows > shape.most(0) * shape.most(1) or rows % at_once or (at_once < rows and not in_turns):
            continue
        if in_turns and (turns == 1 or phases != joined):
            continue
        plain = plain_config(block, width, rows, phases, shape)
        plain = replace(plain, lap_rows=0 if at_once == rows else at_once, turns=turns)
        for abreast in (1, 2) if block.teams == 2 and math.ceil(shape.outputs / plain.tile_m) % 2 == 0 else (1,):
            for octets in conv_sm90.octet_counts(shape):
                config = with_group(replace(plain, octets=octets, abreast=abreast), shape)
                if held(config, shape) <= most_held(config):
                    if abreast == 1 or block.carriers == 2 or conv_mma.chunks(config, shape) == 1:
                        yield from with_stages(config, shape, device)
                    break


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
    team = (products + leaving_clocks(config, shape)) / config.rings
    tiles = conv_mma.grid(config, shape) // (shelves(config, shape) * config.abreast)
    blocks = max(1, device.multiprocessors // shelves(config, shape))
    waves = math.ceil(shelves(config, shape) / device.multiprocessors) * math.ceil(tiles / blocks)
    computing = waves * max(busiest, carrying, team) / clocks
    return moved_us(config, shape, device, computing)


def steps_per_tile(config: Config, shape: ConvShape) -> float:
    """Of an average phase, or of all that are together."""
    return config.phases_of_tile * conv_mma.k_of(config, shape) / 16


def products_clocks(config: Config, shape: ConvShape) -> float:
    each = config.rows * config.tile_w / 2
    waiting = STAGE_CLOCKS * conv_mma.chunks(config, shape) * config.laps
    return config.products * steps_per_tile(config, shape) * each / TENSOR_SHARE + waiting


def shared_clocks(config: Config, shape: ConvShape) -> float:
    """Weights and pixels of every product, results in and out, inputs."""
    operands = config.products * steps_per_tile(config, shape) * config.rows * (2048 + 32 * config.tile_w)
    results = 2 * 4 * config.tile_m * config.tile_n * config.phases_of_tile
    inputs = stage_bytes(config, shape) * conv_mma.chunks(config, shape)
    return (config.abreast * (operands + results) + inputs) / 128 / SHARED_SHARE


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


def stored_vector(config: Config, shape: ConvShape) -> int:
    return run_vector(config, shape) or conv_mma.vector(config, shape)


def store_instructions(config: Config, shape: ConvShape) -> int:
    return STORE_INSTRUCTIONS + stored_vector(config, shape) * RESULT_INSTRUCTIONS


def leaving_instructions(config: Config, shape: ConvShape) -> float:
    """Of the same warp, for a tile."""
    sums = config.rows_at_once * config.tile_w * config.w_phases // 2
    if shape.rows is not None and shape.rows.window:
        size = math.prod(shape.rows.window)
        windows = math.ceil(16 * config.rows_at_once * config.tile_w / size / 32)
        each: float = windows * (WINDOW_INSTRUCTIONS + size * (2 + shape.rows.flops)) + sums * SUM_INSTRUCTIONS
    elif shape.rows is not None and shape.rows.pieces is not None:
        store = STORE_INSTRUCTIONS + slab_vector(config, shape) * RESULT_INSTRUCTIONS
        runs = 16 * config.rows_at_once * math.ceil(config.tile_w * config.w_phases / slab_vector(config, shape) / 32)
        each = sums * (shape.rows.flops + PIECE_INSTRUCTIONS + SUM_INSTRUCTIONS) + runs * store
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


def carrying_instructions(config: Config, shape: ConvShape) -> float:
    """Of all warps that carry, for a tile."""
    elements = conv_mma.elements_of(config, shape)
    chunks = 4 * config.carriers // config.crews * CHUNK_INSTRUCTIONS * conv_mma.chunks(config, shape)
    return chunks + elements * (ELEMENT_INSTRUCTIONS[config.products] + OCTET_INSTRUCTIONS / 8) / 32


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


def carrying_clocks(config: Config, shape: ConvShape) -> float:
    """Of a crew. Where it has one chunk on its way it waits for it; with two, for half of it at most; and for teams
    abreast always for half (a fit): both teams must be done with a stage before it is filled again."""
    chunks, warps = conv_mma.chunks(config, shape), 4 * config.carriers // config.crews
    working = carrying_instructions(config, shape) / warps / OWN_ISSUE + CARRYING_CLOCKS * chunks
    waited = working + MEMORY_CLOCKS * chunks
    if config.abreast > 1:
        return (working + waited) / 2
    return waited if config.crews == 2 else max(working, waited / 2)


def moved_us(config: Config, shape: ConvShape, device: Device, computing: float) -> float:
    """As conv_mma's; but weights are read once, and rows that make up one run end once."""
    runs = conv_mma.run_bytes(replace(config, ahead=False), shape) / (config.tile_h if run_vector(config, shape) else 1)
    runs *= RUN_BYTES[config.carriers] / conv_mma.RUN_BYTES[False]
    whole = shape.y_step(2) == config.w_phases  # else lines are written by several phases in turn
    written = shape.epilogue_bytes * (1 if whole else conv_mma.SPREAD[False]) + runs
    moving = (shape.bytes_moved - shape.epilogue_bytes + written) / (device.copy_gbps * conv_mma.STREAM_SHARE) / 1e3
    fetched = conv_mma.grid(config, shape) // config.abreast * conv_mma.fetched_bytes(config, shape)
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
        least_taps=min(conv_mma.taps_of(config, phase) for phase in shape.phases),
        run_vector=run_vector(config, shape),
        slab_vector=slab_vector(config, shape) if shape.rows is not None and shape.rows.pieces is not None else 0,
    )
    d, h, w = shape.phases[0].axes
    taps = (d.taps, h.taps, math.ceil(w.taps / config.fold))
    steps = integers(**by_axis("taps", taps), **by_axis("x_step", (d.x_step, h.x_step, w.x_step)))  # of the first phase
    # What becomes of sums is computed where they are; not where their phases are apart, which leaves too few registers.
    valued = shape.sendable and config.w_phases == shape.y_step(2)
    more += f"\n{steps}\n    static constexpr bool valued = {str(valued).lower()};"
    return conv_mma.entry(name, config, shape, epilogue, "conv_sm90_kept", [more])
