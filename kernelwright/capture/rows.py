"""What translations that reduce are written in: nodes and numbers come in; formulas, means, variances, norms go out.

A *row* is what one element of a reduction's result is made of; values of rows keep the reduced axes with extent 1, so
that they spread over the row they belong to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.capture.call import Call, cast, constant, in_registers, spread, whole
from kernelwright.ir.dtypes import DType, bool_
from kernelwright.ir.nodes import Map, Node, Reduce, Reshape, Shape, TensorType
from kernelwright.ir.scalars import Value

# What a sum, a product, ... of no elements is; of nothing there is no largest element, and PyTorch raises.
OF_NOTHING: dict[str, Value] = {"sum": 0, "prod": 1, "deviations": 0, "exponentials": 0}


def formula(fn: str, *operands: Node | Value) -> Node:
    """fn of operands that broadcast together and have one dtype; a number takes theirs."""
    nodes = [x for x in operands if isinstance(x, Node)]
    dtype = nodes[-1].dtype
    shape = tuple(torch.broadcast_shapes(*(n.shape for n in nodes)))  # type: ignore[no-untyped-call]
    args = tuple(spread(x, shape) if isinstance(x, Node) else constant(x, dtype) for x in operands)
    return whole(Map(fn, args), shape)


def wide(x: Node, dtype: DType) -> Node:
    """x in the dtype an operator computes in: first rounded to `dtype` as PyTorch does, then as wide as registers."""
    return cast(cast(x, dtype), in_registers(dtype))


def axes_of(dim: Any, rank: int) -> Shape:
    """PyTorch's `dim`: one axis, several, or none at all, which means every one."""
    if dim is None or dim == ():
        return tuple(range(rank))
    axes = (dim,) if isinstance(dim, int) else tuple(dim)
    return tuple(sorted(axis % rank for axis in axes)) if rank else ()


def last_axes(count: int, rank: int) -> Shape:
    return tuple(range(rank - count, rank))


def over(fn: str, x: Node, axes: Shape) -> Node:
    """The reduction of x, its axes kept with extent 1; of a scalar, as if it were a vector of one."""
    if not x.shape:
        return Reshape(Reduce(fn, Reshape(x, (1,)), (0,)), ())
    if x.size == 0 and fn in OF_NOTHING:
        shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
        return whole(constant(OF_NOTHING[fn], x.dtype), shape)
    return Reduce(fn, x, axes)


def extent_over(x: Node, axes: Shape) -> int:
    """How many elements one row has."""
    return math.prod(x.shape[axis] for axis in axes)


def mean_over(x: Node, axes: Shape) -> Node:
    return formula("div", over("sum", x, axes), extent_over(x, axes))


def variance_over(x: Node, axes: Shape, correction: float = 0) -> Node:
    """The sum of squared deviations over their number less the correction, which cannot become negative."""
    return formula("div", over("deviations", x, axes), max(extent_over(x, axes) - correction, 0))


def result_of(x: Node, type_: TensorType) -> Node:
    """The value of rows as the operator returns it: rounded, and without the axes that are not asked for."""
    narrow = cast(x, type_.dtype)
    return narrow if narrow.shape == type_.shape else Reshape(narrow, type_.shape)


def result(x: Node, call: Call) -> Node:
    return result_of(x, call.type)


def is_nonzero(x: Node) -> Node:
    return cast(x, bool_)


def norm_over(x: Node, order: float, axes: Shape) -> Node | None:
    """(sum |x|^p)^(1/p) in the dtype of x; of a single element its size; None where PyTorch raises"""
    if x.size == 0 and (order < 0 or math.isinf(order)):
        return None
    if extent_over(x, axes) == 1 and order != 0:
        return Map("abs", (x,))
    return NORMS.get(order, powers(order))(x, axes)


def powers(order: float) -> Callable[[Node, Shape], Node]:
    return lambda x, axes: formula("pow", over("sum", formula("pow", Map("abs", (x,)), order), axes), 1 / order)


NORMS: dict[float, Callable[[Node, Shape], Node]] = {
    0.0: lambda x, axes: over("sum", cast(formula("ne", x, 0), x.dtype), axes),
    1.0: lambda x, axes: over("sum", Map("abs", (x,)), axes),
    2.0: lambda x, axes: Map("sqrt", (over("sum", Map("mul", (x, x)), axes),)),
    math.inf: lambda x, axes: over("max", Map("abs", (x,)), axes),
    -math.inf: lambda x, axes: over("min", Map("abs", (x,)), axes),
}
