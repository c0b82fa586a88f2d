"""Scalar algebra that holds bit for bit for every operand, NaN, infinities and -0.0 included.

Most rules read the laws in the table of scalar functions, so that a new function brings its own.
"""

from __future__ import annotations

from kernelwright.ir.nodes import Const, Map, Node
from kernelwright.ir.scalars import SCALARS, Kinds, Laws
from kernelwright.simplify.constants import constant, draws_random_numbers, number, same_bits


def laws(fn: str) -> Laws:
    return SCALARS[fn].laws


def holds(law: Kinds, x: Node) -> bool:
    return x.dtype.kind in law


def drop_identity(n: Node) -> Node | None:
    """identity(x)  ->  x; where a tensor of its own is needed, `ownership` puts it back"""
    match n:
        case Map("identity", (x,)):
            return x
    return None


def constant_to_the_right(n: Node) -> Node | None:
    """f(c, x)  ->  f(x, c)  for commutative f"""
    match n:
        case Map(fn, (Const() as c, x)) if not isinstance(x, Const) and holds(laws(fn).commutative, x):
            return Map(fn, (x, c))
    return None


def drop_neutral_element(n: Node) -> Node | None:
    """f(x, e)  ->  x: x + -0.0, x - 0.0, x * 1, x / 1, x ** 1, min(x, inf), x & ~0, ..."""
    match n:
        case Map(fn, (x, Const() as c)) if n.dtype is x.dtype:
            e = SCALARS[fn].right_identity(x.dtype) if x.dtype.kind != "complex" else None
            return x if e is not None and same_bits(number(c), e) else None
    return None


def merge_constants(n: Node) -> Node | None:
    """f(f(x, a), b)  ->  f(x, f(a, b))  for associative f: min and max, integer + and *, bit operations"""
    match n:
        case Map(outer, (Map(inner, (x, Const() as a)), Const() as b)) if outer == inner and not isinstance(x, Const):
            return Map(outer, (x, Map(outer, (a, b)))) if holds(laws(outer).associative, x) else None
    return None


def cancel_involution(n: Node) -> Node | None:
    """f(f(x))  ->  x: -(-x), not not x, ~~x"""
    match n:
        case Map(outer, (Map(inner, (x,)),)) if outer == inner and holds(laws(outer).involution, x):
            return x if n.dtype is x.dtype else None
    return None


def collapse_idempotent(n: Node) -> Node | None:
    """f(f(x))  ->  f(x): relu, abs, floor, ..., with the same attributes"""
    match n:
        case Map(outer, (Map(inner, (x, *once)) as kept, *twice)) if outer == inner and SCALARS[outer].arity != 2:
            return kept if once == twice and holds(laws(outer).idempotent, x) else None
    return None


def collapse_equal_operands(n: Node) -> Node | None:
    """f(x, x)  ->  x: min, max, and, or"""
    match n:
        case Map(fn, (x, y)) if x is y and n.dtype is x.dtype and holds(laws(fn).idempotent, x):
            return x
    return None


def collapse_repeated_operand(n: Node) -> Node | None:
    """f(f(x, y), y)  ->  f(x, y), f(f(x, y), x)  ->  f(x, y)  for f that is also associative and commutative"""
    match n:
        case Map(outer, (Map(inner, (x, y)) as kept, z)) | Map(outer, (z, Map(inner, (x, y)) as kept)):
            law = laws(outer)
            known = law.idempotent & law.associative & law.commutative
            return kept if outer == inner and (z is x or z is y) and holds(known, z) else None
    return None


def drop_sign_under_even(n: Node) -> Node | None:
    """f(-x)  ->  f(x)  for even f: abs, cos, cosh, isnan; not of unsigned integers, where abs(-1) is 255"""
    match n:
        case Map(fn, (Map("neg", (x,)),)) if holds(laws(fn).even, x) and x.dtype.lowest != 0:
            return Map(fn, (x,))
    return None


def cancel_signs_around_odd(n: Node) -> Node | None:
    """-f(-x)  ->  f(x)  for odd f: sin, tanh, erf, round"""
    match n:
        case Map("neg", (Map(fn, (Map("neg", (x,)),)),)) if holds(laws(fn).odd, x):
            return Map(fn, (x,))
    return None


def subtract_instead_of_adding_negative(n: Node) -> Node | None:
    """x + -y  ->  x - y, -x + y  ->  y - x"""
    match n:
        case Map("add", (x, Map("neg", (y,)))) | Map("add", (Map("neg", (y,)), x)):
            return Map("sub", (x, y))
    return None


