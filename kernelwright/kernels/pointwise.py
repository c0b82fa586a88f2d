"""The pointwise templates: their configs, which of them fit a kernel, and what each is expected to take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kernelwright.device import Device

# How a kernel walks over its elements: see generate/grid.py.
Walk = Literal["rows", "flat", "tiles"]

# A launch that does nothing, until the next kernel can start.
LAUNCH_US = 2.5

# One load takes about this long; Little's law then tells how many bytes must be in flight on the whole device.
MEMORY_LATENCY_NS = 700

# Registers a thread may fill with operands in flight, and still compute.
MOST_OPERAND_REGISTERS = 128


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
class CpuConfig:
    """CPU: neighbours computed together, and elements one thread takes at a time."""

    lanes: int
    grain: int


PointwiseConfig: TypeAlias = Config | TileConfig | CpuConfig


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

    @property
    def size(self) -> int:
        return self.rows * self.depth * self.columns


def why_not(config: PointwiseConfig, work: Work, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    if isinstance(config, CpuConfig):
        return None if device.kind == "cpu" else "a config for a CPU."
    if config.threads > device.max_threads_per_block:
        return f"{config.threads} threads; a block has at most {device.max_threads_per_block}."
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


def why_no_vectors(config: Config, work: Work, device: Device) -> str | None:
    if work.walk == "tiles":
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
    everything: list[PointwiseConfig] = [*vectors, *tiles]
    fitting = [c for c in everything if why_not(c, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


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
