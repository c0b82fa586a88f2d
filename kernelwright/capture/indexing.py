"""ATen's operators that read by index as Gathers: one row an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelwright.capture.call import Call, Translation, Value, cast, constant
from kernelwright.ir.dtypes import int32, int64
from kernelwright.ir.nodes import Broadcast, Gather, Iota, Map, Node, Opaque, Permute, Reshape, Shape, Slice, TensorType


def index_selected(call: Call) -> Value:
    """Whole slices along one axis"""
    x: Node = call["self"]
    index: Node = call["index"]
    if not x.shape or not x.size:
        return None
    return along(x, {call["dim"] % len(x.shape): Reshape(index, (index.size,))})


def embedded(call: Call) -> Value:
    """Rows of the weight; padding_idx matters to gradients alone"""
    weight: Node = call["weight"]
    return picked_at(weight, (0,), (call["indices"],)) if weight.size else None


def gathered(call: Call) -> Value:
    """x[i, ..., index[i], ...]: along the other axes, x may be longer than the index"""
    x, index = call["self"], call["index"]
    return along_indexed(x, call["dim"], index) if x.shape and x.size else None


def taken_along(call: Call) -> Value:
    """The same with both broadcast against each other; without an axis, of the flattened tensor"""
    x, index = call["self"], call["indices"]
    if not x.size or not x.shape:
        return None
    if call["dim"] is None:
        return along_indexed(Reshape(x, (x.size,)), 0, Reshape(index, (index.size,)))
    axis = call["dim"] % len(x.shape)
    joint = joint_shape([x.shape, index.shape])
    shape = tuple(i if n == axis else e for n, (i, e) in enumerate(zip(index.shape, joint, strict=True)))
    whole = tuple(x.shape[axis] if n == axis else extent for n, extent in enumerate(shape))
    x = x if x.shape == whole else Broadcast(x, whole)
    return along_indexed(x, axis, index if index.shape == shape else Broadcast(index, shape))


def taken(call: Call) -> Value:
    """Elements by their number, negative ones from the end"""
    x: Node = call["self"]
    return picked_at(Reshape(x, (x.size,)), (0,), (wrapped(call["index"], x.size),)) if x.size else None


def indexed(call: Call) -> Value:
    """x[i, :, j]: integer tensors that broadcast together, negative ones from the end; a mask has no fixed shape"""
    x: Node = call["self"]
    given: tuple[Node | None, ...] = call["indices"]
    axes = tuple(axis for axis, index in enumerate(given) if index is not None)
    indices = [index for index in given if index is not None]
    if not x.size or any(index.dtype.name not in ("int64", "int32") for index in indices):
        return None
    return picked_at(x, axes, [wrapped(i, x.shape[axis]) for i, axis in zip(indices, axes, strict=True)])


def rolled(call: Call) -> Value:
    """Element i is element i - shift; what is pushed out at one end comes in at the other

    Along the last axis alone, neighbours stay neighbours in two pieces, which are put side by side.
    """
    x: Node = call["self"]
    if not x.size or x.size >= MOST_PLACES:
        return None
    if not call["dims"]:
        return Reshape(turned_over(Reshape(x, (x.size,)), call["shifts"][0]), x.shape)
    shifts: dict[int, int] = {}
    for axis, shift in zip(call["dims"], call["shifts"], strict=True):
        shifts[axis % len(x.shape)] = shifts.get(axis % len(x.shape), 0) + shift
    moving = {axis: shift for axis, shift in shifts.items() if shift % x.shape[axis]}
    if set(moving) <= {len(x.shape) - 1}:
        return turned_over(x, moving.get(len(x.shape) - 1, 0))
    return along(x, {axis: rotation(x.shape[axis], shift) for axis, shift in moving.items()})


def turned_over(x: Node, shift: int) -> Node:
    """cat(the last `shift` elements of the last axis, the others)"""
    extent = x.shape[-1]
    shift %= extent
    if not shift:
        return Map("identity", (x,))
    pieces = []
    for begin, length in ((extent - shift, shift), (0, extent - shift)):
        start, step = (*(0 for _ in x.shape[1:]), begin), (1,) * len(x.shape)
        pieces.append(Slice(x, start, step, (*x.shape[:-1], length)))
    return Opaque("aten.cat.default", (tuple(pieces), len(x.shape) - 1), (), (TensorType(x.shape, x.dtype),))


def rotation(extent: int, shift: int) -> Node:
    """(i - shift) mod extent, without a division"""
    shift %= extent
    i = places(extent)
    from_end = Map("add", (i, constant(extent - shift, int32)))
    return Map("where", (Map("lt", (i, constant(shift, int32))), from_end, Map("sub", (i, constant(shift, int32)))))


def one_hot(call: Call) -> Value:
    """1 where the class is the place along the last axis, else 0; a class past the end is nowhere"""
    x: Node = call["self"]
    shape = call.type.shape
    if not call.type.shape[-1] or call["num_classes"] < 0 or x.dtype is not int64:
        return None
    place = Broadcast(Iota(shape[-1]), shape)
    same = Map("eq", (Broadcast(Reshape(x, (*x.shape, 1)), shape), place))
    return cast(same, call.type.dtype)


# --- the forms of a Gather

# So many places have numbers of 32 bits, sums of two of them too.
MOST_PLACES = 2**30


def places(extent: int) -> Node:
    """0, 1, 2, ... in 32 bits, which processors divide and turn into floats faster than 64."""
    return Map("cast", (Iota(extent),), int32)


def wrapped(index: Node, extent: int) -> Node:
    """A negative index counts from the end."""
    zero, whole = constant(0, index.dtype), constant(extent, index.dtype)
    return Map("where", (Map("lt", (index, zero)), Map("add", (index, whole)), index))


def along(x: Node, indices: Mapping[int, Node]) -> Gather:
    """x with element i along each of these axes being element index[i]; indices are vectors."""
    shape = tuple(indices[axis].size if axis in indices else extent for axis, extent in enumerate(x.shape))
    kept = tuple(1 if axis in indices else extent for axis, extent in enumerate(x.shape))
    columns = [spread(across(index, axis, len(shape)), shape) for axis, index in indices.items()]
    return Gather(at_the_end(x, tuple(indices), kept, shape), tuple(columns))


def across(vector: Node, axis: int, rank: int) -> Node:
    """A vector as it lies along one of so many axes. What is computed from places is computed from turned ones, so that
    nothing stands between those Maps and the ones they end up with."""
    if isinstance(vector, Map):
        return vector.rebuild(tuple(across(x, axis, rank) if x.shape else x for x in vector.args))
    return Reshape(vector, (vector.size, *(1,) * (rank - 1 - axis)))


def along_indexed(x: Node, axis: int, index: Node) -> Gather:
    """x[i, ..., index[i], ...] with as many places as the index has."""
    axis %= len(x.shape)
    cut = tuple(x.shape[axis] if n == axis else extent for n, extent in enumerate(index.shape))
    if cut != x.shape:
        x = Slice(x, (0,) * len(cut), (1,) * len(cut), cut)
    kept = tuple(1 if n == axis else extent for n, extent in enumerate(cut))
    return Gather(at_the_end(x, (axis,), kept, index.shape), (index,))


def picked_at(x: Node, axes: Shape, indices: Sequence[Node]) -> Gather:
    """x indexed along these axes by tensors that broadcast together; their axes stand where x's did, or first if x's
    were apart."""
    joint = joint_shape([index.shape for index in indices])
    rest = [axis for axis in range(len(x.shape)) if axis not in axes]
    adjacent = axes == tuple(range(axes[0], axes[0] + len(axes)))
    lead = [axis for axis in rest if adjacent and axis < axes[0]]
    tail = [axis for axis in rest if axis not in lead]
    before, after = (tuple(x.shape[axis] for axis in some) for some in (lead, tail))
    shape = (*before, *joint, *after)
    kept = (*before, *(1 for _ in joint), *after)
    columns = [Reshape(spread(index, joint), (*joint, *(1 for _ in after))) for index in indices]
    return Gather(at_the_end(x, axes, kept, shape), tuple(spread(c, shape) for c in columns))


def joint_shape(shapes: Sequence[Shape]) -> Shape:
    """What they all broadcast to; an axis of extent 0 is no shorter than one of extent 1."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((n for n in extents if n != 1), 1) for extents in zip(*padded, strict=True))


def at_the_end(x: Node, axes: Shape, kept: Shape, shape: Shape) -> Node:
    """x with these axes last, and the others, seen in the shape `kept`, repeated to `shape`."""
    order = (*(axis for axis in range(len(x.shape)) if axis not in axes), *axes)
    picked = tuple(x.shape[axis] for axis in axes)
    turned = x if order == tuple(range(len(order))) else Permute(x, order)
    grown = turned if turned.shape == (*kept, *picked) else Reshape(turned, (*kept, *picked))
    return spread(grown, (*shape, *picked))


def spread(x: Node, shape: Shape) -> Node:
    return x if x.shape == shape else Broadcast(x, shape)


INDEXED: Mapping[str, Translation] = {
    "aten.index_select": index_selected,
    "aten.embedding": embedded,
    "aten.gather": gathered,
    "aten.take_along_dim": taken_along,
    "aten.take": taken,
    "aten.index.Tensor": indexed,
    "aten.roll": rolled,
    "aten.one_hot": one_hot,
}
