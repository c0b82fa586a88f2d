"""Constants: what a number is once it is rounded to its dtype, and functions of constants computed ahead."""

from __future__ import annotations

import math

import torch

from kernelwright.ir.dtypes import DType
from kernelwright.ir.interpret import evaluate
from kernelwright.ir.nodes import Broadcast, Const, Map, Node, Permute, Reshape, Slice, Table, identity_key, walk
from kernelwright.ir.scalars import SCALARS, Value

# Float functions with jumps: computed in double and rounded, they could land on the other side of one.
WITH_JUMPS = frozenset(("floor_divide", "remainder"))
DIVISIONS = frozenset(("floor_divide", "trunc_divide", "remainder", "fmod"))
SHIFTS = frozenset(("shift_left", "shift_right"))


def number(node: Node) -> Value | None:
    """The value a Const has in its dtype; None for any other node."""
    return rounded(node.value, node.dtype) if isinstance(node, Const) else None


def constant(value: Value, dtype: DType) -> Const:
    """A Const spelled in the fewest digits that give this value in this dtype: 0.1, not 0.10000000149011612."""
    exact = rounded(value, dtype)
    if dtype.kind != "float" or not math.isfinite(exact) or dtype.itemsize == 8:
        return Const(exact, dtype)
    spellings = (float(f"{exact:.{digits}g}") for digits in range(1, 18))
    return Const(next(s for s in spellings if rounded(s, dtype) == exact), dtype)


def rounded(value: Value, dtype: DType) -> Value:
    result: Value = torch.tensor(value, dtype=dtype.to_torch()).item()
    return math.nan if result != result else result


def is_power_of_two(value: object, dtype: DType) -> bool:
    """Plus or minus 2**k, of normal size in `dtype`, as some devices flush smaller numbers to zero."""
    if not isinstance(value, float) or not math.isfinite(value) or value == 0:
        return False
    sizes = torch.finfo(dtype.to_torch())
    return abs(math.frexp(value)[0]) == 0.5 and sizes.tiny <= abs(value) <= sizes.max


def same_bits(a: Value | None, b: Value | None) -> bool:
    """0.0 is not -0.0, 1 is not True, and NaN is NaN whatever its payload."""
    return identity_key(a) == identity_key(b) or (a != a and b != b)


def spell_constant(n: Node) -> Node | None:
    """0.10000000149011612 : float32  ->  0.1"""
    match n:
        case Const(value, dtype) if dtype.kind != "complex":
            shortest = constant(value, dtype)
            return None if shortest is n else shortest
    return None


def fold_constants(n: Node) -> Node | None:
    """f(c1, c2, ...)  ->  the constant that it is"""
    match n:
        case Map(_, args) if all(isinstance(a, Const) for a in args) and foldable(n):
            return constant(computed(n, [rounded(a.value, a.dtype) for a in args if isinstance(a, Const)]), n.dtype)
    return None


def computed(n: Map, values: list[Value]) -> Value:
    """An exact function in its own dtype, which is the same on every device; another one in double, then rounded."""
    dtypes = [a.dtype.to_torch() for a in n.args]
    if n.to is not None:
        return torch.tensor(values[0], dtype=dtypes[0]).to(n.to.to_torch()).item()
    row = SCALARS[n.fn]
    wide = [t if row.exact or not t.is_floating_point else torch.float64 for t in dtypes]
    return row.torch(*(torch.tensor(v, dtype=t) for v, t in zip(values, wide, strict=True))).item()


def foldable(n: Map) -> bool:
    """The result is one number, the same on every device: no undefined operation, no last bit that may differ."""
    dtype = n.args[-1].dtype
    if dtype.kind == "complex" or n.dtype.kind == "complex":
        return False
    if n.fn == "cast":
        return cast_is_defined(number(n.args[0]), n.dtype)
    if dtype.kind == "int":
        return integer_is_defined(n.fn, [int(number(a) or 0) for a in n.args], dtype)
    row = SCALARS[n.fn]
    return row.exact or dtype.kind == "bool" or (dtype.itemsize < 8 and n.fn not in WITH_JUMPS)


def cast_is_defined(value: Value | None, to: DType) -> bool:
    """A float must fit into the integer it is cut to; C++ leaves the rest open, and devices differ."""
    if not isinstance(value, float) or to.kind != "int":
        return True
    return math.isfinite(value) and to.lowest <= math.trunc(value) <= to.highest


def integer_is_defined(fn: str, values: list[int], dtype: DType) -> bool:
    if fn in DIVISIONS:
        return values[1] != 0 and not (values[1] == -1 and values[0] == dtype.lowest)
    if fn in SHIFTS:
        return 0 <= values[1] < 8 * dtype.itemsize
    return fn != "pow" or values[1] >= 0


def fold_table(n: Node) -> Node | None:
    """f(table, ...), reshape(table), permute(table), slice(table)  ->  the table that it is, f being exact"""
    match n:
        case Map(fn, args) if SCALARS[fn].exact and n.dtype.kind != "complex" and n.args[-1].dtype.kind == "float":
            constant_operands = all(isinstance(a, (Const, Table)) for a in args)
            defined = fn != "cast" or n.dtype.kind != "int"
            return tabulated(n) if constant_operands and defined and n.shape else None
        case Reshape(Table()) | Permute(Table()) | Slice(Table()):
            return tabulated(n)
    return None


def tabulated(n: Node) -> Table:
    values = evaluate([n], {})[n].flatten().tolist()
    return Table(tuple(values), n.shape, n.dtype)


def spread_uniform_table(n: Node) -> Node | None:
    """table(c, c, ..., c)  ->  broadcast(c)"""
    match n:
        case Table((first, *rest), shape, dtype) if dtype.kind != "complex":
            if all(same_bits(first, value) for value in rest):
                return Broadcast(Const(first, dtype), shape) if shape else Const(first, dtype)
    return None


def draws_random_numbers(x: Node) -> bool:
    """Such a value may not be dropped: the numbers that later draws get would change."""
    return any(getattr(n, "is_random", False) for n in walk((x,)))


RULES = (spell_constant, fold_constants, fold_table, spread_uniform_table)
