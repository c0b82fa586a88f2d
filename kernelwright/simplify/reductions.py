"""Reductions: those of one element or of repeated ones, of reductions and of views, and the monoids of one pass.

Each rule is exact in real arithmetic. One that takes a sum in another order, or rounds less often, says so; the sign of
a sum of zeros is open, as the order of a sum is.
"""

from __future__ import annotations

import math
from collections import Counter

from kernelwright.ir.nodes import Broadcast, Const, Map, Node, Permute, Reduce, Reshape, Shape
from kernelwright.ir.scalars import SCALARS, Value
from kernelwright.simplify.constants import constant, draws_random_numbers, number
from kernelwright.simplify.views import blocks, padded, squeezed

# Reductions of reductions are reductions: their monoids give the value itself, not something made of it.
NESTED = frozenset(("sum", "prod", "max", "min"))
PLACES = frozenset(("argmax", "argmin"))
# What a reduction of n equal elements is: n times that of one.
COUNTING = frozenset(("sum", "deviations", "exponentials"))
OPPOSITE = {"max": "min", "min": "max", "argmax": "argmin", "argmin": "argmax"}


def drop_axes_of_one(n: Node) -> Node | None:
    """fn(x, axes)  ->  fn(x, those longer than 1); of a single element: x, (x - x) ** 2, exp(x - x), place 0

    x - x is 0 or NaN, as a deviation of infinity is. A sum of a single -0.0 keeps its sign, which PyTorch drops.
    """
    match n:
        case Reduce(fn, x, axes):
            long = tuple(axis for axis in axes if x.shape[axis] != 1)
            if long:
                return None if long == axes else Reduce(fn, x, long)
            return of_one(fn, x, n)
    return None


def of_one(fn: str, x: Node, n: Node) -> Node | None:
    if fn in PLACES:
        return None if draws_random_numbers(x) else Broadcast(Const(0, n.dtype), n.shape)
    if fn in NESTED:
        return x
    apart = Map("sub", (x, x))
    return Map("exp", (apart,)) if fn == "exponentials" else Map("mul", (apart, apart))


def reduce_before_repeating(n: Node) -> Node | None:
    """max(broadcast(x))  ->  max(x), sum(broadcast(x))  ->  n * sum(x)  along the axes that repeat, n times together

    The product rounds once where the sum rounds n times.
    """
    match n:
        case Reduce(fn, Broadcast(x, shape), axes) if fn in COUNTING or fn in ("max", "min"):
            source = padded(x.shape, len(shape))
            again = [axis for axis in axes if source[axis] != shape[axis]]
            if not again:
                return None
            short = tuple(1 if axis in again else extent for axis, extent in enumerate(shape))
            rest = Reduce(fn, Reshape(x, short) if math.prod(short) == x.size else Broadcast(x, short), axes)
            times = math.prod(shape[axis] for axis in again)
            if n.dtype.kind == "int" and times > n.dtype.highest:
                return None
            return Map("mul", (rest, constant(times, n.dtype))) if fn in COUNTING else rest
    return None


def repeat_after_reducing(n: Node) -> Node | None:
    """fn(broadcast(x), axes)  ->  broadcast(fn(x, axes))  along the other axes that repeat"""
    match n:
        case Reduce(fn, Broadcast(x, shape), axes):
            source = padded(x.shape, len(shape))
            short = tuple(e if axis in axes or source[axis] == e else 1 for axis, e in enumerate(shape))
            if short == shape:
                return None
            once = x if x.shape == short else Reshape(x, short) if math.prod(short) == x.size else Broadcast(x, short)
            return Broadcast(Reduce(fn, once, axes), n.shape)
    return None


def one_pass_of_exponentials(n: Node) -> Node | None:
    """sum(exp(x - max(x)))  ->  exponentials(x)"""
    match n:
        case Reduce("sum", Map("exp", (Map("sub", (x, largest)),)), axes) if x.dtype.kind == "float":
            row = Reduce("max", x, axes)
            return Reduce("exponentials", x, axes) if is_spread(largest, row) else None
    return None


