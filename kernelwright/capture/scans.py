"""ATen's running sums, products and extremes as Scans: one row an operator.

16-bit floats run in float32, each result rounded once, and integers add up in int64, as PyTorch has them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.capture.call import Call, Translation, Value, cast, in_registers
from kernelwright.ir.dtypes import bool_
from kernelwright.ir.nodes import Item, Node, Opaque, Scan


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
    """cummax or cummin; where each extreme lies is PyTorch's, and is computed only if somebody asks"""

    def translation(call: Call) -> Value:
        x: Node = call["self"]
        if not x.shape:
            return None
        axis = call["dim"] % len(x.shape)
        wide = cast(x, in_registers(x.dtype))
        pairs = Opaque(call.target, (x, axis), (), call.results)
        return cast(Scan(fn, wide, axis), x.dtype), Item(pairs, 1)

    return translation


SCANS: Mapping[str, Translation] = {
    "aten.cumsum": running("sum"),
    "aten.cumprod": running("prod"),
    "aten.cummax": running_extreme("max"),
    "aten.cummin": running_extreme("min"),
}
