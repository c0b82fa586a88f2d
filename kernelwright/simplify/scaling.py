"""Multiplication and division by constants, and powers with constant exponents.

Scaling by a power of two is exact, so such factors merge. The merged form gives the correctly rounded value of what the
two steps say; they can only differ where the step in between overflows or falls below the normal numbers, and there
the merged form is the accurate one.
"""

from __future__ import annotations

from kernelwright.ir.nodes import Broadcast, Const, Map, Node
from kernelwright.simplify.constants import constant, draws_random_numbers, is_power_of_two, number, rounded
from kernelwright.simplify.ranges import is_positive_zero_or_more


def multiply_instead_of_dividing(n: Node) -> Node | None:
    """x / c  ->  x * (1 / c)  where c and 1 / c are powers of two"""
    match n:
        case Map("div", (x, Const() as c)) if not isinstance(x, Const):
            value = number(c)
            if is_power_of_two(value, x.dtype) and isinstance(value, float) and is_power_of_two(1 / value, x.dtype):
                return Map("mul", (x, constant(1 / value, x.dtype)))
    return None


def merge_factors(n: Node) -> Node | None:
    """(x * a) * b  ->  x * (a * b)  for powers of two, of float; integers merge by `merge_constants`"""
    match n:
        case Map("mul", (Map("mul", (x, Const() as a)), Const() as b)) if x.dtype.kind == "float":
            first, second = number(a), number(b)
            if isinstance(first, float) and isinstance(second, float):
                powers = all(is_power_of_two(f, x.dtype) for f in (first, second, first * second))
                return Map("mul", (x, constant(first * second, x.dtype))) if powers else None
    return None


def merge_multiples(n: Node) -> Node | None:
    """x * a + x  ->  x * (a + 1)  where a is a positive power of two and a + 1 needs no rounding"""
    match n:
        case Map("add", (Map("mul", (x, Const() as a)), y)) | Map("add", (y, Map("mul", (x, Const() as a)))):
            factor = number(a)
            if x is y and is_power_of_two(factor, x.dtype) and isinstance(factor, float) and factor > 0:
                whole = factor + 1
                exact = rounded(whole, x.dtype) == whole and whole - 1 == factor and whole - factor == 1
                return Map("mul", (x, constant(whole, x.dtype))) if exact else None
    return None


def multiply_instead_of_squaring(n: Node) -> Node | None:
    """x ** 2  ->  x * x, x ** 3  ->  x * x * x, as PyTorch itself does for a number as exponent"""
    match n:
        case Map("pow", (x, Const() as c)) if number(c) == 2:
            return Map("mul", (x, x))
        case Map("pow", (x, Const() as c)) if number(c) == 3:
            return Map("mul", (Map("mul", (x, x)), x))
    return None


def reciprocal_instead_of_power(n: Node) -> Node | None:
    """x ** -1  ->  reciprocal(x)  for floats"""
    match n:
        case Map("pow", (x, Const() as c)) if x.dtype.kind == "float" and number(c) == -1:
            return Map("reciprocal", (x,))
    return None


def one_instead_of_zeroth_power(n: Node) -> Node | None:
    """x ** 0  ->  1, for NaN too, as IEEE has it"""
    match n:
        case Map("pow", (x, Const() as c)) if number(c) == 0 and not draws_random_numbers(x):
            one = constant(1, x.dtype)
            return Broadcast(one, n.shape) if n.shape else one
    return None


def root_instead_of_power(n: Node) -> Node | None:
    """x ** 0.5  ->  sqrt(x)  where x >= +0: the power of -0.0 is 0.0 and of -inf is inf, the root of neither is"""
    match n:
        case Map("pow", (x, Const() as c)) if number(c) == 0.5 and is_positive_zero_or_more(x):
            return Map("sqrt", (x,))
    return None


RULES = (
    multiply_instead_of_dividing,
    merge_factors,
    merge_multiples,
    multiply_instead_of_squaring,
    reciprocal_instead_of_power,
    one_instead_of_zeroth_power,
    root_instead_of_power,
)