def add_instead_of_subtracting_negative(n: Node) -> Node | None:
    """x - -y  ->  x + y"""
    match n:
        case Map("sub", (x, Map("neg", (y,)))):
            return Map("add", (x, y))
    return None


def cancel_signs_of_factors(n: Node) -> Node | None:
    """-x * -y  ->  x * y, -x / -y  ->  x / y"""
    match n:
        case Map("mul" | "div" as fn, (Map("neg", (x,)), Map("neg", (y,)))):
            return Map(fn, (x, y))
    return None


def sign_into_constant(n: Node) -> Node | None:
    """-x * c  ->  x * -c, -(x * c)  ->  x * -c, and the same for /"""
    match n:
        case Map("mul" | "div" as fn, (Map("neg", (x,)), Const() as c)):
            return Map(fn, (x, Map("neg", (c,))))
        case Map("neg", (Map("mul" | "div" as fn, (x, Const() as c)),)) if x.dtype.kind == "float":
            return Map(fn, (x, Map("neg", (c,))))
    return None


def negate_instead_of_minus_one(n: Node) -> Node | None:
    """x * -1  ->  -x, x / -1  ->  -x"""
    match n:
        case Map("mul" | "div", (x, Const() as c)) if number(c) == -1 and not isinstance(x, Const):
            return Map("neg", (x,))
    return None


def add_instead_of_subtracting_integer(n: Node) -> Node | None:
    """x - c  ->  x + -c  for integers, where it lets constants merge"""
    match n:
        case Map("sub", (x, Const() as c)) if x.dtype.kind == "int" and not isinstance(x, Const):
            return Map("add", (x, Map("neg", (c,))))
    return None


def reciprocal_instead_of_division(n: Node) -> Node | None:
    """1 / x  ->  reciprocal(x)"""
    match n:
        case Map("div", (Const() as c, x)) if number(c) == 1 and not isinstance(x, Const):
            return Map("reciprocal", (x,))
    return None


def choose_known(n: Node) -> Node | None:
    """where(true, a, b)  ->  a, where(false, a, b)  ->  b"""
    match n:
        case Map("where", (Const() as c, a, b)):
            kept, dropped = (a, b) if number(c) else (b, a)
            return None if draws_random_numbers(dropped) else kept
    return None


def choose_between_equals(n: Node) -> Node | None:
    """where(c, a, a)  ->  a"""
    match n:
        case Map("where", (c, a, b)) if a is b and not draws_random_numbers(c):
            return a
    return None


def choose_the_other_way(n: Node) -> Node | None:
    """where(not c, a, b)  ->  where(c, b, a)"""
    match n:
        case Map("where", (Map("logical_not", (c,)), a, b)) if c.dtype.kind == "bool":
            return Map("where", (c, b, a))
    return None


def choose_once(n: Node) -> Node | None:
    """where(c, where(c, a, b), d)  ->  where(c, a, d), where(c, a, where(c, b, d))  ->  where(c, a, d)"""
    match n:
        case Map("where", (c, Map("where", (inner, a, b)), d)) if c is inner and not draws_random_numbers(b):
            return Map("where", (c, a, d))
        case Map("where", (c, a, Map("where", (inner, b, d)))) if c is inner and not draws_random_numbers(b):
            return Map("where", (c, a, d))
    return None


def unequal_instead_of_not_equal(n: Node) -> Node | None:
    """not (a == b)  ->  a != b, not (a != b)  ->  a == b; the other comparisons have no opposite because of NaN"""
    match n:
        case Map("logical_not", (Map("eq" | "ne" as fn, (a, b)),)):
            return Map({"eq": "ne", "ne": "eq"}[fn], (a, b))
    return None


def double_instead_of_adding_twice(n: Node) -> Node | None:
    """x + x  ->  x * 2"""
    match n:
        case Map("add", (x, y)) if x is y and x.dtype.kind in ("float", "int"):
            return Map("mul", (x, constant(2, x.dtype)))
    return None


RULES = (
    drop_identity,
    constant_to_the_right,
    drop_neutral_element,
    merge_constants,
    cancel_involution,
    collapse_idempotent,
    collapse_equal_operands,
    collapse_repeated_operand,
    drop_sign_under_even,
    cancel_signs_around_odd,
    subtract_instead_of_adding_negative,
    add_instead_of_subtracting_negative,
    cancel_signs_of_factors,
    sign_into_constant,
    negate_instead_of_minus_one,
    add_instead_of_subtracting_integer,
    reciprocal_instead_of_division,
    choose_known,
    choose_between_equals,
    choose_the_other_way,
    choose_once,
    unequal_instead_of_not_equal,
    double_instead_of_adding_twice,
)
