"""ATen's view operators as Reshape, Permute, Broadcast and Slice: one row an operator."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.capture.call import Call, Translation, Value
from kernelwright.ir.nodes import Broadcast, Node, Permute, Reshape, Shape, Slice


def reshaped(call: Call) -> Value:
    """Any operator whose result has the same elements in the same row-major order"""
    x: Node = call["self"]
    return x if x.shape == call.type.shape else Reshape(x, call.type.shape)


def unchanged(call: Call) -> Value:
    x: Node = call["self"]
    return x


def permuted(call: Call) -> Value:
    x: Node = call["self"]
    return Permute(x, tuple(axis % len(x.shape) for axis in call["dims"]))


def swapped(first: str, second: str) -> Translation:
    def translation(call: Call) -> Value:
        x: Node = call["self"]
        return swap(x, call[first], call[second])

    return translation


def swap(x: Node, first: int, second: int) -> Node:
    rank = len(x.shape)
    if rank == 0:
        return x
    order = list(range(rank))
    order[first % rank], order[second % rank] = order[second % rank], order[first % rank]
    return Permute(x, tuple(order))


def transposed(call: Call) -> Value:
    """t() of a matrix; of a vector, the vector"""
    x: Node = call["self"]
    return Permute(x, (1, 0)) if len(x.shape) == 2 else x


def last_two_swapped(call: Call) -> Value:
    return swap(call["self"], -2, -1)


def moved(call: Call) -> Value:
    x: Node = call["self"]
    rank = len(x.shape)
    sources = as_tuple(call["source"])
    destinations = as_tuple(call["destination"])
    placed = {d % rank: s % rank for s, d in zip(sources, destinations, strict=True)}
    rest = iter(axis for axis in range(rank) if axis not in placed.values())
    return Permute(x, tuple(placed[i] if i in placed else next(rest) for i in range(rank)))


def as_tuple(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def expanded(call: Call) -> Value:
    x: Node = call["self"]
    return x if x.shape == call.type.shape else Broadcast(x, call.type.shape)


def expanded_together(call: Call) -> Value:
    """Each tensor in the shape they all broadcast to"""
    given: tuple[Node, ...] = call["tensors"]
    shapes = [result.shape for result in call.results if result is not None]
    return tuple(x if x.shape == shape else Broadcast(x, shape) for x, shape in zip(given, shapes, strict=True))


def sliced(x: Node, axis: int, start: int, step: int, extent: int) -> Node:
    rank = len(x.shape)
    if (start, step, extent) == (0, 1, x.shape[axis]):
        return x
    starts = tuple(start if i == axis else 0 for i in range(rank))
    steps = tuple(step if i == axis else 1 for i in range(rank))
    shape = tuple(extent if i == axis else whole for i, whole in enumerate(x.shape))
    return Slice(x, starts, steps, shape)


def slice_of(call: Call) -> Value:
    x: Node = call["self"]
    axis = call["dim"] % len(x.shape)
    start = call["start"] or 0
    start = max(start + x.shape[axis], 0) if start < 0 else min(start, x.shape[axis])
    return sliced(x, axis, start, call["step"], call.type.shape[axis])


def selected(call: Call) -> Value:
    x: Node = call["self"]
    axis = call["dim"] % len(x.shape)
    one = sliced(x, axis, call["index"] % x.shape[axis], 1, 1)
    return Reshape(one, call.type.shape)


def narrowed(call: Call) -> Value:
    x: Node = call["self"]
    axis = call["dim"] % len(x.shape)
    if not isinstance(call["start"], int):
        return None
    return sliced(x, axis, call["start"] % max(x.shape[axis], 1), 1, call["length"])


def split(call: Call) -> Value:
    """Every form of split, chunk and unbind: consecutive pieces along one axis"""
    x: Node = call["self"]
    axis = call["dim"] % len(x.shape)
    pieces: list[Node] = []
    start = 0
    for result in call.results:
        assert result is not None
        extent = result.shape[axis] if len(result.shape) == len(x.shape) else 1
        piece = sliced(x, axis, start, 1, extent)
        pieces.append(piece if piece.shape == result.shape else Reshape(piece, result.shape))
        start += extent
    return tuple(pieces)


def shape_of_self(call: Call) -> Shape:
    x: Node = call["self"]
    return x.shape


VIEWS: Mapping[str, Translation] = {
    **{
        f"aten.{name}": reshaped
        for name in (
            *("view", "_unsafe_view", "reshape", "view_copy", "_reshape_alias", "flatten.using_ints"),
            *("unflatten.int", "squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze", "squeeze_copy"),
            *("unsqueeze_copy",),
        )
    },
    **{f"aten.{name}": unchanged for name in ("alias", "detach", "contiguous", "lift_fresh")},
    "aten.view_as": reshaped,
    "aten.reshape_as": reshaped,
    "aten.permute": permuted,
    "aten.transpose.int": swapped("dim0", "dim1"),
    "aten.swapaxes": swapped("axis0", "axis1"),
    "aten.swapdims": swapped("dim0", "dim1"),
    "aten.t": transposed,
    "aten.numpy_T": lambda call: Permute(call["self"], tuple(reversed(range(len(shape_of_self(call)))))),
    "aten.mT": last_two_swapped,
    "aten.matrix_H": last_two_swapped,
    "aten.movedim.int": moved,
    "aten.movedim.intlist": moved,
    "aten.moveaxis.int": moved,
    "aten.moveaxis.intlist": moved,
    "aten.expand": expanded,
    "aten.expand_as": expanded,
    "aten.broadcast_to": expanded,
    "aten.broadcast_tensors": expanded_together,
    "aten.slice.Tensor": slice_of,
    "aten.select.int": selected,
    "aten.narrow": narrowed,
    "aten.split.Tensor": split,
    "aten.split_with_sizes": split,
    "aten.chunk": split,
    "aten.unbind.int": split,
    "aten.tensor_split.sections": split,
}
