"""Rows through a ring in shared memory: the configs of kernels/cuda/reduce_ring.cuh, and what each should take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from kernelwright.device import Device
from kernelwright.kernels import reduce, reduce_woven
from kernelwright.kernels.pointwise import LAUNCH_US
from kernelwright.kernels.reduce import WARP, RowWork
from kernelwright.kernels.reduce_woven import L2_SPEED, UNEVEN

# What is told of a row is known to all its blocks so many microseconds later, later for each of them; by a clerk, who
# has to wait for the warps that go on, later still (H200: softmax over 393,216 columns with 16 and 24 blocks a row,
# InstanceNorm over 262,144 with 16, GroupNorm over 2,097,152 with 64 and 128).
KNOWN_US, KNOWN_A_BLOCK_US = 3.0, 0.012
KNOWN_BY_CLERK_US = 8.0

# Between two rows nobody moves anything for so long: states go through a tree, and those of all blocks are merged.
TURN_US, TURN_A_BLOCK_US = 0.3, 0.005
TURN_WITH_CLERK_US = 0.6
TURN_OF_TWO_US = 0.3  # more where a multiprocessor has two blocks, of half as many threads

# Where one row is held, this much of what is on its way covers the time until it is known.
COVERS = 0.5

# Fewer vectors at a time: more waiting for each.
STEPS = {4: 1.0, 2: 1.018, 1: 1.065}

# So much of a copy's speed is reached with something on its way all the time.
REACHED = 0.99

# The values of a row are no more than this.
ROW_BYTES = 64

FOUR_WARPS = 128

# What a copy of cp.async may have, or two of them.
COPIED_BYTES = (4, 8, 16, 32)

# With two rows there is no time for a clerk to hear: softmax took 4,550 us instead of 3,270, InstanceNorm 6,430 instead
# of 3,840 (H200).
FEWEST_FOR_A_CLERK = 3

# The fewest blocks that hold a row, times this, are the most that are offered.
MOST_TIMES_AS_MANY = 4
MOST_CONFIGS = 64


@dataclass(frozen=True, slots=True)
class Config:
    """CUDA.

    threads   of a block, all on one row
    lanes     neighbours in a vector
    vectors   places of a thread in shared memory
    ahead     of them, for what is on its way
    step      vectors that a thread takes at a time: its places are multiples of it
    blocks    that share a row
    together  rows at a time, whose blocks all run at once
    each      blocks that a multiprocessor has at a time
    holds     rows that a block has at a time: while one is stored and another read, the others wait to be heard of
    clerks    threads of a block that tell and hear what becomes known of rows, while the others go on
    """

    threads: int
    lanes: int
    vectors: int
    ahead: int
    step: int
    blocks: int
    together: int = 1
    each: int = 1
    holds: int = 1
    clerks: int = 0

    @property
    def slots(self) -> int:
        """Places that a thread's part of a row has."""
        return (self.vectors - self.ahead) // self.holds


def as_woven(config: Config) -> reduce_woven.Config:
    """What another template would call it."""
    return reduce_woven.Config(
        config.threads, config.lanes, config.vectors, 0, config.blocks, config.together, config.each
    )


