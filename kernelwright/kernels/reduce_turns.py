"""Long rows that blocks walk over in turns: the configs of kernels/cuda/reduce_turns.cuh."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kernelwright.device import Device
from kernelwright.kernels import reduce
from kernelwright.kernels.reduce import RowWork
from kernelwright.kernels.reduce_woven import widest_lanes

# Of a multiprocessor, for each row.
BLOCKS_EACH = (1, 2, 4, 8)

# How much sooner than in parts of their own blocks are done: expected, not measured.
EXPECTED_GAIN = 0.96


@dataclass(frozen=True, slots=True)
class Config:
    """CUDA.

    threads   of a block, all on one row
    lanes     neighbours in a vector
    vectors   a thread has in flight
    blocks    that share a row
    """

    threads: int
    lanes: int
    vectors: int
    blocks: int


def as_split(config: Config) -> reduce.Config:
    """The same blocks with a part of the row each."""
    threads = config.threads
    return reduce.Config(threads, config.lanes, threads, config.vectors, "again", config.blocks, False)


def why_not(config: Config, work: RowWork, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    if device.kind != "cuda":
        return "a config for a GPU."
    if work.across:
        return "blocks take turns along a row, not across."
    if config.blocks < 2:
        return "one block has nobody to take turns with."
    if config.blocks * config.threads * config.vectors > work.columns // config.lanes:
        return f"a row of {work.columns} columns gives {config.blocks} blocks less than a turn each."
    return reduce.why_not(as_split(config), work, device)


@cache
def configs(work: RowWork, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    if device.kind != "cuda" or work.across:
        return ()
    candidates = [
        Config(threads, lanes, vectors, device.multiprocessors * each)
        for lanes in dict.fromkeys((widest_lanes(work), 4))
        for threads in (512, 256, 1024)
        for vectors in (4, 2)
        for each in BLOCKS_EACH
        if threads * each <= 2 * device.max_threads_per_multiprocessor
    ]
    fitting = [c for c in candidates if why_not(c, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def workspace_bytes(config: Config, work: RowWork) -> int:
    return reduce.workspace_bytes(as_split(config), work)


def cost_us(config: Config, work: RowWork, device: Device) -> float:
    return EXPECTED_GAIN * reduce.cost_us(as_split(config), work, device)