def one_pass_of_deviations(n: Node) -> Node | None:
    """sum((x - mean(x)) ** 2)  ->  deviations(x)"""
    match n:
        case Reduce("sum", Map("mul", (Map("sub", (x, mean)) as apart, again)), axes) if again is apart:
            return Reduce("deviations", x, axes) if x.dtype.kind == "float" and is_mean(mean, x, axes) else None
    return None


def is_spread(x: Node, row: Node) -> bool:
    """x repeats the value of a row along it: element by element they belong together."""
    source = x.x if isinstance(x, Broadcast) else x
    aligned = padded(source.shape, len(row.shape)) == row.shape
    return aligned and unpacked(source) is row


def is_mean(x: Node, of: Node, axes: Shape) -> bool:
    """x repeats sum(of) / n, or its product with 1 / n where that is exact."""
    source = x.x if isinstance(x, Broadcast) else x
    row = Reduce("sum", of, axes)
    if padded(source.shape, len(row.shape)) != row.shape:
        return False
    match unpacked(source):
        case Map("div", (total, Const() as c)):
            return unpacked(total) is row and number(c) == row.count
        case Map("mul", (total, Const() as c)):
            exact = row.count & (row.count - 1) == 0
            return unpacked(total) is row and exact and number(c) == 1 / row.count
    return False


def unpacked(x: Node) -> Node:
    """x without reshapes that only insert or drop axes of extent 1."""
    while isinstance(x, Reshape) and squeezed(x.shape) == squeezed(x.x.shape):
        x = x.x
    return x


# The rules that follow need to know that nobody else uses what they look into: it would be computed twice. A node that
# has just been made has no known uses, and waits for the next pass.


def merge_reductions(n: Node, uses: Counter[Node]) -> Node | None:
    """fn(fn(x, a), b)  ->  fn(x, a + b)  for sum, prod, max, min; a sum of floats is taken in another order"""
    match n:
        case Reduce(outer, Reduce(inner, x, first) as once, second) if outer == inner and outer in NESTED:
            return Reduce(outer, x, tuple(sorted({*first, *second}))) if uses[once] == 1 else None
    return None


def reduce_before_permuting(n: Node, uses: Counter[Node]) -> Node | None:
    """fn(permute(x, p), axes)  ->  permute(fn(x, p[axes]), p); for places, where p keeps the order of the axes"""
    match n:
        case Reduce(fn, Permute(x, order) as view, axes) if uses[view] == 1:
            moved = [order[axis] for axis in axes]
            if fn in PLACES and moved != sorted(moved):
                return None
            return Permute(Reduce(fn, x, tuple(sorted(moved))), order)
    return None


def reduce_before_reshaping(n: Node, uses: Counter[Node]) -> Node | None:
    """fn(reshape(x), axes)  ->  reshape(fn(x, axes of x))  where the axes hold all of what those of x hold"""
    match n:
        case Reduce(fn, Reshape(x) as view, axes) if uses[view] == 1 and view.size:
            moved: list[int] = []
            for before, after in blocks(x.shape, view.shape):
                inside = [axis in axes for axis in after]
                if any(inside) and not all(inside):
                    return None
                moved += before if all(inside) else ()
            return Reshape(Reduce(fn, x, tuple(sorted(moved))), n.shape) if moved else None
    return None


def sign_after_reducing(n: Node, uses: Counter[Node]) -> Node | None:
    """sum(-x)  ->  -sum(x), max(-x)  ->  -min(x), argmax(-x)  ->  argmin(x); extremes of floats alone: -(-128) wraps"""
    match n:
        case Reduce(fn, Map("neg", (x,)) as negative, axes) if uses[negative] == 1:
            if fn == "sum":
                return Map("neg", (Reduce("sum", x, axes),))
            if fn in OPPOSITE and x.dtype.kind == "float":
                other = Reduce(OPPOSITE[fn], x, axes)
                return other if fn in PLACES else Map("neg", (other,))
    return None


