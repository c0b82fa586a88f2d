"""The IEEE float32 convolution on the CUDA cores (conv_direct.cuh): its configs, which fit, their cost, its entry."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from kernelwright.device import Device
from kernelwright.kernels.conv_shape import CPP_TYPE, ITEMSIZE, SPACE, ConvShape, by_axis, integers, size_lines
from kernelwright.kernels.conv_shape import floor_us as floor_at
from kernelwright.kernels.gemm_shape import LAUNCH_US, beside_us

__all__ = ["HEADERS", "Config", "arithmetic", "configs", "cost_us", "entry", "floor_us", "packed_bytes", "why_not"]

HEADERS = ("conv_direct",)

MOST_GRID = 2**31 - 1
MOST_THREADS = 256
# Sums of a thread; more would spill beside a line of inputs.
MOST_SUMS = 64
# Multiplications that a thread's code has for one channel: more do not fit the instruction cache.
MOST_UNROLLED = 3072
# Shared memory of a block, so that several run at once and cover each other's copies.
MOST_SHARED_BYTES = 64 * 1024

# Registers for rows of inputs that a thread reads ahead of their use; as in conv_direct.cuh.
WINDOW_REGISTERS = 64
# Registers that a kernel without shared memory is given at least, and at most where it has to fit without spills.
LEAST_REGISTERS = 40
REGISTERS_OF_MULTIPROCESSOR = 65536  # from sm_70 on
MOST_REGISTERS = 168

# Instructions, counted in SASS: of a thread that copies a part of a row, and for each vector of it; for a copied
# weight, a vector of results and a result; to find out which outputs a thread has. Then what is issued in a clock, and
# of one warp; registers of a staged thread, and of each of its sums (seen by compiling).
COPY_ROW_INSTRUCTIONS = 27
COPY_INSTRUCTIONS = 9
WEIGHT_INSTRUCTIONS = 24
STORE_INSTRUCTIONS = 6
RESULT_INSTRUCTIONS = 2
FIRST_INSTRUCTIONS = 40
ISSUED = 90
ISSUED_OF_WARP = 10
REGISTERS = 40
REGISTERS_OF_SUM = 1.75
FIRST_US = 1.5  # from a block's launch to its first load, and the drain of its stores
CHUNK_US = 1.0  # channels that the block waits for
FLOPS_PER_CLOCK = 256  # of a multiprocessor, in float32: tells the clock from the peak
L2_BYTES_PER_US = 5.5e6
STREAM_SHARE = 0.92  # of a copy's bandwidth
SECTOR_BYTES = 32  # that L2 reads or writes at once
L1_BYTES_PER_CLOCK = 128


@dataclass(frozen=True, slots=True)
class Config:
    """A thread has lanes x rows places of thread_outputs channels; a block has threads along outputs, planes, d, h and
    w; staged: inputs go through shared memory; chunk: channels there at once."""

    staged: bool
    lanes: int
    rows: int
    thread_outputs: int
    threads_o: int
    threads_p: int
    threads_d: int
    threads_h: int
    threads_w: int
    chunk: int

    @property
    def threads(self) -> int:
        return self.threads_o * self.threads_p * self.threads_d * self.threads_h * self.threads_w

    @property
    def tile(self) -> tuple[int, int, int]:
        return (self.threads_d, self.threads_h * self.rows, self.threads_w * self.lanes)


# --- sizes, as conv_direct.cuh has them


def step(shape: ConvShape, axis: int) -> int:
    return 1 if shape.transposed else shape.strides[axis]


def phases(shape: ConvShape, axis: int) -> int:
    return shape.strides[axis] if shape.transposed else 1


def reach(shape: ConvShape, axis: int) -> int:
    """Inputs from the first to the last that the outputs of one place read."""
    taps, stride, padding = shape.kernel[axis], shape.strides[axis], shape.padding[axis]
    last = (taps - 1) * shape.dilation[axis]
    return (last - padding) // stride - (-padding) // stride + 1 if shape.transposed else last + 1


def span(shape: ConvShape, axis: int, places: int) -> int:
    return (places - 1) * step(shape, axis) + reach(shape, axis)


def rows_of(config: Config, shape: ConvShape) -> int:
    """Rows of inputs that a block reads of one channel and plane."""
    return span(shape, 0, config.tile[0]) * span(shape, 1, config.tile[1])


def taps(shape: ConvShape) -> int:
    return math.prod(shape.kernel)


def sums(config: Config, shape: ConvShape) -> int:
    return config.thread_outputs * config.lanes * config.rows * math.prod(phases(shape, i) for i in range(3))


def lowest(shape: ConvShape, axis: int) -> int:
    """The first input that place 0 reads."""
    last, padding = (shape.kernel[axis] - 1) * shape.dilation[axis], shape.padding[axis]
    return -((last - padding) // shape.strides[axis]) if shape.transposed else -padding


def input_at(shape: ConvShape, axis: int, tap: int) -> int:
    """Where a tap reads, from the lowest on."""
    at = tap * shape.dilation[axis]
    return -((at - shape.padding[axis]) // shape.strides[axis]) - lowest(shape, axis) if shape.transposed else at


def is_read(shape: ConvShape, axis: int, places: int) -> frozenset[int]:
    """Inputs that neighbouring places read, from the lowest on."""
    taps_ = range(shape.kernel[axis])
    return frozenset(p * step(shape, axis) + input_at(shape, axis, k) for p in range(places) for k in taps_)


def vector_in(n: int) -> int:
    return math.gcd(n, 4)


def x_vector(shape: ConvShape) -> int:
    """Neighbours along w that the input can load at once, from multiples of that on; no row ends between them."""
    *pitches, beside = shape.x_pitches
    return vector_in(math.gcd(shape.x_offset, shape.x_space[2], *pitches)) if beside == 1 else 1


def line_vector(config: Config, shape: ConvShape) -> int:
    """Neighbours that a thread reads at once."""
    most = vector_in(config.lanes * step(shape, 2))
    return most if config.staged else min(most, x_vector(shape))


def copy_vector(config: Config, shape: ConvShape) -> int:
    return min(x_vector(shape), vector_in(config.tile[2] * step(shape, 2)))


def skipped(shape: ConvShape) -> int:
    """Slots before the first input of a line."""
    return lowest(shape, 2) % 4


@cache
def loads_of_line(lanes: int, vector_: int, shape: ConvShape) -> int:
    """Loads of a row: vectors, or their halves where the other half is not read."""
    slots = {skipped(shape) + i for i in is_read(shape, 2, lanes)}

    def loads(first: int, count: int) -> int:
        half = count // 2
        lower, upper = (any(i in slots for i in range(at, at + half)) for at in (first, first + half))
        if count > 1 and not (lower and upper):
            return loads(first, half) + loads(first + half, half)
        return int(count > 1 or first in slots)

    return sum(loads(i, vector_) for i in range(0, max(slots) + 1, vector_))


def windows(config: Config, shape: ConvShape) -> int:
    """Parts in which a thread reads the rows of a plane."""
    return math.ceil(span(shape, 1, config.rows) / max(1, WINDOW_REGISTERS // len(is_read(shape, 2, config.lanes))))


def registers(config: Config, shape: ConvShape) -> int:
    """Of a thread, seen by compiling. Without shared memory: inputs that are read ahead, the weights of the taps that a
    row meets, and sums, which take the place of inputs that are used up unless there are more channels to come."""
    of_sums = sums(config, shape)
    if config.staged:
        return int(REGISTERS + REGISTERS_OF_SUM * of_sums)
    parts = windows(config, shape)
    inputs = len(is_read(shape, 2, config.lanes)) * math.ceil(span(shape, 1, config.rows) / parts)
    weights = config.thread_outputs * shape.kernel[2] * min(config.rows + 1, shape.kernel[1])
    once = shape.channels == shape.kernel[0] == 1
    beside = (8 if parts == 1 else 12) + of_sums // 4 if once else 24 + of_sums
    return -(-max(LEAST_REGISTERS, of_sums + 32, inputs + weights + beside) // 8) * 8


def shared_bytes(config: Config, shape: ConvShape) -> int:
    if not config.staged:
        return 0
    d, h, w = (span(shape, i, t) for i, t in enumerate(config.tile))
    padding = 4 if line_vector(config, shape) == 4 else 0
    inputs = config.threads_p * config.chunk * d * h * (-(-(skipped(shape) + w) // 4) * 4 + padding)
    weights = config.threads_p * config.threads_o * config.thread_outputs * config.chunk * taps(shape)
    return 4 * (inputs + -(-weights // 4) * 4)


def grid(config: Config, shape: ConvShape) -> int:
    tiles = math.prod(math.ceil(shape.most(i) / t) for i, t in enumerate(config.tile))
    planes = math.ceil(shape.images * shape.groups / config.threads_p)
    return tiles * planes * math.ceil(shape.outputs / (config.threads_o * config.thread_outputs))


def vector(config: Config, shape: ConvShape) -> int:
    """Neighbours of one store."""
    results = config.lanes * phases(shape, 2)
    allowed = (v for v in (4, 2, 1) if shape.vector % v == 0 and results % v == 0 and shape.y_space[2] % v == 0)
    return next(allowed)


# --- which configs fit


def why_not(config: Config, shape: ConvShape, device: Device) -> str | None:
    """The reason a config cannot run this convolution, in words."""
    if device.kind != "cuda":
        return f"it is a CUDA kernel; {device.name} is not a GPU."
    if shape.dtype not in ITEMSIZE:
        return f"it reads float32, float16 and bfloat16, not {shape.dtype}."
    if shape.rows is not None:
        return "its epilogue takes results one by one, and reduces nothing."
    if config.threads % 32 or config.threads > MOST_THREADS:
        return f"{config.threads} threads; a block has whole warps, and at most {MOST_THREADS} threads."
    if sums(config, shape) > MOST_SUMS:
        return f"{sums(config, shape)} sums a thread; more than {MOST_SUMS} would leave too few registers."
    unrolled = taps(shape) * config.lanes * config.rows * config.thread_outputs
    if unrolled > MOST_UNROLLED:
        return f"{unrolled:,} multiplications, unrolled, do not fit the instruction cache."
    if not config.staged and registers(config, shape) > MOST_REGISTERS:
        return f"inputs, weights and sums of a thread do not fit {MOST_REGISTERS} registers."
    needed = shared_bytes(config, shape)
    if needed > min(MOST_SHARED_BYTES, device.smem_per_block_bytes):
        return (
            f"the inputs of a block need {needed:,} B of shared memory; {MOST_SHARED_BYTES:,} B leave room for others."
        )
    if max(shape.images * shape.groups, *shape.x_space, *shape.y_space) >= 2**31 or grid(config, shape) > MOST_GRID:
        return "a size needs more than 31 bits."
    return None


@cache
def configs(shape: ConvShape, device: Device) -> tuple[Config, ...]:
    """Those that fit, the most promising first. How many outputs a thread should have, and of which shape, is what the
    model knows least: of each kind of thread there is the best block."""
    fitting = [c for c in candidates(shape) if why_not(c, shape, device) is None]
    kinds: dict[tuple[bool, int, int, int], Config] = {}
    for config in sorted(fitting, key=lambda c: cost_us(c, shape, device)):
        kinds.setdefault((config.staged, config.lanes, config.rows, config.thread_outputs), config)
    return tuple(kinds.values())[:MOST_RANKED]


MOST_RANKED = 12
# Of a group, with which threads may well read the inputs themselves, each for its own outputs.
FEW_CHANNELS = 8


def candidates(shape: ConvShape) -> list[Config]:
    """Fewer where a group has many channels: there tensor cores win, and this is for devices without them."""
    depth, height, width = (shape.most(i) for i in range(3))
    few = shape.channels <= FEW_CHANNELS
    found = []
    for lanes in (4, 2, 1) if few else (4, 1):
        for rows in (1,) if height == 1 else (8, 4, 2, 1) if few else (4, 1):
            for outputs in (4, 2, 1) if few else (4, 1):
                if outputs > shape.outputs or (rows > 1 and rows >= 2 * height):
                    continue
                found += blocks(lanes, rows, outputs, shape, depth, math.ceil(height / rows), math.ceil(width / lanes))
    return found


def blocks(lanes: int, rows: int, outputs: int, shape: ConvShape, depth: int, height: int, width: int) -> list[Config]:
    """Blocks of 256 or 128 threads: along w first, then along what is there of outputs, h, d and planes."""
    found = []
    few = shape.channels <= FEW_CHANNELS
    for threads in (256, 128) if few else (256,):
        for threads_w in powers(threads, width):
            most_o = max(1, min(shape.outputs // outputs, threads // threads_w))
            for threads_o in powers(most_o, most_o)[-2:]:
                left = threads // (threads_w * threads_o)
                for threads_h in powers(left, height)[-3 if few else -1 :]:
                    threads_d = powers(left // threads_h, depth)[-1]
                    threads_p = left // (threads_h * threads_d)
                    block = (lanes, rows, outputs, threads_o, threads_p, threads_d, threads_h, threads_w)
                    if few:
                        found.append(Config(False, *block, chunk=1))
                    chunks = (1, 2, 4, 8) if few else (8,)
                    found += [Config(True, *block, chunk) for chunk in chunks if chunk < 2 * shape.channels]
    return found


def powers(most: int, extent: int) -> list[int]:
    """Powers of two up to `most`, the last of them the first that covers the extent."""
    return [2**i for i in range(most.bit_length()) if 2**i <= most and (i == 0 or 2 ** (i - 1) < extent)]


# --- what it takes


def floor_us(shape: ConvShape, device: Device) -> float:
    return floor_at(shape, device, device.peaks.float32)


def at_once(config: Config, shape: ConvShape, device: Device) -> int:
    """Blocks that run on a multiprocessor together."""
    by_registers = device.registers_per_multiprocessor // (config.threads * min(255, registers(config, shape)))
    by_memory = device.smem_per_multiprocessor_bytes // (shared_bytes(config, shape) + 1024)
    return max(1, min(by_registers, by_memory, device.max_threads_per_multiprocessor // config.threads))


def lines_touched(config: Config, beside: int, itemsize: int) -> float:
    """Lines of the L1 cache that a load or store of a warp touches, where threads are so many elements apart."""
    along = min(32, config.threads_w)
    return 32 / along * max(1.0, min(along, along * beside * itemsize / L1_BYTES_PER_CLOCK))


def scattered(config: Config, shape: ConvShape) -> float:
    """Of what L2 reads, for each byte that is used: in channels-last order a sector has other channels, too, which are
    of use where the block has them."""
    most = min(SECTOR_BYTES / ITEMSIZE[shape.dtype], max(1, shape.x_pitches[4]))
    neighbours = config.threads_p * config.chunk if shape.x_pitches[1] == 1 else 1
    return max(1.0, most / neighbours)


def copying(config: Config, shape: ConvShape) -> float:
    """Instructions of a block's threads to copy the inputs and weights of all channels."""
    rows, channels = rows_of(config, shape), config.chunk * math.ceil(shape.channels / config.chunk)
    vectors = math.ceil((skipped(shape) + span(shape, 2, config.tile[2])) / copy_vector(config, shape))
    beside = 32 if vectors > 16 else 16 if vectors > 8 else 8
    row = beside * (COPY_ROW_INSTRUCTIONS + COPY_INSTRUCTIONS * math.ceil(vectors / beside))
    weights = config.threads_o * config.thread_outputs * taps(shape)
    return config.threads_p * channels * (rows * row + weights * WEIGHT_INSTRUCTIONS)


