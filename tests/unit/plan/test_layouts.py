"""Views as strides: what a layout says, torch's own views say too."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.ir.dtypes import float32
from kernelwright.ir.interpret import evaluate
from kernelwright.ir.nodes import Input, Node, Reshape
from kernelwright.plan import Buffer, Layout
from kernelwright.plan.layouts import base_of, layout_of, reshape_strides
from kernelwright.plan.steps import contiguous
from tests.property.random_graphs import Builder

EXTENTS = st.sampled_from([1, 2, 3, 4, 6])


def numbered(shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """A tensor in which every place of memory has its own number."""
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    return torch.arange(reach, dtype=torch.float32).as_strided(shape, strides)


def read(layout: Layout, memory: torch.Tensor) -> torch.Tensor:
    """Element by element: torch knows no negative strides."""
    places = torch.full(layout.shape, layout.offset)
    for axis, (n, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        places += (torch.arange(n) * stride).view(n, *[1] * (len(layout.shape) - axis - 1))
    return memory.as_strided((memory.untyped_storage().nbytes() // 4,), (1,))[places]


@given(data=st.data())
def test_a_chain_of_views_is_read_where_the_interpreter_reads_it(data: st.DataObject) -> None:
    builder = Builder(data.draw)
    shape = tuple(data.draw(st.lists(EXTENTS, max_size=4)))
    leaf = Input("x", 0, shape, float32, builder.strides(shape))
    node: Node = leaf
    for _ in range(data.draw(st.integers(1, 5))):
        node = builder.seen_otherwise(node)
    tensor = numbered(leaf.shape, leaf.strides)
    layout = layout_of(node, {leaf: Buffer("x", leaf.shape, float32, leaf.strides, leaf)})
    expected = evaluate([node], {leaf: tensor})[node]
    assert base_of(node) is leaf
    if layout is not None:
        assert torch.equal(read(layout, tensor), expected)


@given(data=st.data())
def test_a_reshape_needs_no_copy_exactly_where_torch_needs_none(data: st.DataObject) -> None:
    builder = Builder(data.draw)
    shape = tuple(data.draw(st.lists(EXTENTS, min_size=1, max_size=4)))
    strides = builder.strides(shape)
    new = builder.factored(math.prod(shape))
    tensor = numbered(shape, strides)
    found = reshape_strides(shape, strides, new)
    try:
        viewed = tensor.view(new)
    except RuntimeError:
        assert found is None
        return
    assert found is not None
    assert torch.equal(tensor.as_strided(new, found), viewed)


def test_an_empty_tensor_has_any_shape_without_a_copy() -> None:
    assert reshape_strides((4, 0), (0, 1), (0, 7)) == (0, 0)


def test_a_view_that_is_already_in_memory_is_read_there() -> None:
    leaf = Input("x", 0, (2, 3), float32, (1, 2))
    flat = Reshape(leaf, (6,))
    places: dict[Node, Buffer] = {leaf: Buffer("x", (2, 3), float32, (1, 2), leaf)}
    assert layout_of(flat, places) is None
    places[flat] = Buffer("dense", (6,), float32, (1,))
    again = layout_of(Reshape(flat, (3, 2)), places)
    assert again == Layout(places[flat], (3, 2), contiguous((3, 2)), 0)
