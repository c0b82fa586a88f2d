"""A block of conv_sm90_kept.cuh: who is in it, its config, and what it needs of shared memory and of registers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kernelwright.kernels import conv_mma, conv_sm90
from kernelwright.kernels.conv_shape import ConvShape

MOST_STAGES = 4  # or two tiles' worth, where a tile's inputs stay for several laps
# Octets that a thread carries at once, twice, where weights stream: not measured; registers for so many do not spill
# (seen by compiling).
PIECE = 3


@dataclass(frozen=True, slots=True)
class Block:
    """Warpgroups that multiply and that carry, and what their threads may hold without a spill (seen by compiling):
    sums, and sums whose channels are reduced and stored again; inputs on their way: of one octet, of several, whose
    places differ, and of several as pairs, which take more to make."""

    teams: int
    carriers: int
    most_sums: int
    most_sums_again: int
    most_held_of_one: int
    most_held: int
    most_held_of_pairs: int


# Three teams for what is bound by its results, with small tiles; two for what is bound by products.
BLOCKS = (Block(3, 1, 64, 40, 64, 48, 64), Block(2, 1, 128, 72, 80, 64, 48), Block(2, 2, 88, 40, 64, 64, 48))
# With two warpgroups that carry, sums of several phases leave fewer registers for where results go. Where both carry
# for one ring, whether channels of a last chunk of more than two octets are there takes what more inputs would.
MOST_SUMS_OF_PHASES, MOST_HELD_OF_RAGGED = 64, 32
# Of odd rows in pieces, whose results are stored one by one, by the number of warpgroups that carry.
MOST_SUMS_OF_ODD_PIECES = {1: 112, 2: 48}
# Of pairs in more than two rows, each of which ends by itself; and where taps share an octet. There 128 sums would
# spill in those who carry, or, with more registers for them, take longer than 64 do (3 channels of 3 x 3 x 1 on an
# H200: 1,190 us, and 957 with 64).
MOST_PAIRS_OF_ROWS, MOST_FOLDED_PAIRS = 120, 64
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
    in_pieces = shape.rows is not None and shape.rows.pieces is not None
    if config.streamed:
        of_phases = MOST_STREAMED_OF_PHASES if len(shape.phases) > 1 else config.block.most_sums
        return min(of_phases, MOST_STREAMED_OF_PIECES) if in_pieces else of_phases
    several = config.carriers == 2 and len(shape.phases) > 1
    if config.products == 3 and config.fold > 1:
        return min(config.block.most_sums, MOST_FOLDED_PAIRS)
    if in_pieces and slab_vector(config, shape) == 1:
        return min(config.block.most_sums, MOST_SUMS_OF_ODD_PIECES[config.carriers])
    of_rows = MOST_PAIRS_OF_ROWS if config.products == 3 and config.rows_at_once > 2 else config.block.most_sums
    return min(config.block.most_sums, MOST_SUMS_OF_PHASES) if several else min(config.block.most_sums, of_rows)


def most_held(config: Config) -> int:
    if config.octets == 1:
        return config.block.most_held_of_one
    return config.block.most_held_of_pairs if config.products == 3 else config.block.most_held


def is_ragged(config: Config, shape: ConvShape) -> bool:
    """Whether two warpgroups carry for one ring chunks of more than two octets, of which the last one has fewer."""
    return config.carriers > config.crews and config.octets > 2 and shape.channels % (8 * config.octets) != 0


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


def slab_vector(config: Config, shape: ConvShape) -> int:
    """Neighbours of a row in pieces that a lane stores at once."""
    return conv_mma.widest_vector(shape, config.tile_w * config.w_phases)


def row_vector(config: Config, shape: ConvShape) -> int:
    """Pixels that a walk sees at once: a thread's two places, where neither loads nor the end of a line say fewer."""
    if shape.rows is not None and shape.rows.alike and not shape.rows.line:
        return math.gcd(4, 2 * config.w_phases)
    return conv_mma.widest_vector(shape, 2 * config.w_phases)
