"""Random graphs that reduce: built twice from one recipe, in the dtypes to test and in float64 to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from kernelwright.capture.indexing import along
from kernelwright.ir.dtypes import DType, bool_, float16, float32, float64, int8, int32, int64, uint8
from kernelwright.ir.nodes import Broadcast, Const, Graph, Group, Input, Iota, Map, Node, Reduce, Reshape, Shape, Slice

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 48, 64, 100, 130, 257)
MOST_ELEMENTS = 6000
MOST_FACTORS = 24
FLOAT_REDUCTIONS = ("sum", "max", "min", "deviations", "exponentials")
WHOLE_REDUCTIONS = ("sum", "max", "min", "prod")
PLACES = ("argmax", "argmin")


@dataclass(frozen=True, repr=False)
class Case:
    """The graph, the same in float64, and its operands."""

    graph: Graph
    wide: Graph
    tensors: tuple[torch.Tensor, ...]

    def __repr__(self) -> str:
        return f"Case of {len(self.graph.nodes())} nodes"


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    shape: list[int] = []
    for _ in range(draw(st.integers(1, 4))):
        fitting = [n for n in EXTENTS if math.prod(shape) * n <= MOST_ELEMENTS]
        shape.append(draw(st.sampled_from(fitting)))
    return tuple(shape) if math.prod(shape) > 1 else (2,)


@st.composite
def reduced_axes(draw: st.DrawFn, shape: Shape) -> Shape:
    """Some axes, of which one at least has more than one element."""
    moving = [axis for axis, extent in enumerate(shape) if extent > 1]
    first = draw(st.sampled_from(moving))
    others = [axis for axis in range(len(shape)) if axis != first and draw(st.booleans())]
    return tuple(sorted({first, *others}))


@dataclass(frozen=True)
class Leaf:
    """An operand in memory: its shape, which is broadcast, the order of its axes, gaps along the last, and perhaps an
    axis that is read by index."""

    shape: Shape
    order: tuple[int, ...]
    step: int
    picked: int | None = None

    @property
    def stored(self) -> Shape:
        return (*self.shape[:-1], self.shape[-1] * self.step)

    def strides(self) -> Shape:
        strides = [0] * len(self.stored)
        below = 1
        for axis in reversed(self.order):
            strides[axis] = below
            below *= self.stored[axis]
        return tuple(strides)

    def seen(self, number: int, dtype: DType, shape: Shape) -> tuple[Input, Node]:
        leaf = Input(f"x{number}", number, self.stored, dtype, self.strides())
        zeros = (0,) * len(shape)
        steps = (*(1,) * (len(shape) - 1), self.step)
        view: Node = leaf if self.step == 1 else Slice(leaf, zeros, steps, self.shape)
        if self.picked is not None:
            extent = self.shape[self.picked]
            index = Map("add", (Map("mul", (Iota(extent), Const(3, int64))), Const(1, int64)))
            view = along(view, {self.picked: Map("fmod", (index, Const(extent, int64)))})
        return leaf, view if self.shape == shape else Broadcast(view, shape)


@st.composite
def leaves(draw: st.DrawFn, shape: Shape, whole: bool) -> Leaf:
    own = shape if whole else tuple(1 if draw(st.booleans()) else extent for extent in shape)
    order = tuple(draw(st.permutations(range(len(shape))))) if draw(st.booleans()) else tuple(range(len(shape)))
    picked = draw(st.sampled_from((None, None, None, *range(len(shape)))))
    return Leaf(own, order, draw(st.sampled_from((1, 1, 1, 2))), picked)


Step = Callable[[Node, Node, DType], Node]


def wide_of(x: Node, dtype: DType) -> Node:
    """PyTorch computes with 16-bit floats in float32."""
    return Map("cast", (x,), float32) if dtype is float16 else x


def constant(value: float, x: Node) -> Node:
    return Const(value if x.dtype.kind == "float" else int(value), x.dtype)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    axes = draw(reduced_axes(shape))
    dtype = draw(st.sampled_from((float32, float32, float32, float64, float16, int32, int64, int8, uint8, bool_)))
    kinds = [draw(leaves(shape, whole=number == 0)) for number in range(draw(st.integers(1, 3)))]
    mixes = [draw(st.sampled_from(("add", "mul", "maximum"))) for _ in kinds]
    count = math.prod(shape[axis] for axis in axes)
    firsts = draw(st.lists(st.sampled_from(reductions_of(dtype, count)), min_size=1, max_size=2, unique=True))
    seconds = draw(st.lists(st.sampled_from(reductions_of(dtype, count)), max_size=1))
    flat = draw(st.booleans())
    kept = [draw(st.booleans()) for _ in range(6)]

    def built(own: DType) -> Graph:
        seen = [leaf.seen(number, own, shape) for number, leaf in enumerate(kinds)]
        value = wide_of(seen[0][1], own)
        for mix, (_, other) in zip(mixes, seen[1:], strict=False):
            value = Map(mix if own is not bool_ else "logical_or", (value, wide_of(other, own)))
        return graph_of(tuple(leaf for leaf, _ in seen), value, axes, firsts, seconds, flat, kept)

    widened = float64 if dtype.kind == "float" else dtype
    tensors = tuple(values_for(leaf, dtype, draw(st.integers(0, 1 << 30))) for leaf in kinds)
    return Case(built(dtype), built(widened), tensors)


def reductions_of(dtype: DType, count: int) -> tuple[str, ...]:
    """Those the dtype has; a product of many floats is zero or infinite."""
    if dtype is bool_:
        return ("max", "min")
    if dtype.kind == "float":
        return (*FLOAT_REDUCTIONS, *(("prod",) if count <= MOST_FACTORS else ()), *PLACES)
    return (*WHOLE_REDUCTIONS, *PLACES)


def graph_of(
    inputs: tuple[Input, ...],
    value: Node,
    axes: Shape,
    firsts: list[str],
    seconds: list[str],
    flat: bool,
    kept: list[bool],
) -> Graph:
    """Reductions of the value, one or two phases after each other, and what is computed from them for every column."""
    outputs: list[Node] = []
    for fns, keep in ((firsts, kept[:3]), (seconds, kept[3:])):
        rows = [Reduce(fn, value, axes) for fn in fns]
        outputs += [row for row in rows if keep[0] or row.dtype is not value.dtype]
        tame = [row_value(row, flat) for row in rows if row.dtype is value.dtype]
        for row in tame:
            value = Map("logical_and" if value.dtype is bool_ else "sub", (value, spread(row, value.shape, axes)))
        if keep[1]:
            outputs += tame
        if keep[2] and tame:
            outputs.append(value)
    if not outputs:
        outputs.append(value if not firsts or firsts[0] not in PLACES else Reduce(firsts[0], value, axes))
    ends = tuple(dict.fromkeys(outputs))
    return Graph(inputs, ends, (), Group("tuple", tuple(range(len(ends)))))


def row_value(row: Node, flat: bool) -> Node:
    """A bounded function of a row, with or without its axes of extent 1."""
    own: Node = Reshape(row, tuple(n for n in row.shape if n > 1)) if flat else row
    if row.dtype.kind == "float":
        return Map("div", (own, Map("add", (Map("abs", (own,)), constant(1.0, own)))))
    return Map("logical_not", (own,)) if row.dtype is bool_ else Map("maximum", (own, constant(1, own)))


def spread(row: Node, shape: Shape, axes: Shape) -> Node:
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return Broadcast(row if row.shape == kept else Reshape(row, kept), shape)


def values_for(leaf: Leaf, dtype: DType, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    stored = torch.empty_strided(leaf.stored, leaf.strides(), dtype=dtype.to_torch())
    if dtype.kind == "float":
        return stored.copy_(torch.randn(leaf.stored, generator=generator) + seed % 3)
    if dtype is bool_:
        return stored.copy_(torch.randint(0, 2, leaf.stored, generator=generator))
    return stored.copy_(torch.randint(0, 5, leaf.stored, generator=generator))
