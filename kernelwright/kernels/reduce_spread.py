"""Few long rows, stored by all threads: the configs of kernels/cuda/reduce_spread.cuh, and what each should take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from kernelwright.device import Device
from kernelwright.kernels import reduce
from kernelwright.kernels.pointwise import LAUNCH_US
from kernelwright.kernels.reduce import MOST_BLOCKS, RowWork

# Reading alone is so much faster than a copy (H200: 4.50 TB/s beside 4.26).
READING = 1.055

# Of what was read last, so much of the L2 cache still has it when it is wanted again.
STAYS = 0.5

# Weights come from the L2 cache for all rows but the first, so many times as fast as from memory; but a thread that has
# many rows takes registers from others (LayerNorm of 16 rows of 4,194,304 columns, H200).
WEIGHTS_SPEED = 4.0
MANY_ROWS = 0.015

# Of rows that take no longer than this, launches begin as the one before ends.
SHORT_BYTES = 2 << 30

# Registers for what a thread stores side by side: its vectors, and the values of their rows.
MOST_HELD, VALUES_OF_A_ROW = 128, 3

# To merge what the blocks of a row have left, and to fetch a row's values before anything is stored.
CLOSING_US = 4.0


@dataclass(frozen=True, slots=True)
class Config:
    """CUDA.

    threads    of a block that reduces, all on one row
    lanes      neighbours in a vector
    vectors    a thread of it has in flight
    blocks     that share a row
    width      threads of a block that stores
    beside     rows of which a thread stores a vector
    early      launches begin as the one before ends
    """

    threads: int
    lanes: int
    vectors: int
    blocks: int
    width: int
    beside: int
    early: bool = False


def as_plain(config: Config) -> reduce.Config:
    """What the plain template would call the part that reduces."""
    return reduce.Config(
        config.threads, config.lanes, config.threads, config.vectors, "again", config.blocks, cluster=False
    )


def why_not(config: Config, work: RowWork, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    if device.kind != "cuda":
        return f"{device.arch} is no GPU."
    if work.across or work.columns % config.lanes:
        return "only whole vectors along a row are stored."
    if not work.holds or work.phases == len(work.state_bytes):
        return "no phase stores what the one before has read."
    if config.blocks < 2:
        return "a row that one block has is closed by it."
    if config.beside > work.rows:
        return f"{config.beside} rows side by side of {work.rows}."
    held = config.beside * (work.kept_bytes(config.lanes) // 4 + VALUES_OF_A_ROW)
    if held > MOST_HELD:
        return f"{held} registers for {config.beside} rows side by side."
    if store_blocks(config, work) > MOST_BLOCKS:
        return f"{store_blocks(config, work):,} blocks; a launch has at most {MOST_BLOCKS:,}."
    return reduce.why_not(as_plain(config), work, device)


def store_blocks(config: Config, work: RowWork) -> int:
    return math.ceil(work.rows / config.beside) * math.ceil(work.columns // config.lanes / config.width)


@cache
def configs(work: RowWork, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    if device.kind != "cuda" or work.across or not work.holds:
        return ()
    fitting = [c for c in every_config(work, device) if why_not(c, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def every_config(work: RowWork, device: Device) -> Iterator[Config]:
    shared = (8, 16, 4, 2, 1) if work.repeated_bytes else (1,)
    for lanes in (4, 2, 1):
        for threads in (256, 512):
            for blocks in reduce.split_counts(work, lanes, threads, device):
                for beside in shared:
                    for width in (128, 256):
                        yield Config(threads, lanes, 4, blocks, width, beside, work.bytes_moved < SHORT_BYTES)


def workspace_bytes(config: Config, work: RowWork, row_bytes: int) -> int:
    return reduce.workspace_bytes(as_plain(config), work) + work.rows * row_bytes


def cost_us(config: Config, work: RowWork, device: Device) -> float:
    """The phases that read at the speed of reads, the last at that of a copy."""
    read = work.again_bytes * len(work.state_bytes)
    stays = min(work.again_bytes, STAYS * device.l2_bytes)
    shared = work.repeated_bytes * (math.ceil(work.rows / config.beside) - 1) / WEIGHTS_SPEED
    narrow = 1.0 + 0.03 * max(0.0, math.log2(16 / (config.lanes * max(work.itemsizes))))
    many = 1.0 + MANY_ROWS * max(0.0, math.log2(config.beside / 4))
    few: float = max(1.0, 4 * device.multiprocessors / (work.rows * config.blocks)) ** 0.3
    moved = read / READING * few + work.bytes_moved - stays + shared
    close = (len(work.state_bytes) + 2) * LAUNCH_US + CLOSING_US
    merging = config.blocks / config.threads * reduce.PART_US
    wanted = device.multiprocessors * (4 if config.early else 8)  # blocks: all at once, or short stretches
    uneven = 1.0 + 0.01 * abs(math.log2(work.rows * config.blocks / wanted))
    return close + merging + moved / device.copy_gbps / 1e3 * narrow * many * uneven
