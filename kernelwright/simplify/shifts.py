"""Shifts that cancel: a parameter added to a whole row before the row's largest or mean is subtracted from it.

Exact in real arithmetic, for finite parameters; it rounds less often, as the shift is never added.
"""

from __future__ import annotations

from collections import Counter

from kernelwright.ir.nodes import Broadcast, Const, Map, Node, Param, Reduce, Reshape, Shape, View
from kernelwright.simplify.constants import constant
from kernelwright.simplify.reductions import is_mean, is_spread, unpacked
from kernelwright.simplify.views import padded


def drop_shift_under_reduction(n: Node, uses: Counter[Node]) -> Node | None:
    """deviations(x + r)  ->  deviations(x), exponentials(x + r)  ->  exponentials(x)  for a parameter r of the row"""
    match n:
        case Reduce("deviations" | "exponentials" as fn, x, axes):
            plain = unshifted(x, axes)
            return None if plain is None else Reduce(fn, plain, axes)
    return None


def drop_shift_that_cancels(n: Node, uses: Counter[Node]) -> Node | None:
    """(x + r) - max(x + r)  ->  x - max(x), (x + r) - mean(x + r)  ->  x - mean(x)  for a parameter r of the row

    Where the mean is needed for itself, as for running statistics, it stays: there would be two of them.
    """
    match n:
        case Map("sub", (x, Broadcast(source) as spread)) if uses[source] == 1:
            row = unpacked(source)
            reduced = row.args[0] if isinstance(row, Map) and row.fn in ("div", "mul") else row
            total = unpacked(reduced)
            if not isinstance(total, Reduce) or total.x is not x or uses[row] != 1:
                return None
            plain = unshifted(x, total.axes)
            is_row = is_spread(spread, total) if total.fn == "max" else is_mean(spread, x, total.axes)
            if plain is None or total.fn not in ("max", "sum") or not is_row:
                return None
            again = Reduce(total.fn, plain, total.axes)
            value = again if not isinstance(row, Map) else Map(row.fn, (again, *row.args[1:]))
            return Map("sub", (plain, Broadcast(value, n.shape)))
    return None


def shift_after_mean(n: Node, uses: Counter[Node]) -> Node | None:
    """mean(x + r)  ->  mean(x) + r  for a parameter r of the row, where x has its deviations taken without it too"""
    match n:
        case Map("div" | "mul" as fn, (total, Const() as c)):
            row = unpacked(total)
            if not isinstance(row, Reduce) or row.fn != "sum" or not is_mean(Reshape(n, row.shape), row.x, row.axes):
                return None
            plain = unshifted(row.x, row.axes)
            if plain is None or not uses[Reduce("deviations", plain, row.axes)]:
                return None
            again = Reshape(Reduce("sum", plain, row.axes), n.shape)
            return Map("add", (Map(fn, (again, c)), Reshape(shift_of(row.x, row), n.shape)))
    return None


def shift_of(x: Node, row: Reduce) -> Node:
    """The shift of x, in the shape of its rows."""
    assert isinstance(x, Map)
    shift = next(r for r in reversed(x.args) if is_shift(r, row.axes))
    assert isinstance(shift, Broadcast)
    value = shift.x if x.fn == "add" else Map("neg", (shift.x,))
    return Broadcast(Reshape(value, padded(value.shape, len(row.shape))), row.shape)


def drop_shift_of_both(n: Node, uses: Counter[Node]) -> Node | None:
    """(x + r) - (m + r)  ->  x - m  for a parameter r, where m repeats"""
    match n:
        case Map("sub", (Map("add", (x, Broadcast(r))), Broadcast(source))):
            both = unpacked(source)
            if not isinstance(both, Map) or both.fn != "add" or not isinstance(base_of(r), Param):
                return None
            m, shift = both.args
            aligned = padded(source.shape, len(n.shape)) == padded(r.shape, len(n.shape))
            if not aligned or x.shape != n.shape or unpacked(shift) is not unpacked(r):
                return None
            return Map("sub", (x, Broadcast(Reshape(m, source.shape), n.shape)))
    return None


def centre_before_scaling(n: Node, uses: Counter[Node]) -> Node | None:
    """(x - m) * s - mean((x - m) * s)  ->  (x - mean(x)) * s  for rows that m and s are one value of

    m is the mean of x over more than the row, and s is made of the deviations of x over the same axes: where m is not
    finite, s is NaN on both sides.
    """
    match n:
        case Map("sub", (Map("mul", (Map("sub", (x, Broadcast(m) as whole_mean)), Broadcast(s) as scale)) as y, last)):
            if not isinstance(last, Broadcast):
                return None
            mean = last.x
            total = row_of_mean(mean)
            whole = row_of_mean(m)
            if total is None or whole is None or total.x is not y or whole.x is not x or uses[mean] != 1:
                return None
            if not is_mean(last, y, total.axes) or not is_mean(whole_mean, x, whole.axes):
                return None
            kinds = (padded(v.shape, len(n.shape)) for v in (m, s))
            once = all(shape[axis] == 1 for shape in kinds for axis in total.axes)
            if not once or not set(total.axes) < set(whole.axes) or not carries(s, Reduce("deviations", x, whole.axes)):
                return None
            centre = Map("div", (Reduce("sum", x, total.axes), constant(total.count, x.dtype)))
            return Map("mul", (Map("sub", (x, Broadcast(centre, x.shape))), scale))
    return None


def row_of_mean(source: Node) -> Reduce | None:
    match unpacked(source):
        case Map("div" | "mul", (total, Const())):
            row = unpacked(total)
            return row if isinstance(row, Reduce) and row.fn == "sum" else None
    return None


# Functions of which the result is NaN where an operand is.
KEEP_NAN = frozenset(("add", "sub", "mul", "div", "rsqrt", "sqrt", "neg", "reciprocal"))


def carries(x: Node, what: Node) -> bool:
    """Whether x is NaN where `what` is: it is made of it, by functions that keep a NaN."""
    if x is what:
        return True
    if isinstance(x, View):
        return carries(x.x, what)
    return isinstance(x, Map) and x.fn in KEEP_NAN and any(carries(a, what) for a in x.args)


def unshifted(x: Node, axes: Shape) -> Node | None:
    """What is shifted: x of x + r, r + x and x - r, where r is a parameter and one value along the axes."""
    match x:
        case Map("add", (y, r)) if is_shift(r, axes):
            return y if y.shape == x.shape else None
        case Map("add", (r, y)) if is_shift(r, axes):
            return y if y.shape == x.shape else None
        case Map("sub", (y, r)) if is_shift(r, axes):
            return y if y.shape == x.shape else None
    return None


def is_shift(r: Node, axes: Shape) -> bool:
    if not isinstance(r, Broadcast):
        return False
    source = padded(r.x.shape, len(r.shape))
    return isinstance(base_of(r), Param) and all(source[axis] == 1 for axis in axes)


def base_of(x: Node) -> Node:
    while isinstance(x, View):
        x = x.x
    return x


USE_RULES = (
    drop_shift_under_reduction,
    drop_shift_that_cancels,
    shift_after_mean,
    drop_shift_of_both,
    centre_before_scaling,
)