def scale_after_reducing(n: Node, uses: Counter[Node]) -> Node | None:
    """sum(x * c)  ->  sum(x) * c  where |c| >= 1, so that the sum is no larger; it rounds once, not once an element"""
    match n:
        case Reduce("sum", Map("mul", (x, Const() as c)) as product, axes) if uses[product] == 1 and x.shape:
            factor = number(c)
            if isinstance(factor, float) and math.isfinite(factor) and abs(factor) >= 1:
                return Map("mul", (Reduce("sum", x, axes), c))
    return None


def monotone_after_reducing(n: Node, uses: Counter[Node]) -> Node | None:
    """max(f(x))  ->  f(max(x)), and the same for min, where f keeps the order; f(min(x)) where it turns it

    f rounds correctly, so that what is rounded keeps its order too: relu, clamps, floor, x * c, x + c, c - x, ...
    """
    match n:
        case Reduce("max" | "min" as fn, Map(name, args, to) as f, axes) if uses[f] == 1:
            place = moving_operand(f)
            turns = None if place is None else direction(f, place)
            if place is None or turns is None:
                return None
            x = args[place]
            inner = Reduce(fn if turns == "up" else OPPOSITE[fn], x, axes)
            return Map(name, (*args[:place], inner, *args[place + 1 :]), to)
    return None


def moving_operand(f: Map) -> int | None:
    """The one operand that is no constant, of f's own shape."""
    places = [i for i, a in enumerate(f.args) if not isinstance(a, Const)]
    return places[0] if len(places) == 1 and f.args[places[0]].shape == f.shape else None


def direction(f: Map, place: int) -> str | None:
    """Whether f keeps ("up") or turns ("down") the order of this operand, NaN staying NaN; None if neither is sure."""
    row, x = SCALARS[f.fn], f.args[place]
    others = [number(a) for i, a in enumerate(f.args) if i != place]
    if any(c is None or c != c for c in others):
        return None
    if f.fn == "cast":
        return "up" if keeps_order(x, f) else None
    if row.laws.monotone and row.exact and place == 0 and f.dtype is x.dtype:
        ordered = f.fn != "hardtanh" or others[0] <= others[1]  # type: ignore[operator]
        wraps = row.laws.monotone == "down" and x.dtype.kind != "float"
        return row.laws.monotone if ordered and not wraps else None
    return arithmetic_direction(f.fn, place, others, x)


def arithmetic_direction(fn: str, place: int, others: list[Value | None], x: Node) -> str | None:
    """Sums, products and quotients with one finite constant, of floats."""
    if x.dtype.kind != "float" or len(others) != 1 or not isinstance(others[0], float) or not math.isfinite(others[0]):
        return None
    c = others[0]
    if fn == "add" or (fn == "sub" and place == 0):
        return "up"
    if fn == "sub":
        return "down"
    if c != 0 and (fn == "mul" or (fn == "div" and place == 0)):
        return "up" if c > 0 else "down"
    if fn == "leaky_relu" and place == 0 and c > 0:
        return "up"
    return None


def keeps_order(x: Node, f: Map) -> bool:
    """Casts between floats, and from integers, round and so keep order. 16-bit floats are reduced as float32."""
    start, end = x.dtype, f.dtype
    if start.is_reduced_float or end.is_reduced_float or end.kind != "float":
        return False
    return start.kind in ("float", "int")


RULES = (
    drop_axes_of_one,
    reduce_before_repeating,
    repeat_after_reducing,
    one_pass_of_exponentials,
    one_pass_of_deviations,
)
USE_RULES = (
    merge_reductions,
    reduce_before_permuting,
    reduce_before_reshaping,
    sign_after_reducing,
    scale_after_reducing,
    monotone_after_reducing,
)
# Those that a report names: they do not only move work, there is less of it.
ALGEBRAIC = (merge_reductions, monotone_after_reducing)
