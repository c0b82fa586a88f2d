"""Running values in other words: turned around, or pushed by one place. Each becomes one Scan.

A value is *turned* along some axes, or *longer* by one element at the end of an axis, where all it is computed from can
be: through Maps and Scans down to a flip or a slice that is undone.
"""

from __future__ import annotations

import math
from dataclasses import replace

from kernelwright.ir.interpret import IDENTITIES
from kernelwright.ir.nodes import Broadcast, Const, Map, Node, Opaque, Pad, Scan, Shape, Slice

CAT = "aten.cat.default"


def scan_the_other_way(n: Node) -> Node | None:
    """flip(scan(flip(x)))  ->  scan(x, from the other end), with Maps between; a slice of it in the same way"""
    match n:
        case Slice(x, start, step, shape):
            axes = flipped_axes(n)
            whole = turned(x, axes) if axes and not isinstance(x, Slice) else None
            if whole is None:
                return None
            starts = tuple(e - 1 - s if i in axes else s for i, (s, e) in enumerate(zip(start, x.shape, strict=True)))
            return Slice(whole, starts, tuple(map(abs, step)), shape)
    return None


def flipped_axes(n: Slice) -> Shape:
    """The axes that a slice runs through from their ends."""
    return tuple(axis for axis, step in enumerate(n.step) if step < 0)


def turned(x: Node, axes: Shape) -> Node | None:
    """flip(x, axes) without a flip, if there is such a form."""
    match x:
        case Slice(inner, start, step, shape) if flipped_axes(x) == axes:
            starts = tuple(
                s + k * (n - 1) if i in axes else s for i, (s, k, n) in enumerate(zip(start, step, shape, strict=True))
            )
            return Slice(inner, starts, tuple(map(abs, step)), shape)
        case Const() | Broadcast(Const()):
            return x
        case Broadcast(inner, shape) if all(is_repeated(inner, shape, axis) for axis in axes):
            return x
        case Map():
            args = [a if not a.shape else turned(a, axes) for a in x.args]
            return None if None in args else x.rebuild(tuple(a for a in args if a is not None))
        case Scan(_, inner, axis, reverse):
            operand = turned(inner, axes)
            return None if operand is None else replace(x, x=operand, reverse=reverse != (axis in axes))
    return None


def is_repeated(x: Node, shape: Shape, axis: int) -> bool:
    own = axis - (len(shape) - len(x.shape))
    return own < 0 or (x.shape[own] == 1 and shape[axis] > 1)


def scan_exclusively(n: Node) -> Node | None:
    """cat(e, scan(x[: n - 1]))  ->  exclusive scan(x), e being what the scan gives of nothing; so too cat(scan, e) from
    the other end, and cat(e, scan(x)[: n - 1])"""
    match n:
        case Opaque(target=target, args=((Node() as first, Node() as second), *rest)) if target == CAT:
            axis = rest[0] if rest else 0
            assert isinstance(axis, int)
            axis %= len(n.shape)
            whole = pushed(second, axis, first, False)
            return whole if whole is not None else pushed(first, axis, second, True)
    return None


def pushed(part: Node, axis: int, nothing: Node, reverse: bool) -> Node | None:
    """The exclusive scan of which `part` is all but the first element, or, from the other end, but the last."""
    if nothing.shape[axis : axis + 1] != (1,):
        return None
    match part:
        case Map("cast", (x,), to) if to is not None and is_scan(x):
            whole = pushed(x, axis, nothing, reverse)
            return None if whole is None else Map("cast", (whole,), to)
        case Scan(fn, x, along, backwards, False) if (along, backwards) == (axis, reverse) and is_nothing(nothing, fn):
            operand = longer(x, axis, reverse)
            return None if operand is None else replace(part, x=operand, exclusive=True)
        case Slice(Scan(fn, x, along, backwards, False) as scan) if is_nothing(nothing, fn):
            fits = (along, backwards) == (axis, reverse) and longer(part, axis, reverse) is scan
            return replace(scan, exclusive=True) if fits else None
    return None


