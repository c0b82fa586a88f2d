"""Casts: chains of them become one where the step in between loses nothing."""

from __future__ import annotations

from kernelwright.ir.dtypes import DType
from kernelwright.ir.nodes import Map, Node
from kernelwright.simplify.ranges import represents


def drop_cast_to_own_dtype(n: Node) -> Node | None:
    """cast(x : t, t)  ->  x"""
    match n:
        case Map("cast", (x,), to) if x.dtype is to:
            return x
    return None


def merge_casts(n: Node) -> Node | None:
    """cast(cast(x, wide), t)  ->  cast(x, t)  where every value of x is one of `wide`"""
    match n:
        case Map("cast", (Map("cast", (x,), wide),), to) if wide is not None and to is not None:
            return Map("cast", (x,), to) if passes_through(x.dtype, wide, to) else None
    return None


def passes_through(start: DType, middle: DType, end: DType) -> bool:
    if "complex" in (start.kind, middle.kind, end.kind):
        return False
    if end.kind == "bool" and start.kind == "int" and middle.kind == "float":
        return True  # no integer but zero rounds to zero
    if start.kind == "int" and middle.kind == "float" and end.kind == "int":
        return represents(middle, start) and represents(end, start)  # a float that does not fit an integer is undefined
    return represents(middle, start)


RULES = (drop_cast_to_own_dtype, merge_casts)
