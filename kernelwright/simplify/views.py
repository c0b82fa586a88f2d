"""Views of views: merged, dropped where they change nothing, and brought into one order.

From the inside out that order is Slice, Permute, Reshape, Broadcast: what makes a value smaller stands nearest to it,
what repeats it stands last. Broadcast therefore moves out over every other view and over Maps (`motion` has the rest).
"""

from __future__ import annotations

import math
from itertools import accumulate
from operator import mul

from kernelwright.ir.nodes import Broadcast, Node, Permute, Reshape, Shape, Slice

# Axes of x and axes of its reshape that hold the same elements: neither splits nor joins with any other.
Block = tuple[tuple[int, ...], tuple[int, ...]]


def merge_reshapes(n: Node) -> Node | None:
    """reshape(reshape(x, s), t)  ->  reshape(x, t)"""
    match n:
        case Reshape(Reshape(x), shape):
            return Reshape(x, shape)
    return None


def drop_reshape(n: Node) -> Node | None:
    """reshape(x : s, s)  ->  x"""
    match n:
        case Reshape(x, shape) if x.shape == shape:
            return x
    return None


def merge_permutes(n: Node) -> Node | None:
    """permute(permute(x, p), q)  ->  permute(x, p[q])"""
    match n:
        case Permute(Permute(x, inner), outer):
            return Permute(x, tuple(inner[axis] for axis in outer))
    return None


def reshape_instead_of_permute(n: Node) -> Node | None:
    """permute(x, p)  ->  reshape(x)  where p keeps the order of all axes longer than 1; or just x"""
    match n:
        case Permute(x, order):
            long_axes = [axis for axis in order if x.shape[axis] != 1]
            in_order = long_axes == sorted(long_axes)
            return None if not in_order else x if x.shape == n.shape else Reshape(x, n.shape)
    return None


def merge_slices(n: Node) -> Node | None:
    """slice(slice(x, a, s), b, t)  ->  slice(x, a + s * b, s * t)"""
    match n:
        case Slice(Slice(x, inner_start, inner_step), start, step, shape):
            starts = tuple(a + s * b for a, s, b in zip(inner_start, inner_step, start, strict=True))
            return Slice(x, starts, tuple(map(mul, inner_step, step)), shape)
    return None


def drop_slice(n: Node) -> Node | None:
    """slice(x, whole)  ->  x"""
    match n:
        case Slice(x, start, step, shape) if shape == x.shape and not any(start):
            return x if all(s == 1 or extent <= 1 for s, extent in zip(step, shape, strict=True)) else None
    return None


def merge_broadcasts(n: Node) -> Node | None:
    """broadcast(broadcast(x, s), t)  ->  broadcast(x, t)"""
    match n:
        case Broadcast(Broadcast(x), shape):
            return Broadcast(x, shape)
    return None


def drop_broadcast(n: Node) -> Node | None:
    """broadcast(x : s, s)  ->  x, and a reshape where it only adds axes of extent 1"""
    match n:
        case Broadcast(x, shape) if x.shape == shape:
            return x
        case Broadcast(x, shape) if x.size == n.size and (x.shape or isinstance(x, Reshape)):
            return Reshape(x, shape)
    return None


def broadcast_instead_of_reshape(n: Node) -> Node | None:
    """reshape(x : [], (1, ..., 1))  ->  broadcast(x, (1, ..., 1)): a scalar is only ever spread"""
    match n:
        case Reshape(x, shape) if x.shape == () and shape and not isinstance(x, Reshape):
            return Broadcast(x, shape)
    return None


def strip_leading_ones(n: Node) -> Node | None:
    """broadcast(x : [1, ..., 1, s], t)  ->  broadcast(reshape(x, [s]), t)"""
    match n:
        case Broadcast(x, shape) if x.shape and x.shape[0] == 1 and x.size != n.size:
            return Broadcast(Reshape(x, without_leading_ones(x.shape)), shape)
    return None


def without_leading_ones(shape: Shape) -> Shape:
    first = next((i for i, extent in enumerate(shape) if extent != 1), len(shape))
    return shape[first:]


def squeezed(shape: Shape) -> Shape:
    """The shape without axes of extent 1."""
    return tuple(extent for extent in shape if extent != 1)


def permute_under_broadcast(n: Node) -> Node | None:
    """permute(broadcast(x, s), p)  ->  broadcast(permute(x, p), s[p])"""
    match n:
        case Permute(Broadcast(x, shape), order):
            return Broadcast(Permute(Reshape(x, padded(x.shape, len(shape))), order), n.shape)
    return None


def padded(shape: Shape, rank: int) -> Shape:
    """The shape with axes of extent 1 before it, as broadcasting sees it."""
    return (1,) * (rank - len(shape)) + shape


def slice_under_broadcast(n: Node) -> Node | None:
    """slice(broadcast(x))  ->  broadcast(slice(x)): of the axes that repeat only the extent changes"""
    match n:
        case Slice(Broadcast(x, whole), start, step, shape) if n.size:
            offset = len(whole) - len(x.shape)
            repeats = [extent == 1 for extent in x.shape]
            starts = tuple(0 if again else a for again, a in zip(repeats, start[offset:], strict=True))
            steps = tuple(1 if again else s for again, s in zip(repeats, step[offset:], strict=True))
            extents = tuple(1 if again else e for again, e in zip(repeats, shape[offset:], strict=True))
            return Broadcast(Slice(x, starts, steps, extents), shape)
    return None