def is_scan(x: Node) -> bool:
    return isinstance(x.x if isinstance(x, Slice) else x, Scan)


def is_nothing(x: Node, fn: str) -> bool:
    """What a running sum or product is before its first element."""
    value = x.x if isinstance(x, Broadcast) else x
    if not isinstance(value, Const) or fn not in IDENTITIES or value.value != IDENTITIES[fn]:
        return False
    return math.copysign(1.0, value.value) > 0  # a sum starts from 0.0, not -0.0


def longer(x: Node, axis: int, at_front: bool) -> Node | None:
    """x with the next element along the axis, at its end or at its front, where it was cut off."""
    match x:
        case Slice(inner, start, step, shape) if step[axis] == 1 and axis < len(shape):
            begin = start[axis] - 1 if at_front else start[axis]
            if begin < 0 or begin + shape[axis] + 1 > inner.shape[axis]:
                return None
            starts, extents = with_extent(start, axis, begin), with_extent(shape, axis, shape[axis] + 1)
            whole = extents == inner.shape and set(step) <= {1}
            return inner if whole else Slice(inner, starts, step, extents)
        case Broadcast(inner, shape) if is_repeated(inner, shape, axis) or isinstance(inner, Const):
            return Broadcast(inner, with_extent(shape, axis, shape[axis] + 1))
        case Map():
            args = [a if not a.shape else longer(a, axis, at_front) for a in x.args]
            return None if None in args else x.rebuild(tuple(a for a in args if a is not None))
    return None


def with_extent(values: Shape, axis: int, value: int) -> Shape:
    return (*values[:axis], value, *values[axis + 1 :])


def scan_beside_border(n: Node) -> Node | None:
    """pad(scan(x), 1 before)  ->  exclusive scan(pad(x, 1 after)), or of what x was cut from; x is in memory"""
    match n:
        case Pad(x, before, after, value) if sum((*before, *after)) == 1:
            reverse = 1 in after
            axis = (after if reverse else before).index(1)
            nothing = Broadcast(Const(value, x.dtype), (*(1 for _ in x.shape),))
            whole = pushed(x, axis, nothing, reverse)
            if whole is not None or not isinstance(x, Scan) or isinstance(x.x, (Map, Scan)):
                return whole
            if x.exclusive or (x.axis, x.reverse) != (axis, reverse) or not is_nothing(nothing, x.fn):
                return None
            return replace(x, x=Pad(x.x, after, before, value), exclusive=True)
    return None


def exclude_instead_of_subtracting(n: Node) -> Node | None:
    """scan(x) - x  ->  exclusive scan(x), for sums of integers: of floats, it would round otherwise"""
    match n:
        case Map("sub", (Scan("sum", x, _, _, False) as scan, y)) if x is y and x.dtype.kind == "int":
            return replace(scan, exclusive=True)
    return None


def drop_scan_of_one(n: Node) -> Node | None:
    """scan(x) along an axis of extent 1  ->  x; a sum of floats starts from 0, so that -0.0 becomes 0.0"""
    match n:
        case Scan(fn, x, axis, _, exclusive) if x.shape[axis] == 1 and x.dtype.kind in ("float", "int"):
            if exclusive:
                nothing = IDENTITIES[fn]
                return Broadcast(Const(float(nothing) if x.dtype.kind == "float" else nothing, x.dtype), x.shape)
            return Map("add", (x, Const(0.0, x.dtype))) if fn == "sum" and x.dtype.kind == "float" else x
    return None


OPAQUE_RULES = (scan_exclusively,)
VIEW_RULES = (scan_the_other_way, scan_beside_border)
MAP_RULES = (exclude_instead_of_subtracting,)
SCAN_RULES = (drop_scan_of_one,)
