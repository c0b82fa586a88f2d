"""Operands for property tests: values at the edges of each dtype, every pair of them, and how results are compared."""

from __future__ import annotations

import itertools

import torch

from kernelwright.ir.dtypes import DType, bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from kernelwright.ir.nodes import Const, Input

FLOATS = (float32, float64, float16, bfloat16)
INTS = (int64, int32, int16, int8, uint8)
EVERY = (*FLOATS, *INTS, bool_)


def edge_values(dtype: DType) -> torch.Tensor:
    """Zeros of both signs, ones, infinities, NaN, the largest, the smallest, the smallest normal, and plain numbers."""
    kind = dtype.to_torch()
    if dtype.kind == "bool":
        return torch.tensor([False, True])
    if dtype.kind == "int":
        low, high = int(dtype.lowest), int(dtype.highest)
        return torch.tensor([0, 1, 2, 3, 7, 100, high, high - 1, low, *([-1, -2, -7] if low else [])], dtype=kind)
    finite = torch.finfo(kind)
    some = [0.0, 1.0, 2.0, 0.5, 3.0, 0.1, 7.25, 1 + finite.eps, finite.tiny, finite.tiny * finite.eps, finite.max]
    some += [finite.tiny * 0.75, finite.max / 2, float("inf")]
    return torch.tensor([*some, *(-value for value in some), float("nan")], dtype=torch.float64).to(kind)


def leaf(name: str, dtype: DType, shape: tuple[int, ...]) -> Input:
    return Input(name, ord(name[0]), shape, dtype, (0,) * len(shape))


def every_pair(dtype: DType) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two vectors in which every edge value meets every other, and a third that is neither."""
    values = edge_values(dtype)
    pairs = list(itertools.product(range(len(values)), repeat=2))
    first, second = (values[torch.tensor(column)] for column in zip(*pairs, strict=True))
    return first, second, first.roll(len(values) // 2 + 1)


def constant(value: float, dtype: DType) -> Const:
    kinds: dict[str, type] = {"float": float, "int": int, "bool": bool}
    return Const(kinds[dtype.kind](value), dtype)


def difference(one: torch.Tensor, other: torch.Tensor, ulps: int = 0, zeros_have_signs: bool = True) -> str:
    """ "" where two results are the same; else which elements are not. NaN is NaN, whatever its payload."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return f"{one.dtype} {tuple(one.shape)} is not {other.dtype} {tuple(other.shape)}"
    a, b = one.flatten(), other.flatten()
    same = a == b
    if a.is_floating_point():
        if zeros_have_signs:
            same &= torch.signbit(a) == torch.signbit(b)
        if ulps:
            finite = torch.finfo(a.dtype)
            wide_a, wide_b = a.double(), b.double()
            allowed = (ulps * finite.eps * wide_a.abs()).clamp(min=2 * finite.tiny)
            same |= (wide_a - wide_b).abs() <= allowed
        same |= a.isnan() & b.isnan()
    wrong = [(x.item(), y.item()) for x, y, ok in zip(a, b, same, strict=True) if not ok]
    return f"{len(wrong)} of {len(a)} differ, first {wrong[:4]}" if wrong else ""
