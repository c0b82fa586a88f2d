"""Clamps: relu, relu6, hardtanh, and minimum and maximum with a constant, as min(max(x, low), high)."""

from __future__ import annotations

from collections import Counter

from kernelwright.ir.dtypes import DType, bool_
from kernelwright.ir.nodes import Const, Map, Node
from kernelwright.ir.scalars import Value
from kernelwright.simplify.constants import constant, draws_random_numbers, is_power_of_two, number, rounded
from kernelwright.simplify.ranges import clamp_of, is_positive_zero_or_more, value_range


def clamp(x: Node, low: Value, high: Value) -> Node:
    """min(max(x, low), high) in the shortest words; NaN stays NaN."""
    bounded_below, bounded_above = low != x.dtype.lowest, high != x.dtype.highest
    if not bounded_below and not bounded_above:
        return x
    if low == 0 and not bounded_above:
        return Map("relu", (x,))
    if low == 0 and high == 6:
        return Map("relu6", (x,))
    if not bounded_above:
        return Map("maximum", (x, constant(low, x.dtype)))
    if not bounded_below:
        return Map("minimum", (x, constant(high, x.dtype)))
    return Map("hardtanh", (x, constant(low, x.dtype), constant(high, x.dtype)))


def merge_clamps(n: Node) -> Node | None:
    """clamp(clamp(x, a, b), c, d)  ->  clamp(x, clamp(a, c, d), clamp(b, c, d))"""
    outer = clamp_of(n)
    if outer is None:
        return None
    middle, low, high = outer
    inner = clamp_of(middle)
    if inner is None:
        return None
    x, inner_low, inner_high = inner
    return clamp(x, min(max(inner_low, low), high), min(max(inner_high, low), high))


def drop_needless_bounds(n: Node) -> Node | None:
    """clamp(x, a, b)  ->  x  where a <= x <= b already, and one bound alone where only the other can bind"""
    found = clamp_of(n)
    if found is None or isinstance(found[0], Const):
        return None
    x, low, high = found
    least, greatest = value_range(x)
    shorter = clamp(x, x.dtype.lowest if least >= low else low, x.dtype.highest if greatest <= high else high)
    return None if shorter is n else shorter


def drop_leak(n: Node) -> Node | None:
    """leaky_relu(x, slope)  ->  x  where x >= 0 already and the slope is no negative number"""
    match n:
        case Map("leaky_relu", (x, Const() as c)):
            slope = number(c)
            harmless = isinstance(slope, float) and 0 <= slope < float("inf")
            return x if harmless and value_range(x)[0] >= 0 else None
    return None


def drop_absolute_value(n: Node) -> Node | None:
    """abs(x)  ->  x  where x is NaN, +0.0 or greater"""
    match n:
        case Map("abs", (x,)) if is_positive_zero_or_more(x):
            return x
    return None


def decide_comparison(n: Node) -> Node | None:
    """x < c  ->  true or false  where every value x can have says so; x is an integer"""
    match n:
        case Map("lt" | "le" | "gt" | "ge" as fn, (x, Const() as c)) if x.dtype.kind == "int":
            ends = [compared(fn, int(end), int(c.value)) for end in value_range(x)]
            return Const(ends[0], bool_) if ends[0] == ends[1] and not draws_random_numbers(x) else None
    return None


def compared(fn: str, a: int, b: int) -> bool:
    return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[fn]


def scale_after_clamping(n: Node, uses: Counter[Node]) -> Node | None:
    """clamp(x * c, a, b)  ->  clamp(x, a / c, b / c) * c  where c is a positive power of two and the bounds stay exact

    Rounding keeps order, and the bounds are numbers of the dtype, so that both sides round the same product. Further
    out the factor may meet another one. A product that is used elsewhere stays, as it would be computed twice.
    """
    match clamp_of(n):
        case (Map("mul", (x, Const() as c)) as product, low, high) if not isinstance(x, Const) and uses[product] <= 1:
            factor = number(c)
            if isinstance(factor, float) and is_power_of_two(factor, x.dtype) and factor > 0:
                bounds = [float(bound) / factor for bound in (low, high)]
                exact = all(keeps_its_digits(b, factor, x.dtype) for b in bounds)
                return Map("mul", (clamp(x, bounds[0], bounds[1]), c)) if exact else None
    return None


def keeps_its_digits(bound: float, factor: float, dtype: DType) -> bool:
    """The bound divided by a power of two is a number of the dtype, and multiplied again it is the bound."""
    return rounded(bound, dtype) == bound and rounded(bound * factor, dtype) == bound * factor


RULES = (merge_clamps, drop_needless_bounds, drop_leak, drop_absolute_value, decide_comparison)
USE_RULES = (scale_after_clamping,)
