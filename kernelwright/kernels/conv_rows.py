"""The CPU convolution of few channels a group (cpu/conv_rows.hpp): its configs, which fit, their cost, its entry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels.conv_shape import SPACE, ConvShape, by_axis
from kernelwright.kernels.conv_shape import floor_us as floor_at

__all__ = ["HEADERS", "Config", "arithmetic", "configs", "cost_us", "entry", "floor_us", "why_not"]

HEADERS = ("conv_rows",)
LANES = 16
# Sums in registers, beside what they are made of: of 32 vector registers of AVX-512.
MOST_SUMS = 24
# With more, the library's blocked order pays for the turning into it and back; what is below is measured.
MOST_CHANNELS = 64
CALL_US = 2.0
# Of a copy's bandwidth and of the peak, as expected; what is here is measured.
BANDWIDTH_SHARE, PEAK_SHARE = 0.8, 0.5


@dataclass(frozen=True, slots=True)
class Config:
    """block output channels and vectors of 16 neighbours at once."""

    block: int
    vectors: int


def why_not(config: Config, shape: ConvShape, device: Device) -> str | None:
    """The reason a config cannot run this convolution, in words."""
    if device.kind != "cpu":
        return f"it is a CPU kernel; {device.name} is a GPU."
    if shape.dtype != "float32":
        return f"it multiplies float32, not {shape.dtype}."
    if shape.transposed:
        return "it is for plain convolutions; this one is transposed."
    if shape.channels > MOST_CHANNELS:
        return f"{shape.channels} channels a group; the library is faster beyond {MOST_CHANNELS}."
    if shape.x_pitches[-1] != 1 and shape.x_space[-1] > 1:
        return "it reads neighbours along a row, and they are not neighbours in memory."
    if config.block > shape.outputs:
        return f"blocks of {config.block} output channels; a group has {shape.outputs}."
    if config.block * config.vectors > MOST_SUMS:
        return f"{config.block} x {config.vectors} sums do not fit the registers."
    if max(shape.x_space[-1], shape.y_space[-1]) * max(shape.strides) >= 2**31:
        return "a row needs more than 31 bits."
    return None


def configs(shape: ConvShape, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    space = [Config(block, vectors) for block in (8, 4, 2, 1) for vectors in (2, 4, 1)]
    fitting = [config for config in space if why_not(config, shape, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, shape, device)))


def floor_us(shape: ConvShape, device: Device) -> float:
    return floor_at(shape, device, device.peaks.float32)


def cost_us(config: Config, shape: ConvShape, device: Device) -> float:
    """Bytes or products: each vector that is read serves `block` sums, each weight `vectors`; ends of rows idle."""
    loads = 1 / config.block + 0.5 / config.vectors
    width = config.vectors * LANES
    filled = shape.y_space[-1] / (math.ceil(shape.y_space[-1] / width) * width)
    rows = shape.images * shape.groups * shape.y_space[0] * shape.y_space[1]
    idle = max(1.0, device.multiprocessors / rows)
    multiplying_us = shape.flops / device.peaks.float32 / 1e6 / PEAK_SHARE * (0.5 + loads) * (0.5 + 0.5 / filled)
    moving_us = shape.bytes_moved / device.copy_gbps / 1e3 / BANDWIDTH_SHARE
    return CALL_US + max(multiplying_us, moving_us + 0.1 * multiplying_us) * idle


def arithmetic(config: Config, shape: ConvShape) -> str:
    """How it multiplies and adds, for whoever reads the result."""
    return "float32 products and sums, fused"


def entry(name: str, config: Config, shape: ConvShape) -> str:
    """The config of the convolution as a C++ struct."""
    x_pitches = dict(zip(("image", "channel", "d", "h"), shape.x_pitches, strict=False))
    w_pitches = dict(zip(("group", "output", "channel", *SPACE), shape.w_pitches, strict=True))
    rows = [
        {"images": shape.images, "groups": shape.groups, "channels": shape.channels, "outputs": shape.outputs},
        {**by_axis("x", shape.x_space), **by_axis("y", shape.y_space)},
        {**by_axis("kernel", shape.kernel), **by_axis("stride", shape.strides)},
        {**by_axis("padding", shape.padding), **by_axis("dilation", shape.dilation)},
        {f"x_{axis}_pitch": pitch for axis, pitch in x_pitches.items()},
        {f"w_{axis}_pitch": pitch for axis, pitch in w_pitches.items()},
    ]
    lines = [
        f"struct {name}_Config {{",
        f"    static constexpr int block = {config.block}, vectors = {config.vectors};",
        f"    static constexpr bool flat = {'true' if shape.flat else 'false'};",
        *(f"    static constexpr int64_t {', '.join(f'{key} = {n}' for key, n in row.items())};" for row in rows),
        "};",
    ]
    return "\n".join(lines)
