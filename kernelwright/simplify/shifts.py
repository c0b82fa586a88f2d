"""Shifts that cancel: a parameter added to a whole row before the row's largest or mean is subtracted from it.

Exact in real arithmetic, for finite parameters; it rounds less often, as the shift is never added.
"""

from __future__ import annotations

from collections import Counter

from kernelwright.ir.nodes import Broadcast, Map, Node, Param, Reduce, Shape, View
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
    base: Node = r
    while isinstance(base, View):
        base = base.x
    return isinstance(base, Param) and all(source[axis] == 1 for axis in axes)


USE_RULES = (drop_shift_under_reduction, drop_shift_that_cancels)
