"""Random graphs of Maps and views, for hypothesis: leaves of edge values, functions and views drawn on top of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from kernelwright.ir.dtypes import DType, bool_
from kernelwright.ir.nodes import Broadcast, Graph, Input, Map, Node, Permute, Reshape, Shape, Slice
from kernelwright.ir.scalars import SCALARS
from tests.property.edge_values import constant, edge_values


@dataclass(frozen=True)
class Vocabulary:
    """What a random graph is made of."""

    dtype: DType
    functions: tuple[str, ...]
    constants: tuple[float, ...]
    values: torch.Tensor
    casts: tuple[DType, ...] = ()


@st.composite
def graphs(draw: DrawFn, words: Vocabulary, steps: int = 20) -> Graph:
    """Leaves, then a number of steps, each a function or a view of what there is; the last one is an output."""
    nodes: list[Node] = list(draw(leaves(words)))
    inputs = tuple(n for n in nodes if isinstance(n, Input))
    for _ in range(draw(st.integers(steps // 2, steps))):
        nodes.append(draw(maps(words, nodes) if draw(st.integers(0, 9)) < 7 else views(nodes)))
    others = draw(st.lists(st.sampled_from(nodes[len(inputs) :]), max_size=2))
    return Graph(inputs, (nodes[-1], *others), (), 0)


def recent(nodes: Sequence[Node]) -> st.SearchStrategy[Node]:
    """Mostly one of the last two, so that functions meet functions and views meet views."""
    last: st.SearchStrategy[Node] = st.sampled_from(nodes[-2:])
    return last | last | st.sampled_from(nodes)


@st.composite
def leaves(draw: DrawFn, words: Vocabulary) -> list[Node]:
    shapes = draw(st.lists(shape_strategy(), min_size=2, max_size=3))
    found: list[Node] = [Input(f"x{i}", i, s, words.dtype, (0,) * len(s)) for i, s in enumerate(shapes)]
    found.append(Input("mask", len(shapes), shapes[0], bool_, (0,) * len(shapes[0])))
    return found


def shape_strategy() -> st.SearchStrategy[Shape]:
    return st.lists(st.sampled_from((1, 2, 3, 4)), min_size=0, max_size=3).map(tuple)


def tensors(graph: Graph, words: Vocabulary) -> list[torch.Tensor]:
    """One tensor an input, its values taken in turn from the vocabulary's."""
    found = []
    for leaf in graph.inputs:
        source = words.values if leaf.dtype is words.dtype else edge_values(leaf.dtype)
        index = (torch.arange(leaf.size) * 7 + 3 * leaf.position) % len(source)
        found.append(source[index].reshape(leaf.shape))
    return found


@st.composite
def maps(draw: DrawFn, words: Vocabulary, nodes: Sequence[Node]) -> Node:
    """One scalar function on operands of one dtype; a mask where `where` needs one."""
    first = draw(recent(nodes))
    if words.casts and draw(st.integers(0, 5)) == 0:
        return Map("cast", (first,), draw(st.sampled_from(words.casts)))
    usable = [fn for fn in words.functions if first.dtype.kind in SCALARS[fn].accepts]
    if not usable:
        return Map("logical_not", (first,))
    fn = draw(st.sampled_from(usable))
    arity = SCALARS[fn].arity
    same = [n for n in nodes if n.dtype is first.dtype]
    masks = [n for n in nodes if n.dtype is bool_]
    numbers = st.sampled_from(words.constants).map(lambda value: constant(value, first.dtype))
    args = [first, *(draw(numbers if draw(st.booleans()) else recent(same)) for _ in range(arity - 1))]
    if arity == 2 and draw(st.integers(0, 3)) == 0:
        args.reverse()
    if fn == "where":
        args[0] = draw(st.sampled_from(masks))
    return Map(fn, agreed(args))


def agreed(args: Sequence[Node]) -> tuple[Node, ...]:
    """The operands under one shape: broadcast together if they can be, else cut to their first elements."""
    shape: Shape = ()
    result: list[Node] = []
    for arg in args:
        both = together(shape, arg.shape)
        if both is None:
            arg = Reshape(Slice(arg, (0,) * len(arg.shape), (1,) * len(arg.shape), (1,) * len(arg.shape)), ())
        else:
            shape = both
        result.append(arg)
    return tuple(a if a.shape in ((), shape) else Broadcast(a, shape) for a in result)


def together(a: Shape, b: Shape) -> Shape | None:
    try:
        return tuple(torch.broadcast_shapes(a, b))
    except RuntimeError:
        return None


@st.composite
def views(draw: DrawFn, nodes: Sequence[Node]) -> Node:
    x = draw(recent(nodes))
    kind = draw(st.sampled_from(("reshape", "permute", "broadcast", "slice")))
    if kind == "reshape":
        return Reshape(x, draw(shapes_of_size(x.size)))
    if kind == "permute":
        return Permute(x, tuple(draw(st.permutations(range(len(x.shape))))))
    if kind == "broadcast":
        return Broadcast(x, draw(wider_shapes(x.shape)))
    return draw(slices(x))


@st.composite
def shapes_of_size(draw: DrawFn, size: int) -> Shape:
    """The size split into factors, with ones anywhere."""
    extents: list[int] = []
    while size > 1 and len(extents) < 3:
        extent = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        extents.append(extent)
        size //= extent
    if size > 1 or not draw(st.booleans()):
        extents.append(size)
    return tuple(extents) if math.prod(extents) * 1 else (0,)


@st.composite
def wider_shapes(draw: DrawFn, shape: Shape) -> Shape:
    extents = [draw(st.sampled_from((1, 2, 3))) if e == 1 and draw(st.booleans()) else e for e in shape]
    if len(extents) < 4 and draw(st.booleans()):
        extents.insert(0, draw(st.sampled_from((1, 2))))
    return tuple(extents)


@st.composite
def slices(draw: DrawFn, x: Node) -> Node:
    starts, steps, extents = [], [], []
    for whole in x.shape:
        start = draw(st.integers(0, max(whole - 1, 0)))
        step = draw(st.sampled_from((1, 1, 2)))
        most = (whole - start + step - 1) // step
        starts.append(start)
        steps.append(step)
        extents.append(draw(st.integers(1, most)) if most > 0 else 0)
    return Slice(x, tuple(starts), tuple(steps), tuple(extents))
