"""Few long rows that share weights: the configs of kernels/cuda/reduce_stretch.cuh, and what each should take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from kernelwright.device import Device
from kernelwright.kernels import reduce, reduce_woven
from kernelwright.kernels.pointwise import LAUNCH_US
from kernelwright.kernels.reduce import REGISTERS_A_THREAD, RESERVED_SMEM_BYTES, WARP, RowWork, struct_bytes
from kernelwright.kernels.reduce_spread import READING

# More rows would not be stored together, and their states would not find room.
MOST_ROWS = 32

# All blocks meet once.
MEETING_US = 6.0

# Of the L2 cache, what rows that are meant to stay may take, and how much of them is found there again.
STAYS, FOUND = 0.6, 0.7


@dataclass(frozen=True, slots=True)
class Config:
    """CUDA.

    threads   of a block, the only one of its multiprocessor
    lanes     neighbours in a vector
    vectors   that a thread has in shared memory from the first walk to the second
    blocks    each of which has the same stretch of every row
    stays     rows that are read so that they stay in the L2 cache
    """

    threads: int
    lanes: int
    vectors: int
    blocks: int
    stays: int


def as_plain(config: Config) -> reduce.Config:
    return reduce.Config(
        config.threads, config.lanes, config.threads, config.vectors, "shared", config.blocks, cluster=False
    )


def slots(config: Config, work: RowWork) -> int:
    """Vectors of a row that a thread has."""
    share = math.ceil(work.columns // config.lanes / config.blocks)
    return math.ceil(math.ceil(share / 8) * 8 / config.threads)


def shared_bytes(config: Config, work: RowWork) -> int:
    return config.threads * config.vectors * work.kept_bytes(config.lanes)


def static_shared_bytes(config: Config, work: RowWork, row_bytes: int) -> int:
    """The states of the warps, and the values of each row."""
    return work.rows * (config.threads // WARP * work.state_bytes[0] + row_bytes) + 32


def why_not(config: Config, work: RowWork, device: Device, row_bytes: int = 64) -> str | None:
    """The reason a config cannot run this work, in words."""
    if device.kind != "cuda" or device.capability < (8, 0):
        return f"{device.arch} has too little shared memory."
    if work.across or work.columns % config.lanes:
        return "only whole vectors along a row are in a stretch."
    if not work.holds or work.phases != 2 or len(work.state_bytes) != 1:
        return "one reduction, and what is stored then."
    if work.rows < 2 or work.rows > MOST_ROWS or not work.repeated_bytes:
        return f"{work.rows} rows do not share weights that are worth it."
    if work.late_bytes * work.columns != work.repeated_bytes or work.in_place:
        return "what only the last phase wants is not the same for all rows."
    if config.threads % WARP or config.blocks > device.multiprocessors:
        return f"{config.blocks} blocks of {config.threads} threads do not run at once."
    if config.threads >= 2 * work.columns // config.lanes // config.blocks:
        return f"{config.threads} threads have less than a vector of a row each."
    asked = shared_bytes(config, work) + static_shared_bytes(config, work, row_bytes)
    if asked > device.smem_per_block_bytes or asked > device.smem_per_multiprocessor_bytes - RESERVED_SMEM_BYTES:
        return f"{asked:,} B of shared memory are more than a block has."
    wanted = work.own_registers + 4 * work.kept_bytes(config.lanes) // 4 + config.lanes * work.late_bytes // 4
    most = min(REGISTERS_A_THREAD, device.registers_per_multiprocessor // config.threads)
    if wanted > most:
        return f"{wanted} registers; a thread has {most}."
    return reduce.why_no_vectors(as_plain(config), work)


@cache
def configs(work: RowWork, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    if device.kind != "cuda" or work.across or not work.holds or not work.repeated_bytes:
        return ()
    fitting = [c for c in every_config(work, device) if why_not(c, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def every_config(work: RowWork, device: Device) -> Iterator[Config]:
    lanes = reduce_woven.widest_lanes(work)
    row_bytes = work.again_bytes / work.rows
    room = min(device.smem_per_block_bytes, device.smem_per_multiprocessor_bytes - RESERVED_SMEM_BYTES)
    for threads in (1024, 512):
        found = Config(threads, lanes, 1, device.multiprocessors, 0)
        static = static_shared_bytes(found, work, 64)
        kept = max(1, (room - static) // (threads * work.kept_bytes(lanes)))
        kept = min(kept, work.rows * slots(found, work))
        whole = device.multiprocessors * threads * kept * work.kept_bytes(lanes) / row_bytes
        most = int(whole + STAYS * device.l2_bytes / row_bytes)
        for stays in dict.fromkeys((min(work.rows, most), min(work.rows, most + 1), 0)):
            yield Config(threads, lanes, kept, device.multiprocessors, stays)


def workspace_bytes(config: Config, work: RowWork) -> int:
    """A tag beside each word of each state."""
    return 2 * work.rows * config.blocks * struct_bytes([(work.state_bytes[0], 8)])


def cost_us(config: Config, work: RowWork, device: Device) -> float:
    """A walk that reads, and one that moves everything but what is still there."""
    row_bytes = work.again_bytes / work.rows
    kept = config.blocks * shared_bytes(config, work)
    stays = min(max(0.0, config.stays * row_bytes - kept), STAYS * device.l2_bytes) * FOUND
    moved = work.again_bytes / READING + work.bytes_moved - min(work.again_bytes, kept + stays)
    few = 1.0 if config.threads >= 1024 else 1.05
    return 2 * LAUNCH_US + MEETING_US + moved / device.copy_gbps / 1e3 * few
