"""The tensor-core convolution (conv_mma.cuh): its configs, which fit, what each should take, its entry."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from kernelwright.device import Device
from kernelwright.kernels.conv_shape import CPP_TYPE, ITEMSIZE, ConvShape, by_axis, integers, phase_text, size_lines
from kernelwright.kernels.conv_shape import floor_us as floor_at
from kernelwright.kernels.gemm_shape import LAUNCH_US, beside_us
from kernelwright.plan.convolutions import Phase

__all__ = ["HEADERS", "Config", "arithmetic", "configs", "cost_us", "entry", "floor_us", "packed_bytes", "why_not"]

HEADERS = ("ptx90", "ptx80", "gemm_prologue", "split", "conv_space", "conv_mma")

# Phases are a kernel argument, of which there are 4 KB.
MOST_PHASES = 32
MOST_GRID = 2**31 - 1
MOST_BLOCKS = 8  # of a multiprocessor: more hide no more latency

# tile_m, tile_n, warps, warps along m; by the number of products.
TILES = {
    1: (
        *((128, 128, 8, 2), (128, 64, 8, 4), (64, 256, 8, 2), (64, 128, 4, 2), (64, 64, 4, 2)),
        *((32, 256, 8, 1), (32, 128, 4, 1), (16, 256, 8, 1)),
    ),
    3: ((64, 128, 8, 2), (64, 64, 4, 2), (32, 256, 8, 1), (32, 128, 4, 1), (16, 256, 8, 1)),
}

# Blocks that leave what they know of rows, as conv_gathered.cuh has it.
MOST_GATHERING = 1024

# Registers that a thread may hold of the next channels while it multiplies these.
MOST_HELD = 48
# What a thread needs beside its sums and what it holds: addresses, fragments, counters (seen by compiling).
OTHER_REGISTERS = 48
MOST_REGISTERS = 240
# What a block that asks for a tile while it ends another must know of both (seen by compiling).
AHEAD_REGISTERS = 16
# What an epilogue that reduces takes beside the sums of several phases (seen by compiling); of one phase, nothing more.
REDUCING_REGISTERS = 32
# What blocks that keep states of rows take for each channel beside its states, and what they find among other registers
# (seen by compiling three of them).
GATHERING_CHANNEL, GATHERING_SPARED = 4, 18
# What an epilogue with operands takes where results are stored one by one, each with its own coordinates.
SCATTERED_REGISTERS = 12

# Estimates, none measured yet: mma.sync reaches 0.62 of wgmma's rate, and a loop like this one 0.7 of that (gemm_sm80).
MMA_RATE = 0.62
MMA_SHARE = MMA_RATE * 0.7
# Two blocks of eight warps whose threads have 64 sums each take longer than all of it says; fitted to eight of them
# (benchmarks/results/2026-11-16-conv-kept-h200.jsonl): seven of the eight were priced 10 to 26% too low.
CROWDED = 1.2
# Where blocks gather sums, narrow tiles take longer than all of it says: 573, 433 and 396 us with rows of 8, 16 and 32
# (H200: ConvTranspose3d of 3 to 16 channels with a stride of 2, on 64 x 32^3, and all that follows). Why is not known.
NARROW_GATHERED = 0.45
# Clocks from the request for weights to their use, if they come from L2 and if from L1.
L2_CLOCKS = 350
L1_CLOCKS = 100
# Instructions (counted in SASS) for a result, for an element of the region and for each of its pixels, for a thread
# to begin, and for a warp in a step of 16 of k beside its loads and products; what a multiprocessor issues of them in a
# clock, and what of one warp. With these a tile of 128 x 256 results that is alone on a multiprocessor ends 6 us after
# its products, as was measured of a matrix product that ends in the same way.
RESULT_INSTRUCTIONS = 14
ELEMENT_INSTRUCTIONS = 16
PIXEL_INSTRUCTIONS = 42
THREAD_INSTRUCTIONS = 150
TURN_INSTRUCTIONS = 60  # instead, where phases follow of the same inputs; by arithmetic, not measured
LOOP_INSTRUCTIONS = 16
ISSUED = 80
ISSUED_OF_WARP = 10
# Where the epilogue reduces: shuffles of a pixel's state over 8 lanes, what each costs with the merge after it, what a
# further phase costs besides what it computes (counted in SASS), and its barriers.
SHUFFLES = 3
MERGE_INSTRUCTIONS = 4
PHASE_INSTRUCTIONS = 6
WINDOW_INSTRUCTIONS = 14  # of a sum that goes through shared memory to its window
# Of a sum that is added to the state of its row and nothing else: scaled back, asked whether it is finite, and its part
# of the coordinates of two places. By arithmetic, not measured.
ADDED_INSTRUCTIONS = 5
# Results that leave in pairs cost so much more of memory's time than their bytes: 3.5, 5.2 and 4 times in problems 73,
# 15 and 72 of KernelBench's level 2 (benchmarks/results/2026-11-16-level2-conv-h200.jsonl).
PAIRED = 4.0
PHASE_US = 0.4
FLOPS_PER_CLOCK = 256  # of a multiprocessor, in float32: tells the clock from the peak
FIRST_US = 1.5  # from a block's launch to its first load, and the drain of its stores
AHEAD_US = 0.3  # instead, where the next tile's inputs were asked for before the results of this one leave
# Of memory's time, as bytes: for every row of a tile that is written, fitted to tiles of 8 to 128 columns; and for a
# byte that is not beside the others of its tile. Blocks that stay write the ends of a line further apart in time.
RUN_BYTES = {False: 104, True: 200}
ALIGNED_SHARE = 0.25  # of that, where rows begin at whole sectors; a guess, none was measured
SPREAD = {False: 2.5, True: 4.0}
CHUNK_US = 0.8  # a load that the block waits for
L2_BYTES_PER_US = 5.5e6
STREAM_SHARE = 0.88  # of a copy's bandwidth


@dataclass(frozen=True, slots=True)
class Config:
    """products: 1 as TF32, 3 as float32; tile_m channels by tile_n pixels, of which the tile of outputs is tile_b
    images by tile_d by tile_h by tile_w; octets: of channels in shared memory at once; fold: taps along w in an
    octet; group: steps of 16 of k that are multiplied together; turns: phases of d and h that a tile has, one after
    the other, of inputs that are carried once."""

    products: int
    tile_m: int
    tile_n: int
    warps: int
    warps_m: int
    octets: int
    fold: int
    group: int
    tile_b: int
    tile_d: int
    tile_h: int
    tile_w: int
    w_phases: int  # phases of the last axis that a block computes together: 1 or all
    blocks: int  # on a multiprocessor at once
    ahead: bool = False  # a block asks for a tile while it ends another
    turns: int = 1

    @property
    def stores_slabs(self) -> bool:
        """Whether what is computed of rows that a tile has reduced leaves through slabs, as other results do."""
        return False

    @property
    def tile(self) -> tuple[int, int, int]:
        return (self.tile_d, self.tile_h, self.tile_w)

    @property
    def phases_of_tile(self) -> int:
        """That are computed of the same inputs."""
        return self.w_phases * self.turns

    def joins(self, axis: int) -> bool:
        """Whether a tile has all phases of an axis."""
        return self.w_phases > 1 if axis == 2 else self.turns > 1

    def row_of_region(self, needed: int) -> int:
        """Inputs along the last axis that are carried, of which a tile needs so many."""
        return needed


AnyConfig = TypeVar("AnyConfig", bound=Config)

# --- sizes, as conv_mma.cuh has them


def region(config: Config, shape: ConvShape) -> tuple[int, int, int]:
    """Inputs along each axis that a tile of any phase, or of all that are together, reads."""
    d, h, w = ((t - 1) * shape.stride(i) + reach(config, shape, i) for i, t in enumerate(config.tile))
    return d, h, config.row_of_region(w)


def reach(config: Config, shape: ConvShape, axis: int) -> int:
    """The most inputs that a place reads along an axis; of the last one, whole octets of taps."""
    fold = config.fold if axis == 2 else 1
    axes = [phase.axes[axis] for phase in shape.phases if phase.axes[axis].taps]
    last = [(math.ceil(a.taps / fold) - 1) * fold * a.x_step + 1 for a in axes]
    if not config.joins(axis):
        return max(last, default=1)
    return max((a.x_first - base(shape, axis) + n for a, n in zip(axes, last, strict=True)), default=1)


def base(shape: ConvShape, axis: int) -> int:
    """The first input that a place of any phase reads along an axis."""
    return min((phase.axes[axis].x_first for phase in shape.phases if phase.axes[axis].taps), default=0)


def pixels(config: Config, shape: ConvShape) -> int:
    """Of the region in shared memory, where a row is a whole number of strides."""
    d, h, w = region(config, shape)
    stride = shape.stride(2)
    return config.tile_b * d * h * (math.ceil(w / stride) * stride)


def taps_of(config: Config, phase: Phase) -> int:
    """Those that share an octet counted as one."""
    d, h, w = (axis.taps for axis in phase.axes)
    return d * h * math.ceil(w / config.fold)


def most_taps(config: Config, shape: ConvShape) -> int:
    return max(taps_of(config, phase) for phase in shape.phases)


def steps_of(config: Config, taps: int) -> int:
    """Steps of 16 of k in a chunk of channels."""
    return math.ceil(math.ceil(config.octets * taps / 2) / config.group) * config.group


def chunks(config: Config, shape: ConvShape) -> int:
    return math.ceil(shape.channels * config.fold / (8 * config.octets))


def rounds(config: Config, shape: ConvShape) -> int:
    """Octets that a thread carries at once."""
    return math.ceil(config.octets * pixels(config, shape) / (config.warps * 32))


def shared_bytes(config: Config, shape: ConvShape) -> int:
    """The inputs of a tile and where they lie; when they are no longer needed, its end has their place."""
    units = config.octets * pixels(config, shape)
    buffers = 2 if chunks(config, shape) > 1 else 1
    steps = config.phases_of_tile * steps_of(config, most_taps(config, shape))
    tables = math.ceil(4 * (config.fold * pixels(config, shape) + 2 * steps + config.warps) / 16) * 16
    inputs, end = buffers * halves(config) * units * 16, end_bytes(config, shape)
    return tables + (inputs + end if config.turns > 1 else max(inputs, end))


def slab_bytes(config: Config) -> int:
    """What a warp's results go through: 16 channels of some columns."""
    eights = max(1, 8 // config.w_phases)
    while config.tile_n * config.warps_m // config.warps // 8 % eights:
        eights //= 2
    return 16 * 4 * (8 * eights * config.w_phases + 8)


def end_bytes(config: Config, shape: ConvShape) -> int:
    if shape.rows is None:
        return config.warps * slab_bytes(config)
    if shape.rows.window:
        return config.tile_m * (math.ceil(config.tile_n / 32) * 32 + 8) * 4
    if shape.rows.pieces is not None:
        # A part of each channel for every warp along the pixels; in plain float32, for as many threads as there are.
        parts = max(config.warps // config.warps_m, config.warps * 32 // config.tile_m)
        return parts * config.tile_m * max(shape.rows.state_bytes)
    states = config.warps_m * max(shape.rows.state_bytes)
    return config.tile_n * config.w_phases * (shape.rows.row_bytes + states) + 16


def gathers(config: Config, shape: ConvShape) -> bool:
    """Whether blocks keep what they know of rows from their first tile to their last (conv_gathered.cuh): nothing but
    sums over all images and space is wanted, and a block has all channels and phases."""
    rows = shape.rows
    if type(config) is not Config or config.ahead or rows is None or rows.pieces is None or not rows.placeless:
        return False
    whole = rows.pieces.all_images and rows.pieces.channels == 1 and shape.groups == 1
    of_block = shape.outputs <= config.tile_m and config.phases_of_tile == len(shape.phases)
    return whole and of_block and chunks(config, shape) == 1 and config.w_phases == shape.y_step(2)


def parts_of_a_row(config: Config, shape: ConvShape) -> int:
    """Of rows in pieces: in how many tiles a row lies, each channel counted by itself; or in how many blocks."""
    assert shape.rows is not None
    assert shape.rows.pieces is not None
    if gathers(config, shape):
        return min(MOST_GATHERING, grid(config, shape))
    tiles = math.prod(math.ceil(shape.most(i) / t) for i, t in enumerate(config.tile))
    tiles *= len(shape.phases) // config.w_phases * shape.rows.pieces.channels
    return tiles * (math.ceil(shape.images / config.tile_b) if shape.rows.pieces.all_images else 1)


def workspace_bytes(config: Config, shape: ConvShape) -> int:
    """What tiles leave of rows in pieces for the launch that finishes them."""
    if shape.rows is None or shape.rows.pieces is None:
        return 0
    return shape.rows.rows * parts_of_a_row(config, shape) * shape.rows.state_bytes[0]


def registers(config: Config, shape: ConvShape) -> int:
    """An estimate of what a thread needs."""
    sums = config.tile_m * config.tile_n // (config.warps * 32) * config.w_phases
    gathering = gathers(config, shape)
    held = 8 * rounds(config, shape) if chunks(config, shape) > 1 or config.ahead or gathering else 0
    held += AHEAD_REGISTERS if config.ahead else 0
    ahead = 8 * config.group * halves(config)  # weights: of these steps, and on their way for the next
    reducing = REDUCING_REGISTERS if shape.rows is not None and config.w_phases > 1 else 0
    reducing = gathered_words(config, shape) - GATHERING_SPARED if gathering else reducing
    reads = shape.epilogue_bytes > shape.results * ITEMSIZE[shape.dtype]
    scattered = SCATTERED_REGISTERS if reads and config.w_phases != shape.y_step(2) else 0
    multiplying = sums * halves(config) + held + ahead + reducing + scattered
    return OTHER_REGISTERS + max(multiplying, 8 * rounds(config, shape))  # all inputs of a chunk are held before


def gathered_words(config: Config, shape: ConvShape) -> int:
    """What a thread keeps of its channels: states of two places in all phases, with one count, and of one place."""
    assert shape.rows is not None
    words, channels = sum(shape.rows.state_bytes) // 4, config.tile_m // config.warps_m // 8
    return channels * (2 * config.w_phases * (words - 1) + 1 + words + GATHERING_CHANNEL)


def with_blocks(config: Config, shape: ConvShape, device: Device) -> Config:
    """With as many blocks as a multiprocessor's registers and shared memory hold."""
    by_registers = 65536 // (config.warps * 32 * max(registers(config, shape), 64))
    by_memory = device.smem_per_multiprocessor_bytes // (shared_bytes(config, shape) + 1024)
    return replace(config, blocks=max(1, min(by_registers, by_memory, MOST_BLOCKS)))


def grid(config: Config, shape: ConvShape) -> int:
    tiles = math.prod(math.ceil(shape.most(i) / t) for i, t in enumerate(config.tile))
    tiles *= math.ceil(shape.images / config.tile_b) * math.ceil(shape.outputs / config.tile_m)
    return tiles * shape.groups * len(shape.phases) // config.phases_of_tile


# --- which configs fit


def why_not(config: Config, shape: ConvShape, device: Device) -> str | None:
    """The reason a config cannot run this convolution, in words."""
    if (reason := why_not_convolved(config, shape, device)) is not None:
        return reason
    if (config.w_phases > 1 or config.ahead) and registers(config, shape) > MOST_REGISTERS:
        return "its sums, and what else a thread has to hold, leave too few registers."
    if (reason := why_not_reduced(config, shape)) is not None:
        return reason
    if config.turns > 1 and (config.ahead or chunks(config, shape) > 1):
        return "a tile that has its phases in turns needs all of its inputs at once."
    if config.turns > 1 and (config.w_phases != shape.y_step(2) or config.phases_of_tile != len(shape.phases)):
        return f"{config.turns} turns of {config.w_phases} phases are not all {len(shape.phases)}."
    needed, most = shared_bytes(config, shape), device.smem_per_block_bytes
    if needed > most:
        return f"the inputs of a tile need {needed:,} B of shared memory; {device.arch} allows {most:,} B."
    if (chunks(config, shape) > 1 or config.ahead) and 8 * rounds(config, shape) > MOST_HELD:
        return f"{8 * rounds(config, shape)} registers for channels on their way leave too few to multiply with."
    if 8 * rounds(config, shape) > 4 * MOST_HELD:
        return f"{8 * rounds(config, shape)} registers for the inputs of a tile are more than a thread has."
    return None


def why_not_convolved(config: Config, shape: ConvShape, device: Device) -> str | None:
    """The same, whatever registers and shared memory the template has for it."""
    if device.kind != "cuda":
        return f"it is a CUDA kernel; {device.name} is not a GPU."
    if shape.dtype not in ITEMSIZE:
        return f"it reads float32, float16 and bfloat16, not {shape.dtype}."
    if config.products == 1 and shape.dtype == "float32" and not shape.tf32:
        return "one product has 11 bits of each operand, and the original uses all of float32's."
    if len(shape.phases) > MOST_PHASES:
        return f"{len(shape.phases)} phases; at most {MOST_PHASES} are arguments of a kernel."
    if config.tile_b * math.prod(config.tile) > config.tile_n:
        return f"a tile of {config.tile_b * math.prod(config.tile)} outputs in {config.tile_n} columns."
    last = sum(pitch * (extent - 1) for pitch, extent in zip(shape.x_pitches[2:], shape.x_space, strict=True))
    if config.tile_b * abs(shape.x_pitches[0]) >= 2**31 or last >= 2**31:
        return "a place in an image needs more than 31 bits."
    if grid(config, shape) > MOST_GRID:
        return f"{grid(config, shape):,} blocks; a grid has at most {MOST_GRID:,}."
    return None


def why_not_reduced(config: Config, shape: ConvShape) -> str | None:
    """The reason a tile cannot be reduced as the epilogue wants, in words."""
    if shape.rows is None:
        return None
    if shape.rows.window:
        whole = all(t % size == 0 for t, size in zip(config.tile, shape.rows.window, strict=True))
        if len(shape.phases) > 1:
            return "neighbours of a transposed convolution are in different tiles."
        return None if whole else f"tiles of {config.tile} do not have whole windows of {shape.rows.window}."
    if shape.rows.line:
        whole = leaves_by_rows(config, shape) and config.tile_w * config.w_phases >= shape.y_space[2]
        return None if whole else f"tiles of {config.tile} do not have whole rows, or those do not leave as one result."
    if shape.rows.pieces is None and (shape.groups > 1 or shape.outputs > config.tile_m):
        return f"a tile of {config.tile_m} channels has not all {shape.groups * shape.outputs} that are reduced."
    if shape.rows.pieces is not None and not shape.rows.pieces.all_images and config.tile_b > 1:
        return f"a tile has {config.tile_b} images, which belong to different rows."
    return None


@cache
def configs(shape: ConvShape, device: Device) -> tuple[Config, ...]:
    """The best tile of outputs for every kind of block, the most promising first."""
    products = 1 if shape.dtype != "float32" or shape.tf32 else 3
    best = []
    for block in TILES[products]:
        if block[0] > 16 and block[0] >= 2 * shape.outputs:
            continue  # half of its rows would be empty
        space = [with_blocks(c, shape, device) for c in candidates(products, block, shape)]
        space += [with_blocks(joined, shape, device) for c in space for joined in with_phases(c, shape)]
        both = [*with_both(space, shape, device), *in_turns(space, shape, device)]
        fitting = [c for c in both if why_not(c, shape, device) is None]
        best += best_of_each(fitting, lambda c: cost_us(c, shape, device))
    return tuple(sorted(best, key=lambda c: cost_us(c, shape, device)))


def best_of_each(fitting: Sequence[AnyConfig], cost: Callable[[AnyConfig], float]) -> list[AnyConfig]:
    """The cheapest of those that end a tile first, of those that ask ahead, and of those that have phases in turns."""
    ways = ((False, False), (True, False), (False, True))
    kinds = ([c for c in fitting if (c.ahead, c.turns > 1) == way] for way in ways)
    return [min(kind, key=cost) for kind in kinds if kind]


def with_both(space: Sequence[Config], shape: ConvShape, device: Device) -> list[Config]:
    """Each as it is, and ahead of its tiles, for which it may have to make room."""
    return [*space, *(with_blocks(replace(config, ahead=True), shape, device) for config in space)]


def in_turns(space: Sequence[Config], shape: ConvShape, device: Device) -> list[Config]:
    """Each with the phases of all axes, where there are more than those of the last one."""
    turns = [len(shape.phases) // config.w_phases for config in space]
    return [with_blocks(replace(c, turns=n), shape, device) for c, n in zip(space, turns, strict=True) if n > 1]


def candidates(products: int, block: tuple[int, int, int, int], shape: ConvShape) -> list[Config]:
    """Tiles of outputs with rows of 8 or more that fill the block's columns, each with the most octets that fit."""
    tile_m, tile_n, warps, warps_m = block
    found = []
    for tile_w in widths(shape.most(2), tile_n):
        for tile_h in heights(shape.most(1), tile_n // tile_w):
            tile_d = min(shape.most(0), tile_n // (tile_w * tile_h))
            whole = tile_w >= shape.most(2) and tile_h >= shape.most(1) and tile_d >= shape.most(0)
            tile_b = max(1, min(shape.images, tile_n // (tile_w * tile_h * tile_d))) if whole else 1
            group = 2 if products == 3 else 1
            tile = (tile_b, tile_d, tile_h, tile_w)
            plain = Config(products, tile_m, tile_n, warps, warps_m, 1, folding(shape), group, *tile, 1, 1)
            found += with_octets(plain, shape, octet_counts(shape))
    return found


def folding(shape: ConvShape) -> int:
    """Taps along the last axis that fill an octet where channels are few: as many as leave the fewest octets."""
    fitting = [fold for fold in (1, 2, 4, 8) if shape.channels * fold <= 8]
    widths = [phase.axes[2].taps for phase in shape.phases]
    return min(fitting or [1], key=lambda fold: (sum(math.ceil(w / fold) for w in widths), fold))


def with_phases(config: Config, shape: ConvShape) -> list[Config]:
    """With all phases of the last axis in one block: it reads its inputs once, and its results are neighbours."""
    joined = shape.y_step(2) if shape.y_space[2] >= shape.y_step(2) else 1
    return [replace(config, w_phases=joined)] if joined > 1 else []


def with_octets(plain: Config, shape: ConvShape, counts: Sequence[int]) -> list[Config]:
    """With the most octets that registers can carry."""
    for octets in counts:
        config = replace(plain, octets=octets)
        if octets == counts[-1] or 8 * rounds(config, shape) <= MOST_HELD:
            return [config]
    return []


def widths(width: int, most: int) -> list[int]:
    """Powers of two from 8 on, and the whole width; even, since pairs are stored."""
    powers = [p for p in (8, 16, 32, 64, 128, 256) if p <= most and p < 2 * width]
    whole = width + width % 2
    return sorted({*powers, *([whole] if whole <= most else [])})


def heights(height: int, most: int) -> list[int]:
    return sorted({min(height, h) for h in (1, 2, 4, 8, 16, 32, 64, most) if 1 <= h <= most})


def octet_counts(shape: ConvShape) -> list[int]:
    """The most first; no more than there are, and such that the last chunk is not mostly empty."""
    whole = math.ceil(shape.channels / 8)
    return [n for n in (8, 6, 4, 3, 2, 1) if n <= whole and math.ceil(whole / n) * n - whole <= whole // 4]


# --- what it takes


def floor_us(shape: ConvShape, device: Device) -> float:
    products = 1 if shape.dtype != "float32" or shape.tf32 else 3
    return floor_at(shape, device, device.peaks.float16 / products)


@dataclass(frozen=True, slots=True)
class Loop:
    """What the products of a tile take.

    share         of the tensor cores' float16 rate that all blocks of a multiprocessor reach together
    alone         the same of one block, while the others do something else
    read_bytes    of shared memory, for 16 of k
    instructions  of a warp, for 16 of k
    """

    share: float
    alone: float
    read_bytes: float
    instructions: float


@cache
def cost_us(config: Config, shape: ConvShape, device: Device) -> float:
    sums = config.tile_m * config.tile_n // (config.warps * 32) * config.w_phases
    crowded = config.blocks > 1 and config.warps == 8 and sums >= 64
    narrow = 1.0 + NARROW_GATHERED * (8 / config.tile_w) ** 2 if gathers(config, shape) else 1.0
    return block_cost_us(config, shape, device, loop_of(config, shape, device)) * narrow * (CROWDED if crowded else 1.0)


def loop_of(config: Config, shape: ConvShape, device: Device) -> Loop:
    """Each quarter of a multiprocessor multiplies for its warps in turn. The weights of a step are asked for one step
    ahead; those of pairs when they are needed."""
    warp_m, warp_n = config.tile_m // config.warps_m, config.tile_n * config.warps_m // config.warps
    flops = 2 * warp_m * warp_n * 16 * config.group * config.products
    busy = flops / (MMA_RATE * half_flops_per_clock(device) / 4)
    period = weights_clocks(config, shape, device) + (busy if config.products == 3 else 0)
    multiplied, loaded = warp_m // 16 * warp_n // 8, warp_m // 16 + 2 * warp_n // 16
    return Loop(
        share=MMA_SHARE * min(1.0, config.blocks * config.warps / 4 * busy / period),
        alone=MMA_SHARE * min(1.0, config.warps / 4 * busy / period),
        read_bytes=matrix_bytes(config, shape),
        instructions=config.products * (multiplied + loaded) + LOOP_INSTRUCTIONS,
    )


def clocks_per_us(device: Device) -> float:
    return device.peaks.float32 * 1e6 / (device.multiprocessors * FLOPS_PER_CLOCK)


def half_flops_per_clock(device: Device) -> float:
    """Of a multiprocessor."""
    return device.peaks.float16 * 1e6 / device.multiprocessors / clocks_per_us(device)


def weights_clocks(config: Config, shape: ConvShape, device: Device) -> float:
    """What shared memory leaves of L1 keeps as much as fits of what passes: weights, which come again, and inputs."""
    left = device.l1_bytes - config.blocks * (shared_bytes(config, shape) + 1024)
    passing = weight_bytes(config, shape) + config.blocks * fetched_bytes(config, shape)
    kept = max(0.0, min(1.0, left / passing)) if passing else 1.0
    return kept * L1_CLOCKS + (1 - kept) * L2_CLOCKS


def elements_of(config: Config, shape: ConvShape) -> int:
    """Inputs that a tile copies, of all channels."""
    return pixels(config, shape) * 8 * config.octets * chunks(config, shape)


def fetched_bytes(config: Config, shape: ConvShape) -> float:
    """What copying them takes from L2."""
    return elements_of(config, shape) * ITEMSIZE[shape.dtype] * sectors(region(config, shape)[2], shape)


def weight_bytes(config: Config, shape: ConvShape) -> int:
    """Of all channels, for one tile."""
    return config.tile_m * config.phases_of_tile * k_of(config, shape) * 2 * halves(config)


def block_cost_us(config: Config, shape: ConvShape, device: Device, loop: Loop) -> float:
    """Waves of blocks: what all of a multiprocessor need of its busiest unit, and no less than one block takes from its
    first load to its last store; beside them the bytes."""
    clocks = clocks_per_us(device)
    k = k_of(config, shape)
    rate = device.peaks.float16 * 1e6 / device.multiprocessors
    flops = config.products * 2 * config.tile_m * config.tile_n * config.phases_of_tile * k
    elements, fetched = elements_of(config, shape), fetched_bytes(config, shape)
    steps = config.phases_of_tile * k / 16
    sharing = (loop.read_bytes * steps + fetched + elements * 2 * halves(config)) / 128 / clocks
    stepping = steps * config.warps * 32 * loop.instructions
    once = THREAD_INSTRUCTIONS + TURN_INSTRUCTIONS * (config.turns - 1)
    beginning = config.warps * 32 * once + pixels(config, shape) * PIXEL_INSTRUCTIONS
    carrying = beginning + elements * ELEMENT_INSTRUCTIONS + result_instructions(config, shape)
    issuing = (stepping + carrying) / ISSUED / clocks
    gathering = gathers(config, shape)
    latency = CHUNK_US * chunks(config, shape) + (AHEAD_US - CHUNK_US if config.ahead or gathering else FIRST_US)
    if shape.rows is not None and not gathering:
        latency += PHASE_US * config.turns * len(shape.rows.state_bytes)
    slowly = min(ISSUED, ISSUED_OF_WARP * config.warps) * clocks
    chain = max(flops / (rate * loop.alone), sharing, stepping / slowly) + carrying / slowly + latency
    waves = math.ceil(grid(config, shape) / (device.multiprocessors * config.blocks))
    computing = waves * max(config.blocks * max(flops / (rate * loop.share), sharing, issuing), chain)
    return beside_memory_us(config, shape, device, computing)


def beside_memory_us(config: Config, shape: ConvShape, device: Device, computing: float) -> float:
    """The whole, if memory had nothing to do but this beside what multiprocessors compute."""
    fetched = fetched_bytes(config, shape)
    whole = shape.y_step(2) == config.w_phases  # else lines are written by several phases in turn
    written = shape.epilogue_bytes * (1 if whole else SPREAD[config.ahead]) + run_bytes(config, shape)
    written += PAIRED * paired_bytes(shape)
    moving = (shape.bytes_moved - shape.epilogue_bytes + written) / (device.copy_gbps * STREAM_SHARE) / 1e3
    l2 = grid(config, shape) * (fetched + weight_bytes(config, shape)) / L2_BYTES_PER_US
    return LAUNCH_US + beside_us(computing, max(moving, l2)) + finishing_us(config, shape, device)


def paired_bytes(shape: ConvShape) -> int:
    """Of results that are stored beside what is reduced of them, by threads that have two neighbours of a channel."""
    if shape.rows is None or shape.rows.window:
        return 0
    stored = shape.results * ITEMSIZE[shape.dtype]
    return stored if shape.epilogue_bytes >= stored else 0


def run_bytes(config: Config, shape: ConvShape) -> float:
    """What the ends of rows that a tile writes cost beside their bytes: they share a sector with another tile's."""
    if shape.rows is not None:
        return 0.0
    row = config.tile_w * config.w_phases
    aligned = shape.y_space[2] * ITEMSIZE[shape.dtype] % 32 == 0 and row * ITEMSIZE[shape.dtype] % 32 == 0
    runs = math.prod(shape.y_space[:2]) * math.ceil(shape.y_space[2] / row)
    each = RUN_BYTES[config.ahead] * (ALIGNED_SHARE if aligned else 1.0)
    return shape.images * shape.groups * shape.outputs * runs * each


def result_instructions(config: Config, shape: ConvShape) -> float:
    """Of a tile: its results stored, pooled or reduced."""
    scattered = {1: 1.6, 2: 1.0, 4: 0.8}[vector(config, shape)]
    each = RESULT_INSTRUCTIONS * scattered
    if shape.rows is not None and shape.rows.window:
        each = WINDOW_INSTRUCTIONS
    elif shape.rows is not None and shape.rows.pieces is not None and shape.rows.placeless:
        each = ADDED_INSTRUCTIONS
    return config.tile_m * config.tile_n * config.phases_of_tile * (each + row_instructions(config, shape))


def finishing_us(config: Config, shape: ConvShape, device: Device) -> float:
    """The launch that merges what tiles left of rows in pieces, and the one that packs a weight that is not kept."""
    states = workspace_bytes(config, shape)
    packing = 0.0 if shape.constant else LAUNCH_US
    return packing + (LAUNCH_US + 2 * states / (device.copy_gbps * STREAM_SHARE) / 1e3 if states else 0.0)


def row_instructions(config: Config, shape: ConvShape) -> float:
    """For each sum: what all phases compute, and its part of the shuffles and merges of its pixel."""
    if shape.rows is None:
        return 0.0
    if shape.rows.window:
        return shape.rows.flops
    words = sum(shape.rows.state_bytes) / 4
    if shape.rows.pieces is not None:
        warp_n = config.tile_n * config.warps_m // config.warps
        if gathers(config, shape):
            return shape.rows.flops
        return shape.rows.flops + 2 * words * MERGE_INSTRUCTIONS / (warp_n / 4)
    channels = config.tile_m // config.warps_m / 8  # of a thread
    merged = SHUFFLES / vector(config, shape) * words * MERGE_INSTRUCTIONS / channels
    return shape.rows.flops + PHASE_INSTRUCTIONS * (shape.rows.phases - 1) + merged


def vector(config: Config, shape: ConvShape) -> int:
    """Neighbours of one store, all in a row of the tile; where results are reduced, no more than a thread's two places.

    Of each place they are all phases that are together.
    """
    if config.w_phases != shape.y_step(2):
        return 1
    places = config.tile_w if shape.rows is None or leaves_by_rows(config, shape) else 2
    return widest_vector(shape, places * config.w_phases)


def leaves_by_rows(config: Config, shape: ConvShape) -> bool:
    return config.stores_slabs and config.w_phases == shape.y_step(2) and shape.rows is not None and shape.rows.by_rows


def widest_vector(shape: ConvShape, run: int) -> int:
    """The most neighbours of so many in a row that an access can have."""
    return next(v for v in (4, 2, 1) if all(n % v == 0 for n in (shape.vector, run, shape.y_space[2])))


def halves(config: Config) -> int:
    return 2 if config.products == 3 else 1


def k_of(config: Config, shape: ConvShape) -> int:
    """Of an average phase, padded."""
    steps = sum(steps_of(config, taps_of(config, phase)) for phase in shape.phases) / len(shape.phases)
    return math.ceil(16 * steps * chunks(config, shape))


def sectors(row: int, shape: ConvShape) -> float:
    """Bytes that are fetched for every byte of a row of so many neighbours: memory moves 32 at a time."""
    wanted = row * ITEMSIZE[shape.dtype]
    return (wanted + 16) / wanted if shape.x_pitches[4] == 1 else 1.0


def matrix_bytes(config: Config, shape: ConvShape) -> float:
    """What ldmatrix and the loads of weights read for 16 of k; the 8 rows of a matrix may lie in few banks."""
    warp_m, warp_n = config.tile_m // config.warps_m, config.tile_n * config.warps_m // config.warps
    conflicts = 1.0 if config.tile_w % 8 == 0 else 1.5
    return halves(config) * config.warps * (warp_m + conflicts * warp_n) * 32 * (1.5 if config.products == 3 else 1)


# --- packed weights: fragments of all phases, inverse scales, offsets of the taps


def fragments(config: Config, shape: ConvShape) -> list[int]:
    """Where the fragments of each phase begin, and their end; in 16 bytes of all lanes of a warp."""
    rows = shape.groups * math.ceil(shape.outputs / config.tile_m) * config.tile_m // 16
    each = rows * chunks(config, shape) * halves(config)
    sizes = [each * steps_of(config, taps_of(config, phase)) for phase in shape.phases]
    return [0, *itertools.accumulate(sizes)]


def inverse_offset(config: Config, shape: ConvShape) -> int:
    return fragments(config, shape)[-1] * 512


def table_offset(config: Config, shape: ConvShape) -> int:
    return inverse_offset(config, shape) + 4 * shape.groups * shape.outputs


def packed_bytes(config: Config, shape: ConvShape) -> int:
    return table_offset(config, shape) + 8 * len(shape.phases) * steps_of(config, most_taps(config, shape))


# --- C++


def arithmetic(config: Config, shape: ConvShape) -> str:
    if config.products == 3:
        return "float32 as pairs of float16, three tensor-core products, summed in float32 every 32 of k"
    if shape.dtype == "float32":
        return "one tensor-core product of scaled float16: the 11 bits of TF32, which PyTorch allows here"
    return f"tensor-core products of {shape.dtype}, summed in float32"


def entry(
    name: str,
    config: Config,
    shape: ConvShape,
    epilogue: str,
    namespace: str = "conv_mma",
    more: Sequence[str] = (),
    packer: str = "conv_mma",
) -> str:
    """The config, `name`(x, weight, packed, epilogue arguments, stream), and `name`_pack for the weight.

    `more` are lines of the config that the namespace's kernel has besides; `packer` says in which order weights lie.
    """
    end, after = end_of(name, config, shape, epilogue)
    namespace = "conv_gathered" if gathers(config, shape) else namespace
    d, h, w = region(config, shape)
    axes = range(3)
    lines = [
        *size_lines(shape),
        integers(
            **by_axis("stride", tuple(map(shape.stride, axes))),
            **by_axis("y_step", tuple(map(shape.y_step, axes))),
        ),
        integers(
            phases=len(shape.phases),
            most_taps=most_taps(config, shape),
            **by_axis("most", tuple(map(shape.most, axes))),
        ),
        integers(products=config.products, tile_m=config.tile_m, tile_n=config.tile_n),
        integers(
            warps=config.warps, warps_m=config.warps_m, octets=config.octets, fold=config.fold, group=config.group
        ),
        integers(blocks_at_once=config.blocks, vector=vector(config, shape), w_phases=config.w_phases),
        integers(turns=config.turns),
        *more,
        f"    static constexpr bool ahead = {str(config.ahead).lower()};",
        integers(tile_b=config.tile_b, tile_d=config.tile_d, tile_h=config.tile_h, tile_w=config.tile_w),
        integers(region_d=d, region_h=h, region_w=w),
    ]
    type_ = CPP_TYPE[shape.dtype]
    starts = fragments(config, shape)
    rows = [phase_text(phase, at, bases(config, shape, phase)) for phase, at in zip(shape.phases, starts, strict=False)]
    phases = ",\n".join(f"        {row}" for row in rows)
    weight = f"weight + {shape.w_offset}" if shape.w_offset else "weight"
    inverse, table = inverse_offset(config, shape), table_offset(config, shape)
    body = "\n".join(lines)
    return f"""\
struct {name}_Config {{
{body}
}};
// Of every phase and axis: outputs, taps, first input of a tile and of a place, step, first weight, step, first output.
static kw::conv_mma::Problem<{name}_Config> {name}_problem(
    const {type_}* x, const {type_}* weight, const void* packed) {{
    const char* at = (const char*)packed;
    return {{x, {weight}, (const uint4*)at, (const float*)(at + {inverse}), (const int*)(at + {table}), {{
{phases},
    }}}};
}}
extern "C" int {name}_pack(const {type_}* weight, void* packed, cudaStream_t stream) {{
    return kw::{packer}::pack<{name}_Config>({name}_problem(nullptr, weight, packed), stream);
}}
extern "C" int {name}(
    const {type_}* x, const {type_}* weight, const void* packed, const {epilogue}::Args* args, cudaStream_t stream) {{
    {"return" if not after else "const int error ="} kw::{namespace}::launch<{name}_Config, {epilogue}{end}>(
        {name}_problem(x, weight, packed), *args, stream);
{after}}}
"""


def bases(config: Config, shape: ConvShape, phase: Phase) -> tuple[int, ...]:
    """The first input of a tile along each axis, from that of its first place on."""
    return tuple(base(shape, i) if config.joins(i) else a.x_first for i, a in enumerate(phase.axes))


def end_of(name: str, config: Config, shape: ConvShape, epilogue: str) -> tuple[str, str]:
    """How a tile ends, if its results are not just stored, and what is launched after the last one."""
    if shape.rows is None:
        return "", ""
    if shape.rows.window:
        return f", kw::conv_windows::Pooled<{', '.join(map(str, shape.rows.window))}>", ""
    if shape.rows.line:
        return ", kw::conv_lines::Lined", ""
    if shape.rows.pieces is None:
        return ", kw::conv_rows::Reduced", ""
    if gathers(config, shape):
        return f", {workspace_bytes(config, shape)}", ""
    pieces = shape.rows.pieces
    end = f"kw::conv_pieces::Kept<{pieces.channels}, {'true' if pieces.all_images else 'false'}>"
    finish = (
        f"kw::conv_pieces::finish<{name}_Config, {epilogue}, {end}, {workspace_bytes(config, shape)}>(*args, stream)"
    )
    return f", {end}", f"    return error ? error : {finish};\n"
