"""What every translation needs: one operator call as data, and the building blocks casts, constants and broadcasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kernelwright.ir.dtypes import DType, float32
from kernelwright.ir.nodes import Broadcast, Const, Map, Node, Shape, TensorType
from kernelwright.ir.scalars import SCALARS

Value: TypeAlias = "Node | tuple[Node | None, ...] | None"


@dataclass(frozen=True, slots=True)
class Call:
    """One operator call: arguments by their names in the schema, defaults filled in, and the types of its results."""

    target: str
    arguments: Mapping[str, Any]
    results: tuple[TensorType | None, ...]

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        result = self.results[0]
        assert result is not None
        return result

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]


# What an operator becomes in the IR; None where this form of it is not understood, and PyTorch runs it.
Translation: TypeAlias = Callable[[Call], Value]


# These return one of their operands or compare them, so that a float32 detour would change nothing.
UNROUNDED = frozenset(
    (
        *("identity", "where", "minimum", "maximum", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf"),
        *("isfinite", "signbit", "relu", "neg", "abs"),
    )
)


def constant(value: bool | int | float, dtype: DType) -> Const:
    """The number in this dtype; like PyTorch, what is too large for an integer loses its upper bits."""
    kinds: Mapping[str, type] = {"float": float, "int": int, "bool": bool}
    number = kinds[dtype.kind](value)
    if dtype.kind == "int":
        lowest = int(dtype.lowest)
        number = (number - lowest) % 2 ** (8 * dtype.itemsize) + lowest
    return Const(number, dtype)


def cast(x: Node, to: DType) -> Node:
    return x if x.dtype is to else Map("cast", (x,), to)


def spread(x: Node, shape: Shape) -> Node:
    """x with the shape of a Map; rank-0 operands are spread by the Map itself."""
    return x if x.shape in ((), shape) else Broadcast(x, shape)


def pointwise(fn: str, operands: tuple[Any, ...], result: TensorType, compute: DType) -> Node | None:
    """fn on operands (nodes or numbers) computed in one dtype, as a value of the given type.

    16-bit floats are computed in float32 and rounded once, as PyTorch's own kernels do.
    """
    wide = compute if fn in UNROUNDED else in_registers(compute)
    if wide.kind not in SCALARS[fn].accepts:
        return None
    first = 1 if fn == "where" else 0
    nodes = [spread(operands[0], result.shape)] if first else []
    for operand in operands[first:]:
        node = widened(operand, compute, wide) if isinstance(operand, Node) else constant(operand, wide)
        nodes.append(spread(node, result.shape))
    return cast(whole(Map(fn, tuple(nodes)), result.shape), result.dtype)


def widened(x: Node, compute: DType, wide: DType) -> Node:
    """x in the dtype the operands promote to, then in the one computed in; a scalar keeps all its digits."""
    return cast(cast(x, compute) if x.shape else x, wide)


def in_registers(dtype: DType) -> DType:
    """The dtype that the steps of one operator are computed in."""
    return float32 if dtype.is_reduced_float else dtype


def whole(x: Node, shape: Shape) -> Node:
    """A value made of rank-0 operands alone takes the shape it is asked to have."""
    return x if x.shape == shape else Broadcast(x, shape)
