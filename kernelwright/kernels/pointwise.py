"""The pointwise template: its configs, which of them fit a kernel, and what each is expected to take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.device import Device

# A launch that does nothing, until the next kernel can start.
LAUNCH_US = 2.5

# One 16-byte load takes about this long; Little's law then tells how many bytes must be in flight on each multiprocessor.
MEMORY_LATENCY_NS = 700


@dataclass(frozen=True, slots=True)
class Config:
    """CUDA: threads a block, neighbours in a vector, vectors a thread has in flight."""

    threads: int
    lanes: int
    vectors: int


@dataclass(frozen=True, slots=True)
class CpuConfig:
    """CPU: neighbours computed together, and elements one thread takes at a time."""

    lanes: int
    grain: int


@dataclass(frozen=True, slots=True)
class Work:
    """What a config must fit: a grid of rows and columns, the widths of its vector operands, and the bytes it moves."""

    rows: int
    columns: int
    itemsizes: tuple[int, ...]
    alignments: tuple[int, ...]
    bytes_moved: int
    operands: int

    @property
    def size(self) -> int:
        return self.rows * self.columns


def why_not(config: Config, work: Work, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    widest = max(work.itemsizes, default=4)
    if config.lanes * widest > 2 * device.vector_bytes:
        return f"{config.lanes} lanes of {widest} B are more than two {device.vector_bytes} B loads."
    if work.rows > 1 and work.columns % config.lanes:
        return f"{work.columns} columns are no multiple of {config.lanes} lanes."
    if any(alignment % config.lanes for alignment in work.alignments):
        return f"an operand's rows do not start at multiples of {config.lanes} elements."
    held = config.lanes * config.vectors * work.operands * max(widest, 4) // 4
    if held > 128 and (config.lanes > 1 or config.vectors > 1):
        return f"{held} registers for operands in flight leave none to compute with."
    if config.threads > device.max_threads_per_block:
        return f"{config.threads} threads; a block has at most {device.max_threads_per_block}."
    return None


def configs(work: Work, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    space = [Config(t, lanes, v) for lanes in (16, 8, 4, 2, 1) for v in (8, 4, 2, 1) for t in (256, 512, 128)]
    fitting = [c for c in space if why_not(c, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def cpu_configs(work: Work) -> tuple[CpuConfig, ...]:
    return tuple(CpuConfig(lanes, grain) for lanes in (32, 64, 16) for grain in (16384, 65536, 4096))


def floor_us(work: Work, device: Device) -> float:
    """No kernel that moves these bytes is faster."""
    return work.bytes_moved / device.copy_gbps / 1e3


def cost_us(config: Config, work: Work, device: Device) -> float:
    """Bytes over bandwidth, if enough of them are in flight; wider vectors issue fewer instructions."""
    threads = min(device.max_threads_per_multiprocessor, config.threads * blocks_per_multiprocessor(config, device))
    bytes_each = config.lanes * config.vectors * max(sum(work.itemsizes) / max(len(work.itemsizes), 1), 1)
    in_flight = threads * bytes_each * device.multiprocessors
    needed = device.copy_gbps * MEMORY_LATENCY_NS
    shortage = max(1.0, needed / in_flight)
    blocks = math.ceil(work.size / (config.threads * config.lanes * config.vectors))
    waves = blocks / (device.multiprocessors * blocks_per_multiprocessor(config, device))
    tail = math.ceil(waves) / waves if waves > 1 else 1.0
    narrow = 1.0 + 0.03 * max(0, math.log2(16 / (config.lanes * max(work.itemsizes, default=4))))
    wide = 1.0 + 0.02 * max(0, math.log2(config.lanes * config.vectors * max(work.itemsizes, default=4) / 64))
    return LAUNCH_US + floor_us(work, device) * shortage * narrow * wide * min(tail, 1.1)


def blocks_per_multiprocessor(config: Config, device: Device) -> int:
    return max(1, device.max_threads_per_multiprocessor // config.threads)


def best_config(work: Work, device: Device) -> Config:
    """The config the cost model prefers."""
    return configs(work, device)[0]


def best_cpu_config(work: Work) -> CpuConfig:
    return cpu_configs(work)[0]


def summary(choices: Sequence[Config | CpuConfig]) -> str:
    """The configs in words, for dumps."""
    return ", ".join(str(c) for c in choices)
