"""What a plan is made of: buffers, layouts in them, and steps in the order they run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kernelwright.ir.dtypes import DType
from kernelwright.ir.nodes import Gather, Graph, Input, Iota, Map, Node, Opaque, Param, Reduce, Scan, Shape

if TYPE_CHECKING:
    from kernelwright.plan.convolutions import Convolution
    from kernelwright.plan.products import Product


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor of the running program. `source` is the leaf it is, or None for what a step makes. An Iota is no memory:
    the element at i is i.

    `packed_from` and `packed_by` are set for a weight in the order a kernel reads it: made from that buffer by that
    entry of the library, and kept until the weight changes. `packed_offset` elements of the buffer come before it.
    """

    name: str
    shape: Shape
    dtype: DType
    strides: Shape
    source: Input | Param | Iota | None = None
    packed_from: Buffer | None = None
    packed_by: str = ""
    packed_offset: int = 0

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def elements(self) -> int:
        """How many there are from the first to the last, gaps included."""
        return 1 + sum((n - 1) * abs(s) for n, s in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True, slots=True)
class Guard:
    """Element i of a layout is in memory only where 0 <= offset + sum(i * strides) < extent."""

    strides: Shape
    offset: int
    extent: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a value lie: element i of the shape is at offset + sum(i * strides) in the buffer.

    Where one of the guards fails there is no element, and the value is `fill`.
    """

    buffer: Buffer
    shape: Shape
    strides: Shape
    offset: int
    guards: tuple[Guard, ...] = ()
    fill: bool | int | float = 0

    @property
    def is_plain(self) -> bool:
        """Every element is in memory, and none is read from the end: what PyTorch, and a product's operand, can be."""
        return not self.guards and all(stride >= 0 for stride in self.strides)

    @property
    def touched_bytes(self) -> int:
        """The distinct bytes that reading every element fetches; windows that overlap see one more than once."""
        if isinstance(self.buffer.source, Iota):
            return 0
        extents = (extent for extent, stride in zip(self.shape, self.strides, strict=True) if stride)
        return min(math.prod(extents) * self.buffer.dtype.itemsize, self.buffer.nbytes)


def loaded_bytes(layouts: Sequence[Layout]) -> dict[Buffer, int]:
    """What reading all of them fetches of each buffer: two halves are all of it, a tensor and the same one shifted
    little more than one. A layout is compared with each one before it, not with all together: a bound from above."""
    fetched: dict[Buffer, int] = {}
    for number, layout in enumerate(layouts):
        shared = max((shared_bytes(layout, before) for before in layouts[:number]), default=0)
        fetched[layout.buffer] = fetched.get(layout.buffer, 0) + max(0, layout.touched_bytes - shared)
    return fetched


def shared_bytes(one: Layout, other: Layout) -> int:
    """Of two that differ by where they begin; others are taken to share nothing."""
    if (one.buffer, one.shape, one.strides) != (other.buffer, other.shape, other.strides):
        return 0
    axes = sorted(((abs(s), n) for s, n in zip(one.strides, one.shape, strict=True) if s), reverse=True)
    return shifted_onto(one.offset - other.offset, axes) * one.buffer.dtype.itemsize


