"""Rows through a ring in shared memory: the configs of kernels/cuda/reduce_ring.cuh, and what each should take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from kernelwright.device import Device
from kernelwright.kernels import reduce, reduce_woven
from kernelwright.kernels.pointwise import LAUNCH_US
from kernelwright.kernels.reduce import WARP, RowWork
from kernelwright.kernels.reduce_woven import L2_SPEED, UNEVEN

# Blocks that share a row meet once for each phase that reduces, and so long it takes, while what they sent for still
# arrives. What covers less than that leaves memory idle; another block of the multiprocessor covers half of the rest.
MEETING_US = 3.0
BESIDE = 0.5

# So much of a copy's speed is reached with something on its way all the time.
REACHED = 0.97

# The values of a row are no more than this.
ROW_BYTES = 64

# What a copy of cp.async may have.
COPIED_BYTES = (4, 8, 16, 32)

# Places that a row has around the ring, from the least on: more blocks than this many times the fewest are not offered.
MOST_TIMES_AS_MANY = 4


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
    return 2 * states + 2 * ROW_BYTES if config.holds > 1 else states + 4 * told_words(config, work) + 16


def why_not(config: Config, work: RowWork, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    if device.kind != "cuda" or device.capability < (8, 0):
        return f"{device.arch} has too little shared memory."
    if not work.sent or any(operand.itemsize * config.lanes not in COPIED_BYTES for operand in work.operands):
        return "an operand is no vector of 4, 8 or 16 bytes, which could be copied to its place."
    if work.across or work.columns % config.lanes:
        return "only whole vectors along a row pass through a ring."
    if not work.holds or work.phases == len(work.state_bytes):
        return "no phase stores what is kept, so that the next row could take its place."
    if config.blocks > 1 and work.in_place:
        return "a row's result would be written before every block has read what it replaces."
    return (
        reduce.why_no_vectors(reduce_woven.as_plain(as_woven(config)), work)
        or why_no_ring(config, work, device)
        or why_no_room(config, work, device)
    )


def why_no_ring(config: Config, work: RowWork, device: Device) -> str | None:
    share = work.share(reduce_woven.as_plain(as_woven(config)))
    if config.threads % WARP or config.threads & (config.threads - 1):
        return f"{config.threads} threads are no power of two of whole warps."
    if config.threads >= 2 * share:
        return f"{config.threads} threads share {share} vectors: half of them have nothing to do."
    if config.together * config.blocks > device.multiprocessors * config.each:
        return f"{config.together * config.blocks} blocks do not run at once."
    if config.slots % config.step or config.ahead % config.step or not 0 < config.ahead <= config.slots:
        return f"{config.ahead} of {config.vectors} places ahead, {config.step} at a time."
    if config.slots * config.holds + config.ahead != config.vectors:
        return f"{config.vectors} places for {config.holds} rows and {config.ahead} ahead."
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
    threads = config.threads + clerks(config)
    if threads > device.max_threads_per_block or threads * config.each > device.max_threads_per_multiprocessor:
        return f"{config.each} blocks of {threads} threads are more than a multiprocessor has."
    most = min(reduce.REGISTERS_A_THREAD, device.registers_per_multiprocessor // (threads * config.each) // 8 * 8)
    wanted = registers(config, work)
    return f"{wanted} registers; a thread has {most}." if wanted > most else None


def clerks(config: Config) -> int:
    """Threads of a block that tell and hear what becomes known of rows, while the others go on."""
    return WARP if config.holds > 1 else 0


def room_bytes(config: Config, device: Device) -> int:
    return reduce_woven.room_bytes(as_woven(config), device)


def registers(config: Config, work: RowWork) -> int:
    """What a thread wants: for what it computes with, and what only the last phase wants of several vectors."""
    return work.own_registers + config.step * config.lanes * work.late_bytes // 4 + reduce_woven.MARGIN


@cache
def configs(work: RowWork, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    if device.kind != "cuda" or work.across or not work.holds or not work.sent:
        return ()
    offered = dict.fromkeys(every_config(work, device))
    fitting = [config for config in offered if why_not(config, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def every_config(work: RowWork, device: Device) -> Iterator[Config]:
    """As many rows at a time as there is room for; the more blocks have one, the more of it is on its way."""
    lanes = reduce_woven.widest_lanes(work)
    kept = work.kept_bytes(lanes)
    for threads, each in ((1024, 1), (512, 1), (512, 2), (256, 2)):
        most = device.multiprocessors * each
        fewest = 0
        for blocks in range(1, most + 1):
            together = min(work.rows, most // blocks)
            for step in (4, 2, 1):
                config = Config(threads, lanes, 2 * step, step, step, blocks, together, each)
                slots = slots_of(config, work)
                places = (room_bytes(config, device) - static_shared_bytes(config, work)) // (threads * kept)
                for holds in (1, 2, 3, 4):
                    ahead = min(places - holds * slots, slots) // step * step
                    if ahead > 0:
                        fewest = fewest or blocks
                        yield replace(config, vectors=holds * slots + ahead, ahead=ahead, holds=holds)
            if fewest and blocks >= MOST_TIMES_AS_MANY * fewest:
                break


def workspace_bytes(config: Config, work: RowWork) -> int:
    """Two places for each word that a block tells, and its tag beside it."""
    return 2 * config.holds * 8 * config.together * told_words(config, work)


def cost_us(config: Config, work: RowWork, device: Device) -> float:
    """Bytes at nearly the speed of a copy, and what each round adds while its blocks meet."""
    even = reduce_woven.is_even(as_woven(config), work)
    moved = work.bytes_moved * (1.0 if even else UNEVEN)
    moved += max(0, work.rows - config.together) * work.repeated_bytes / L2_SPEED
    narrow = 1.0 + 0.03 * max(0.0, math.log2(16 / (config.lanes * max(work.itemsizes))))
    busy = min(1.0, config.together * config.blocks / config.each / device.multiprocessors / 0.9)
    covered = config.ahead * config.threads * work.kept_bytes(config.lanes) * config.blocks * config.together
    exposed = max(0.0, MEETING_US - covered / device.copy_gbps / 1e3) * (BESIDE if config.each > 1 else 1.0)
    exposed = exposed + 0.5 if config.holds == 1 else 0.3
    rounds = math.ceil(work.rows / config.together) * len(work.state_bytes)
    steps = 1.0 + 0.01 * (2 - math.log2(config.step))  # fewer vectors at a time: more waiting for each
    return 2 * LAUNCH_US + moved / device.copy_gbps / 1e3 / REACHED / busy * narrow * steps + rounds * exposed
