"""Pooling: reductions over windows. Two that follow each other become one, and Maps before them are computed after.

What is pooled is in memory, so that each Map that moves out spares a value of the whole shape. Rules about sums are
exact in real arithmetic, for finite numbers.
"""

from __future__ import annotations

import math
from collections import Counter

from kernelwright.ir.nodes import Broadcast, Const, Map, Node, Pad, Reduce, Reshape, Shape, Windows
from kernelwright.ir.scalars import SCALARS
from kernelwright.simplify.constants import constant, fold_constants, number, same_bits
from kernelwright.simplify.reductions import direction, moving_operand
from kernelwright.simplify.views import merge_reshapes, padded, reshape_under_broadcast

# What may be computed once for each window instead of once, in flops of one element: to write it and read it again
# takes longer. An operand counts as two.
MOST_FLOPS_AGAIN = 24
FLOPS_AN_OPERAND = 2


def monotone_after_pooling(n: Node, uses: Counter[Node]) -> Node | None:
    """max(windows(f(x)))  ->  f(max(windows(x))), for f that keeps the order; a border of -inf loses on both sides"""
    match n:
        case Reduce("max", Windows(inner) as windows, axes) if uses[windows] == 1:
            border = inner if isinstance(inner, Pad) and inner.value == -math.inf and uses[inner] == 1 else None
            f = inner if border is None else border.x
            if not isinstance(f, Map) or uses[f] != 1 or not f.shape:
                return None
            place = moving_operand(f)
            if place is None or direction(f, place) != "up" or f.args[place].dtype is not f.dtype:
                return None
            x = f.args[place]
            seen = windows.rebuild((x if border is None else border.rebuild((x,)),))
            return Map(f.fn, (*f.args[:place], Reduce("max", seen, axes), *f.args[place + 1 :]))
    return None


def scale_after_pooling(n: Node, uses: Counter[Node]) -> Node | None:
    """sum(windows(x * r))  ->  sum(windows(x)) * r, sum(windows(x + r))  ->  sum(windows(x)) + n * r; so for / and -

    r is one value for all that a window sees, of which there are n. It rounds once where the elements round each.
    """
    match n:
        case Reduce("sum", Windows(inner) as windows, _) if (
            uses[windows] == uses[inner] == 1 and n.dtype.kind == "float"
        ):
            f = map_of(inner, uses)
            if f is None or f.fn not in ("mul", "div", "add", "sub"):
                return None
            fn, (x, r) = f.fn, f.args
            if is_one_value(x, windows) and fn in ("mul", "add"):
                x, r = r, x
            if x.shape != f.shape or isinstance(x, Broadcast) or not is_one_value(r, windows):
                return None
            times = math.prod(windows.window) if fn in ("add", "sub") else 1
            return Map(fn, (n.rebuild((windows.rebuild((x,)),)), seen_by_window(r, times, windows, n)))
    return None


def map_of(x: Node, uses: Counter[Node]) -> Map | None:
    """x as a Map: it is one, or a reshape of one that nobody else needs."""
    match x:
        case Map():
            return x
        case Reshape(Map(fn, args, to) as f, shape) if uses[f] == 1 and f.shape:
            return Map(fn, tuple(reshaped(a, shape) for a in args), to)
    return None


def reshaped(x: Node, shape: Shape) -> Node:
    view = Reshape(x, shape) if x.shape else x
    return reshape_under_broadcast(view) or merge_reshapes(view) or view


def is_one_value(r: Node, windows: Windows) -> bool:
    """A finite number, a scalar, or a value that repeats along the axes of the windows."""
    if isinstance(r, Const):
        value = number(r)
        return isinstance(value, float) and math.isfinite(value) and value != 0
    if not isinstance(r, Broadcast):
        return r.shape == ()
    source = padded(r.x.shape, len(r.shape))
    return all(source[axis] == 1 for axis in windows.axes)


def seen_by_window(r: Node, times: int, windows: Windows, n: Reduce) -> Node:
    """The value so many times, in the shape of what is pooled: the positions, and the axes of the windows as ones."""
    value = r.x if isinstance(r, Broadcast) else r
    value = value if times == 1 else Map("mul", (value, constant(times, n.dtype)))
    if not isinstance(r, Broadcast):
        return value
    return Broadcast(Reshape(value, (*padded(value.shape, len(r.shape)), *(1 for _ in windows.axes))), n.shape)


