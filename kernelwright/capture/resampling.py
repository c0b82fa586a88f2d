"""ATen's upsampling operators as Gathers with indices and weights that are computed: one row an operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch

from kernelwright.capture.call import Call, Translation, Value, cast, constant, in_registers
from kernelwright.capture.indexing import across, along, places, spread
from kernelwright.ir.dtypes import DType, float32, int32
from kernelwright.ir.nodes import Map, Node

# Of each place along an axis, an element beside it and its weight.
Side: TypeAlias = tuple[Node, Node]


def nearest(exact: bool) -> Translation:
    """The element at the place, scaled and rounded down; of the middle of the place if exact"""

    def translation(call: Call) -> Value:
        x: Node = call["input"]
        if not x.size or not call.type.shape[-1]:
            return None
        moving = [axis for axis in range(2, len(x.shape)) if x.shape[axis] != call.type.shape[axis]]
        sources = {axis: nearest_place(call, axis, exact) for axis in moving}
        return along(x, sources) if sources else Map("identity", (x,))

    return translation


def nearest_place(call: Call, axis: int, exact: bool) -> Node:
    """min(floor(i * step), last) in float32, as PyTorch rounds; a division of integers where that is the same"""
    extent, wanted = call["input"].shape[axis], call.type.shape[axis]
    step = rounded(step_of(call, axis), float32)
    middle = 0.5 if exact else 0.0
    scaled = ((torch.arange(wanted) + middle) * torch.tensor(step)).floor().long().clamp(max=extent - 1)
    if wanted % extent == 0 and torch.equal(scaled, torch.arange(wanted) // (wanted // extent)):
        return Map("trunc_divide", (places(wanted), constant(wanted // extent, int32)))
    place = cast(places(wanted), float32)
    place = Map("add", (place, constant(middle, float32))) if exact else place
    return clamped(Map("mul", (place, constant(step, float32))), extent)


def linear(call: Call) -> Value:
    """The mean of the two neighbours along each axis, weighted by how near they are

    In the table it is not: which device runs it says whether a kernel of ours should (`plan/resampled.py`).
    """
    x: Node = call["input"]
    if not x.size or not call.type.shape[-1] or call.type.dtype.kind != "float":
        return None
    compute = in_registers(call.type.dtype)
    sides = {axis: neighbours(call, axis, compute) for axis in range(2, len(x.shape))}
    return cast(mixed(x, 2, {}, sides, compute), call.type.dtype)


def mixed(
    x: Node, axis: int, chosen: Mapping[int, Node], sides: Mapping[int, tuple[Side, Side]], compute: DType
) -> Node:
    """weight * near + weight * far along this axis, each mixed along the axes that follow first"""
    if axis == len(x.shape):
        return cast(along(x, chosen), compute)
    parts = [(weight, mixed(x, axis + 1, {**chosen, axis: place}, sides, compute)) for place, weight in sides[axis]]
    shape = parts[0][1].shape
    weighted = [Map("mul", (spread(across(weight, axis, len(shape)), shape), part)) for weight, part in parts]
    return Map("add", tuple(weighted))


def neighbours(call: Call, axis: int, compute: DType) -> tuple[Side, Side]:
    """The elements before and after the place that each element of the result has in x"""
    extent = call["input"].shape[axis]
    place = source_place(call, axis, compute)
    before = clamped(place, extent)
    after = Map("minimum", (Map("add", (before, constant(1, int32))), constant(extent - 1, int32)))
    far = Map("sub", (place, cast(before, compute)))
    return (before, Map("sub", (constant(1.0, compute), far))), (after, far)


def source_place(call: Call, axis: int, compute: DType) -> Node:
    """i * step with the corners of both laid on each other, else (i + 1/2) * step - 1/2, not before the first"""
    place = cast(places(call.type.shape[axis]), compute)
    step = constant(rounded(step_of(call, axis), compute), compute)
    if call["align_corners"]:
        return Map("mul", (place, step))
    half = constant(0.5, compute)
    place = Map("sub", (Map("mul", (Map("add", (place, half)), step)), half))
    return Map("maximum", (place, constant(0.0, compute)))


def clamped(place: Node, extent: int) -> Node:
    """The last element not after the place, which is not negative."""
    return Map(
        "minimum",
        (Map("maximum", (cast(Map("floor", (place,)), int32), constant(0, int32))), constant(extent - 1, int32)),
    )


def step_of(call: Call, axis: int) -> float:
    """How far one element of the result is from the next, in elements of x"""
    extent, wanted = call["input"].shape[axis], call.type.shape[axis]
    if call.arguments.get("align_corners"):
        return float((extent - 1) / (wanted - 1)) if wanted > 1 else 0.0
    factors = call["scale_factors"]
    factor = float(factors[axis - 2]) if factors else 0.0
    return 1.0 / factor if factor > 0 else float(extent / wanted)


def rounded(value: float, dtype: DType) -> float:
    number: float = torch.tensor(value, dtype=dtype.to_torch()).item()
    return number


RESAMPLING: Mapping[str, Translation] = {
    **{f"aten.upsample_nearest{rank}d.vec": nearest(exact=False) for rank in (1, 2, 3)},
    **{f"aten._upsample_nearest_exact{rank}d.vec": nearest(exact=True) for rank in (1, 2, 3)},
}
