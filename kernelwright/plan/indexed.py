"""A `Graph` comes in; the same goes out with Gathers in place of Reshapes that strides cannot express, where kernels of
ours read them.

A Reshape that splits or joins axes which do not follow each other in memory has no strides: pixel shuffling, repeating,
interleaving. Its elements can still be read where they lie, at coordinates found by division.
"""

from __future__ import annotations

import math

from kernelwright.ir.dtypes import DType, int32, int64
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Gather,
    Graph,
    Input,
    Iota,
    Map,
    Node,
    Param,
    Permute,
    Reduce,
    Reshape,
    Shape,
    Slice,
    View,
)
from kernelwright.plan.layouts import base_of, dense_groups, guarded_layout, reshape_strides
from kernelwright.plan.steps import Buffer, Layout, contiguous
from kernelwright.simplify.motion import gathered_through
from kernelwright.simplify.views import Block, blocks

# Numbers up to here are divided in 32 bits.
SMALL = 2**31


def read_by_index(graph: Graph) -> Graph:
    """The graph as kernels can read it: what they would need a copy of, they pick element by element."""
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        operands = tuple(done[x] for x in node.operands)
        if isinstance(node, (Map, Reduce)):
            operands = tuple(picked(x) or x for x in operands)
        done[node] = node if operands == node.operands else node.rebuild(operands)
    return graph.map(lambda n: done[n])


def picked(x: Node) -> Node | None:
    """A chain of views with such a Reshape in it, as a Gather; None if it has none, or one that is out of reach."""
    base = base_of(x)
    if not isinstance(x, View) or isinstance(base, (Const, Iota)) or not x.size or base.dtype.kind == "complex":
        return None
    places = {base: assumed(base)}
    stuck = guarded_layout(x, places)
    if not isinstance(stuck, Reshape):
        return None
    inside = guarded_layout(stuck.x, places)
    assert isinstance(inside, Layout), "the innermost view is found first"
    result: Node | None = split(stuck, inside)
    for view in views_over(x, stuck):
        result = gathered_through(view, result) if isinstance(result, Gather) else None
    return result


def assumed(base: Node) -> Buffer:
    """Where a value will lie: leaves where they do, the rest row by row."""
    strides = base.strides if isinstance(base, (Input, Param)) else contiguous(base.shape)
    return Buffer("", base.shape, base.dtype, strides)


def views_over(x: Node, inner: View) -> list[View]:
    """The views between x and an inner one, innermost first."""
    chain: list[View] = []
    while x is not inner:
        assert isinstance(x, View)
        chain.append(x)
        x = x.x
    return chain[::-1]


def split(view: Reshape, inside: Layout) -> Gather:
    """gather(x with the axes of stuck blocks last, their coordinates of each element)"""
    x, shape = view.x, view.shape
    stuck = [block for block in blocks(x.shape, shape) if not is_regrouped(block, inside, shape)]
    last = [axis for old, _ in stuck for axis in old]
    order = (*(axis for axis in range(len(x.shape)) if axis not in last), *last)
    new = {axis for _, axes in stuck for axis in axes}
    kept = tuple(1 if axis in new else extent for axis, extent in enumerate(shape))
    extents: list[int] = []
    repeats: list[bool] = []
    indices: list[Node] = []
    for old, axes in stuck:
        groups = groups_of(old, inside)
        numbers = coordinates(shape, axes, tuple(extent for extent, _ in groups))
        for (extent, again), number in zip(groups, numbers, strict=True):
            extents.append(extent)
            repeats.append(again)
            indices += [] if again else [number]
    grouped = Reshape(Permute(x, order), (*kept, *extents))
    once = tuple(1 if again else extent for extent, again in zip(extents, repeats, strict=True))
    first = Slice(grouped, (0,) * len(grouped.shape), (1,) * len(grouped.shape), (*kept, *once))
    left = tuple(extent for extent, again in zip(extents, repeats, strict=True) if not again)
    return Gather(Broadcast(Reshape(first, (*kept, *left)), (*shape, *left)), tuple(indices))


def is_regrouped(block: Block, inside: Layout, after: Shape) -> bool:
    """Strides express what the block becomes, and so do those of every guard."""
    old, new = block
    forms = (inside.strides, *(guard.strides for guard in inside.guards))
    return all(reshape_strides(part(inside.shape, old), part(s, old), part(after, new)) is not None for s in forms)


def groups_of(axes: Shape, inside: Layout) -> list[tuple[int, bool]]:
    """Of axes that one coordinate can walk through together: how many places, and whether they are all the same."""
    if not inside.guards:
        groups = dense_groups(part(inside.shape, axes), part(inside.strides, axes))
        return [(extent, stride == 0) for extent, stride in reversed(groups)]
    forms = (inside.strides, *(guard.strides for guard in inside.guards))
    return [(inside.shape[axis], not any(form[axis] for form in forms)) for axis in axes]


def part(values: Shape, axes: Shape) -> Shape:
    return tuple(values[axis] for axis in axes)


def coordinates(shape: Shape, axes: Shape, extents: Shape) -> list[Node]:
    """Of each element its coordinates in axes of these extents, which together number as `axes` of its shape do."""
    dtype = int32 if math.prod(extents) < SMALL else int64
    number: Node | None = None
    for axis in axes:
        below = math.prod(shape[later] for later in axes if later > axis)
        term = scaled(place(shape, axis, dtype), "mul", below)
        number = term if number is None else Map("add", (number, term))
    assert number is not None
    result = []
    for position, extent in enumerate(extents):
        above = scaled(number, "trunc_divide", math.prod(extents[position + 1 :]))
        result.append(above if position == 0 else Map("fmod", (above, Const(extent, dtype))))
    return result


def place(shape: Shape, axis: int, dtype: DType) -> Node:
    """Each element's place along an axis."""
    along = Broadcast(Reshape(Iota(shape[axis]), (shape[axis], *(1 for _ in shape[axis + 1 :]))), shape)
    return along if dtype is int64 else Map("cast", (along,), dtype)


def scaled(x: Node, fn: str, by: int) -> Node:
    return x if by == 1 else Map(fn, (x, Const(by, x.dtype)))
