"""ATen's operators that only rearrange as Reshape, Permute, Broadcast and Slice: one row an operator."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.capture.call import Call, Translation, Value
from kernelwright.ir.nodes import Broadcast, Map, Node, Opaque, Permute, Reshape, Shape, Slice


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


def flipped(call: Call) -> Value:
    """Some axes from their ends"""
    x: Node = call["self"]
    axes = {axis % len(x.shape) for axis in call["dims"]} if x.shape else set()
    return copied(from_the_end(x, axes)) if x.size else None


def flipped_along(axis: int) -> Translation:
    """One axis from its end"""
    return lambda call: flipped(Call(call.target, {**call.arguments, "dims": (axis,)}, call.results))


def from_the_end(x: Node, axes: set[int]) -> Node:
    start = tuple(extent - 1 if axis in axes else 0 for axis, extent in enumerate(x.shape))
    step = tuple(-1 if axis in axes else 1 for axis in range(len(x.shape)))
    return Slice(x, start, step, x.shape)


def copied(x: Node) -> Node:
    """A tensor of its own, as the operator gives one: where nobody can tell, it is not copied."""
    return Map("identity", (x,))


def repeated(name: str) -> Translation:
    """Copies of the whole tensor side by side, along each axis; new axes come first"""

    def translation(call: Call) -> Value:
        x: Node = call["self"]
        rank = len(call.type.shape)
        if not call.type.shape or 0 in call.type.shape:
            return None
        times = (*(1,) * (rank - len(call[name])), *call[name])
        own = (*(1,) * (rank - len(x.shape)), *x.shape)
        pairs = [n for extent in own for n in (1, extent)]
        whole = tuple(extent for pair in zip(times, own, strict=True) for extent in pair)
        return copied(Reshape(Broadcast(Reshape(x, tuple(pairs)), whole), call.type.shape))

    return translation


def interleaved(call: Call) -> Value:
    """Each element several times in a row"""
    x: Node = call["self"]
    if 0 in call.type.shape or not isinstance(call["repeats"], int):
        return None
    x = Reshape(x, (x.size,)) if call["dim"] is None else x
    after = (call["dim"] or 0) % max(len(x.shape), 1) + 1
    single = Reshape(x, (*x.shape[:after], 1, *x.shape[after:]))
    whole = (*x.shape[:after], call["repeats"], *x.shape[after:])
    return copied(Reshape(Broadcast(single, whole), call.type.shape))


def pixels_shuffled(call: Call) -> Value:
    """(..., c * r * r, h, w)  ->  (..., c, h * r, w * r)"""
    x, r = call["self"], call["upscale_factor"]
    *lead, channels, height, width = x.shape
    if not x.size:
        return None
    parts = Reshape(x, (*lead, channels // (r * r), r, r, height, width))
    n = len(lead)
    order = (*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return copied(Reshape(Permute(parts, order), call.type.shape))


def pixels_unshuffled(call: Call) -> Value:
    """(..., c, h * r, w * r)  ->  (..., c * r * r, h, w)"""
    x, r = call["self"], call["downscale_factor"]
    *lead, channels, height, width = x.shape
    if not x.size:
        return None
    parts = Reshape(x, (*lead, channels, height // r, r, width // r, r))
    n = len(lead)
    order = (*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return copied(Reshape(Permute(parts, order), call.type.shape))


def channels_shuffled(call: Call) -> Value:
    """(b, groups * n, ...)  ->  (b, n * groups, ...)"""
    x, groups = call["self"], call["groups"]
    if not x.size:
        return None
    parts = Reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    return copied(Reshape(Permute(parts, (0, 2, 1, *range(3, len(parts.shape)))), x.shape))


def meshed(call: Call) -> Value:
    """Vector k along axis k of a grid; by columns and rows, the first two the other way round"""
    vectors: tuple[Node, ...] = call["tensors"]
    shape = call.type.shape
    order = list(range(len(vectors)))
    if call.arguments.get("indexing", "ij") == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    if 0 in shape:
        return None
    along = (Reshape(v, (v.size, *(1,) * (len(shape) - 1 - axis))) for v, axis in zip(vectors, order, strict=True))
    return tuple(v if v.shape == shape else Broadcast(v, shape) for v in along)


def stacked(call: Call) -> Value:
    """cat of the tensors, each with a new axis of extent 1"""
    parts: tuple[Node, ...] = call["tensors"]
    axis = call["dim"] % len(call.type.shape)
    rows = tuple(Reshape(p, (*p.shape[:axis], 1, *p.shape[axis:])) for p in parts)
    return Opaque("aten.cat.default", (rows, axis), (), call.results)


def joined_along(axis: int, least_rank: int) -> Translation:
    """hstack and vstack: cat of tensors that have at least so many axes; vectors are joined end to end"""

    def translation(call: Call) -> Value:
        parts: tuple[Node, ...] = call["tensors"]
        rank = max(len(parts[0].shape), least_rank)
        rows = tuple(p if len(p.shape) == rank else Reshape(p, (1,) * (rank - len(p.shape)) + p.shape) for p in parts)
        return Opaque("aten.cat.default", (rows, min(axis, rank - 1)), (), call.results)

    return translation


def turned_by_quarters(call: Call) -> Value:
    """A plane turned k times from its first axis towards its second"""
    x: Node = call["self"]
    first, second = (axis % len(x.shape) for axis in call["dims"])
    quarters = call["k"] % 4
    if not x.size:
        return None
    flips = {0: (), 1: (first,), 2: (first, second), 3: (second,)}[quarters]
    turned = swap(x, first, second) if quarters % 2 else x
    return copied(from_the_end(turned, set(flips)) if flips else turned)


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
    "aten.flip": flipped,
    "aten.flipud": flipped_along(0),
    "aten.fliplr": flipped_along(1),
    "aten.repeat": repeated("repeats"),
    "aten.tile": repeated("dims"),
    "aten.repeat_interleave.self_int": interleaved,
    "aten.pixel_shuffle": pixels_shuffled,
    "aten.pixel_unshuffle": pixels_unshuffled,
    "aten.channel_shuffle": channels_shuffled,
    "aten.meshgrid": meshed,
    "aten.meshgrid.indexing": meshed,
    "aten.stack": stacked,
    "aten.hstack": joined_along(1, 1),
    "aten.vstack": joined_along(0, 2),
    "aten.rot90": turned_by_quarters,
}