def shifted_onto(distance: int, axes: Sequence[tuple[int, int]]) -> int:
    """How many of the places that these strides and extents reach, the longest stride first, are reached again from
    `distance` further on."""
    if not axes:
        return int(distance == 0)
    (stride, extent), *inner = axes
    steps = [n for n in (abs(distance) // stride, abs(distance) // stride + 1) if n < extent]
    return sum((extent - n) * shifted_onto(abs(distance) - n * stride, inner) for n in steps)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a Gather reads: element i at the place of i, and the sum of index * stride further on. `guarded` are
    the strides of the indices in each of the layout's guards."""

    layout: Layout
    strides: Shape
    guarded: tuple[Shape, ...] = ()

    @property
    def touched_bytes(self) -> int:
        """At most: each element picks another one."""
        return min(math.prod(self.layout.shape) * self.layout.buffer.dtype.itemsize, self.layout.buffer.nbytes)


@dataclass(frozen=True, slots=True)
class Region:
    """A computation over one shape: load, compute in SSA order, store. A core gives it the value `given`. `sources` are
    what its Gathers, in order, pick from.

    With `axes`, the body also reduces over them, or has running values along one. What it computes from finished
    reductions alone has their shape, up to axes of extent 1, and is one value a row; the rest has the region's shape.
    Views in the body's operands only bring a row's value into another such shape, or repeat it along the row.

    With `window`, of that size along every axis of space, the region is of windows of the given value. What the body
    computes of that before it looks through them has its shape, and is loaded for each place of each window.
    """

    shape: Shape
    loads: tuple[tuple[Node, Layout], ...]
    body: tuple[Map | Gather | Reduce | Scan, ...]
    stores: tuple[tuple[Node, Layout], ...]
    given: Node | None = None
    axes: Shape = ()
    window: Shape = ()
    sources: tuple[tuple[Gather, Origin], ...] = ()

    @property
    def maps(self) -> tuple[Map, ...]:
        return tuple(node for node in self.body if isinstance(node, Map))

    @property
    def reads(self) -> tuple[Layout, ...]:
        """Everything that is read: the loads, and what Gathers pick from."""
        return (*(layout for _, layout in self.loads), *(origin.layout for _, origin in self.sources))

    @property
    def bytes_read(self) -> int:
        """Each distinct byte once."""
        picked = {origin.layout.buffer: origin.touched_bytes for _, origin in self.sources}
        loaded = loaded_bytes([layout for _, layout in self.loads])
        return sum(min(picked.get(b, 0) + loaded.get(b, 0), b.nbytes) for b in {*picked, *loaded})

    @property
    def bytes_moved(self) -> int:
        """What is read, and each result written once."""
        return self.bytes_read + sum(layout.touched_bytes for _, layout in self.stores)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch of a kernel of ours: a region by itself, or as the epilogue of a product or convolution.

    `writes_over` names the dead buffers whose memory its results take.
    """

    name: str
    region: Region
    writes_over: Mapping[str, str]
    core: Product | Convolution | None = None

    @property
    def bytes_moved(self) -> int:
        return self.region.bytes_moved + (0 if self.core is None else self.core.bytes_read)


@dataclass(frozen=True, slots=True)
class Library:
    """One call into PyTorch: a Contract, Conv or Opaque, with the bias it may add itself."""

    node: Node
    bias: Node | None
    results: tuple[Buffer | None, ...]
    in_place: bool = False
    in_channels_last: bool = False

    @property
    def reads(self) -> tuple[Node, ...]:
        """What the call is given; a random draw only waits for the one before."""
        operands = self.node.given if isinstance(self.node, Opaque) else self.node.operands
        return operands if self.bias is None else (*operands, self.bias)


@dataclass(frozen=True, slots=True)
class Materialise:
    """A view that strides cannot express, copied by PyTorch into memory of its own."""

    node: Node
    result: Buffer


@dataclass(frozen=True, slots=True)
class CopyBack:
    """State that ends up in another buffer is copied to where it belongs."""

    target: Buffer
    value: Node


Step: TypeAlias = Kernel | Library | Materialise | CopyBack


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in order, and the buffer that holds each node which is in memory."""

    graph: Graph
    steps: tuple[Step, ...]
    places: Mapping[Node, Buffer]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(step for step in self.steps if isinstance(step, Kernel))


def contiguous(shape: Shape) -> Shape:
    """Row-major strides."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def channels_last(shape: Shape) -> Shape:
    """Strides of (batch, channels, height, width) with the channels innermost; of other ranks, row-major."""
    if len(shape) != 4:
        return contiguous(shape)
    _, channels, height, width = shape
    return (channels * height * width, 1, width * channels, channels)
