"""A `Graph` comes in; the same goes out with Gathers in place of Reshapes that strides cannot express, where kernels of
ours read them.

A Reshape that splits or joins axes which do not follow each other in memory has no strides: pixel shuffling, repeating,
interleaving. Its elements can still be read where they lie, at coordinates found by division.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

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
    Opaque,
    Param,
    Permute,
    Reduce,
    Reshape,
    Shape,
    Slice,
    View,
)
from kernelwright.plan.fuse import users_of
from kernelwright.plan.layouts import base_of, dense_groups, guarded_layout, reshape_strides, views_between
from kernelwright.plan.steps import Buffer, Layout, contiguous
from kernelwright.simplify.motion import gathered_through
from kernelwright.simplify.views import Block, blocks

# Numbers up to here are divided in 32 bits.
SMALL = 2**31


# With so many neighbours in a row, a kernel walks over the elements as they were before the Reshape.
LONG_ROW = 16


def read_by_index(graph: Graph) -> Graph:
    """The graph as kernels can read it: what they would need a copy of, they pick, or walk over in its own order."""
    pointwise = only_stored(graph)
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        operands = tuple(done[x] for x in node.operands)
        current = node if operands == node.operands else node.rebuild(operands)
        if isinstance(current, Map) and node in pointwise:
            current = before_reshape(current) or current
        if isinstance(current, (Map, Reduce)):
            current = current.rebuild(tuple(picked(x) or x for x in current.operands))
        done[node] = current
    return graph.map(lambda n: done[n])


def only_stored(graph: Graph) -> set[Node]:
    """The Maps that end up in memory without meeting a reduction: only Maps come between."""
    users = users_of(graph)
    found: set[Node] = set()
    for node in reversed(graph.nodes()):
        readers = [user for user in users[node] if not isinstance(user, Opaque)]
        if isinstance(node, Map) and node.shape and all(user in found for user in readers):
            found.add(node)
    return found


def before_reshape(n: Map) -> Node | None:
    """f(reshape(x), y)  ->  reshape(f(x, y in the shape of x))  where x has long rows that only its own shape has"""
    shape = next((a.x.shape for a in n.args if isinstance(a, Reshape) and has_long_rows(a)), None)
    if shape is None:
        return None
    args = [a if not a.shape else reshaped_back(a, shape) for a in n.args]
    return None if None in args else Reshape(Map(n.fn, tuple(a for a in args if a is not None), n.to), n.shape)


def has_long_rows(view: Reshape) -> bool:
    """It is stuck, but what it reshapes is not, and has neighbours along its last axis; or is a result of such."""
    base = base_of(view)
    if not view.size or isinstance(base, (Const, Iota)) or not view.x.shape or view.x.shape[-1] < LONG_ROW:
        return False
    if isinstance(view.x, Map):
        return any(isinstance(a, View) and not is_plain(Reshape(a, view.shape)) for a in view.x.args if a.shape)
    inside = guarded_layout(view.x, {base: assumed(base)})
    return isinstance(inside, Layout) and inside.strides[-1] == 1 and not is_plain(view)


def is_plain(view: View) -> bool:
    return isinstance(base_of(view), Iota) or is_expressible(view)


def reshaped_back(x: Node, shape: Shape) -> Node | None:
    """The operand in the shape before, if strides can express it there."""
    back = x.x if isinstance(x, Reshape) and x.x.shape == shape else Reshape(x, shape)
    return back if not isinstance(back, View) or is_plain(back) else None


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
    for view in views_between(x, stuck):
        result = gathered_through(view, result) if isinstance(result, Gather) else None
    if not isinstance(result, Gather):
        return None
    result = Gather(result.x, tuple(map(inward, result.indices)))
    # A view further out may leave strides behind as well. Then there would be a copy of what is picked from, with every
    # element in it as often as it could be picked.
    return result if all(is_expressible(x) for x in (result.x, *leaves_of(result.indices))) else None


def inward(x: Node) -> Node:
    """view(f(x, y))  ->  f(view(x), view(y)): coordinates are computed where they are used."""
    if not isinstance(x, (View, Map)):
        return x
    inner = x.rebuild(tuple(map(inward, x.operands)))
    if not (isinstance(inner, View) and isinstance(inner.x, Map)):
        return inner
    return inner.x.rebuild(tuple(inward(inner.rebuild((a,))) if a.shape else a for a in inner.x.args))


def leaves_of(indices: Sequence[Node]) -> Iterator[Node]:
    """What coordinates are computed from."""
    for x in indices:
        if isinstance(x, Map):
            yield from leaves_of(x.args)
        elif x.shape:
            yield x


def is_expressible(x: Node) -> bool:
    """Whether strides say where it is read, in memory or among numbers that follow each other."""
    base = base_of(x)
    return isinstance(base, Const) or isinstance(guarded_layout(x, {base: assumed(base)}), Layout)


def assumed(base: Node) -> Buffer:
    """Where a value will lie: leaves where they do, the rest row by row."""
    strides = base.strides if isinstance(base, (Input, Param)) else contiguous(base.shape)
    return Buffer("", base.shape, base.dtype, strides)


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