@cache
def cost_us(config: Config, shape: ConvShape, device: Device) -> float:
    """The instructions of all blocks, and no less than each takes by itself; beside them the bytes, at each level."""
    clocks_per_us = device.peaks.float32 * 1e6 / (device.multiprocessors * FLOPS_PER_CLOCK)
    itemsize, of_sums = ITEMSIZE[shape.dtype], sums(config, shape)
    chunks = math.ceil(shape.channels / config.chunk)
    loads = shape.kernel[0] * len(is_read(shape, 1, config.rows))
    loads *= loads_of_line(config.lanes, line_vector(config, shape), shape)
    weights = taps(shape) * config.thread_outputs
    each = config.chunk * chunks * (weights * (config.lanes * config.rows + 1) + (2 if config.staged else 1) * loads)
    stores = of_sums // vector(config, shape)
    each += FIRST_INSTRUCTIONS + STORE_INSTRUCTIONS * stores + RESULT_INSTRUCTIONS * of_sums
    instructions = config.threads * each + (copying(config, shape) if config.staged else 0)
    blocks, count = at_once(config, shape, device), grid(config, shape)
    slowly = min(ISSUED, ISSUED_OF_WARP * config.threads // 32)
    waits = chunks if config.staged else shape.channels * shape.kernel[0] - 1
    chain = instructions / slowly / clocks_per_us + FIRST_US + CHUNK_US * waits
    waves = math.ceil(count / (device.multiprocessors * blocks))
    computing = waves * max(blocks * instructions / ISSUED / clocks_per_us, chain)
    # L1: what a warp loads and stores touches lines. Inputs in shared memory have neighbours next to each other.
    beside = config.lanes * step(shape, 2) * (1 if config.staged else max(1, shape.x_pitches[4]))
    touched = shape.channels * loads * lines_touched(config, beside, 4 if config.staged else itemsize)
    touched += stores * lines_touched(config, config.lanes * phases(shape, 2), itemsize)
    l1 = count * config.threads / 32 * (touched + shape.channels * weights) / device.multiprocessors / clocks_per_us
    # L2: sectors. Those of results are written once for each store that has a part of them.
    row_bytes = (span(shape, 2, config.tile[2]) * itemsize + SECTOR_BYTES) * scattered(config, shape)
    read = count * config.threads_p * config.chunk * chunks * rows_of(config, shape) * row_bytes
    parts = max(1.0, min(config.lanes * phases(shape, 2), SECTOR_BYTES / itemsize) / vector(config, shape))
    l2 = (read + shape.results * itemsize * parts) / L2_BYTES_PER_US
    streaming = shape.bytes_moved / (device.copy_gbps * STREAM_SHARE) / 1e3
    return LAUNCH_US + beside_us(beside_us(computing, streaming), beside_us(l1, l2))


# --- C++


def packed_bytes(config: Config, shape: ConvShape) -> int:
    """It reads weights as they are."""
    return 0


def arithmetic(config: Config, shape: ConvShape) -> str:
    return "IEEE float32" if shape.dtype == "float32" else f"{shape.dtype}, multiplied and summed in float32"


def spelled(value: bool) -> str:
    return "true" if value else "false"


def resident(config: Config, shape: ConvShape) -> int:
    """Blocks of a multiprocessor that the compiler is asked to leave registers for; shared memory is another matter."""
    if config.staged:
        return 1
    return max(1, REGISTERS_OF_MULTIPROCESSOR // (config.threads * registers(config, shape)))


def entry(name: str, config: Config, shape: ConvShape, epilogue: str) -> str:
    """The config and `name`(x, weight, epilogue arguments, stream)."""
    blocks = {f"threads_{a}": getattr(config, f"threads_{a}") for a in ("o", "p", *SPACE)}
    lines = [
        *size_lines(shape),
        f"    static constexpr bool transposed = {spelled(shape.transposed)}, staged = {spelled(config.staged)};",
        integers(**by_axis("taps", shape.kernel), **by_axis("stride", shape.strides)),
        integers(**by_axis("padding", shape.padding), **by_axis("dilation", shape.dilation)),
        integers(**by_axis("places", tuple(map(shape.most, range(3))))),
        integers(lanes=config.lanes, rows=config.rows, thread_outputs=config.thread_outputs, chunk=config.chunk),
        integers(**blocks, resident=resident(config, shape)),
        integers(vector=vector(config, shape), x_vector=x_vector(shape)),
    ]
    type_ = CPP_TYPE[shape.dtype]
    weight = f"weight + {shape.w_offset}" if shape.w_offset else "weight"
    body = "\n".join(lines)
    return f"""\
struct {name}_Config {{
{body}
}};
extern "C" int {name}(
    const {type_}* x, const {type_}* weight, const {epilogue}::Args* args, cudaStream_t stream) {{
    return kw::conv_direct::launch<{name}_Config, {epilogue}>(x, {weight}, *args, stream);
}}
"""
