"""Rows woven into each other: the configs of kernels/cuda/reduce_woven.cuh, which fit, and what each should take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from kernelwright.device import Device
from kernelwright.kernels import reduce
from kernelwright.kernels.pointwise import LAUNCH_US
from kernelwright.kernels.reduce import LINE_BYTES, RESERVED_SMEM_BYTES, WARP, RowWork

# What is on its way to a multiprocessor, and a thread's part of it.
IN_FLIGHT_BYTES = 32768
MOST_IN_FLIGHT = 8

# A round is what the rows that are in work at a time take. Of each, so many microseconds pass while blocks meet and
# nobody moves anything, with 512 and with 1024 threads on a multiprocessor (H200: 393,216 and 262,144 columns); fewer
# rows at a time leave more of it uncovered.
EXPOSED_US, EXPOSED_BY_MORE_US = 3.0, 1.8
UNCOVERED = 1.5

# Parts of rows that begin within a line of the caches take so much longer; so many times as many blocks are worth it.
UNEVEN = 1.2
NEAR = 1.35

# What is read again comes from the L2 cache, which is so many times as fast as memory; and so do the weights of a row,
# for which a vector waits.
L2_SPEED = 1.5

# ptxas takes a few registers more than what is counted here, more where a row is no one line of memory, and more still
# where a thread holds many vectors.
MARGIN, JUMPS = 4, 8
MOST_HELD_BYTES = 128


@dataclass(frozen=True, slots=True)
class Config:
    """CUDA.

    threads   of a block, all on one row
    lanes     neighbours in a vector
    vectors   a thread keeps in shared memory
    held      vectors that it has in registers besides; what is left of a row is read again
    blocks    that share a row
    together  rows at a time, whose blocks all run at once
    each      blocks that a multiprocessor has at a time
    ahead     vectors that a thread has on their way: what it keeps, and what it holds, are multiples of it
    """

    threads: int
    lanes: int
    vectors: int
    held: int
    blocks: int
    together: int = 1
    each: int = 1
    ahead: int = 1


def as_plain(config: Config) -> reduce.Config:
    """What the plain template would call it."""
    return reduce.Config(
        config.threads, config.lanes, config.threads, config.vectors, "shared", config.blocks, cluster=True
    )


def slots(config: Config, work: RowWork) -> int:
    """Vectors of a row that a thread has."""
    return math.ceil(work.share(as_plain(config)) / config.threads)


def left(config: Config, work: RowWork) -> int:
    """Those of them that have no place between phases."""
    return max(0, slots(config, work) - config.vectors - config.held)


def left_bytes(config: Config, work: RowWork) -> int:
    return left(config, work) * config.threads * config.blocks * work.kept_bytes(config.lanes)


def shared_bytes(config: Config, work: RowWork) -> int:
    return reduce.shared_bytes(as_plain(config), work)


def static_shared_bytes(config: Config, work: RowWork) -> int:
    """The states of the warps of a block, and those of the blocks of a row, which are merged like them."""
    return 2 * reduce.static_shared_bytes(as_plain(config), work)


def most_ahead(config: Config, work: RowWork) -> int:
    """Vectors that a thread should have on their way."""
    each_bytes = IN_FLIGHT_BYTES // (config.threads * config.each)
    return max(1, min(MOST_IN_FLIGHT, each_bytes // work.kept_bytes(config.lanes), slots(config, work)))


def why_not(config: Config, work: RowWork, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    if device.kind != "cuda" or device.capability < (8, 0):
        return f"{device.arch} has too little shared memory."
    if work.across or work.columns % config.lanes:
        return "only whole vectors along a row are woven."
    return (
        why_no_late(work)
        or why_not_stored(config.blocks, work)
        or reduce.why_no_vectors(as_plain(config), work)
        or why_no_blocks(config, work, device)
        or why_no_places(config, work, device)
        or why_no_room(config, work, device)
    )


def why_no_late(work: RowWork) -> str | None:
    if work.late_bytes and work.line < work.columns:
        return "the addresses of what only the last phase wants, where a row is no one line, take too many registers."
    return None


def why_not_stored(blocks: int, work: RowWork) -> str | None:
    """A row is read by some phases, and what becomes of it is stored by the last."""
    if not work.holds or work.phases == len(work.state_bytes):
        return "no phase stores what is kept, so that the next row could take its place."
    if blocks > 1 and work.in_place:
        return "a row's result would be written before every block has read what it replaces."
    return None


def why_no_blocks(config: Config, work: RowWork, device: Device) -> str | None:
    if config.threads % WARP or config.threads & (config.threads - 1):
        return f"{config.threads} threads are no power of two of whole warps."
    if config.threads >= 2 * work.share(as_plain(config)):
        return (
            f"{config.threads} threads share {work.share(as_plain(config))} vectors: half of them have nothing to do."
        )
    if config.together * config.blocks > device.multiprocessors * config.each:
        return f"{config.together * config.blocks} blocks do not run at once."
    return None


def why_no_places(config: Config, work: RowWork, device: Device) -> str | None:
    if config.vectors % config.ahead or config.held % config.ahead:
        return f"{config.ahead} vectors on their way do not divide {config.vectors} and {config.held} places."
    if config.vectors < 1 or config.vectors + config.held >= slots(config, work) + config.ahead:
        return f"{config.vectors} and {config.held} places for {slots(config, work)} vectors."
    if left(config, work) and config.together != 1:
        return "only where all multiprocessors are at one row is what it reads again still in the L2 cache."
    if left_bytes(config, work) > device.l2_bytes:
        return f"{left_bytes(config, work):,} B of a row have no place but an L2 cache of {device.l2_bytes:,} B."
    return None


def why_no_room(config: Config, work: RowWork, device: Device) -> str | None:
    asked, room = shared_bytes(config, work) + static_shared_bytes(config, work), room_bytes(config, device)
    if asked > room:
        return f"{asked:,} B of shared memory; each of {config.each} blocks has {room:,} B."
    if config.threads * config.each > device.max_threads_per_multiprocessor:
        return f"{config.each} blocks of {config.threads} threads are more than a multiprocessor has."
    if registers(config, work) > most_registers(config, device):
        return f"{registers(config, work)} registers; a thread has {most_registers(config, device)}."
    return None


@cache
def configs(work: RowWork, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    if device.kind != "cuda" or work.across or not work.holds:
        return ()
    offered = dict.fromkeys(every_config(work, device))
    fitting = [config for config in offered if why_not(config, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def widest_lanes(work: RowWork) -> int:
    """One word of 16 bytes, or as much of it as the lines allow."""
    for lanes in (8, 4, 2):
        plain = reduce.Config(WARP, lanes, WARP, 1, "again", 1, False)
        fits = lanes * max(work.itemsizes) <= 16 and work.columns % lanes == 0
        if fits and reduce.why_no_vectors(plain, work) is None:
            return lanes
    return 1


def every_config(work: RowWork, device: Device) -> Iterator[Config]:
    """As many rows at a time as there is room for; where there is none for one, the rest of it is left."""
    lanes = widest_lanes(work)
    for threads, each in ((512, 1), (512, 2), (256, 2), (256, 4)):
        most = device.multiprocessors * each
        whole, in_shared = holding(Config(threads, lanes, 1, 0, 1, 1, each), work, device)
        offered = [next_even(found, work, lanes) for found in (whole, in_shared) if found]
        for blocks in dict.fromkeys(offered or [most, 1 << (most.bit_length() - 1)]):
            config = Config(threads, lanes, 1, 0, blocks, min(work.rows, most // blocks), each)
            yield placed(config, work, device)


def holding(config: Config, work: RowWork, device: Device) -> tuple[list[int], list[int]]:
    """Numbers of blocks that hold a row, from the least on; and of those that hold it in shared memory alone."""
    whole: list[int] = []
    in_shared: list[int] = []
    for blocks in range(1, device.multiprocessors * config.each + 1):
        found = placed(replace(config, blocks=blocks), work, device)
        if not left(found, work):
            whole.append(blocks)
            in_shared += [blocks] if not found.held else []
        if in_shared and blocks > NEAR * in_shared[0]:
            break
    return whole, in_shared


def next_even(found: Sequence[int], work: RowWork, lanes: int) -> int:
    """The first number of blocks whose parts of a row all begin with a line of the caches, which is faster than a few
    blocks less; if none is near, the first."""
    near = (blocks for blocks in found if blocks <= NEAR * found[0])
    return next((blocks for blocks in near if is_even(Config(WARP, lanes, 1, 0, blocks), work)), found[0])


def placed(config: Config, work: RowWork, device: Device) -> Config:
    """As many vectors as fit in shared memory, and as many of the others as a thread has registers for."""
    kept = work.kept_bytes(config.lanes)
    most = (room_bytes(config, device) - static_shared_bytes(config, work)) // (config.threads * kept)
    everything = slots(config, work)
    ahead = max(1, min(most_ahead(config, work), most))
    vectors = max(1, min(most // ahead, math.ceil(everything / ahead))) * ahead
    over = min(math.ceil(max(0, everything - vectors) / ahead), MOST_HELD_BYTES // kept // ahead) * ahead
    for held in range(over, -1, -ahead):
        found = replace(config, vectors=vectors, held=held, ahead=ahead)
        if registers(found, work) <= most_registers(config, device):
            break
    return found


def room_bytes(config: Config, device: Device) -> int:
    """Of shared memory, for a block."""
    return min(device.smem_per_block_bytes, device.smem_per_multiprocessor_bytes // config.each - RESERVED_SMEM_BYTES)


def registers(config: Config, work: RowWork) -> int:
    """What a thread wants: for what it holds and has on its way, twice that where it also reads again."""
    vectors = config.held + (4 if left(config, work) else 2) * config.ahead
    late = config.ahead * config.lanes * work.late_bytes // 4
    more = MARGIN + (JUMPS if work.line < work.columns else 0)
    return work.own_registers + vectors * max(1, work.kept_bytes(config.lanes) // 4) + late + more


def most_registers(config: Config, device: Device) -> int:
    return min(reduce.REGISTERS_A_THREAD, device.registers_per_multiprocessor // (config.threads * config.each))


def workspace_bytes(config: Config, work: RowWork) -> int:
    """What blocks leave for each other: two places each, and a line of the cache for those who have arrived."""
    if config.blocks == 1:
        return 0
    return config.together * 128 + sum(2 * config.together * config.blocks * n + 16 for n in work.state_bytes)


def cost_us(config: Config, work: RowWork, device: Device) -> float:
    """Bytes at the speed of a copy, and what each round adds while its blocks meet."""
    moved = work.bytes_moved * (1.0 if is_even(config, work) else UNEVEN)
    moved += work.rows * (work.phases - 1) * left_bytes(config, work) / L2_SPEED
    moved += max(0, work.rows - config.together) * work.repeated_bytes / L2_SPEED
    narrow = 1.0 + 0.03 * max(0.0, math.log2(16 / (config.lanes * max(work.itemsizes))))
    exposed = EXPOSED_BY_MORE_US if config.threads * config.each > 512 else EXPOSED_US
    rounds = math.ceil(work.rows / config.together) * len(work.state_bytes)
    meeting = rounds * exposed * (1.0 + UNCOVERED / config.together)
    return 2 * LAUNCH_US + moved / device.copy_gbps / 1e3 * narrow + meeting


def is_even(config: Config, work: RowWork) -> bool:
    """Whether the parts of a row all begin with a line of the caches."""
    line = max(1, LINE_BYTES // (config.lanes * min(work.itemsizes)))
    return work.columns // config.lanes % (config.blocks * line) == 0
