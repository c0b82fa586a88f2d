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

# Instructions (counted in SASS) for a copied input, a copied weight and a result; what is issued in a clock, and of one
# warp; registers of a thread, and of each of its sums (seen by compiling).
COPY_INSTRUCTIONS = 40
WEIGHT_INSTRUCTIONS = 24
RESULT_INSTRUCTIONS = 8
ISSUED = 90
ISSUED_OF_WARP = 10
REGISTERS = 40
REGISTERS_OF_SUM = 2.5
FIRST_US = 1.5  # from a block's launch to its first load, and the drain of its stores
CHUNK_US = 1.0  # channels that the block waits for
FLOPS_PER_CLOCK = 256  # of a multiprocessor, in float32: tells the clock from the peak
L2_BYTES_PER_US = 5.5e6
STREAM_SHARE = 0.85  # of a copy's bandwidth


@dataclass(frozen=True, slots=True)
class Config:
    """A thread has lanes x rows places of thread_outputs channels; a block has threads along outputs, planes, d, h and
    w; chunk: channels in shared memory at once."""

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


def region(config: Config, shape: ConvShape) -> int:
    """Inputs of one channel that a block copies of a plane."""
    return math.prod(span(shape, i, t) for i, t in enumerate(config.tile))


def taps(shape: ConvShape) -> int:
    return math.prod(shape.kernel)


def sums(config: Config, shape: ConvShape) -> int:
    return config.thread_outputs * config.lanes * config.rows * math.prod(phases(shape, i) for i in range(3))


def shared_bytes(config: Config, shape: ConvShape) -> int:
    d, h, w = (span(shape, i, t) for i, t in enumerate(config.tile))
    inputs = config.threads_p * config.chunk * d * h * (-(-w // 4) * 4 + 4)
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
    """Every config that fits, the most promising first."""
    fitting = [c for c in candidates(shape) if why_not(c, shape, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, shape, device)))[:MOST_RANKED]


MOST_RANKED = 12


def candidates(shape: ConvShape) -> list[Config]:
    depth, height, width = (shape.most(i) for i in range(3))
    found = []
    for lanes in (4, 2, 1):
        for rows in (4, 2, 1) if height > 1 else (1,):
            for outputs in (4, 2, 1):
                if outputs > shape.outputs or (rows > 1 and rows >= 2 * height):
                    continue
                found += blocks(lanes, rows, outputs, shape, depth, math.ceil(height / rows), math.ceil(width / lanes))
    return found


def blocks(lanes: int, rows: int, outputs: int, shape: ConvShape, depth: int, height: int, width: int) -> list[Config]:
    """Blocks of 256 or 128 threads: along w first, then along what is there of outputs, h, d and planes."""
    found = []
    for threads in (256, 128):
        for threads_w in powers(threads, width):
            most_o = max(1, min(shape.outputs // outputs, threads // threads_w))
            for threads_o in powers(most_o, most_o)[-2:]:
                left = threads // (threads_w * threads_o)
                for threads_h in powers(left, height)[-3:]:
                    threads_d = powers(left // threads_h, depth)[-1]
                    threads_p = left // (threads_h * threads_d)
                    found += [
                        Config(lanes, rows, outputs, threads_o, threads_p, threads_d, threads_h, threads_w, chunk)
                        for chunk in (1, 2, 4, 8)
                        if chunk < 2 * shape.channels
                    ]
    return found


def powers(most: int, extent: int) -> list[int]:
    """Powers of two up to `most`, the last of them the first that covers the extent."""
    return [2**i for i in range(most.bit_length()) if 2**i <= most and (i == 0 or 2 ** (i - 1) < extent)]


# --- what it takes


def floor_us(shape: ConvShape, device: Device) -> float:
    return floor_at(shape, device, device.peaks.float32)


def at_once(config: Config, shape: ConvShape, device: Device) -> int:
    """Blocks that run on a multiprocessor together."""
    registers = config.threads * min(255, REGISTERS + REGISTERS_OF_SUM * sums(config, shape))
    by_registers = device.registers_per_multiprocessor // int(registers)
    by_memory = device.smem_per_multiprocessor_bytes // (shared_bytes(config, shape) + 1024)
    return max(1, min(by_registers, by_memory, device.max_threads_per_multiprocessor // config.threads))


@cache
def cost_us(config: Config, shape: ConvShape, device: Device) -> float:
    """The instructions of all blocks, and no less than each takes by itself; beside them the bytes."""
    clocks_per_us = device.peaks.float32 * 1e6 / (device.multiprocessors * FLOPS_PER_CLOCK)
    chunks = math.ceil(shape.channels / config.chunk)
    inputs = config.threads_p * config.chunk * chunks * region(config, shape)
    weights = config.threads_p * config.threads_o * config.thread_outputs * config.chunk * chunks * taps(shape)
    places = config.lanes * config.rows * config.thread_outputs
    line = math.ceil(span(shape, 2, config.lanes) / (4 if config.lanes * step(shape, 2) % 4 == 0 else 1))
    lines = shape.kernel[0] * span(shape, 1, config.rows) * line
    each = config.chunk * chunks * (taps(shape) * (places + config.thread_outputs) + 2 * lines)
    stores = RESULT_INSTRUCTIONS * sums(config, shape) * (1 + 1 / vector(config, shape)) / 2
    instructions = inputs * COPY_INSTRUCTIONS + weights * WEIGHT_INSTRUCTIONS + config.threads * (each + stores)
    blocks = at_once(config, shape, device)
    slowly = min(ISSUED, ISSUED_OF_WARP * config.threads // 32)
    chain = instructions / slowly / clocks_per_us + FIRST_US + CHUNK_US * chunks
    waves = math.ceil(grid(config, shape) / (device.multiprocessors * blocks))
    computing = waves * max(blocks * instructions / ISSUED / clocks_per_us, chain)
    l2 = grid(config, shape) * inputs * ITEMSIZE[shape.dtype] / L2_BYTES_PER_US
    moving = max(shape.bytes_moved / (device.copy_gbps * STREAM_SHARE) / 1e3, l2)
    return LAUNCH_US + beside_us(computing, moving)


# --- C++


def packed_bytes(config: Config, shape: ConvShape) -> int:
    """It reads weights as they are."""
    return 0


def arithmetic(config: Config, shape: ConvShape) -> str:
    return "IEEE float32" if shape.dtype == "float32" else f"{shape.dtype}, multiplied and summed in float32"


def entry(name: str, config: Config, shape: ConvShape, epilogue: str) -> str:
    """The config and `name`(x, weight, epilogue arguments, stream)."""
    blocks = {f"threads_{a}": getattr(config, f"threads_{a}") for a in ("o", "p", *SPACE)}
    lines = [
        *size_lines(shape),
        f"    static constexpr bool transposed = {'true' if shape.transposed else 'false'};",
        integers(**by_axis("taps", shape.kernel), **by_axis("stride", shape.strides)),
        integers(**by_axis("padding", shape.padding), **by_axis("dilation", shape.dilation)),
        integers(**by_axis("places", tuple(map(shape.most, range(3))))),
        integers(lanes=config.lanes, rows=config.rows, thread_outputs=config.thread_outputs, chunk=config.chunk),
        integers(**blocks, vector=vector(config, shape)),
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
