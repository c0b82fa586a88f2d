"""The templates of running values (scan.cuh, scan.hpp): their configs, which fit a kernel, what each should take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from kernelwright.device import Device
from kernelwright.kernels.pointwise import LAUNCH_US

# A running value is kept in at most so many bytes: sums and products of float32 in float64.
STATE_BYTES = 8

# From the load of a tile to its store: memory's latency, the shuffles, and waiting for the totals of other warps.
ROUND_NS = 1300

# What memory hands out at least, and what a warp's loads should fill.
SECTOR_BYTES = 32
LINE_BYTES = 128

# A row is cut for the sake of more blocks only into chunks that are worth reading twice.
SHORTEST_CHUNK = 16384
SHORTEST_CHUNK_ACROSS = 64
# One thread adds up the totals of all chunks of its rows.
MOST_CHUNKS_ACROSS = 512

# Registers of one thread for operands, running values and their states; the rest addresses and computes.
MOST_REGISTERS = 96

# A row of this many elements keeps one core busy for about 20 us; shorter ones are not cut.
CPU_CHUNK = 65536
CPU_CHUNK_ACROSS = 4096


@dataclass(frozen=True, slots=True)
class AlongConfig:
    """CUDA, neighbours in one row: threads of a row, rows of a block, neighbours in a vector, vectors of a thread, and
    into how many chunks a row is cut."""

    threads: int
    rows: int
    lanes: int
    vectors: int
    chunks: int


@dataclass(frozen=True, slots=True)
class AcrossConfig:
    """CUDA, neighbours in different rows: threads of a block, rows of a thread, places that it loads at once, and into
    how many chunks a row is cut."""

    threads: int
    lanes: int
    places: int
    chunks: int


@dataclass(frozen=True, slots=True)
class CpuConfig:
    """CPU: neighbours computed together, across how many such vectors side by side, and places of a chunk."""

    lanes: int
    together: int
    chunk: int


ScanConfig: TypeAlias = AlongConfig | AcrossConfig | CpuConfig


@dataclass(frozen=True, slots=True)
class ScanWork:
    """What a config must fit: rows of a length, `columns` of them side by side in memory where the walk is across.

    itemsizes    of what is read or written in vectors
    alignments   where those vectors start, in elements
    read_bytes   what each further pass over a cut row reads again
    scans        running values of one element
    stages       the longest chain of scans that need each other
    """

    across: bool
    rows: int
    length: int
    columns: int
    itemsizes: tuple[int, ...]
    alignments: tuple[int, ...]
    bytes_moved: int
    read_bytes: int
    operands: int
    scans: int
    stages: int


def why_not(config: ScanConfig, work: ScanWork, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    match config:
        case CpuConfig():
            return None if device.kind == "cpu" else "a config for a CPU."
        case AlongConfig():
            return why_not_along(config, work, device)
        case AcrossConfig():
            return why_not_across(config, work, device)


def why_not_along(config: AlongConfig, work: ScanWork, device: Device) -> str | None:
    if work.across:
        return "neighbours lie in different rows."
    if config.threads * config.rows > device.max_threads_per_block:
        return f"{config.threads * config.rows} threads; a block has at most {device.max_threads_per_block}."
    if config.threads > 32 and config.rows > 1:
        return "rows of more than one warp do not share a block."
    if work.length % config.lanes:
        return f"{work.length} elements of a row are no multiple of {config.lanes} lanes."
    return why_no_vector(config.lanes, config.vectors, work, device)


def why_not_across(config: AcrossConfig, work: ScanWork, device: Device) -> str | None:
    if not work.across:
        return "neighbours lie in one row."
    if work.columns % config.lanes:
        return f"{work.columns} rows side by side are no multiple of {config.lanes} lanes."
    return why_no_vector(config.lanes, config.places, work, device)


def why_no_vector(lanes: int, vectors: int, work: ScanWork, device: Device) -> str | None:
    widest = max(work.itemsizes)
    if lanes * widest > device.vector_bytes and lanes > 1:
        return f"{lanes} lanes of {widest} B are more than one {device.vector_bytes} B load."
    if any(alignment % lanes for alignment in work.alignments):
        return f"an operand's rows do not start at multiples of {lanes} elements."
    held = registers(lanes, vectors, work)
    if held > MOST_REGISTERS and lanes * vectors > 1:
        return f"{held} registers for what a thread has loaded leave too few to compute with."
    return None


def registers(lanes: int, vectors: int, work: ScanWork) -> int:
    """What a thread holds between loading and storing."""
    operands = lanes * vectors * work.operands * max(*work.itemsizes, 4) // 4
    running = lanes * vectors * work.scans
    return operands + running + vectors * 2


@cache
def configs(work: ScanWork, device: Device) -> tuple[ScanConfig, ...]:
    """Every config that fits, the most promising first."""
    if device.kind == "cpu":
        return cpu_configs(work, device)
    space: list[ScanConfig] = list(across_space(work, device) if work.across else along_space(work, device))
    fitting = [c for c in space if why_not(c, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def along_space(work: ScanWork, device: Device) -> list[AlongConfig]:
    """A warp's lanes or less for a short row, a block for a long one."""
    found = []
    for lanes in (8, 4, 2, 1):
        for vectors in (4, 8, 2, 1):
            for threads in (256, 512, 128, 64, 32, 16, 8, 4, 2, 1):
                rows = 1 if threads > 32 else 256 // threads
                tile = threads * vectors * lanes
                found.append(AlongConfig(threads, rows, lanes, vectors, chunks_along(work, tile, threads, device)))
    return found


