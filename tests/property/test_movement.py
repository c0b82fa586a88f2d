"""Gathers, concatenations and Reshapes without strides, rewritten: the same bits, and the form that was wanted."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.capture.indexing import along, along_indexed, picked_at
from kernelwright.ir.dtypes import float32, int64
from kernelwright.ir.interpret import evaluate
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Gather,
    Graph,
    Input,
    Iota,
    Map,
    Node,
    Opaque,
    Permute,
    Reshape,
    Shape,
    Slice,
    TensorType,
    View,
    walk,
)
from kernelwright.plan import prepared
from kernelwright.plan.steps import contiguous
from kernelwright.simplify import simplify
from kernelwright.simplify.gathers import slice_instead_of_gather
from kernelwright.simplify.motion import gathered_through
from kernelwright.simplify.ranges import value_range

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


def leaf(shape: Shape, name: str = "x", position: int = 0) -> Input:
    return Input(name, position, shape, float32, contiguous(shape))


def value(node: Node, **tensors: torch.Tensor) -> torch.Tensor:
    leaves = {n: tensors[n.name] for n in walk((node,)) if isinstance(n, Input)}
    result = evaluate([node], leaves)[node]
    assert isinstance(result, torch.Tensor)
    return result


def numbered(shape: Shape) -> torch.Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


@given(st.data())
def test_a_gather_is_what_indexing_is_in_pytorch(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    axis = data.draw(st.integers(0, len(shape) - 1))
    index_shape = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    index = torch.randint(shape[axis], index_shape)
    x, i = leaf(shape), Input("i", 1, index_shape, int64, contiguous(index_shape))
    places = tuple(index if n == axis else slice(None) for n in range(axis + 1))
    assert torch.equal(value(picked_at(x, (axis,), (i,)), x=numbered(shape), i=index), numbered(shape)[places])


@given(st.data())
def test_an_index_outside_picks_nothing_and_one_inside_its_element(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    axis = data.draw(st.integers(0, len(shape) - 1))
    index = torch.randint(-2, shape[axis] + 2, shape)
    i = Input("i", 1, shape, int64, contiguous(shape))
    got = value(along_indexed(leaf(shape), axis, i), x=numbered(shape), i=index)
    inside = (index >= 0) & (index < shape[axis])
    wanted = numbered(shape).gather(axis, index.where(inside, 0))
    assert torch.equal(got.isnan(), ~inside)
    assert torch.equal(got[inside], wanted[inside])


@given(st.data())
def test_an_index_that_runs_in_order_is_a_slice(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    axis = data.draw(st.integers(0, len(shape) - 1))
    length = data.draw(st.integers(2, 5))
    start, step = data.draw(st.integers(-1, 5)), data.draw(st.sampled_from((1, 2, -1)))
    index = Map("add", (Map("mul", (Iota(length), Const(step, int64))), Const(start, int64)))
    gather = along(leaf(shape), {axis: index})
    slice_ = slice_instead_of_gather(gather)
    last = start + step * (length - 1)
    inside = min(start, last) >= 0 and max(start, last) < shape[axis]
    assert (slice_ is not None) == inside
    if slice_ is not None:
        assert not any(isinstance(n, Gather) for n in walk((slice_,)))
        assert torch.equal(value(slice_, x=numbered(shape)), value(gather, x=numbered(shape)))


@given(st.data())
def test_views_move_into_a_gather(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    axis = data.draw(st.integers(0, len(shape) - 1))
    i = Input("i", 1, (3,), int64, (1,))
    gather = along(leaf(shape), {axis: i})
    rank = len(gather.shape)
    views: list[View] = [
        Permute(gather, tuple(data.draw(st.permutations(range(rank))))),
        Slice(gather, tuple(n - 1 for n in gather.shape), (-1,) * rank, gather.shape),
        Broadcast(gather, (2, *gather.shape)),
        Reshape(gather, (1, *gather.shape, 1)),
    ]
    tensors = {"x": numbered(shape), "i": torch.randint(shape[axis], (3,))}
    for view in views:
        inside = gathered_through(view, gather)
        assert isinstance(inside, Gather)
        assert torch.equal(value(inside, **tensors), value(view, **tensors))


@settings(max_examples=60)
@given(st.data())
def test_a_reshape_without_strides_is_read_by_index(data: st.DataObject) -> None:
    """However axes are split, repeated, turned and joined: what is planned has the graph's values."""
    shape = data.draw(st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=3).map(tuple))
    x = leaf(shape)
    node: Node = x
    for _ in range(data.draw(st.integers(1, 3))):
        order = tuple(data.draw(st.permutations(range(len(node.shape)))))
        grown = Broadcast(
            Reshape(Permute(node, order), (*Permute(node, order).shape, 1)), (*Permute(node, order).shape, 2)
        )
        turned = grown if data.draw(st.booleans()) and grown.size < 300 else Permute(node, order)
        sizes = [d for d in range(1, turned.size + 1) if turned.size % d == 0]
        outer = data.draw(st.sampled_from(sizes))
        node = Reshape(turned, (outer, turned.size // outer))
    output = Map("neg", (node,))
    ready = prepared(Graph((x,), (output,), (), 0))
    assert torch.equal(value(ready.outputs[0], x=numbered(shape)), value(output, x=numbered(shape)))


def test_the_range_of_an_index_is_known_from_the_graph() -> None:
    i = Iota(10)
    rolled = Map("where", (Map("lt", (i, c(3))), Map("add", (i, c(7))), Map("sub", (i, c(3)))))
    assert value_range(rolled) == (0, 9)
    assert value_range(Map("fmod", (Map("trunc_divide", (i, c(2))), c(4)))) == (0, 3)
    assert value_range(Map("abs", (Map("sub", (i, c(4))),))) == (0, 5)
    assert value_range(Map("mul", (Map("cast", (i,), int64), c(-2)))) == (-18, 0)
    assert value_range(Map("mul", (i, c(2**62)))) == (int64.lowest, int64.highest), "it wraps around"


def c(number: int) -> Const:
    return Const(number, int64)


def cat(parts: tuple[Node, ...], axis: int) -> Node:
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return Opaque("aten.cat.default", (parts, axis), (), (TensorType(tuple(shape), parts[0].dtype),))


def test_a_map_of_a_concatenation_is_one_of_maps() -> None:
    x, y, z = leaf((2, 3)), leaf((2, 4), "y", 1), leaf((2, 7), "z", 2)
    before = Graph((x, y, z), (Map("add", (cat((x, y), 1), z)),), (), 0)
    (after,) = simplify(before).outputs
    assert isinstance(after, Opaque)
    assert all(isinstance(part, Map) and part.fn == "add" for part in after.operands)
    tensors = {"x": numbered((2, 3)), "y": numbered((2, 4)), "z": numbered((2, 7))}
    assert torch.equal(value(after, **tensors), value(before.outputs[0], **tensors))


def test_what_is_cut_out_of_a_concatenation_is_cut_out_of_its_part() -> None:
    x, y = leaf((2, 3)), leaf((2, 4), "y", 1)
    joined = cat((x, y), 1)
    for start, step, extent, parts in ((4, 1, 3, 1), (6, -2, 2, 1), (2, 1, 2, 2)):
        node = Map("neg", (Slice(joined, (0, start), (1, step), (2, extent)),))
        (after,) = simplify(Graph((x, y), (node,), (), 0)).outputs
        assert sum(isinstance(n, Input) for n in walk((after,))) == parts
        tensors = {"x": numbered((2, 3)), "y": numbered((2, 4))}
        assert torch.equal(value(after, **tensors), value(node, **tensors))