def reshape_under_broadcast(n: Node) -> Node | None:
    """reshape(broadcast(x))  ->  broadcast(reshape(x))  where no axis that repeats joins one that does not"""
    match n:
        case Reshape(Broadcast(x, whole), shape) if n.size:
            extents = reshaped_source(padded(x.shape, len(whole)), whole, shape)
            return None if extents is None else Broadcast(Reshape(x, extents), shape)
    return None


def reshaped_source(source: Shape, whole: Shape, shape: Shape) -> Shape | None:
    """The source s for which broadcast(s, shape) has the elements of broadcast(source, whole) in order."""
    extents = [1] * len(shape)
    for before, after in blocks(whole, shape):
        repeated = [source[axis] != whole[axis] for axis in before]
        if all(repeated):
            continue
        if any(repeated):
            return None
        for axis in after:
            extents[axis] = shape[axis]
    return tuple(extents)


def permute_under_reshape(n: Node) -> Node | None:
    """permute(reshape(x), p)  ->  reshape(permute(x))  where p moves axes that were split or joined as one"""
    match n:
        case Permute(Reshape(x, whole), order) if n.size:
            moved = moved_axes(x.shape, whole, order)
            return None if moved is None else Reshape(Permute(x, moved), n.shape)
    return None


def moved_axes(before: Shape, after: Shape, order: Shape) -> Shape | None:
    """The order of x's axes that does what `order` does to those of its reshape, if there is one."""
    long_axes = [axis for axis in order if after[axis] != 1]
    by_first = {new[0]: (old, new) for old, new in blocks(before, after)}
    axes: list[int] = []
    at = 0
    while at < len(long_axes):
        old, new = by_first.get(long_axes[at], ((), ()))
        if not new or tuple(long_axes[at : at + len(new)]) != new:
            return None
        axes += old
        at += len(new)
    return (*axes, *(axis for axis, extent in enumerate(before) if extent == 1))


def slice_under_reshape(n: Node) -> Node | None:
    """slice(reshape(x))  ->  reshape(slice(x))  where the cut axes are whole axes of x, or its outer parts"""
    match n:
        case Slice(Reshape(x)) if n.size:
            cut = cut_axes(x.shape, n)
            return None if cut is None else Reshape(Slice(x, *cut), n.shape)
    return None


def cut_axes(before: Shape, n: Slice) -> tuple[Shape, Shape, Shape] | None:
    """Start, step and extent of each axis of x for a slice n of its reshape, if there are such."""
    starts, steps, extents = [0] * len(before), [1] * len(before), list(before)
    whole = n.x.shape
    for old, new in blocks(before, whole):
        cut = [axis for axis in new if (n.start[axis], n.step[axis], n.shape[axis]) != (0, 1, whole[axis])]
        if not cut:
            continue
        inner = math.prod(whole[axis] for axis in new[1:])
        if len(old) != 1 or cut != [new[0]] or (inner != 1 and n.step[new[0]] != 1):
            return None
        starts[old[0]], steps[old[0]] = n.start[new[0]] * inner, n.step[new[0]]
        extents[old[0]] = n.shape[new[0]] * inner
    return tuple(starts), tuple(steps), tuple(extents)


def slice_under_permute(n: Node) -> Node | None:
    """slice(permute(x, p))  ->  permute(slice(x), p)"""
    match n:
        case Slice(Permute(x, order), start, step, shape):
            back = [order.index(axis) for axis in range(len(order))]
            starts, steps, extents = (tuple(values[i] for i in back) for values in (start, step, shape))
            return Permute(Slice(x, starts, steps, extents), order)
    return None


def blocks(before: Shape, after: Shape) -> list[Block]:
    """The finest blocks of axes that a reshape maps onto each other; axes of extent 1 are in none."""
    old = [axis for axis, extent in enumerate(before) if extent != 1]
    new = [axis for axis, extent in enumerate(after) if extent != 1]
    old_ends = list(accumulate((before[axis] for axis in old), mul))
    new_ends = list(accumulate((after[axis] for axis in new), mul))
    found: list[Block] = []
    old_from = new_from = 0
    for end in old_ends:
        if end in new_ends:
            old_to, new_to = old_ends.index(end) + 1, new_ends.index(end) + 1
            found.append((tuple(old[old_from:old_to]), tuple(new[new_from:new_to])))
            old_from, new_from = old_to, new_to
    return found


RULES = (
    merge_reshapes,
    drop_reshape,
    merge_permutes,
    reshape_instead_of_permute,
    merge_slices,
    drop_slice,
    merge_broadcasts,
    drop_broadcast,
    broadcast_instead_of_reshape,
    strip_leading_ones,
    permute_under_broadcast,
    slice_under_broadcast,
    reshape_under_broadcast,
    permute_under_reshape,
    slice_under_reshape,
    slice_under_permute,
)