def chunks_along(work: ScanWork, tile: int, threads: int, device: Device) -> int:
    """As many as fill the device with blocks, each of whole tiles; 1 where the rows fill it by themselves."""
    wanted = device.multiprocessors * max(1, 1024 // threads)
    if threads <= 32 or work.rows * 2 > wanted or work.rows == 0:
        return 1
    longest = max(SHORTEST_CHUNK, tile)
    chunks = min(math.ceil(wanted / work.rows), work.length // longest)
    return cut(work.length, chunks, tile)


def cut(length: int, chunks: int, whole: int) -> int:
    """How many chunks there really are, if each but the last is a multiple of `whole`."""
    return math.ceil(length / chunk_of(length, max(chunks, 1), whole)) if length else 1


def chunk_of(length: int, chunks: int, whole: int) -> int:
    return math.ceil(math.ceil(length / chunks) / whole) * whole


def across_space(work: ScanWork, device: Device) -> list[AcrossConfig]:
    found = []
    for lanes in (4, 2, 1, 8):
        for places in (8, 4, 16, 2):
            for threads in (128, 256, 64):
                wanted = device.multiprocessors * 1024
                lanes_there = max(1, work.rows * work.columns // lanes)
                chunks = min(math.ceil(wanted / lanes_there), work.length // SHORTEST_CHUNK_ACROSS, MOST_CHUNKS_ACROSS)
                found.append(AcrossConfig(threads, lanes, places, cut(work.length, chunks, places)))
    return found


def cpu_configs(work: ScanWork, device: Device) -> tuple[CpuConfig, ...]:
    """Chunks where there are too few rows for all cores; they do not depend on how many threads will run."""
    if work.across:
        few = work.rows * work.columns < 16 * device.multiprocessors and work.length >= 2 * CPU_CHUNK_ACROSS
        chunk = CPU_CHUNK_ACROSS if few else work.length
        narrow = work.rows * work.columns < 1024 * device.multiprocessors
        widths = ((16, 16), (16, 64)) if narrow else ((64, 16), (32, 32), (16, 64))
        return tuple(CpuConfig(lanes, together, chunk) for lanes, together in widths)
    few = work.rows < 4 * device.multiprocessors and work.length >= 2 * CPU_CHUNK
    chunk = CPU_CHUNK if few else work.length
    return tuple(CpuConfig(lanes, 1, chunk) for lanes in (64, 32, 128))


def floor_us(work: ScanWork, device: Device) -> float:
    """No kernel that moves these bytes is faster."""
    return work.bytes_moved / device.copy_gbps / 1e3


def cost_us(config: ScanConfig, work: ScanWork, device: Device) -> float:
    """Bytes over bandwidth, those of further passes too; or tile after tile, where too few threads share the work."""
    again = work.stages * work.read_bytes if is_cut(config, work) else 0
    moved = (work.bytes_moved + again) / device.copy_gbps / 1e3
    if isinstance(config, CpuConfig) or work.bytes_moved == 0:
        return moved
    passes = 1 + (2 * work.stages if config.chunks > 1 else 0)
    rounds, waste = (
        along_rounds(config, work, device) if isinstance(config, AlongConfig) else across_rounds(config, work, device)
    )
    waiting = rounds * ROUND_NS / 1e3
    return LAUNCH_US * passes + max(moved * waste, waiting) + 0.1 * min(moved * waste, waiting)


def along_rounds(config: AlongConfig, work: ScanWork, device: Device) -> tuple[int, float]:
    """How many tiles wait for each other, over all waves of blocks; and what narrow or idle loads cost."""
    tile = config.threads * config.vectors * config.lanes
    places = math.ceil(work.length / config.chunks)
    tiles = math.ceil(places / tile)
    blocks = math.ceil(work.rows * config.chunks / config.rows)
    waves = math.ceil(blocks / (device.multiprocessors * resident(config.threads * config.rows, config, work, device)))
    side_by_side = min(config.threads, 32) * config.lanes * max(work.itemsizes)
    scattered = max(1.0, SECTOR_BYTES / side_by_side) * (1.1 if side_by_side < LINE_BYTES else 1.0)
    # Idle lanes load nothing, so that they cost less than their share.
    idle = 1.0 + 0.2 * (tiles * tile / places - 1.0)
    crowding = crowded(config.lanes, config.vectors, work)
    # Blocks of 512 threads wait for each other too long (masked sums along 32,768 places, H200).
    crowding *= 1.0 + 0.06 * max(0.0, math.log2(config.threads / 256))
    return waves * tiles, scattered * idle * crowding * narrow(config.lanes, work)


def across_rounds(config: AcrossConfig, work: ScanWork, device: Device) -> tuple[int, float]:
    batches = math.ceil(math.ceil(work.length / config.chunks) / config.places)
    blocks = math.ceil(work.rows * work.columns / config.lanes / config.threads) * config.chunks
    waves = math.ceil(blocks / (device.multiprocessors * resident(config.threads, config, work, device)))
    side_by_side = min(work.columns, 32 * config.lanes) * max(work.itemsizes)
    waste = narrow(config.lanes, work) * crowded(config.lanes, config.places, work)
    return waves * batches, max(1.0, SECTOR_BYTES / side_by_side) * waste


def resident(threads: int, config: AlongConfig | AcrossConfig, work: ScanWork, device: Device) -> int:
    """Blocks of one multiprocessor, by threads and registers."""
    vectors = config.vectors if isinstance(config, AlongConfig) else config.places
    by_registers = device.registers_per_multiprocessor // (threads * (registers(config.lanes, vectors, work) + 36))
    return max(1, min(device.max_threads_per_multiprocessor // threads, by_registers, 32))


def narrow(lanes: int, work: ScanWork) -> float:
    """Each vector is scanned over a warp, however few elements it has."""
    return 1.0 + 0.08 * max(0.0, math.log2(16 / (lanes * max(work.itemsizes))))


def crowded(lanes: int, vectors: int, work: ScanWork) -> float:
    """Registers cost occupancy, and so hide less of what was not foreseen."""
    return 1.0 + 0.02 * max(0.0, registers(lanes, vectors, work) - 40) / 16


def is_cut(config: ScanConfig, work: ScanWork) -> bool:
    """Whether totals of chunks are found first, in passes of their own."""
    return config.chunk < work.length if isinstance(config, CpuConfig) else config.chunks > 1


def workspace_bytes(config: ScanConfig, work: ScanWork) -> int:
    """The states of every chunk of every row."""
    if not is_cut(config, work):
        return 0
    chunks = math.ceil(work.length / config.chunk) if isinstance(config, CpuConfig) else config.chunks
    return work.rows * work.columns * chunks * work.scans * STATE_BYTES
