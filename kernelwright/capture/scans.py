"""ATen's running sums, products and extremes as Scans: one row an operator.

16-bit floats run in float32, each result rounded once, and integers add up in int64, as PyTorch has them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.capture.call import Call, Translation, Value, cast, constant, in_registers, spread
from kernelwright.ir.dtypes import bool_, int64
from kernelwright.ir.nodes import Iota, Map, Node, Reshape, Scan, Shape


def running(fn: str) -> Translation:
    """cumsum or cumprod, in the dtype of the result; of a scalar, the scalar"""

    def translation(call: Call) -> Value:
        x, dtype = call["self"], call.type.dtype
        if dtype is bool_ or not x.shape:
            return None if dtype is bool_ else cast(x, dtype)
        wide = cast(cast(x, dtype), in_registers(dtype))
        return cast(Scan(fn, wide, call["dim"] % len(x.shape)), dtype)

    return translation


def running_extreme(fn: str) -> Translation:
    """cummax or cummin, and where: the last place that equals the extreme so far. NaN is one from its place on."""

    def translation(call: Call) -> Value:
        x: Node = call["self"]
        if not x.shape:
            return None
        axis = call["dim"] % len(x.shape)
        wide = cast(x, in_registers(x.dtype))
        extreme = Scan(fn, wide, axis)
        reached = Map("eq", (wide, extreme))
        if wide.dtype.kind == "float":
            reached = Map("logical_or", (reached, Map("isnan", (wide,))))
        place = Map("where", (reached, places(x.shape, axis), constant(0, int64)))
        return cast(extreme, x.dtype), Scan("max", place, axis)

    return translation


def places(shape: Shape, axis: int) -> Node:
    """Of every element, its place along the axis."""
    own = tuple(extent if i == axis else 1 for i, extent in enumerate(shape))
    return spread(Reshape(Iota(shape[axis]), own), shape)


SCANS: Mapping[str, Translation] = {
    "aten.cumsum": running("sum"),
    "aten.cumprod": running("prod"),
    "aten.cummax": running_extreme("max"),
    "aten.cummin": running_extreme("min"),
}
