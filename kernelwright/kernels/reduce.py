"""The reduction templates: their configs, which of them fit a kernel, and what each is expected to take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, TypeAlias

from kernelwright.device import Device
from kernelwright.kernels.pointwise import LAUNCH_US, MEMORY_LATENCY_NS

# Where the operands of a row are between phases: see kernels/cuda/reduce.cuh.
Keep = Literal["again", "registers", "shared"]

WARP = 32
LINE_BYTES = 128
LINES_A_CLOCK = 2  # of the first cache; PyTorch's AvgPool2d of windows 11 apart is not held up by it
STATIC_SMEM_BYTES = 48 * 1024
RESERVED_SMEM_BYTES = 1024  # of a multiprocessor, for each of its blocks
MOST_BLOCKS = 2**31 - 1
LARGEST_CLUSTER = 8
REGISTERS_A_THREAD = 255

# What a thread computes with beside the operands that it holds, and more for each so many flops of an element: softmax
# of 393,216 columns does not quite fit 128 registers, 96 of which hold its row.
OWN_REGISTERS = 34
FLOPS_A_REGISTER = 8

# A multiprocessor issues an instruction for so many threads in a clock, if it has so many warps to choose from.
LANES_A_CLOCK = 128
CLOCK_MHZ = 1700
WARPS_TO_CHOOSE_FROM = 24

# To find a row by its number, and for each element that has an address of its own or may be outside.
TO_START = 30
OUT_OF_LINE = 3

# What goes on at the same time as something longer still costs so much of its time.
HIDDEN = 0.1

# From the last load of a phase to the first of the next: the states go through a tree, and all wait for it.
MERGE_US = 0.9

# Loads take so long while all multiprocessors load: 40 KB each in flight fill the memory of an H200.
BUSY_LATENCY_NS = 1250

# What a cluster with its multiprocessors to itself takes longer: 4.5 to 7.5 ms where 3.1 to 3.6 are the floor (H200).
UNCOVERED_CLUSTER = 0.5

# What clusters take longer at best: 5.3 to 8.4 ms where 4.1 are the floor (65,535 columns, H200).
CLUSTERED = 0.2

# Windows with more elements are no better off side by side.
LONG_WINDOW = 64

# A reduction that is split among so many threads reads as fast as it can.
FINE_THREADS = 2**19

# Loops of a thread over no more elements are unrolled.
FEW_ELEMENTS = 128

# What has a place in shared memory is on its way there in so many bytes a block, and vectors a thread: see reduce_kept
# in kernels/cuda/reduce.cuh.
KEPT_IN_FLIGHT_BYTES = 65536
MOST_VECTORS_IN_FLIGHT = 16

# What blocks of 1024 threads touch at once of a line of memory is longer: 2,060 us instead of 2,333 for sums over
# columns of 128 times 4,096 x 4,095 (H200), as for means and arguments; not so for maxima.
WIDE = 0.9

# One multiprocessor by itself moves no more.
MOST_GBPS_A_MULTIPROCESSOR = 60.0

# To fetch and merge one of the states that blocks leave for the next launch.
PART_US = 0.2

# So much faster than memory is a second read that hits the L2 cache; rows that fill more than this share of it miss.
L2_SPEEDUP = 2.0
L2_SHARE = 0.5

# A CPU adds so many elements in sequence.
CPU_STEPS = 128

# States of so many rows side by side stay in its first cache.
CPU_WIDEST = 1024

# Rows shorter than this are folded from few lanes on a CPU.
SHORT_ROW = 128

# Of rows no shorter than this a thread walks over so many at once. Seen 5 to 18 % faster for 16,384 columns and more,
# where memory decides, and no faster for 4,096.
CPU_LONG_ROW = 8192
CPU_STREAMS = 4

# States of a row shared by threads of a CPU are on the stack.
MOST_PIECES = 128


@dataclass(frozen=True, slots=True)
class Config:
    """CUDA.

    threads   of a block
    lanes     neighbours in a vector
    team      threads of a block that share a row (across: `lanes` rows)
    vectors   a thread has in flight, or keeps between phases
    keep      where a row is between phases
    blocks    that share a row
    cluster   they are one cluster and meet in shared memory, else between launches
    beside    across, rows of few columns: vectors of rows that a thread takes
    """

    threads: int
    lanes: int
    team: int
    vectors: int
    keep: Keep
    blocks: int
    cluster: bool
    beside: int = 1

    @property
    def is_split(self) -> bool:
        return self.blocks > 1 and not self.cluster


@dataclass(frozen=True, slots=True)
class CpuConfig:
    """CPU.

    lanes      neighbours computed together
    chunk      columns added in sequence
    grain      columns that a thread takes (0: whole rows)
    together   along: rows, or with a grain parts of one, that a thread walks over at once; across: vectors of rows that
               a thread takes side by side
    """

    lanes: int
    chunk: int
    grain: int
    together: int


ReduceConfig: TypeAlias = Config | CpuConfig


@dataclass(frozen=True, slots=True)
class Operand:
    """A field of what is loaded together: the bytes of an element, and what is known of its use.

    same    one element for all lanes of a vector
    again   a phase after the first reads it as well
    step    elements from one lane to the next, where each is a load of its own; 0: they are loaded at once
    """

    itemsize: int
    same: bool = False
    again: bool = True
    step: int = 0

    def bytes_of(self, lanes: int) -> int:
        return self.itemsize * (1 if self.same else lanes)


@dataclass(frozen=True, slots=True)
class RowWork:
    """What a config must fit: the walk, its vector operands, and what is moved and computed.

    line            neighbours before memory jumps
    written_bytes   of those that are moved
    again_bytes     of operands that a phase after the first reads as well
    repeated_bytes  of operands that are the same for every row
    operands        of a vector that are loaded together, in the order of their fields
    state_bytes     of one row, for each phase that reduces
    phases          walks over a row
    flops           of one element
    in_place        a row's result lies where an operand of the row is read
    late_bytes      of an element of the operands that only later phases read, in vectors
    late_shared     whether these are the same for every row
    sent            whether each of the operands is a vector in memory, which a copy could bring
    """

    across: bool
    rows: int
    columns: int
    line: int
    itemsizes: tuple[int, ...]
    alignments: tuple[int, ...]
    bytes_moved: int
    written_bytes: int
    again_bytes: int
    repeated_bytes: int
    operands: tuple[Operand, ...]
    state_bytes: tuple[int, ...]
    phases: int
    flops: int
    in_place: bool
    late_bytes: int = 0
    late_shared: bool = False
    sent: bool = False

    @property
    def own_registers(self) -> int:
        """What a thread computes with, beside the operands that it holds."""
        return OWN_REGISTERS + self.flops // FLOPS_A_REGISTER

    @property
    def holds(self) -> bool:
        """Whether anything could be held from one phase to the next."""
        return self.phases > 1 and any(operand.again and not operand.same for operand in self.operands)

    def loaded_bytes(self, lanes: int) -> int:
        """What a thread has on its way for each vector."""
        return max(lanes, sum(operand.bytes_of(lanes) for operand in self.operands if not operand.same))

    def held_bytes(self, lanes: int) -> int:
        """What a thread holds in registers for each vector, from one phase to the next."""
        return sum(max(4, operand.bytes_of(lanes)) for operand in self.operands if operand.again)

    def kept_bytes(self, lanes: int) -> int:
        """What each vector takes in shared memory: the size of the struct of its operands, with all its gaps."""
        fields = [(operand.bytes_of(lanes), operand.itemsize, operand.same) for operand in self.operands]
        return struct_bytes([(size, item if same else min(16, size)) for size, item, same in fields])

    def share(self, config: Config) -> int:
        """The vectors of a row that one block takes."""
        return math.ceil(self.columns // (1 if self.across else config.lanes) / config.blocks)

    def is_unrolled(self, config: Config) -> bool:
        """Whether a thread has so few elements that each is known when its kernel is compiled."""
        return config.team * config.blocks == 1 and self.share(config) * config.lanes <= FEW_ELEMENTS

    def units(self, lanes: int) -> int:
        """What teams take: rows, or as many of them as a vector has lanes."""
        return self.rows // lanes if self.across else self.rows


def struct_bytes(fields: Iterable[tuple[int, int]]) -> int:
    """What C++ makes of fields of these sizes and alignments."""
    end, widest = 0, 1
    for size, alignment in fields:
        end = math.ceil(end / alignment) * alignment + size
        widest = max(widest, alignment)
    return max(1, math.ceil(end / widest) * widest)


def shared_bytes(config: Config, work: RowWork) -> int:
    """Shared memory that a launch asks for."""
    return config.threads * config.vectors * work.kept_bytes(config.lanes) if config.keep == "shared" else 0


def static_shared_bytes(config: Config, work: RowWork) -> int:
    """Shared memory that the code has in it: one place a phase for the states that are merged, each on 16 bytes."""
    if config.team <= (1 if work.across else WARP):
        return 0
    states = config.threads * config.lanes if work.across else config.threads // WARP
    return sum(math.ceil(states * size / 16) * 16 + (size + 16) * config.cluster for size in work.state_bytes)


def why_not(config: ReduceConfig, work: RowWork, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    if isinstance(config, CpuConfig):
        return why_not_on_cpu(config, work, device)
    if config.threads > device.max_threads_per_block:
        return f"{config.threads} threads; a block has at most {device.max_threads_per_block}."
    return (
        why_no_vectors(config, work)
        or why_no_team(config, work, device)
        or why_not_kept(config, work, device)
        or why_no_launch(config, work, device)
    )


def why_no_launch(config: Config, work: RowWork, device: Device) -> str | None:
    """What CUDA would refuse."""
    blocks, asked, static = blocks_of(config, work), shared_bytes(config, work), static_shared_bytes(config, work)
    if blocks > MOST_BLOCKS:
        return f"{blocks:,} blocks; a launch has at most {MOST_BLOCKS:,}."
    if static > STATIC_SMEM_BYTES:
        return f"the states of {config.threads} threads need {static:,} B of shared memory; a block has 49,152 B."
    if asked + static > device.smem_per_block_bytes:
        return f"a row of {asked:,} B is more than the shared memory of a block."
    return None


def why_not_on_cpu(config: CpuConfig, work: RowWork, device: Device) -> str | None:
    if device.kind != "cpu":
        return "a config for a CPU."
    if not work.across and config.chunk % config.lanes:
        return f"chunks of {config.chunk} columns are no whole number of {config.lanes} lanes."
    if config.together > 1 and work.across and config.grain:
        return "vectors side by side are of whole rows."
    if config.together > 1 and not work.across and work.line % config.lanes:
        return f"lines of {work.line} neighbours are no whole number of {config.lanes} lanes."
    if config.grain and config.grain % config.chunk:
        return f"pieces of {config.grain} columns are no whole number of {config.chunk}."
    return None


def why_no_vectors(config: Config, work: RowWork) -> str | None:
    if config.lanes * max(work.itemsizes) > 2 * 16 and config.lanes > 1:
        return f"{config.lanes} lanes of {max(work.itemsizes)} B are more than two 16 B loads."
    whole = work.line % config.lanes == 0 or (not work.across and work.line == work.columns > config.lanes)
    if not whole:
        return f"lines of {work.line} neighbours are no multiple of {config.lanes} lanes."
    if any(alignment % config.lanes for alignment in work.alignments):
        return f"an operand's lines do not start at multiples of {config.lanes} elements."
    return None


def why_no_team(config: Config, work: RowWork, device: Device) -> str | None:
    if config.threads % config.team:
        return f"{config.threads} threads are no whole number of teams of {config.team}."
    if config.team >= 2 * work.share(config) > 0:
        return f"{config.team} threads share {work.share(config)} vectors: half of them or more have nothing to do."
    if not work.across and WARP < config.team < config.threads:
        return f"a team of {config.team} is more than a warp and less than a block."
    if config.blocks > 1 and config.team < config.threads and not work.across:
        return "blocks share a row, but a block has several."
    if config.cluster and (device.capability < (9, 0) or config.blocks > LARGEST_CLUSTER):
        return f"clusters of {config.blocks} blocks; {device.arch} has none of that size."
    if config.cluster and work.across:
        return "blocks that share rows across meet between launches."
    if config.beside > 1 and (not work.across or config.team * config.blocks > 1 or work.phases > 1):
        return "only rows across that a thread has for itself are walked over side by side."
    if config.beside > 1 and not (work.is_unrolled(config) and config.beside * config.vectors * config.lanes <= 32):
        return f"{config.beside} times {config.vectors} vectors of {config.lanes} lanes are too many for a thread."
    if config.is_split and work.in_place:
        return "a row's result would be written before every block has read what it replaces."
    return None


def why_not_kept(config: Config, work: RowWork, device: Device) -> str | None:
    if config.keep == "again":
        flight = config.lanes * config.vectors * len(work.operands) * max(max(work.itemsizes), 4) // 4
        return f"{flight} registers for operands in flight." if flight > 96 and config.vectors > 1 else None
    if not work.holds:
        return "nothing is read again, so nothing is kept."
    if config.is_split:
        return "nothing is kept between launches."
    if config.vectors * config.team < work.share(config):
        return f"a row of {work.columns} columns does not fit {config.vectors} vectors a thread."
    registers = min(REGISTERS_A_THREAD, device.registers_per_multiprocessor // config.threads) - work.own_registers
    held = config.vectors * work.held_bytes(config.lanes)
    if config.keep == "registers" and held // 4 > registers:
        return f"{held // 4} registers for a row leave too few of {registers} to compute with."
    return None


@cache
def configs(work: RowWork, device: Device) -> tuple[ReduceConfig, ...]:
    """Every config that fits, the most promising first."""
    if device.kind == "cpu":
        return tuple(c for c in cpu_configs(work, device) if why_not(c, work, device) is None)
    everything = across_configs(work, device) if work.across else along_configs(work, device)
    fitting = [c for c in dict.fromkeys(everything) if why_not(c, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def cpu_configs(work: RowWork, device: Device) -> Iterator[CpuConfig]:
    """Whole rows to a thread where there are rows enough; else pieces of each."""
    yield from cpu_across_configs(work, device) if work.across else cpu_along_configs(work, device)


def cpu_along_configs(work: RowWork, device: Device) -> Iterator[CpuConfig]:
    # Short rows fold their lanes often.
    wanted = (16, 32, 64) if work.line < SHORT_ROW else (32, 64, 16)
    alone = [CpuConfig(lanes, CPU_STEPS * lanes, 0, 1) for lanes in cpu_lanes(wanted, work)]
    streams = [CpuConfig(16, CPU_STEPS * 16, 0, CPU_STREAMS)] if work.columns >= CPU_LONG_ROW else []
    if work.rows < few_tiles(device):
        split = [cpu_split(c, work) for c in (alone[0], *streams, *alone[1:]) if work.columns > c.chunk]
        yield from split
        if split and work.rows < device.multiprocessors:
            return  # whole rows would leave a core idle, which a tuner that has one thread does not see
    if work.rows < CPU_STREAMS * few_tiles(device):
        streams = []
    yield from (alone[0], *streams, *alone[1:])


def cpu_across_configs(work: RowWork, device: Device) -> Iterator[CpuConfig]:
    """Lines as wide as can be, for the memory likes them; narrow ones, for what is read again is then still near."""
    wide = [CpuConfig(16, CPU_STEPS, 0, n) for n in (CPU_WIDEST // 16, 32, 8) if 16 * n <= work.line]
    if 0 < work.line % 16 < work.line < CPU_WIDEST:
        wide.append(CpuConfig(16, CPU_STEPS, 0, work.line // 16))
    narrow = [CpuConfig(lanes, CPU_STEPS, 0, 1) for lanes in cpu_lanes((64, 32, 16), work)]
    order = [*narrow, *wide] if work.phases > 1 else [*wide, *narrow]
    full = [config for config in order if cpu_tiles(config, work) >= few_tiles(device)]
    if not full and work.columns > CPU_STEPS:
        yield from (cpu_split(config, work) for config in narrow)
    yield from dict.fromkeys([*full, *order])


def cpu_lanes(wanted: Sequence[int], work: RowWork) -> list[int]:
    """Those of the wanted widths that a line has, or a narrower one."""
    return [n for n in wanted if n <= work.line] or [n for n in (4, 1) if n <= work.line][:1]


def cpu_split(config: CpuConfig, work: RowWork) -> CpuConfig:
    """The same, with the columns shared by threads."""
    pieces = min(MOST_PIECES, math.ceil(work.columns / config.chunk))
    return replace(config, grain=math.ceil(work.columns / pieces / config.chunk) * config.chunk)


def cpu_tiles(config: CpuConfig, work: RowWork) -> int:
    """What threads share."""
    return work.rows // work.line * math.ceil(work.line / (config.lanes * config.together))


def few_tiles(device: Device) -> int:
    """Fewer would leave some core idle at the end for too long."""
    return 4 * device.multiprocessors


def along_configs(work: RowWork, device: Device) -> Iterator[Config]:
    for lanes in (8, 4, 2, 1):
        for team in (1, 2, 4, 8, 16, 32):
            yield from kept_or_not(work, 256, lanes, team, 1, False)
        for threads in (64, 128, 256, 512, 1024):
            yield from kept_or_not(work, threads, lanes, threads, 1, False)
            for blocks in (2, 4, 8):
                yield from kept_or_not(work, threads, lanes, threads, blocks, True)
        for threads in (256, 512):
            for blocks in split_counts(work, lanes, threads, device):
                yield Config(threads, lanes, threads, 4, "again", blocks, False)


def across_configs(work: RowWork, device: Device) -> Iterator[Config]:
    for lanes in (8, 4, 2, 1):
        for threads in (128, 256, 512):
            for team in (1, 2, 4, 8, 16, 32, 64, 128):
                yield from kept_or_not(work, threads, lanes, team, 1, False)
                for blocks in split_counts(work, lanes, team, device):
                    yield Config(threads, lanes, team, 4, "again", blocks, False)
            for beside in (2, 4):
                yield Config(threads, lanes, 1, min(8, work.columns), "again", 1, False, beside=beside)
    yield from wide_configs(work)


def wide_configs(work: RowWork) -> Iterator[Config]:
    """Blocks of 1024 threads, and columns that four blocks share: see WIDE."""
    if work.phases == 1 and work.columns >= 1024:
        for lanes in (4, 2, 1):
            yield Config(1024, lanes, 4, 8, "again", 4, False)


def kept_or_not(work: RowWork, threads: int, lanes: int, team: int, blocks: int, cluster: bool) -> Iterator[Config]:
    for vectors in (8, 4, 2, 1):
        yield Config(threads, lanes, team, vectors, "again", blocks, cluster)
    needed = math.ceil(work.share(Config(threads, lanes, team, 1, "again", blocks, cluster)) / team)
    yield Config(threads, lanes, team, needed, "registers", blocks, cluster)
    if team > WARP:
        yield Config(threads, lanes, team, needed, "shared", blocks, cluster)


def split_counts(work: RowWork, lanes: int, team: int, device: Device) -> Iterator[int]:
    """How many blocks share a row, so that all multiprocessors have something to do, and every thread too."""
    steps = work.columns // (team if work.across else team * lanes)
    for blocks in (8, 16, 32, 64, 128, 256, 512, 1024, 2048):
        busy = work.units(lanes) * blocks <= 16 * device.multiprocessors * (32 if work.across else 1)
        if busy and steps >= blocks:
            yield blocks


def best_config(work: RowWork, device: Device) -> ReduceConfig:
    """The config the cost model prefers."""
    return configs(work, device)[0]


def floor_us(work: RowWork, device: Device) -> float:
    """No kernel that moves these bytes is faster."""
    return work.bytes_moved / device.copy_gbps / 1e3


def workspace_bytes(config: ReduceConfig, work: RowWork) -> int:
    """The states that blocks leave for each other."""
    if isinstance(config, CpuConfig):
        return 0
    if not config.is_split:
        return 0
    return sum(work.rows * config.blocks * size + 16 for size in work.state_bytes)


def cost_us(config: ReduceConfig, work: RowWork, device: Device) -> float:
    """Launches, and the longest of moving, computing and waiting; the others hide behind it, but not altogether."""
    if isinstance(config, CpuConfig):
        return floor_us(work, device)
    estimates = (moving_us, fetching_us, computing_us, waiting_us)
    parts = sorted(estimate(config, work, device) for estimate in estimates)
    launches = len(work.state_bytes) + 1 if config.is_split else 1
    return launches * LAUNCH_US + parts[-1] + HIDDEN * sum(parts[:-1])


def moving_us(config: Config, work: RowWork, device: Device) -> float:
    """Bytes over bandwidth, if enough of them are in flight."""
    item = max(work.itemsizes)
    resident = min(blocks_of(config, work), device.multiprocessors * resident_blocks(config, work, device))
    in_flight = resident * config.threads * vectors_in_flight(config, work) * work.loaded_bytes(config.lanes)
    wanted_gbps = device.copy_gbps * (1.0 - work.written_bytes / max(1, work.bytes_moved))
    shortage = shortage_of(resident, in_flight / resident, wanted_gbps, device)
    last = blocks_of(config, work) % resident
    if last:  # what is left for a last wave has fewer blocks to fetch it
        by_few = shortage_of(last, in_flight / resident, wanted_gbps, device)
        shortage += last / blocks_of(config, work) * (by_few - shortage)
    teams = config.threads // config.team
    rows_at_a_time = resident * teams / config.blocks * (config.lanes if work.across else 1)
    read = work.bytes_moved + again_bytes(config, work, device, rows_at_a_time)
    read += reread_bytes(work, device, rows_at_a_time)
    # Neighbouring threads on neighbouring bytes: what they touch at once should fill whole lines of the cache.
    run = min((teams if work.across else config.team) * config.lanes, work.line) * item
    scattered: float = max(1.0, min(work.line * item, 256) / run) ** 0.3
    if work.across:  # walking down columns, longer runs are better still, and so are more threads (4,096 x 4,095, H200)
        scattered *= max(1.0, min(work.line * item, 1024) / run) ** 0.05 * (512 / config.threads) ** 0.05
        scattered *= WIDE if config.threads == 1024 else 1.0
    narrow = 1.0 + 0.03 * max(0.0, math.log2(16 / (config.lanes * item)))
    # Two loads side by side meet the same lines twice; many in flight cost registers, and so occupancy.
    wide = 1.0 + 0.02 * (config.lanes * item > 16)
    together = config.vectors * work.loaded_bytes(config.lanes)
    crowded = 1.0 + 0.01 * max(0.0, math.log2(together / 64)) * (config.keep == "again")
    # A cluster reads a row, meets and writes it: with nothing else on its multiprocessors, one row after the other.
    alone = config.cluster and blocks_of(config, work) > resident
    waiting = UNCOVERED_CLUSTER / resident_blocks(config, work, device) ** 2 if alone else 0.0
    staged = 1.0 + 0.02 * (config.keep == "shared") + CLUSTERED * config.cluster + waiting
    # Long rows side by side cost occupancy (windows of 11 x 11, H200), and long stretches of few blocks (8.6 GB) time.
    staged *= 1.0 + 0.025 * math.log2(config.beside) * (work.columns > LONG_WINDOW)
    if config.is_split and not work.across:
        staged *= 1.0 + 0.02 * max(0.0, math.log2(FINE_THREADS / (blocks_of(config, work) * config.threads)))
    return read / device.copy_gbps / 1e3 * shortage * narrow * wide * crowded * scattered * staged


def shortage_of(blocks: int, each_bytes: float, wanted_gbps: float, device: Device) -> float:
    """How many times longer memory takes than it could, if so many blocks have so much in flight of what is read."""
    busy = min(blocks, device.multiprocessors)
    most_gbps = busy * MOST_GBPS_A_MULTIPROCESSOR
    return max(1.0, device.copy_gbps / most_gbps, wanted_gbps / (blocks * each_bytes / BUSY_LATENCY_NS))


def fetching_us(config: Config, work: RowWork, device: Device) -> float:
    """What the first cache gives in a clock; lanes that are no neighbours are loads of their own."""
    clocks = 0.0
    for operand in work.operands:
        if operand.step and not operand.same:
            apart = operand.step * config.lanes * operand.itemsize
            clocks += max(1.0, min(WARP, WARP * apart / LINE_BYTES) / LINES_A_CLOCK)
        else:
            clocks += max(1.0, WARP * operand.bytes_of(config.lanes) / LINE_BYTES) / config.lanes
    busy = min(blocks_of(config, work), device.multiprocessors)
    return work.rows * work.columns / WARP * clocks / (busy * CLOCK_MHZ)


def vectors_in_flight(config: Config, work: RowWork) -> int:
    """Vectors that a thread has on their way."""
    most = min(config.vectors, math.ceil(work.share(config) / config.team))
    if config.keep != "shared":
        return most * config.beside
    thread_bytes = min(128, KEPT_IN_FLIGHT_BYTES // config.threads)
    return max(1, min(most, MOST_VECTORS_IN_FLIGHT, thread_bytes // work.kept_bytes(config.lanes)))


def computing_us(config: Config, work: RowWork, device: Device) -> float:
    """Instructions over the rate at which they are issued, if there are warps enough to choose from."""
    each = resident_blocks(config, work, device)
    blocks = blocks_of(config, work)
    warps = min(each, math.ceil(blocks / device.multiprocessors)) * max(1, config.threads // WARP)
    busy = min(1.0, blocks / device.multiprocessors) * min(1.0, warps / WARPS_TO_CHOOSE_FROM)
    issued = work.rows * work.columns * instructions(config, work)
    issued += blocks * config.threads * config.beside * TO_START
    return issued / (device.multiprocessors * LANES_A_CLOCK * CLOCK_MHZ) / busy


def waiting_us(config: Config, work: RowWork, device: Device) -> float:
    """Phases wait for their loads and for their trees; other blocks of a multiprocessor work meanwhile."""
    each = resident_blocks(config, work, device)
    waves = max(1.0, blocks_of(config, work) / (device.multiprocessors * each))
    # One thread by itself issues an instruction every other clock.
    steps = math.ceil(work.share(config) / config.team) * config.lanes * config.beside
    alone = steps * instructions(config, work) * 2 / CLOCK_MHZ
    if config.is_split:  # what the blocks before have left is merged by one team
        alone += len(work.state_bytes) * math.ceil(config.blocks / config.team) * PART_US
    return waves * (work.phases * MEMORY_LATENCY_NS / 1e3 + len(work.state_bytes) * merge_us(config) + alone)


def instructions(config: Config, work: RowWork) -> float:
    """For one element: what is computed, and its part of loads, stores and loops."""
    guarded = sum(operand.step > 0 for operand in work.operands) * OUT_OF_LINE
    looping = 0.0 if work.is_unrolled(config) else 3 / config.lanes
    return work.flops + work.phases * (1 + looping + guarded)


def blocks_of(config: Config, work: RowWork) -> int:
    each = config.threads // config.team * config.beside
    return math.ceil(work.units(config.lanes) / each) * config.blocks


def merge_us(config: Config) -> float:
    if config.team == 1:
        return 0.0
    return MERGE_US * (0.3 if config.team <= WARP else 1.0) + (MERGE_US if config.cluster else 0.0)


def resident_blocks(config: Config, work: RowWork, device: Device) -> int:
    """Blocks that a multiprocessor has at a time."""
    held = config.vectors * work.held_bytes(config.lanes)
    registers = work.own_registers + (held // 4 if config.keep == "registers" else 0)
    limits = [
        device.max_threads_per_multiprocessor // config.threads,
        device.registers_per_multiprocessor // (registers * config.threads),
    ]
    shared = shared_bytes(config, work) + static_shared_bytes(config, work)
    if shared:
        limits.append(device.smem_per_multiprocessor_bytes // (shared + RESERVED_SMEM_BYTES))
    return max(1, min(limits))


def again_bytes(config: Config, work: RowWork, device: Device, rows_at_a_time: float) -> float:
    """What later phases read, as far as it costs as much as the first time."""
    if config.keep != "again" or work.phases == 1:
        return 0.0
    times = work.again_bytes * (work.phases - 1)
    at_a_time = work.again_bytes if config.is_split else work.again_bytes / work.rows * rows_at_a_time
    return times / L2_SPEEDUP if at_a_time <= L2_SHARE * device.l2_bytes else float(times)


def reread_bytes(work: RowWork, device: Device, rows_at_a_time: float) -> float:
    """What all rows read, if it has left the cache before the next rows come."""
    if work.repeated_bytes <= L2_SHARE * device.l2_bytes:
        return 0.0
    return work.repeated_bytes * (math.ceil(work.rows / max(1.0, rows_at_a_time)) - 1)
