"""The pointwise templates: their configs, which of them fit a kernel, and what each is expected to take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kernelwright.device import Device

# How a kernel walks over its elements: see generate/grid.py.
Walk = Literal["rows", "flat", "tiles", "bricks"]

# A launch that does nothing, until the next kernel can start.
LAUNCH_US = 2.5

# One load takes about this long; Little's law then tells how many bytes must be in flight on the whole device.
MEMORY_LATENCY_NS = 700

# Registers a thread may fill with operands in flight, and still compute.
MOST_OPERAND_REGISTERS = 128

# The same for a brick, of which several should find room; and what its threads need beside, by what nvcc makes of it:
# addresses and places, and guards where sizes are odd.
MOST_BRICK_REGISTERS = 48
BRICK_REGISTERS = {"vectors": 16, "elements": 24}

# Memory is read in sectors of so many bytes; where neighbours end before the line does, the rest comes with another
# brick, soon enough for the L2 cache.
SECTOR_BYTES = 32
LINE_BYTES = 128


@dataclass(frozen=True, slots=True)
class Config:
    """CUDA, rows and flat: threads a block, neighbours in a vector, vectors a thread has in flight."""

    threads: int
    lanes: int
    vectors: int


@dataclass(frozen=True, slots=True)
class TileConfig:
    """CUDA, tiles: threads a block, neighbours in a vector, and the tile in shared memory, depth by columns."""

    threads: int
    lanes: int
    levels: int
    columns: int


@dataclass(frozen=True, slots=True)
class BrickConfig:
    """CUDA, bricks: threads a block, neighbours in a vector, and the brick, height by depth by columns."""

    threads: int
    lanes: int
    layers: int
    levels: int
    columns: int

    @property
    def size(self) -> int:
        return self.layers * self.levels * self.columns


@dataclass(frozen=True, slots=True)
class CpuConfig:
    """CPU: neighbours computed together, and elements one thread takes at a time."""

    lanes: int
    grain: int


PointwiseConfig: TypeAlias = Config | TileConfig | BrickConfig | CpuConfig


@dataclass(frozen=True, slots=True)
class Work:
    """What a config must fit: the extents of the walk, the widths of its vector operands, and the bytes it moves."""

    walk: Walk
    rows: int
    depth: int
    columns: int
    itemsizes: tuple[int, ...]
    alignments: tuple[int, ...]
    bytes_moved: int
    operands: int
    picked: int = 0  # of those, read by an index of their own in each lane
    height: int = 1  # of bricks
    along_depth: tuple[
        int, ...
    ] = ()  # of bricks, the widths of operands that lie along the depth; `itemsizes` are then
    along_height: tuple[int, ...] = ()  # those of operands and results that lie along the columns

    @property
    def size(self) -> int:
        return self.rows * self.height * self.depth * self.columns

    @property
    def widest(self) -> int:
        return max(*self.itemsizes, *self.along_depth, *self.along_height, 0)


def why_not(config: PointwiseConfig, work: Work, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    if isinstance(config, CpuConfig):
        return None if device.kind == "cpu" else "a config for a CPU."
    if config.threads > device.max_threads_per_block:
        return f"{config.threads} threads; a block has at most {device.max_threads_per_block}."
    if isinstance(config, BrickConfig):
        return why_no_brick(config, work, device)
    return why_no_tile(config, work, device) if isinstance(config, TileConfig) else why_no_vectors(config, work, device)


def why_no_tile(config: TileConfig, work: Work, device: Device) -> str | None:
    if work.walk != "tiles":
        return "no operand needs to be turned around."
    smem = config.columns * (config.levels + 1) * max(work.itemsizes) * work.operands
    if smem > 48 * 1024:
        tile = f"{config.levels} by {config.columns}"
        return f"tiles of {tile} need {smem:,} B of shared memory; a block has 49,152 B without asking for more."
    if config.levels * config.columns % (config.lanes * config.threads):
        return f"{config.threads} threads do not share {config.levels} by {config.columns} evenly."
    if config.lanes * max(work.itemsizes) > device.vector_bytes:
        return f"{config.lanes} lanes of {max(work.itemsizes)} B are more than one {device.vector_bytes} B load."
    if work.columns % config.lanes or work.depth % config.lanes:
        return f"{work.depth} by {work.columns} is no whole number of {config.lanes} lanes."
    if any(alignment % config.lanes for alignment in work.alignments):
        return f"an operand's rows do not start at multiples of {config.lanes} elements."
    return None


def why_no_brick(config: BrickConfig, work: Work, device: Device) -> str | None:
    if work.walk != "bricks":
        return "no operands lie along two axes that are not the results'."
    brick = f"{config.layers} by {config.levels} by {config.columns}"
    smem = brick_bytes(config, work)
    if smem > device.smem_per_block_bytes:
        return f"bricks of {brick} need {smem:,} B of shared memory; a block has {device.smem_per_block_bytes:,} B."
    if config.size % (config.lanes * config.threads):
        return f"{config.threads} threads do not share {brick} evenly."
    if config.lanes * work.widest > device.vector_bytes:
        return f"{config.lanes} lanes of {work.widest} B are more than one {device.vector_bytes} B load."
    if any(edge % config.lanes for edge in (config.layers, config.levels, config.columns)):
        return f"bricks of {brick} are no whole number of {config.lanes} lanes."
    if any(n % config.lanes for n in (work.height, work.depth, work.columns)):
        return f"{work.height} by {work.depth} by {work.columns} is no whole number of {config.lanes} lanes."
    if any(alignment % config.lanes for alignment in work.alignments):
        return f"an operand's rows do not start at multiples of {config.lanes} elements."
    held = brick_registers(config, work)
    if held > MOST_BRICK_REGISTERS:
        return f"{held} registers for operands in flight leave too few to compute with."
    return None


def brick_bytes(config: BrickConfig, work: Work) -> int:
    """Shared memory for what lies along the depth and along the height: see kw::Brick."""
    by_depth = config.layers * (config.columns * (config.levels + 1) + 1) * sum(work.along_depth)
    by_height = config.levels * (config.columns * (config.layers + 1) + 1) * sum(work.along_height)
    return by_depth + by_height + 8 * len(work.along_depth + work.along_height)  # 8: each begins where it may


def brick_registers(config: BrickConfig, work: Work) -> int:
    """Registers of a thread for the operands it has in flight, each as wide as the widest."""
    vectors = config.size // config.threads // config.lanes
    return vectors * work.operands * math.ceil(config.lanes * work.widest / 4)


def why_no_vectors(config: Config, work: Work, device: Device) -> str | None:
    if work.walk in ("tiles", "bricks"):
        return "an operand needs to be turned around in a tile."
    widest = max(work.itemsizes)
    if config.lanes * widest > 2 * device.vector_bytes:
        return f"{config.lanes} lanes of {widest} B are more than two {device.vector_bytes} B loads."
    if work.rows > 1 and work.columns % config.lanes:
        return f"{work.columns} columns are no multiple of {config.lanes} lanes."
    if any(alignment % config.lanes for alignment in work.alignments):
        return f"an operand's rows do not start at multiples of {config.lanes} elements."
    held = config.lanes * config.vectors * work.operands * max(widest, 4) // 4
    if held > MOST_OPERAND_REGISTERS and (config.lanes > 1 or config.vectors > 1):
        return f"{held} registers for operands in flight leave too few to compute with."
    return None


def configs(work: Work, device: Device) -> tuple[PointwiseConfig, ...]:
    """Every config that fits, the most promising first."""
    if device.kind == "cpu":
        # What is read by index is kept lane by lane: of 64 lanes it goes through the stack, seen to take twice as long.
        widths = (16, 32, 64) if work.picked else (64, 32, 16)
        return tuple(CpuConfig(lanes, grain) for lanes in widths for grain in (16384, 65536))
    vectors = [Config(t, lanes, v) for lanes in (16, 8, 4, 2, 1) for v in (8, 4, 2, 1) for t in (256, 512, 128)]
    shapes = ((32, 128), (64, 64), (32, 64), (64, 128), (32, 32))
    tiles = [TileConfig(t, lanes, *shape) for lanes in (4, 2, 1) for shape in shapes for t in (256, 512)]
    everything: list[PointwiseConfig] = [*vectors, *tiles, *(brick_configs() if work.walk == "bricks" else ())]
    fitting = [c for c in everything if why_not(c, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def brick_configs() -> list[BrickConfig]:
    """All bricks with edges of 8 to 64 elements; templates count on powers of two."""
    edges = [(r, p, q) for q in (32, 64, 16) for r in (8, 16, 32) for p in (8, 16, 32)]
    return [BrickConfig(t, lanes, *edge) for lanes in (16, 8, 4, 2, 1) for edge in edges for t in (256, 512)]


def best_config(work: Work, device: Device) -> PointwiseConfig:
    """The config the cost model prefers."""
    return configs(work, device)[0]


def floor_us(work: Work, device: Device) -> float:
    """No kernel that moves these bytes is faster."""
    return work.bytes_moved / device.copy_gbps / 1e3


def cost_us(config: PointwiseConfig, work: Work, device: Device) -> float:
    """Bytes over bandwidth, if enough of them are in flight; what is left over in the last wave is idle."""
    if isinstance(config, CpuConfig):
        return floor_us(work, device)
    if isinstance(config, BrickConfig):
        return brick_us(config, work, device)
    item = max(work.itemsizes)
    if isinstance(config, TileConfig):
        each = config.levels * config.columns / config.threads
    else:
        each = config.lanes * config.vectors
    blocks_each = max(1, device.max_threads_per_multiprocessor // config.threads)
    in_flight = device.multiprocessors * blocks_each * config.threads * each * item
    shortage = max(1.0, device.copy_gbps * MEMORY_LATENCY_NS / in_flight)
    waves = math.ceil(work.size / (config.threads * each)) / (device.multiprocessors * blocks_each)
    idle = min(math.ceil(waves) / waves, 1.1) if waves > 1 else 1.0
    # Narrow loads issue more instructions; many wide ones in flight cost registers, and so occupancy.
    narrow = 1.0 + 0.03 * max(0.0, math.log2(16 / (config.lanes * item)))
    crowded = 1.0 + 0.02 * max(0.0, math.log2(each * item / 64))
    # A load of 16 bytes a thread is as fast as a copy, two are at 97 %, two side by side at 93 (4,096 x 393,216, H200).
    several = 1.0 if isinstance(config, TileConfig) else 1.0 + 0.03 * math.log2(config.vectors)
    wide = 1.0 + 0.07 * (config.lanes * item > 16)
    return LAUNCH_US + floor_us(work, device) * shortage * narrow * crowded * several * wide * idle


def brick_us(config: BrickConfig, work: Work, device: Device) -> float:
    """Bytes over bandwidth, by the lines that the edges of a brick fill, if enough loads are in flight.

    All loads of a block are in flight at once and then none: blocks beside each other fill such gaps. Ten bricks were
    measured on an H200 (docs/decisions/0044-permuted-operands.md): those of float32 come out 4% too high, within 3% of
    that; of odd sizes the order is about right.
    """
    edges = (config.columns, config.levels, config.layers)
    extents = (work.columns, work.depth, work.height)
    widths = (work.itemsizes, work.along_depth, work.along_height)
    slow = sum(size * slowdown(edge * size) for edge, sizes in zip(edges, widths, strict=True) for size in sizes)
    lines = slow / sum(map(sum, widths))
    bricks = work.rows * math.prod(math.ceil(n / edge) for n, edge in zip(extents, edges, strict=True))
    filled = work.size / (bricks * config.size)
    each = bricks_at_once(config, work, device)
    at_once = min(bricks, device.multiprocessors * each)
    in_flight = at_once * config.size * filled * sum(map(sum, widths))
    shortage = max(1.0, device.copy_gbps * MEMORY_LATENCY_NS / in_flight)
    waves = bricks / (device.multiprocessors * each)
    idle = min(math.ceil(waves) / waves, 1.1) if waves > 1 else 1.0
    gaps = 1.3 if each == 1 else 1.0
    narrow = 1.0 + 0.03 * max(0.0, math.log2(16 / (config.lanes * work.widest)))
    uneven = 1.0 + 0.002 * abs(math.log2(config.levels / config.layers))  # even ones are those that were measured
    slower = lines * shortage * gaps * narrow * idle * uneven * (1.2 - 0.2 * filled)
    return LAUNCH_US + floor_us(work, device) * slower


def slowdown(edge_bytes: int) -> float:
    """Of reading so many neighbours at a time: some for half a line, twice that for a sector, in full for less."""
    part_of_line = max(0.0, math.log2(LINE_BYTES / edge_bytes))
    return (1.0 + 0.14 * part_of_line) * max(1.0, SECTOR_BYTES / edge_bytes)


def bricks_at_once(config: BrickConfig, work: Work, device: Device) -> int:
    """Blocks that threads, shared memory and registers leave room for on a multiprocessor."""
    beside = BRICK_REGISTERS["vectors" if config.lanes > 1 else "elements"]
    registers = math.ceil((brick_registers(config, work) + beside) / 8) * 8 * config.threads
    rooms = (
        device.max_threads_per_multiprocessor // config.threads,
        device.smem_per_multiprocessor_bytes // (brick_bytes(config, work) + 1024),  # 1024: what the system takes
        device.registers_per_multiprocessor // registers,
    )
    return max(1, min(rooms))
