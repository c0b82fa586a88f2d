"""The table of reductions: from a name to its meaning in torch, the monoid that computes it and its result's dtype.

A reduction works in the dtype of its operand: for float16 and bfloat16 capture casts to float32 before and back after,
as PyTorch accumulates. The reduced axes stay, with extent 1. There is at least one element to reduce.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from kernelwright.ir.dtypes import Kind

if TYPE_CHECKING:
    from torch import Tensor

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """One row. `monoid` names the C++ type that holds a partial result; `flops` is the work of one element."""

    torch: Callable[[Tensor, Axes], Tensor]
    monoid: str
    accepts: frozenset[Kind]
    flops: int = 1
    result: Literal["same", "int64"] = "same"
    scan: Callable[[Tensor, int], Tensor] | None = None  # the running form, if there is one


def _torch() -> Any:
    return importlib.import_module("torch")


def _product(x: Tensor, axes: Axes) -> Tensor:
    for axis in axes:
        x = _torch().prod(x, dim=axis, keepdim=True, dtype=x.dtype)
    return x


def _largest(x: Tensor, axes: Axes) -> Tensor:
    result: Tensor = _torch().amax(x, dim=axes, keepdim=True)
    return result


def _flattened(x: Tensor, axes: Axes) -> Tensor:
    """The reduced axes as one, at the end, in row-major order."""
    kept = [axis for axis in range(x.dim()) if axis not in axes]
    return x.permute(*kept, *axes).flatten(len(kept)) if kept else x.reshape(-1)


def _position(pick: str) -> Callable[[Tensor, Axes], Tensor]:
    """Where the extreme lies among the reduced elements: the first of several."""

    def meaning(x: Tensor, axes: Axes) -> Tensor:
        shape = [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]
        result: Tensor = getattr(_torch(), pick)(_flattened(x, axes), dim=-1).reshape(shape)
        return result

    return meaning


def _deviations(x: Tensor, axes: Axes) -> Tensor:
    result: Tensor = _torch().sum((x - _torch().mean(x, dim=axes, keepdim=True)).square(), dim=axes, keepdim=True)
    return result


def _exponentials(x: Tensor, axes: Axes) -> Tensor:
    result: Tensor = _torch().sum((x - _largest(x, axes)).exp(), dim=axes, keepdim=True)
    return result


NUMBERS: frozenset[Kind] = frozenset({"float", "int"})
ORDERED: frozenset[Kind] = frozenset({"float", "int", "bool"})
FLOATS: frozenset[Kind] = frozenset({"float"})

REDUCTIONS: Mapping[str, Reduction] = MappingProxyType(
    {
        "sum": Reduction(
            lambda x, axes: _torch().sum(x, dim=axes, keepdim=True, dtype=x.dtype),
            "Sum",
            NUMBERS,
            scan=lambda x, axis: _torch().cumsum(x, axis, dtype=x.dtype),
        ),
        "prod": Reduction(_product, "Product", NUMBERS, scan=lambda x, axis: _torch().cumprod(x, axis, dtype=x.dtype)),
        # NaN counts as larger and as smaller than every number. Of booleans, the larger is `any`, the smaller `all`.
        "max": Reduction(_largest, "Largest", ORDERED, scan=lambda x, axis: _torch().cummax(x, axis).values),
        "min": Reduction(
            lambda x, axes: _torch().amin(x, dim=axes, keepdim=True),
            "Smallest",
            ORDERED,
            scan=lambda x, axis: _torch().cummin(x, axis).values,
        ),
        "argmax": Reduction(_position("argmax"), "LargestAt", NUMBERS, 5, "int64"),
        "argmin": Reduction(_position("argmin"), "SmallestAt", NUMBERS, 5, "int64"),
        # sum((x - mean(x)) ** 2), in one pass
        "deviations": Reduction(_deviations, "Deviations", FLOATS, 5),
        # sum(exp(x - max(x))), in one pass
        "exponentials": Reduction(_exponentials, "Exponentials", FLOATS, 12),
    }
)