def told_words(config: Config, work: RowWork) -> int:
    """Words that the blocks of a row tell each other, phase after phase."""
    return sum(config.blocks * size // 4 for size in work.state_bytes) if config.blocks > 1 else 0


def shared_bytes(config: Config, work: RowWork) -> int:
    return reduce_woven.shared_bytes(as_woven(config), work)


def static_shared_bytes(config: Config, work: RowWork) -> int:
    """The states of the warps of a block; and what all blocks of a row have told, or the values of two rows."""
    states = reduce_woven.static_shared_bytes(as_woven(config), work) // 2
    return 2 * states + 2 * ROW_BYTES + 16 if config.clerks else states + 4 * told_words(config, work) + 16


def why_not(config: Config, work: RowWork, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    if device.kind != "cuda" or device.capability < (8, 0):
        return f"{device.arch} has no copies past the registers."
    if not work.sent or any(operand.itemsize * config.lanes not in COPIED_BYTES for operand in work.operands):
        return "an operand is no vector of pieces of 4, 8 or 16 bytes, which could be copied to its place."
    if work.across or work.columns % config.lanes:
        return "only whole vectors along a row pass through a ring."
    return (
        reduce_woven.why_not_stored(config.blocks, work)
        or reduce.why_no_vectors(reduce_woven.as_plain(as_woven(config)), work)
        or reduce_woven.why_no_blocks(as_woven(config), work, device)
        or why_no_ring(config, work)
        or why_no_room(config, work, device)
    )


def why_no_ring(config: Config, work: RowWork) -> str | None:
    if config.slots % config.step or config.ahead % config.step or not 0 < config.ahead <= config.slots:
        return f"{config.ahead} of {config.vectors} places ahead, {config.step} at a time."
    if config.slots * config.holds + config.ahead != config.vectors:
        return f"{config.vectors} places for {config.holds} rows and {config.ahead} ahead."
    if config.clerks not in (0, WARP) or (config.clerks and config.holds == 1):
        return f"{config.clerks} clerks for {config.holds} rows."
    if config.holds > 1 and (config.blocks == 1 or len(work.state_bytes) > 1):
        return "a row that waits to be heard of has one reduction, and other blocks."
    if config.slots != slots_of(config, work):
        return f"{config.slots} places for {slots_of(config, work)} vectors."
    return None


def slots_of(config: Config, work: RowWork) -> int:
    """Places that a thread's part of a row needs."""
    share = math.ceil(work.columns // config.lanes / config.blocks)
    return math.ceil(share / (config.threads * config.step)) * config.step


def why_no_room(config: Config, work: RowWork, device: Device) -> str | None:
    asked, room = shared_bytes(config, work) + static_shared_bytes(config, work), room_bytes(config, device)
    if asked > room:
        return f"{asked:,} B of shared memory; each of {config.each} blocks has {room:,} B."
    threads = config.threads + config.clerks
    if threads > device.max_threads_per_block or threads * config.each > device.max_threads_per_multiprocessor:
        return f"{config.each} blocks of {threads} threads are more than a multiprocessor has."
    allotted = math.ceil(threads / FOUR_WARPS) * FOUR_WARPS * config.each  # registers go to four warps at a time
    most = min(reduce.REGISTERS_A_THREAD, device.registers_per_multiprocessor // allotted // 8 * 8)
    wanted = registers(config, work)
    return f"{wanted} registers; a thread has {most}." if wanted > most else None


def room_bytes(config: Config, device: Device) -> int:
    return reduce_woven.room_bytes(as_woven(config), device)


def registers(config: Config, work: RowWork) -> int:
    """What a thread wants: for what it computes with, and what only the last phase wants of several vectors."""
    return work.own_registers + config.step * config.lanes * work.late_bytes // 4 + reduce_woven.MARGIN


@cache
def configs(work: RowWork, device: Device) -> tuple[Config, ...]:
    """The configs that fit, the most promising first."""
    if device.kind != "cuda" or work.across or not work.holds or not work.sent:
        return ()
    offered = dict.fromkeys(every_config(work, device))
    fitting = [config for config in offered if why_not(config, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))[:MOST_CONFIGS]


def every_config(work: RowWork, device: Device) -> Iterator[Config]:
    """As many rows at a time as there are blocks for; the more blocks have one, the more rows each can hold."""
    lanes = reduce_woven.widest_lanes(work)
    kept = work.kept_bytes(lanes)
    for threads, each in ((512, 1), (256, 2), (1024, 1)):
        most = device.multiprocessors * each
        fewest = 0
        for blocks in range(1, most + 1):
            if fewest and blocks > MOST_TIMES_AS_MANY * fewest:
                break
            for step, holds in product(STEPS, (1, 2, 3)):
                config = Config(
                    threads, lanes, 2 * step, step, step, blocks, min(work.rows, most // blocks), each, holds
                )
                slots = slots_of(config, work)
                places = (room_bytes(config, device) - static_shared_bytes(config, work)) // (threads * kept)
                ahead = min(places - holds * slots, slots) // step * step
                if ahead > 0:
                    fewest = fewest or blocks
                    found = replace(config, vectors=holds * slots + ahead, ahead=ahead)
                    yield found
                    if holds >= FEWEST_FOR_A_CLERK:
                        yield replace(found, clerks=WARP)


def workspace_bytes(config: Config, work: RowWork) -> int:
    """Two places for each word that a block tells, and its tag beside it."""
    return 2 * config.holds * 8 * config.together * told_words(config, work)


def cost_us(config: Config, work: RowWork, device: Device) -> float:
    """Bytes at nearly the speed of a copy, and what each turn adds before the next one begins."""
    gbps = device.copy_gbps * REACHED
    even = reduce_woven.is_even(as_woven(config), work)
    moved = work.bytes_moved * (1.0 if even else UNEVEN)
    moved += max(0, work.rows - config.together) * work.repeated_bytes / L2_SPEED
    narrow = 1.0 + 0.03 * max(0.0, math.log2(16 / (config.lanes * max(work.itemsizes))))
    busy = min(1.0, config.together * config.blocks / config.each / device.multiprocessors / 0.9)
    moving = moved / gbps / 1e3 / busy * narrow * STEPS[config.step]
    turns = math.ceil(work.rows / config.together) * len(work.state_bytes)
    return 2 * LAUNCH_US + moving + turns * turn_us(config, work, device)


def turn_us(config: Config, work: RowWork, device: Device) -> float:
    """What passes between two rows: until everything is known of the one that comes next, and to merge it."""
    known = KNOWN_BY_CLERK_US if config.clerks else KNOWN_US + KNOWN_A_BLOCK_US * config.blocks
    row_us = work.bytes_moved / work.rows * config.together / device.copy_gbps / 1e3
    ahead = config.ahead * config.threads * work.kept_bytes(config.lanes) * config.blocks * config.together
    covered = COVERS * ahead / device.copy_gbps / 1e3 if config.holds == 1 else (config.holds - 1) * row_us
    merging = TURN_WITH_CLERK_US if config.clerks else TURN_US + TURN_A_BLOCK_US * config.blocks
    return max(0.0, known - covered) + merging + TURN_OF_TWO_US * (config.each > 1)
