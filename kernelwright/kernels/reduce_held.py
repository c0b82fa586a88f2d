"""Rows held in registers: the configs of kernels/cuda/reduce_held.cuh, and what each should take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from kernelwright.device import Device
from kernelwright.kernels import reduce, reduce_ring, reduce_woven
from kernelwright.kernels.pointwise import LAUNCH_US
from kernelwright.kernels.reduce import RowWork
from kernelwright.kernels.reduce_woven import JUMPS, MARGIN, UNEVEN

# Between two rows nobody moves anything for so long (H200: LayerNorm of 16 rows of 4,194,304 columns by 128 blocks, 192
# us of which a copy takes 138).
TURN_US = 3.0

# What rows share and shared memory does not keep comes from the L2 cache for all rows but the first, so many times as
# fast as from memory (the same: 201 us with nothing kept).
WEIGHTS_SPEED = 12.0

# With fewer threads on a multiprocessor less is on its way (the same: 197 us with 256).
FEW_THREADS, FEWER = 512, 1.03

# Loops over more vectors are longer than the caches of instructions like.
MOST_HELD = 32

# What only the last phase wants comes from the L2 cache: so many vectors of it should be on their way to a thread.
MOST_EARLY = 8


@dataclass(frozen=True, slots=True)
class Config:
    """CUDA.

    threads   of a block, all on one row
    lanes     neighbours in a vector
    held      vectors of a row that a thread has in registers
    kept      of which what only the last phase wants is in shared memory: it is the same for every row
    early     of the others, of which it is on its way
    blocks    that share a row
    together  rows at a time, whose blocks all run at once
    each      blocks that a multiprocessor has at a time
    """

    threads: int
    lanes: int
    held: int
    kept: int
    early: int
    blocks: int
    together: int = 1
    each: int = 1


def as_ring(config: Config) -> reduce_ring.Config:
    """What another template would call it, for what blocks tell each other."""
    return reduce_ring.Config(
        config.threads, config.lanes, 0, 0, 1, config.blocks, config.together, config.each, holds=1
    )


def as_woven(config: Config) -> reduce_woven.Config:
    return reduce_woven.Config(config.threads, config.lanes, 0, 0, config.blocks, config.together, config.each)


def slots(config: Config, work: RowWork) -> int:
    """Vectors of a row that a thread has."""
    return reduce_woven.slots(as_woven(config), work)


def registers(config: Config, work: RowWork) -> int:
    """What a thread wants: for what it holds, and what only the last phase wants of some vectors."""
    late = config.early * late_bytes(config, work) // 4
    more = MARGIN + (JUMPS if work.line < work.columns else 0)
    return work.own_registers + config.held * max(1, work.kept_bytes(config.lanes) // 4) + late + more


def why_not(config: Config, work: RowWork, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    if device.kind != "cuda" or device.capability < (7, 0):
        return f"{device.arch} has no blocks that could wait for each other."
    if work.across or work.columns % config.lanes:
        return "only whole vectors along a row are held."
    if config.early < 1 or config.kept + config.early > max(1, config.held):
        return f"{config.kept} vectors kept and {config.early} early of {config.held}."
    if config.kept and not is_shared(config.lanes, work):
        return "what only the last phase wants differs from row to row, or is no whole words."
    if config.held != slots(config, work) or config.held > MOST_HELD:
        return f"{config.held} vectors held of {slots(config, work)}; {MOST_HELD} at most."
    return (
        reduce_woven.why_no_late(work)
        or reduce_woven.why_not_stored(config.blocks, work)
        or reduce.why_no_vectors(reduce_woven.as_plain(as_woven(config)), work)
        or reduce_woven.why_no_blocks(as_woven(config), work, device)
        or why_no_room(config, work, device)
    )


def why_no_room(config: Config, work: RowWork, device: Device) -> str | None:
    asked, room = shared_bytes(config, work) + static_shared_bytes(config, work), room_bytes(config, device)
    if asked > room:
        return f"{asked:,} B of shared memory; each of {config.each} blocks has {room:,} B."
    if config.threads * config.each > device.max_threads_per_multiprocessor:
        return f"{config.each} blocks of {config.threads} threads are more than a multiprocessor has."
    wanted, most = registers(config, work), reduce_woven.most_registers(as_woven(config), device)
    return f"{wanted} registers; a thread has {most}." if wanted > most else None


def late_bytes(config: Config, work: RowWork) -> int:
    """Of what only the last phase wants of a vector."""
    return config.lanes * work.late_bytes


def shared_bytes(config: Config, work: RowWork) -> int:
    return config.kept * config.threads * late_bytes(config, work)


def room_bytes(config: Config, device: Device) -> int:
    return reduce_woven.room_bytes(as_woven(config), device)


def static_shared_bytes(config: Config, work: RowWork) -> int:
    return reduce_ring.static_shared_bytes(as_ring(config), work)


@cache
def configs(work: RowWork, device: Device) -> tuple[Config, ...]:
    """The configs that fit, the most promising first; none for rows without weights, of which a ring has more on its
    way (H200: 3,263 us for softmax and 4,021 for GroupNorm, which took 4,725 and 4,841 in registers)."""
    if device.kind != "cuda" or work.across or not work.holds or not work.late_bytes:
        return ()
    offered = dict.fromkeys(every_config(work, device))
    fitting = [config for config in offered if why_not(config, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def every_config(work: RowWork, device: Device) -> Iterator[Config]:
    """The fewest blocks that hold a row, and the next number of them whose parts begin with lines of the caches; as
    many rows at a time as there are blocks for."""
    lanes = reduce_woven.widest_lanes(work)
    for threads, each in ((512, 1), (256, 1), (1024, 1), (256, 2), (512, 2)):
        most = device.multiprocessors * each
        placed = [placed_in(Config(threads, lanes, 1, 0, 1, n, 1, each), work, device) for n in range(1, most + 1)]
        fitting = {config.blocks: config for config in placed if config is not None}
        if fitting:
            even = reduce_woven.next_even([*fitting], work, lanes)
            for found in (next(iter(fitting.values())), fitting[even]):
                yield replace(found, together=min(work.rows, most // found.blocks))


def is_shared(lanes: int, work: RowWork) -> bool:
    """Whether all rows share what only the last phase wants, in words that shared memory has."""
    return work.late_bytes > 0 and work.late_shared and lanes * work.late_bytes % 16 == 0


def placed_in(config: Config, work: RowWork, device: Device) -> Config | None:
    """All vectors of a thread in registers, and of what only the last phase wants as much as there is room for, in
    shared memory and on its way."""
    held = slots(config, work)
    if held > MOST_HELD:
        return None
    room = room_bytes(config, device) - static_shared_bytes(config, work)
    places = room // (config.threads * late_bytes(config, work)) if is_shared(config.lanes, work) else 0
    kept = max(0, min(places, held - 1))
    deepest = min(MOST_EARLY, held - kept) if work.late_bytes else 1
    most = reduce_woven.most_registers(as_woven(config), device)
    offered = (replace(config, held=held, kept=kept, early=early) for early in range(deepest, 0, -1))
    return next((found for found in offered if registers(found, work) <= most), None)


def workspace_bytes(config: Config, work: RowWork) -> int:
    return reduce_ring.workspace_bytes(as_ring(config), work)


def cost_us(config: Config, work: RowWork, device: Device) -> float:
    """Bytes at the speed of a copy, and what each turn adds while the blocks of its rows meet."""
    moved = work.bytes_moved * (1.0 if reduce_woven.is_even(as_woven(config), work) else UNEVEN)
    fetched = work.repeated_bytes * (1.0 - config.kept / config.held)
    moved += max(0, work.rows - config.together) * fetched / WEIGHTS_SPEED
    moved *= FEWER if config.threads * config.each < FEW_THREADS else 1.0
    narrow = 1.0 + 0.03 * max(0.0, math.log2(16 / (config.lanes * max(work.itemsizes))))
    busy = min(1.0, config.together * config.blocks / config.each / device.multiprocessors / 0.9)
    turns = math.ceil(work.rows / config.together) * len(work.state_bytes)
    return 2 * LAUNCH_US + moved / device.copy_gbps / 1e3 / busy * narrow + turns * TURN_US
