"""Random graphs with running values: built twice from one recipe, in the dtypes to test and in float64 beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from kernelwright.ir.dtypes import DType, bool_, float16, float32, float64, int8, int32, int64, uint8
from kernelwright.ir.nodes import Broadcast, Const, Graph, Group, Input, Map, Node, Pad, Scan, Shape, Slice
from tests.property.graphs_of_rows import Case

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 48, 64, 100, 130, 257, 700)
MOST_ELEMENTS = 6000
DTYPES = (float32, float32, float32, float64, float16, int32, int64, int8, uint8, bool_)


@dataclass(frozen=True)
class Leaf:
    """An operand in memory: the axes it has (the others repeat), their order there, gaps along the last, a border."""

    shape: Shape
    order: tuple[int, ...]
    step: int
    border: int

    @property
    def stored(self) -> Shape:
        *first, last = self.shape
        return (*first, (last - self.border) * self.step)

    def strides(self) -> Shape:
        strides = [0] * len(self.stored)
        below = 1
        for axis in reversed(self.order):
            strides[axis] = below
            below *= self.stored[axis]
        return tuple(strides)

    def seen(self, number: int, dtype: DType, shape: Shape) -> tuple[Input, Node]:
        """What lies in memory, and what the graph sees of it."""
        leaf = Input(f"x{number}", number, self.stored, dtype, self.strides())
        rank, zeros = len(shape), (0,) * len(shape)
        inside = (*self.shape[:-1], self.shape[-1] - self.border)
        view: Node = leaf if self.step == 1 else Slice(leaf, zeros, (*(1,) * (rank - 1), self.step), inside)
        if self.border:
            one: int | float = 1.0 if dtype.kind == "float" else 1
            view = Pad(view, (*zeros[:-1], self.border), zeros, bool(one) if dtype is bool_ else one)
        return leaf, view if self.shape == shape else Broadcast(view, shape)


@dataclass(frozen=True)
class Run:
    """One running value of the recipe."""

    fn: str
    exclusive: bool


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    shape: list[int] = []
    for _ in range(draw(st.integers(1, 4))):
        fitting = [n for n in EXTENTS if math.prod(shape) * n <= MOST_ELEMENTS]
        shape.append(draw(st.sampled_from(fitting)))
    return tuple(shape)


@st.composite
def leaves(draw: st.DrawFn, shape: Shape, whole: bool) -> Leaf:
    own = shape if whole else tuple(1 if draw(st.booleans()) else extent for extent in shape)
    order = tuple(draw(st.permutations(range(len(shape))))) if draw(st.booleans()) else tuple(range(len(shape)))
    border = 1 if own[-1] > 1 and draw(st.integers(0, 5)) == 0 else 0
    return Leaf(own, order, draw(st.sampled_from((1, 1, 1, 2))), border)


@st.composite
def runs(draw: st.DrawFn, dtype: DType) -> Run:
    if dtype is bool_:
        return Run(draw(st.sampled_from(("max", "min"))), False)
    fn = draw(st.sampled_from(("sum", "sum", "prod", "max", "min")))
    return Run(fn, fn in ("sum", "prod") and draw(st.booleans()))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    axis = draw(st.integers(0, len(shape) - 1))
    dtype = draw(st.sampled_from(DTYPES))
    kinds = [draw(leaves(shape, whole=number == 0)) for number in range(draw(st.integers(1, 3)))]
    mixes = [draw(st.sampled_from(("mul", "maximum", "minimum"))) for _ in kinds]
    first = draw(st.lists(runs(dtype), min_size=1, max_size=2, unique=True))
    second = draw(st.lists(runs(dtype), max_size=1))
    reverse = draw(st.booleans())
    kept = [len(kinds) > 1 and draw(st.booleans()), *(draw(st.booleans()) for _ in range(3))]

    def built(own: DType) -> Graph:
        seen = [leaf.seen(number, own, shape) for number, leaf in enumerate(kinds)]
        value = widened(seen[0][1], own)
        for mix, (_, other) in zip(mixes, seen[1:], strict=False):
            value = Map(mix if own is not bool_ else "logical_or", (value, widened(other, own)))
        outputs = outputs_of(value, axis, reverse, (first, second), kept)
        return Graph(tuple(leaf for leaf, _ in seen), outputs, (), Group("tuple", tuple(range(len(outputs)))))

    tensors = tuple(values_for(leaf, dtype, draw(st.integers(0, 1 << 30))) for leaf in kinds)
    return Case(built(dtype), built(float64 if dtype.kind == "float" else dtype), tensors)


def outputs_of(
    value: Node, axis: int, reverse: bool, stages: tuple[list[Run], ...], kept: list[bool]
) -> tuple[Node, ...]:
    """Scans, what is computed from them and from what they were made of, and scans of that."""
    outputs: list[Node] = [value] if kept[0] else []
    for runs_, keep in zip(stages, kept[1:], strict=False):
        scanned = [Scan(run.fn, value, axis, reverse, run.exclusive) for run in runs_]
        outputs += scanned if keep or not outputs else scanned[1:]
        for node in scanned:
            value = mixed(value, tamed(node))
    if kept[3]:
        outputs.append(value)
    return tuple(dict.fromkeys(outputs))


def mixed(a: Node, b: Node) -> Node:
    return Map("logical_and" if a.dtype is bool_ else "maximum", (a, b))


def tamed(x: Node) -> Node:
    """A bounded function of a running value, so that errors do not grow from one stage to the next."""
    if x.dtype.kind == "float":
        return Map("div", (x, Map("add", (Map("abs", (x,)), Const(1.0, x.dtype)))))
    return x if x.dtype is bool_ else Map("minimum", (x, Const(3, x.dtype)))


def widened(x: Node, dtype: DType) -> Node:
    """PyTorch computes with 16-bit floats in float32."""
    return Map("cast", (x,), float32) if dtype is float16 else x


def values_for(leaf: Leaf, dtype: DType, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    stored = torch.empty_strided(leaf.stored, leaf.strides(), dtype=dtype.to_torch())
    if dtype.kind == "float":
        return stored.copy_(torch.rand(leaf.stored, generator=generator) * 2.4 - 0.2 * (seed % 7))
    high = 2 if dtype is bool_ else 5
    return stored.copy_(torch.randint(0, high, leaf.stored, generator=generator))
