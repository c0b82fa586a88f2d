"""A `Conv` comes in; the phases it is made of, each a dense convolution given by one progression an axis, go out.

Output number q of a phase lies at y_first + q * y_step; its tap number j reads the input at
q * stride + x_first + j * x_step and the weight at k_first + j * k_step. What lies outside the input is zero.
A plain convolution is one phase. Of a transposed one, the outputs whose position leaves the same remainder by the
stride see the same taps: they are a phase.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from kernelwright.ir.nodes import Conv, Node
from kernelwright.plan.steps import Layout


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of one phase: `count` outputs of `taps` taps each."""

    count: int
    taps: int
    stride: int
    x_first: int
    x_step: int
    k_first: int
    k_step: int
    y_first: int
    y_step: int

    @property
    def lowest(self) -> int:
        """The first input that output 0 reads."""
        return self.x_first + min(0, (self.taps - 1) * self.x_step)

    @property
    def reach(self) -> int:
        """Inputs from the first to the last that one output reads."""
        return max(self.taps - 1, 0) * abs(self.x_step) + 1

    def span(self, outputs: int) -> int:
        """Inputs from the first to the last that so many neighbours read."""
        return (outputs - 1) * self.stride + self.reach


@dataclass(frozen=True, slots=True)
class Phase:
    """Outputs that see the same taps, by axis of space, outermost first."""

    axes: tuple[Axis, ...]

    @property
    def taps(self) -> int:
        return math.prod(axis.taps for axis in self.axes)

    @property
    def outputs(self) -> int:
        return math.prod(axis.count for axis in self.axes)


@dataclass(frozen=True, slots=True)
class Convolution:
    """The core of a kernel: a convolution with its operands where they lie.

    constant   the weight is a parameter
    precision  what it may round its operands to, as in Routes
    routed     the node that routes name, which this one may have come from
    """

    node: Conv
    x: Layout
    weight: Layout
    constant: bool
    precision: str
    routed: Node

    @property
    def flops(self) -> int:
        return 2 * self.node.size // self.node.shape[1] * multiplications(self.node)

    @property
    def bytes_read(self) -> int:
        return self.x.touched_bytes + self.weight.touched_bytes


def multiplications(node: Conv) -> int:
    """Of all channels of one output position; of a transposed convolution on average."""
    kernel = math.prod(node.weight.shape[2:])
    each = node.x.shape[1] // node.groups * node.shape[1] * kernel
    return max(1, each // math.prod(node.stride)) if node.transposed else each


def phases_of(node: Conv) -> tuple[Phase, ...]:
    """Every phase that has outputs; the last axis's phases are neighbours."""
    rank = len(node.stride)
    by_axis = [transposed_axes(node, i) if node.transposed else (plain_axis(node, i),) for i in range(rank)]
    found = [Phase(axes) for axes in itertools.product(*by_axis)]
    return tuple(phase for phase in found if phase.outputs)


def plain_axis(node: Conv, axis: int) -> Axis:
    return Axis(
        count=node.shape[2 + axis],
        taps=node.weight.shape[2 + axis],
        stride=node.stride[axis],
        x_first=-node.padding[axis],
        x_step=node.dilation[axis],
        k_first=0,
        k_step=1,
        y_first=0,
        y_step=1,
    )


def transposed_axes(node: Conv, axis: int) -> tuple[Axis, ...]:
    """Input i and tap k add to output i * stride - padding + k * dilation: one phase for each remainder."""
    stride, padding, dilation = node.stride[axis], node.padding[axis], node.dilation[axis]
    extent, taps = node.shape[2 + axis], node.weight.shape[2 + axis]
    axes = []
    for remainder in range(min(stride, extent)):
        hits = [k for k in range(taps) if (remainder + padding - k * dilation) % stride == 0]
        # The remainders of k * dilation repeat after this many taps.
        k_step = stride // math.gcd(stride, dilation)
        k_first = hits[0] if hits else 0
        axes.append(
            Axis(
                count=-(-(extent - remainder) // stride),
                taps=len(hits),
                stride=1,
                x_first=(remainder + padding - k_first * dilation) // stride if hits else 0,
                x_step=-(k_step * dilation // stride),
                k_first=k_first,
                k_step=k_step,
                y_first=remainder,
                y_step=stride,
            )
        )
    return tuple(axes)


def why_not_ours(node: Conv) -> str | None:
    """The reason no kernel of ours can take it, in words."""
    if node.dtype.name not in ("float32", "float16", "bfloat16"):
        return f"our convolutions read float32, float16 and bfloat16, not {node.dtype.name}."
    if not 1 <= len(node.stride) <= 3:
        return f"{len(node.stride)} axes of space; one to three are needed."
    if 0 in node.shape or 0 in node.x.shape or 0 in node.weight.shape:
        return "it is empty."
    return None
