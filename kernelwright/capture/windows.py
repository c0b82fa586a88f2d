"""ATen's pooling and padding operators as reductions over windows, and as borders: one row an operator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelwright.capture.call import Call, Translation, Value, cast, constant, in_registers
from kernelwright.ir.dtypes import int64
from kernelwright.ir.nodes import Broadcast, Iota, Map, Node, Pad, Permute, Reduce, Reshape, Shape, Slice, Windows


def max_pool(rank: int) -> Translation:
    """max over each window; the border loses against everything"""

    def translation(call: Call) -> Value:
        geometry = Geometry.of(call, rank)
        if geometry is None or call.type.dtype.kind == "bool":
            return None
        lowest = -math.inf if call.type.dtype.kind == "float" else call.type.dtype.lowest
        return geometry.reduced("max", lowest)

    return translation


def avg_pool(rank: int) -> Translation:
    """sum over each window / how many elements count: all of it, or those that are no border"""

    def translation(call: Call) -> Value:
        geometry = Geometry.of(call, rank)
        if geometry is None or call.type.dtype.kind != "float":
            return None
        total = geometry.reduced("sum", 0.0, rounded=False)
        divisor = call.arguments.get("divisor_override")
        count = constant(divisor, total.dtype) if divisor else geometry.count(call["count_include_pad"], total)
        return cast(Map("div", (total, count)), call.type.dtype)

    return translation


def adaptive_avg_pool(rank: int) -> Translation:
    """mean over equal shares of each axis; shares that are not equal stay with PyTorch"""

    def translation(call: Call) -> Value:
        x: Node = call["self"]
        axes = tuple(range(len(x.shape) - rank, len(x.shape)))
        wanted = [call.type.shape[axis] for axis in axes]
        even = all(n and x.shape[axis] % n == 0 for axis, n in zip(axes, wanted, strict=True))
        if call.type.dtype.kind != "float" or not x.size or not even:
            return None
        shares = tuple(x.shape[axis] // n for axis, n in zip(axes, wanted, strict=True))
        zeros, ones = (0,) * rank, (1,) * rank
        total = Geometry(x, axes, shares, shares, zeros, ones, tuple(wanted)).reduced("sum", 0.0, rounded=False)
        return cast(Map("div", (total, constant(math.prod(shares), total.dtype))), call.type.dtype)

    return translation


class Geometry:
    """Where the windows of one pooling lie."""

    def __init__(
        self, x: Node, axes: Shape, window: Shape, stride: Shape, padding: Shape, dilation: Shape, wanted: Shape
    ) -> None:
        self.x, self.axes, self.window, self.stride = x, axes, window, stride
        self.padding, self.dilation, self.wanted = padding, dilation, wanted

    @staticmethod
    def of(call: Call, rank: int) -> Geometry | None:
        """From the arguments as PyTorch has them; None if there is nothing to pool."""
        x: Node = call["self"]
        axes = tuple(range(len(x.shape) - rank, len(x.shape)))
        window = spread(call["kernel_size"], rank)
        stride = spread(call["stride"], rank) if call["stride"] else window
        dilation = spread(call.arguments.get("dilation", 1), rank)
        wanted = tuple(call.type.shape[axis] for axis in axes)
        if not x.size or 0 in call.type.shape:
            return None
        return Geometry(x, axes, window, stride, spread(call["padding"], rank), dilation, wanted)

    def reduced(self, fn: str, fill: float | int | bool, rounded: bool = True) -> Node:
        """fn over each window, in the precision of registers; rounded to x's dtype if asked."""
        dtype = self.x.dtype
        seen = cast(
            Windows(self.bordered(fill), self.axes, self.window, self.stride, self.dilation),
            wide := in_registers(dtype),
        )
        rank = len(self.x.shape)
        result = Reduce(fn, seen, tuple(range(rank, rank + len(self.axes))))
        whole = Reshape(result, result.shape[:rank])
        assert whole.dtype is wide
        return cast(whole, dtype) if rounded else whole

    def bordered(self, fill: float | int | bool) -> Node:
        """x with as much around it as the windows reach."""
        before, after = [0] * len(self.x.shape), [0] * len(self.x.shape)
        for j, axis in enumerate(self.axes):
            reach = (self.wanted[j] - 1) * self.stride[j] + self.dilation[j] * (self.window[j] - 1) + 1
            before[axis] = self.padding[j]
            after[axis] = max(0, reach - self.x.shape[axis] - self.padding[j])
        return Pad(self.x, tuple(before), tuple(after), fill) if any(before) or any(after) else self.x

    def count(self, with_border: bool, like: Node) -> Node:
        """How many elements each window counts: end - start along each axis, multiplied."""
        result: Node | None = None
        for j in range(len(self.axes)):
            along = self.counts(j, with_border)
            if len(set(along)) == 1:
                factor: Node = constant(along[0], like.dtype)
            else:
                factor = Broadcast(cast(self.counted(j, with_border), like.dtype), like.shape)
            result = factor if result is None else Map("mul", (result, factor))
        assert result is not None
        return result

    def limits(self, j: int, with_border: bool) -> tuple[int, int]:
        """Where elements that count begin and end along an axis, in places of x."""
        extent = self.x.shape[self.axes[j]]
        return (-self.padding[j], extent + self.padding[j]) if with_border else (0, extent)

    def counts(self, j: int, with_border: bool) -> list[int]:
        low, high = self.limits(j, with_border)
        starts = [i * self.stride[j] - self.padding[j] for i in range(self.wanted[j])]
        return [min(start + self.window[j], high) - max(start, low) for start in starts]

    def counted(self, j: int, with_border: bool) -> Node:
        """The same as a value of the graph: min(start + window, high) - max(start, low)."""
        low, high = self.limits(j, with_border)
        place = Reshape(Iota(self.wanted[j]), (self.wanted[j], *(1,) * (len(self.axes) - 1 - j)))
        start = Map("mul", (place, constant(self.stride[j], int64)))
        start = Map("sub", (start, constant(self.padding[j], int64)))
        end = Map("minimum", (Map("add", (start, constant(self.window[j], int64))), constant(high, int64)))
        return Map("sub", (end, Map("maximum", (start, constant(low, int64)))))


