"""A convolution as data: sizes, pitches, phases and epilogue in; operations, bytes, and C++ constants out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.ir.nodes import Shape
from kernelwright.plan.convolutions import Axis, Phase
from kernelwright.plan.tiles import Pieces

ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}
CPP_TYPE = {"float32": "float", "float16": "kw::half", "bfloat16": "kw::bfloat16"}
SPACE = "dhw"

# An axis that is not there.
SINGLE = Axis(count=1, taps=1, stride=1, x_first=0, x_step=1, k_first=0, k_step=1, y_first=0, y_step=1)


@dataclass(frozen=True, slots=True)
class TileRows:
    """What is reduced after the convolution, in its kernel.

    state_bytes  of one row, for each phase that reduces
    row_bytes    of what is known of a finished row, at most
    phases       walks over the sums of a row
    flops        of one sum, in all phases, beside what an epilogue that reduces nothing would compute too
    rows         how many there are
    pieces       how they lie in many tiles; None: a row is all channels of a pixel, or a window, whole in one tile
    window       the size of windows that are pooled, along d, h and w
    line         a row is one of the last axis of space; else of all channels, in pieces or of a window
    by_rows      all that is stored of every sum is one float32, whose neighbours along w lie side by side
    alike        nothing that is loaded differs from pixel to pixel
    placeless    whether what is added of a sum depends on nothing but the sum, and nothing is stored of it
    """

    state_bytes: tuple[int, ...]
    row_bytes: int
    phases: int
    flops: int
    rows: int
    pieces: Pieces | None
    window: Shape
    placeless: bool
    line: bool = False
    by_rows: bool = False
    alike: bool = False


@dataclass(frozen=True, slots=True)
class ConvShape:
    """Y = epilogue(convolution). Space always has three axes: d, h, w; those that are not there have extent 1.

    channels, outputs  of one group
    x_pitches          of image, channel, d, h and w, in elements
    x_offset           of the first input, from a multiple of 16 bytes on
    w_pitches          of group, output, channel, d, h and w
    flat               every operand of the epilogue walks through a plane with one stride
    vector             the most neighbours along w that every operand of the epilogue can load or store at once
    constant           the weight changes only when weights are loaded: it may be packed ahead
    tf32               11 bits of each operand are enough
    epilogue_flops     of one result, where nothing is reduced
    rows               what the epilogue reduces, if it does
    sendable           one result of float32, whose rows lie whole in memory; all else it reads is the same for a row
    """

    dtype: str
    images: int
    groups: int
    channels: int
    outputs: int
    x_space: Shape
    y_space: Shape
    x_pitches: Shape
    x_offset: int
    w_pitches: Shape
    w_offset: int
    transposed: bool
    kernel: Shape
    strides: Shape
    padding: Shape
    dilation: Shape
    phases: tuple[Phase, ...]
    flat: bool
    vector: int
    constant: bool
    tf32: bool
    epilogue_bytes: int
    epilogue_flops: int = 0
    rows: TileRows | None = None
    sendable: bool = False

    @property
    def taps(self) -> int:
        """Of all phases together: what is multiplied for one place of a phase."""
        return sum(phase.taps for phase in self.phases)

    @property
    def most_taps(self) -> int:
        return max(phase.taps for phase in self.phases)

    @property
    def flops(self) -> int:
        multiplied = sum(phase.taps * phase.outputs for phase in self.phases)
        return 2 * self.images * self.groups * self.channels * self.outputs * multiplied

    @property
    def results(self) -> int:
        return self.images * self.groups * self.outputs * math.prod(self.y_space)

    @property
    def bytes_moved(self) -> int:
        """The fewest bytes through device memory: the input once, the weight once, the epilogue's operands."""
        x = self.images * self.groups * self.channels * math.prod(self.x_space)
        weight = self.groups * self.channels * self.outputs * self.taps
        return (x + weight) * ITEMSIZE[self.dtype] + self.epilogue_bytes

    def most(self, axis: int) -> int:
        """The most outputs that a phase has along an axis."""
        return max(phase.axes[axis].count for phase in self.phases)

    def reach(self, axis: int) -> int:
        """The most inputs that one output of any phase reads along an axis."""
        return max(phase.axes[axis].reach for phase in self.phases)

    def stride(self, axis: int) -> int:
        return self.phases[0].axes[axis].stride

    def y_step(self, axis: int) -> int:
        return self.phases[0].axes[axis].y_step


def floor_us(shape: ConvShape, device: Device, tflops: float) -> float:
    """No kernel that runs at `tflops` and moves these bytes is faster."""
    return max(shape.flops / tflops / 1e6, shape.bytes_moved / device.copy_gbps / 1e3)


# --- C++


def size_lines(shape: ConvShape) -> list[str]:
    """The part of a config struct that says what is convolved, however it is done."""
    x_pitches = dict(zip(("image", "channel", *SPACE), shape.x_pitches, strict=True))
    w_pitches = dict(zip(("group", "output", "channel", *SPACE), shape.w_pitches, strict=True))
    return [
        f"    using Type = {CPP_TYPE[shape.dtype]};",
        integers(images=shape.images, groups=shape.groups, channels=shape.channels, outputs=shape.outputs),
        integers(**by_axis("x", shape.x_space), **by_axis("y", shape.y_space)),
        f"    static constexpr bool flat = {'true' if shape.flat else 'false'};",
        wide_integers({f"x_{name}_pitch": n for name, n in x_pitches.items()}),
        wide_integers({f"w_{name}_pitch": n for name, n in w_pitches.items()}),
    ]


def by_axis(name: str, values: Shape) -> dict[str, int]:
    return {f"{name}_{axis}": value for axis, value in zip(SPACE, values, strict=True)}


def integers(**values: int) -> str:
    return f"    static constexpr int {', '.join(f'{name} = {value}' for name, value in values.items())};"


def wide_integers(values: Mapping[str, int]) -> str:
    return f"    static constexpr int64_t {', '.join(f'{name} = {value}' for name, value in values.items())};"


def phase_text(phase: Phase, fragment: int, bases: Shape) -> str:
    """{{{count, taps, x_base, x_first, x_step, k_first, k_step, y_first}, ...}, fragment}: see conv_space.cuh."""
    axes = ", ".join(
        f"{{{a.count}, {a.taps}, {base}, {a.x_first}, {a.x_step}, {a.k_first}, {a.k_step}, {a.y_first}}}"
        for a, base in zip(phase.axes, bases, strict=True)
    )
    return f"{{{{{axes}}}, {fragment}}}"
