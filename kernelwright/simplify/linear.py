"""Sums of what is linear: a sum over the results of a product or a convolution is taken before it.

Each equation holds in real arithmetic for all operands; the sums are taken in another order, and there are far fewer
products. Where an operand is infinite, PyTorch may have NaN and this an infinity. Reports name these rules, as they
change how much is computed, not only where.
"""

from __future__ import annotations

import math
from collections import Counter

from kernelwright.ir.nodes import Broadcast, Const, Contract, Conv, Map, Node, Reduce, Reshape, Shape
from kernelwright.simplify.constants import number
from kernelwright.simplify.convolved import LEAST_GROWTH, convolved_sum, ends_in_statistics


def sum_before_product(n: Node, uses: Counter[Node]) -> Node | None:
    """sum_z(sum_y(a[x, y] * b[z, y]))  ->  sum_y(a[x, y] * sum_z(b[z, y])), and the same with biases and factors around

    sum_s(conv(x, w)[n, o, s])  ->  sum_ik(w[i, o, k] * sum(x[n, i] over the inputs that tap k has outputs for))
    """
    match n:
        case Reduce("sum", x, axes) if x.dtype.kind == "float" and not x.dtype.is_reduced_float:
            return linear_sum(x, axes, uses)
    return None


def linear_sum(x: Node, axes: Shape, uses: Counter[Node]) -> Node | None:
    """sum(x, axes), its axes kept, where x is linear in a product that nobody else needs; or in a convolution that is
    much larger than its input and whose kernel ends in other sums."""
    if isinstance(x, Conv) and (uses[x] == 1 or is_cheaper_before(x, uses)):
        return convolved_sum(x, axes)
    if uses[x] != 1:
        return None
    match x:
        case Contract():
            return contracted_sum(x, axes)
        case Map("neg", (p,)):
            inner = linear_sum(p, axes, uses)
            return None if inner is None else Map("neg", (inner,))
        case Map("mul" | "div" as fn, (p, Const() as c)) if is_plain(c):
            inner = linear_sum(p, axes, uses)
            return None if inner is None else Map(fn, (inner, c))
        case Map("add" | "sub" as fn, (p, q)):
            return sum_of_both(fn, p, q, axes, uses)
    return None


def is_cheaper_before(x: Conv, uses: Counter[Node]) -> bool:
    return uses[ends_in_statistics(x)] > 0 and x.size >= LEAST_GROWTH * x.x.size


def is_plain(c: Const) -> bool:
    value = number(c)
    return isinstance(value, float) and math.isfinite(value) and value != 0


def sum_of_both(fn: str, p: Node, q: Node, axes: Shape, uses: Counter[Node]) -> Node | None:
    """sum(p + q)  ->  sum(p) + sum(q)  where one is linear in a product and the other only repeats a smaller value"""
    shape = p.shape or q.shape
    parts = [linear_sum(part, axes, uses) for part in (p, q)]
    if not any(parts):
        return None
    for i, part in enumerate((p, q)):
        if parts[i] is None:
            repeated = part if part.shape else Broadcast(part, shape)
            if not isinstance(repeated, Broadcast):
                return None
            parts[i] = Reduce("sum", repeated, axes)
    return Map(fn, tuple(part for part in parts if part is not None))


def contracted_sum(n: Contract, axes: Shape) -> Node | None:
    """Each index of the result that is summed and that one operand alone has is summed in that operand."""
    a_labels, b_labels, result = n.labels
    gone = {result[axis] for axis in axes}
    if any((label in a_labels) == (label in b_labels) for label in gone):
        return None
    a, a_left = summed_operand(n.a, a_labels, gone)
    b, b_left = summed_operand(n.b, b_labels, gone)
    left = "".join(label for label in result if label not in gone)
    ones = tuple(1 if label in gone else extent for label, extent in zip(result, n.shape, strict=True))
    return Reshape(product(a, a_left, b, b_left, left), ones)


def summed_operand(x: Node, labels: str, gone: set[str]) -> tuple[Node, str]:
    """The operand without the indices that it is summed over."""
    axes = tuple(axis for axis, label in enumerate(labels) if label in gone)
    if not axes:
        return x, labels
    left = "".join(label for label in labels if label not in gone)
    kept = tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes)
    return Reshape(Reduce("sum", x, axes), kept), left


def product(a: Node, a_labels: str, b: Node, b_labels: str, result: str) -> Node:
    """einsum(a, b); as a plain sum of products where one operand has all the indices."""
    if set(b_labels) <= set(a_labels):
        return row_product(a, a_labels, b, b_labels, result)
    if set(a_labels) <= set(b_labels):
        return row_product(b, b_labels, a, a_labels, result)
    return Contract(a, b, f"{a_labels},{b_labels}->{result}")


def row_product(whole: Node, labels: str, part: Node, part_labels: str, result: str) -> Node:
    """sum(whole * part) over the indices that the result has not; both hold theirs in one order or it is a Contract"""
    in_order = [label for label in labels if label in part_labels] == list(part_labels)
    summed = tuple(axis for axis, label in enumerate(labels) if label not in result)
    if not in_order or not summed or [label for label in labels if label in result] != list(result):
        return Contract(whole, part, f"{labels},{part_labels}->{result}")
    extents = iter(part.shape)
    spread = Broadcast(
        Reshape(part, tuple(next(extents) if label in part_labels else 1 for label in labels)), whole.shape
    )
    total = Reduce("sum", Map("mul", (whole, spread)), summed)
    return Reshape(total, tuple(extent for axis, extent in enumerate(whole.shape) if axis not in summed))


USE_RULES = (sum_before_product,)