def spread(values: int | Sequence[int], rank: int) -> Shape:
    """One number for all axes, or one each."""
    values = (values,) if isinstance(values, int) else tuple(values)
    return values * rank if len(values) == 1 else values


def padded(call: Call) -> Value:
    """A border of one number; a negative one cuts off. One that repeats the inside is copied faster by PyTorch"""
    if call.arguments.get("mode", "constant") != "constant":
        return None
    x: Node = call["self"]
    sides = call["pad"]
    rank = len(x.shape)
    before, after = [0] * rank, [0] * rank
    for j in range(len(sides) // 2):
        before[rank - 1 - j], after[rank - 1 - j] = sides[2 * j], sides[2 * j + 1]
    cut = tuple(n + min(b, 0) + min(a, 0) for n, b, a in zip(x.shape, before, after, strict=True))
    if not x.size or min(cut, default=1) <= 0:
        return None
    if cut != x.shape:
        x = Slice(x, tuple(max(-b, 0) for b in before), (1,) * rank, cut)
    value = constant(call["value"] or 0, x.dtype).value
    border = tuple(max(b, 0) for b in before), tuple(max(a, 0) for a in after)
    return Pad(x, *border, value) if any((*border[0], *border[1])) else x


def counting(call: Call) -> Value:
    """start, start + step, ..."""
    if call.type.dtype.kind != "int" or not call.type.shape[0]:
        return None
    start, step = call.arguments.get("start", 0), call.arguments.get("step", 1)
    places = Map("mul", (Iota(call.type.shape[0]), constant(step, int64)))
    return cast(Map("add", (places, constant(start, int64))), call.type.dtype)


def triangle(fn: str) -> Translation:
    """where(column - row <= diagonal, x, 0), or >= for the upper one"""

    def translation(call: Call) -> Value:
        x: Node = call["self"]
        if not x.size:
            return None
        rows, columns = (Iota(extent) for extent in x.shape[-2:])
        place = Map("sub", (Broadcast(columns, x.shape[-2:]), Broadcast(Reshape(rows, (rows.extent, 1)), x.shape[-2:])))
        inside = Map(fn, (place, constant(call["diagonal"], int64)))
        return Map("where", (inside if len(x.shape) == 2 else Broadcast(inside, x.shape), x, constant(0, x.dtype)))

    return translation


def unit_matrix(call: Call) -> Value:
    """1 where row and column are the same"""
    rows, columns = call.type.shape
    if not rows or not columns:
        return None
    place = Broadcast(Reshape(Iota(rows), (rows, 1)), (rows, columns))
    return cast(Map("eq", (place, Broadcast(Iota(columns), (rows, columns)))), call.type.dtype)


def overwritten_slice(call: Call) -> Value:
    """x with neighbouring slices along an axis replaced: what x[a:b] = y leaves"""
    x: Node = call["self"]
    axis = call["dim"] % len(x.shape)
    if call["step"] != 1:
        return None
    start = call["start"] or 0
    start = max(start + x.shape[axis], 0) if start < 0 else min(start, x.shape[axis])
    return overwritten(x, axis, start, call["src"])


def overwritten_place(call: Call) -> Value:
    """x with one slice replaced: what x[i] = y leaves"""
    x: Node = call["self"]
    axis = call["dim"] % len(x.shape)
    source = Reshape(call["src"], (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return overwritten(x, axis, call["index"] % x.shape[axis], source)


def overwritten(x: Node, axis: int, start: int, source: Node) -> Value:
    """where(place along the axis is inside, the source with a border around it, x)"""
    rank, extent = len(x.shape), x.shape[axis]
    end = start + source.shape[axis]
    wanted = tuple(source.shape[axis] if i == axis else n for i, n in enumerate(x.shape))
    if source.dtype is not x.dtype or not x.size or not source.size or wanted != source.shape:
        return None
    before = tuple(start if i == axis else 0 for i in range(rank))
    after = tuple(extent - end if i == axis else 0 for i in range(rank))
    whole = Pad(source, before, after, constant(0, x.dtype).value) if any((*before, *after)) else source
    place = Reshape(Iota(extent), (extent, *(1,) * (rank - 1 - axis)))
    low, high = constant(start, int64), constant(end, int64)
    inside = Map("logical_and", (Map("ge", (place, low)), Map("lt", (place, high))))
    return Map("where", (inside if inside.shape == x.shape else Broadcast(inside, x.shape), whole, x))


def unfolded(call: Call) -> Value:
    """What a window along one axis sees at each of its positions, as a last axis"""
    x: Node = call["self"]
    if not x.shape or not x.size or not call["size"]:
        return None
    return Windows(x, (call["dimension"] % len(x.shape),), (call["size"],), (call["step"],), (1,))


def unfolded_patches(call: Call) -> Value:
    """The patches under a 2-d window as columns: (channels and places in the window, positions)"""
    x: Node = call["self"]
    if len(x.shape) != 4 or not x.size or 0 in call.type.shape:
        return None
    border = (0, 0, *call["padding"])
    x = Pad(x, border, border, constant(0, x.dtype).value) if any(border) else x
    seen = Windows(x, (2, 3), spread(call["kernel_size"], 2), spread(call["stride"], 2), spread(call["dilation"], 2))
    return Map("identity", (Reshape(Permute(seen, (0, 1, 4, 5, 2, 3)), call.type.shape),))


POOLS: Mapping[str, Translation] = {
    **{f"aten.max_pool{rank}d": max_pool(rank) for rank in (1, 2, 3)},
    **{f"aten.avg_pool{rank}d": avg_pool(rank) for rank in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{rank}d": adaptive_avg_pool(rank) for rank in (1, 2, 3)},
}

BORDERS: Mapping[str, Translation] = {
    "aten.constant_pad_nd": padded,
    "aten.pad": padded,
    **{f"aten.{name}": counting for name in ("arange", "arange.start", "arange.start_step")},
    **{f"aten.{name}": unit_matrix for name in ("eye", "eye.m")},
    "aten.slice_scatter": overwritten_slice,
    "aten.select_scatter": overwritten_place,
    "aten.unfold": unfolded,
    "aten.im2col": unfolded_patches,
    "aten.tril": triangle("le"),
    "aten.triu": triangle("ge"),
}
