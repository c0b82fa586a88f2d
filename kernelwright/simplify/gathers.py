"""Gathers whose indices follow each other: a picked axis that is run through in order is a Slice."""

from __future__ import annotations

from itertools import pairwise

from kernelwright.ir.nodes import Broadcast, Const, Gather, Iota, Map, Node, Permute, Reshape, Slice, Table
from kernelwright.simplify.views import padded


def slice_instead_of_gather(n: Node) -> Node | None:
    """gather(broadcast(x), a + b * iota)  ->  slice(x, a, every b-th)

    x is the same for all places along the axis that iota runs along, so that the axis picked from can take its place.
    """
    match n:
        case Gather(x, indices) if n.size:
            source = padded(x.x.shape, len(x.shape)) if isinstance(x, Broadcast) else x.shape
            for number, index in enumerate(indices):
                found = progression(index)
                if found is not None:
                    axis, start, step = found
                    last = start + step * (n.shape[axis] - 1)
                    if source[axis] == 1 and min(start, last) >= 0 and max(start, last) < n.extents[number]:
                        return in_order(n, number, axis, start, step)
    return None


def in_order(n: Gather, number: int, axis: int, start: int, step: int) -> Node:
    """The Gather without this index: its axis stands where the result has it, and the others are picked from still."""
    rank, picked = len(n.shape), len(n.shape) + number
    y = n.x.x if isinstance(n.x, Broadcast) else n.x
    y = Reshape(y, padded(y.shape, len(n.x.shape)))
    order = [picked if i == axis else i for i in range(len(y.shape)) if i != picked]
    turned = Reshape(Permute(y, (*order, axis)), tuple(y.shape[i] for i in order))
    starts = tuple(start if i == axis else 0 for i in range(len(order)))
    steps = tuple(step if i == axis else 1 for i in range(len(order)))
    extents = tuple(n.shape[axis] if i == axis else extent for i, extent in enumerate(turned.shape))
    others = tuple(extent for i, extent in enumerate(n.extents) if i != number)
    source = Broadcast(Slice(turned, starts, steps, extents), (*n.shape, *others))
    rest = n.indices[:number] + n.indices[number + 1 :]
    assert len(source.shape) == rank + len(rest)
    return Gather(source, rest) if rest else source


def progression(index: Node) -> tuple[int, int, int] | None:
    """(axis, a, b) if the index is a + b * place along one axis of its shape."""
    rank = len(index.shape)
    x = index.x if isinstance(index, Broadcast) else index
    start, step = 0, 1
    while isinstance(x, Map):
        match x:
            case Map("add", (y, Const() as c)) if y.shape:
                start, x = start + step * int(c.value), y
            case Map("sub", (y, Const() as c)) if y.shape:
                start, x = start - step * int(c.value), y
            case Map("mul", (y, Const() as c)) if y.shape:
                step, x = step * int(c.value), y
            case Map("cast", (y,)) if y.dtype.kind == "int" and x.dtype.itemsize >= 4:
                x = y
            case _:
                return None
    along = [axis for axis, extent in enumerate(padded(x.shape, rank)) if extent > 1]
    if len(along) != 1 or step == 0:
        return None
    x = x.x if isinstance(x, Reshape) else x
    match x:
        case Iota():
            return along[0], start, step
        case Table(values) if len({b - a for a, b in pairwise(values)}) == 1:
            first, second = int(values[0]), int(values[1])
            return (along[0], start + step * first, step * (second - first)) if second != first else None
    return None


RULES = (slice_instead_of_gather,)