def merge_pools(n: Node, uses: Counter[Node]) -> Node | None:
    """pool(pool(x, k, s), l, t)  ->  pool(x, (l - 1) * s + k, s * t), with a factor between

    Of max, where the inner windows leave no gaps; of sums, where they do not meet either.
    """
    match n:
        case Reduce("max" | "sum" as fn, Windows(inner) as outer, axes) if set(outer.dilation) == {1}:
            factor, pooled = scaled_pool(inner) if fn == "sum" else (None, inner)
            match pooled:
                case Reshape(Reduce(same, Windows(x) as first, first_axes) as once, shape) if same == fn:
                    alone = all(uses[v] == 1 for v in {outer, inner, pooled, once, first})
                    trailing = axes == first_axes == tuple(range(len(shape), len(shape) + len(first.axes)))
                    fits = outer.axes == first.axes and set(first.dilation) == {1} and shape == once.shape[: len(shape)]
                    if not (alone and trailing and fits and covers(fn, first)):
                        return None
                    merged = Reduce(fn, merged_windows(x, first, outer), axes)
                    return merged if factor is None else Map("mul", (merged, factor))
    return None


def scaled_pool(x: Node) -> tuple[Const | None, Node]:
    """The factor that the inner pool is multiplied by, and the pool."""
    match x:
        case Map("mul", (pooled, Const() as c)):
            return c, pooled
    return None, x


def covers(fn: str, first: Windows) -> bool:
    """The inner windows leave nothing out; of a sum, they have nothing twice."""
    pairs = list(zip(first.stride, first.window, strict=True))
    return all(s == k for s, k in pairs) if fn == "sum" else all(s <= k for s, k in pairs)


def merged_windows(x: Node, first: Windows, outer: Windows) -> Windows:
    sizes = zip(first.window, first.stride, outer.window, strict=True)
    window = tuple((again - 1) * stride + once for once, stride, again in sizes)
    stride = tuple(s * t for s, t in zip(first.stride, outer.stride, strict=True))
    return Windows(x, first.axes, window, stride, first.dilation)


def maps_into_windows(n: Node, uses: Counter[Node]) -> Node | None:
    """reduce(windows(f(x)))  ->  reduce(f(windows(x))), for f so cheap that it may be computed for each window that
    sees it; over a border that f leaves as it is"""
    match n:
        case Reduce(_, Windows(inner) as windows) if uses[windows] == 1:
            border = inner if isinstance(inner, Pad) and uses[inner] == 1 else None
            f = inner if border is None else border.x
            if not isinstance(f, Map) or not moves_in(f, border, uses):
                return None
            again = max(1.0, windows.size / max(f.size, 1))
            if again * chain_cost(f, border, uses) > MOST_FLOPS_AGAIN:
                return None
            return n.rebuild((seen_through_windows(f, windows, border, uses),))
    return None


def moves_in(x: Node, border: Pad | None, uses: Counter[Node]) -> bool:
    """A Map that nobody else needs. Over a border, of one operand and constants, that gives the border again."""
    if not isinstance(x, Map) or not x.shape or uses[x] != 1:
        return False
    if border is None:
        return True
    value = Const(border.value, x.args[0].dtype)
    folded = fold_constants(Map(x.fn, tuple(a if isinstance(a, Const) else value for a in x.args), x.to))
    alone = sum(not isinstance(a, Const) for a in x.args) == 1
    return alone and x.args[0].dtype is x.dtype and folded is not None and same_bits(number(folded), number(value))


def chain_cost(x: Node, border: Pad | None, uses: Counter[Node]) -> int:
    """Of all Maps that move in with x."""
    if not isinstance(x, Map) or not moves_in(x, border, uses):
        return 0 if isinstance(x, Const) else FLOPS_AN_OPERAND
    return SCALARS[x.fn].flops + sum(chain_cost(a, border, uses) for a in x.args)


def seen_through_windows(x: Node, windows: Windows, border: Pad | None, uses: Counter[Node]) -> Node:
    if isinstance(x, Map) and moves_in(x, border, uses):
        seen = (a if not a.shape else seen_through_windows(a, windows, border, uses) for a in x.args)
        return Map(x.fn, tuple(seen), x.to)
    return windows.rebuild((x if border is None else border.rebuild((x,)),))


# What changes no bit, but where it is computed.
MOTION = (maps_into_windows,)
USE_RULES = (monotone_after_pooling, scale_after_pooling, merge_pools)
