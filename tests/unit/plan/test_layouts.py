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
from kernelwright.plan.steps import contiguous, loaded_bytes
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


# --- what several views of one buffer fetch


def fetched(*layouts: Layout) -> int:
    """In elements."""
    (total,) = loaded_bytes(layouts).values()
    assert total % 4 == 0
    return total // 4


def view(of: tuple[int, ...], shape: tuple[int, ...], offset: int) -> Layout:
    return Layout(Buffer("x", of, float32, contiguous(of)), shape, contiguous(of), offset)


def test_two_halves_are_all_of_a_buffer() -> None:
    assert fetched(view((8, 6), (8, 3), 0), view((8, 6), (8, 3), 3)) == 8 * 6


def test_what_is_read_twice_is_fetched_once() -> None:
    assert fetched(view((8, 6), (8, 6), 0), view((8, 6), (8, 6), 0)) == 8 * 6


def test_a_stencil_fetches_little_more_than_its_middle() -> None:
    middle, left, right = (view((8, 6), (6, 4), offset) for offset in (7, 6, 8))
    assert fetched(middle, left, right) == 6 * 4 + 2 * 6


@given(data=st.data())
def test_two_views_fetch_every_place_once(data: st.DataObject) -> None:
    """Axes inside of each other, with gaps or without."""
    shape, strides, reach = [], [], 1
    for _ in range(data.draw(st.integers(1, 4))):
        shape.append(data.draw(EXTENTS))
        strides.append(reach * data.draw(st.integers(1, 3)))
        reach = strides[-1] * shape[-1]
    buffer = Buffer("x", (3 * reach,), float32, (1,))
    offset = data.draw(st.integers(0, 2 * reach))
    layouts = [Layout(buffer, tuple(shape), tuple(strides), o) for o in (reach, offset)]
    places = {int(p) for layout in layouts for p in read(layout, torch.arange(3.0 * reach)).flatten()}
    assert fetched(*layouts) == len(places)
