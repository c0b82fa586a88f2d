"""What values a node can have: a node in, the least and the greatest of its values that are not NaN out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kernelwright.ir.dtypes import DType
from kernelwright.ir.nodes import Const, Iota, Map, Node, Table, View
from kernelwright.ir.scalars import Value
from kernelwright.simplify.constants import number

Range: TypeAlias = tuple[Value, Value]

# How far down an expression is looked at; a bound that comes from deeper is not worth finding.
DEPTH = 8

INFINITY = float("inf")

# Functions of floats whose values lie in a range on every device. Not rsqrt: that of -0.0 is -inf.
FLOAT_RANGES: Mapping[str, Range] = {
    "abs": (0.0, INFINITY),
    "exp": (0.0, INFINITY),
    "exp2": (0.0, INFINITY),
    "sqrt": (0.0, INFINITY),
    "cosh": (0.0, INFINITY),
    "hypot": (0.0, INFINITY),
    "sigmoid": (0.0, 1.0),
    "hardsigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "sign": (-1.0, 1.0),
    "logsigmoid": (-INFINITY, 0.0),
}

# Of these, the ones that never give -0.0.
NEVER_MINUS_ZERO = frozenset(("abs", "exp", "exp2", "cosh", "hypot", "sigmoid", "hardsigmoid"))

MANTISSA_BITS: Mapping[str, int] = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


def clamp_of(n: Node) -> tuple[Node, Value, Value] | None:
    """(x, low, high) if n is min(max(x, low), high) with constant bounds; a missing bound is infinite"""
    if not isinstance(n, Map) or n.dtype.kind not in ("float", "int"):
        return None
    x, bounds = n.args[0], [number(a) for a in n.args[1:]]
    lowest, highest = n.dtype.lowest, n.dtype.highest
    zero: Value = 0.0 if n.dtype.kind == "float" else 0
    match n.fn, bounds:
        case "relu", []:
            return x, zero, highest
        case "relu6", []:
            return x, zero, zero + 6
        case "maximum", [low] if low is not None and low == low:
            return x, low, highest
        case "minimum", [high] if high is not None and high == high:
            return x, lowest, high
        case "hardtanh", [low, high] if low is not None and high is not None and low == low and high == high:
            return x, min(low, high), high
    return None


# What is known of some nodes where a condition holds.
NOTHING_KNOWN: Mapping[Node, Range] = {}


def value_range(n: Node, depth: int = DEPTH, known: Mapping[Node, Range] = NOTHING_KNOWN) -> Range:
    """The least and the greatest value n can have where it is not NaN."""
    everything = (n.dtype.lowest, n.dtype.highest)
    if n in known:
        return known[n]
    if depth == 0:
        return everything
    match n:
        case Const():
            value = number(n)
            return everything if value is None or value != value else (value, value)
        case Iota(extent):
            return 0, max(extent - 1, 0)
        case Table(values) if n.dtype.kind == "int" and values:
            return min(values), max(values)
        case View():
            return value_range(n.x, depth - 1, known)
        case Map("where", (condition, a, b)):
            a_low, a_high = value_range(a, depth - 1, {**known, **implied(condition, depth, known)})
            b_low, b_high = value_range(b, depth - 1, {**known, **implied(opposite(condition), depth, known)})
            return min(a_low, b_low), max(a_high, b_high)
        case Map("cast", (x,)):
            return cast_range(x, n.dtype, depth, known)
        case Map():
            return map_range(n, depth, everything, known)
    return everything


OPPOSITES: Mapping[str, str] = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def opposite(condition: Node) -> Node | None:
    """What holds of integers where the condition does not."""
    match condition:
        case Map(fn, (x, y)) if fn in OPPOSITES and x.dtype.kind == "int":
            return Map(OPPOSITES[fn], (x, y))
    return None


def implied(condition: Node | None, depth: int, known: Mapping[Node, Range]) -> dict[Node, Range]:
    """The range of an integer where a comparison with a constant holds."""
    match condition:
        case Map(fn, (x, Const() as bound)) if fn in OPPOSITES and x.dtype.kind == "int":
            low, high = value_range(x, depth - 1, known)
            limit = int(bound.value)
            least, most = {"lt": (low, limit - 1), "le": (low, limit), "ge": (limit, high), "gt": (limit + 1, high)}[fn]
            low, high = max(low, least), min(high, most)
            return {x: (low, high)} if low <= high else {}
    return {}


def cast_range(x: Node, to: DType, depth: int, known: Mapping[Node, Range]) -> Range:
    if x.dtype.kind == "complex":
        return to.lowest, to.highest
    low, high = value_range(x, depth - 1, known)
    fits = represents(to, x.dtype) or (x.dtype.kind == to.kind == "int" and to.lowest <= low and high <= to.highest)
    return (low, high) if fits else (to.lowest, to.highest)


def map_range(n: Map, depth: int, everything: Range, known: Mapping[Node, Range]) -> Range:
    clamp = clamp_of(n)
    if clamp is not None:
        x, low, high = clamp
        inner_low, inner_high = value_range(x, depth - 1, known)
        return min(max(inner_low, low), high), min(max(inner_high, low), high)
    if n.dtype.kind == "float":
        return FLOAT_RANGES.get(n.fn) or arithmetic_range(n, depth, everything)
    if n.dtype.kind == "int":
        return integer_range(n, depth, everything, known)
    return everything


def integer_range(n: Map, depth: int, everything: Range, known: Mapping[Node, Range]) -> Range:
    """Of sums, differences, products and quotients, as long as nothing wraps around."""
    ranges = [value_range(x, depth - 1, known) for x in n.args]
    match n.fn, ranges:
        case "add", [(a, b), (c, d)]:
            ends = [a + c, b + d]
        case "sub", [(a, b), (c, d)]:
            ends = [a - d, b - c]
        case "mul", [(a, b), (c, d)]:
            ends = [a * c, a * d, b * c, b * d]
        case "trunc_divide" | "floor_divide", [(a, b), (c, d)] if a >= 0 and c > 0:
            ends = [a // d, b // c]
        case "fmod" | "remainder", [(a, b), (c, d)] if a >= 0 and c > 0:
            ends = [0, min(b, d - 1)]
        case "abs", [(a, b)]:
            ends = [0 if a <= 0 <= b else min(abs(a), abs(b)), max(abs(a), abs(b))]
        case _:
            return everything
    low, high = min(ends), max(ends)
    return (low, high) if everything[0] <= low and high <= everything[1] else everything


def arithmetic_range(n: Map, depth: int, everything: Range) -> Range:
    """Signs alone: bounds of sums and products would have to be rounded."""
    match n:
        case Map("mul", (x, y)) if x is y:
            return 0.0, INFINITY
        case Map("neg", (x,)):
            low, high = value_range(x, depth - 1)
            return -high, -low
        case Map("add" | "mul" | "div" | "maximum" | "minimum" as fn, (x, y)):
            (x_low, x_high), (y_low, y_high) = value_range(x, depth - 1), value_range(y, depth - 1)
            if fn == "maximum":
                return max(x_low, y_low), max(x_high, y_high)
            if fn == "minimum":
                return min(x_low, y_low), min(x_high, y_high)
            if x_low >= 0 and (y_low > 0 if fn == "div" else y_low >= 0):  # a quotient by -0.0 is -inf
                return 0.0, INFINITY
    return everything


def is_positive_zero_or_more(n: Node) -> bool:
    """NaN, +0.0 or greater, and never -0.0."""
    match n:
        case Map("mul", (x, y)) if x is y:
            return True
        case Map(fn):
            return fn in NEVER_MINUS_ZERO and n.dtype.kind == "float"
        case View():
            return is_positive_zero_or_more(n.x)
    return False


def represents(wide: DType, narrow: DType) -> bool:
    """Every value of `narrow` is a value of `wide`."""
    if wide is narrow or narrow.kind == "bool":
        return True
    if wide.kind == "bool" or "complex" in (wide.kind, narrow.kind):
        return False
    if wide.kind == "int":
        return narrow.kind == "int" and wide.lowest <= narrow.lowest and narrow.highest <= wide.highest
    if narrow.kind == "int":
        return int(narrow.highest).bit_length() <= MANTISSA_BITS[wide.name]
    return wide.itemsize > narrow.itemsize
