"""What shares a kernel with a reduction, and what must not."""

from __future__ import annotations

import pytest

from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Contract,
    Graph,
    Group,
    Input,
    Map,
    Node,
    Opaque,
    Param,
    Permute,
    Reduce,
    Reshape,
    TensorType,
    walk,
)
from kernelwright.plan import Kernel, Library, Routes, plan
from kernelwright.plan.rows import row_groups
from kernelwright.plan.steps import contiguous

S = (6, 40)


def leaf(name: str = "x", shape: tuple[int, ...] = S, position: int = 0) -> Input:
    return Input(name, position, shape, float32, contiguous(shape))


def graph(*outputs: Node) -> Graph:
    found = [node for node in walk(outputs) if isinstance(node, Input)]
    structure = 0 if len(outputs) == 1 else Group("tuple", tuple(range(len(outputs))))
    return Graph(tuple(sorted(found, key=lambda n: n.position)), outputs, (), structure)


def number(value: float) -> Const:
    return Const(value, float32)


def softmax(x: Node, axis: int) -> Node:
    largest = Reduce("max", x, (axis,))
    powers = Map("exp", (Map("sub", (x, Broadcast(largest, x.shape))),))
    return Map("div", (powers, Broadcast(Reduce("sum", powers, (axis,)), x.shape)))


def layer_norm(x: Node) -> Node:
    n = number(float(x.shape[-1]))
    mean = Map("div", (Reduce("sum", x, (1,)), n))
    variance = Map("div", (Reduce("deviations", x, (1,)), n))
    scale = Map("rsqrt", (Map("add", (variance, number(1e-5))),))
    centred = Map("sub", (x, Broadcast(mean, x.shape)))
    return Map("mul", (centred, Broadcast(scale, x.shape)))


def kernels_of(*outputs: Node, own: frozenset[Node] = frozenset()) -> list[Kernel]:
    return [step for step in plan(graph(*outputs), Routes(own=own)).steps if isinstance(step, Kernel)]


def test_a_softmax_with_what_is_before_and_after_it_is_one_kernel() -> None:
    x, scale = leaf(), Param("scale", (40,), float32, (1,))
    before = Map("mul", (Map("relu", (x,)), Broadcast(scale, S)))
    after = Map("sigmoid", (softmax(before, 1),))
    (kernel,) = kernels_of(after)
    assert kernel.region.axes == (1,)
    assert [node.fn for node in kernel.region.body if isinstance(node, Reduce)] == ["max", "sum"]
    assert [layout.buffer.name for _, layout in kernel.region.loads] == ["x", "scale"]
    assert [layout.buffer.name for _, layout in kernel.region.stores] == ["y"]


def test_the_statistics_of_a_norm_never_reach_memory() -> None:
    (kernel,) = kernels_of(layer_norm(leaf()))
    assert len(kernel.region.stores) == 1
    assert kernel.bytes_moved == 2 * 6 * 40 * 4


def test_a_value_that_the_reduction_reads_and_the_caller_wants_is_stored_on_the_way() -> None:
    total = Map("add", (leaf(), leaf("r", position=1)))
    (kernel,) = kernels_of(total, layer_norm(total))
    assert len(kernel.region.stores) == 2


def test_finished_rows_may_have_lost_or_gained_axes_of_extent_one() -> None:
    x = leaf()
    mean = Map("div", (Reshape(Reduce("sum", x, (1,)), (6,)), number(40.0)))
    centred = Map("sub", (x, Broadcast(Reshape(mean, (6, 1)), S)))
    (kernel,) = kernels_of(centred, mean)
    rows = [layout for node, layout in kernel.region.stores if node is mean]
    assert [layout.shape for layout in rows] == [(6, 1)]
    assert rows[0].buffer.shape == (6,)


def test_rows_seen_along_the_other_axis_wait_for_memory() -> None:
    x = leaf(shape=(8, 8))
    rows = Reshape(Reduce("sum", x, (1,)), (1, 8))
    assert len(kernels_of(Map("add", (x, Broadcast(rows, (8, 8)))))) == 2


def test_reductions_over_different_axes_are_different_kernels() -> None:
    x = leaf()
    assert len(kernels_of(softmax(softmax(x, 1), 0))) == 2


def test_sibling_reductions_share_one_read() -> None:
    x = leaf()
    (kernel,) = kernels_of(Reduce("max", x, (1,)), Reduce("sum", Map("mul", (x, x)), (1,)))
    assert [layout.buffer.name for _, layout in kernel.region.loads] == ["x"]


def test_reductions_of_different_values_stay_apart() -> None:
    a, b = leaf(), leaf("b", position=1)
    assert len(kernels_of(Reduce("sum", a, (1,)), Reduce("sum", b, (1,)))) == 2


def test_what_comes_back_through_pytorch_is_not_in_the_same_kernel() -> None:
    x = leaf()
    rows = Reduce("sum", x, (1,))
    sorted_ = Opaque("aten.cumsum.default", (rows, 0), (), (TensorType((6, 1), float32),))
    back = Map("add", (x, Broadcast(sorted_, S)))
    steps = plan(graph(back)).steps
    assert [type(step) for step in steps] == [Kernel, Library, Kernel]


def test_a_turned_value_is_not_a_member_though_its_shape_fits() -> None:
    x = leaf(shape=(8, 8))
    scaled = Map("mul", (x, Broadcast(Reduce("sum", x, (1,)), (8, 8))))
    turned = Map("add", (scaled, Permute(scaled, (1, 0))))
    assert len(kernels_of(turned)) == 2


def test_what_a_product_can_do_before_it_stores_is_left_to_it() -> None:
    a, w = leaf(shape=(64, 32)), Param("w", (48, 32), float32, (32, 1))
    product = Contract(a, w, "mk,nk->mn")
    residual = Map("add", (product, leaf("r", (64, 48), 1)))
    first, second = kernels_of(residual, layer_norm(residual), own=frozenset({product}))
    assert first.core is not None
    assert [node.fn for node in first.region.body] == ["add"]
    assert residual not in second.region.body


def test_every_reduce_is_in_exactly_one_group() -> None:
    x = leaf()
    nodes = graph(softmax(x, 1), softmax(x, 0), layer_norm(Map("relu", (x,))))
    groups = row_groups(nodes)
    reduces = [node for node in nodes.nodes() if isinstance(node, Reduce)]
    assert sorted(id(n) for g in groups for n in g.nodes if isinstance(n, Reduce)) == sorted(map(id, reduces))


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_operands_of_one_value_a_row_are_repeated_along_it(axes: tuple[int, ...]) -> None:
    shape = (3, 4, 5)
    row = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    x, shift = leaf(shape=shape), leaf("s", row, 1)
    result = Map("add", (Reduce("sum", x, axes), shift))
    (kernel,) = kernels_of(result)
    (layout,) = [layout for node, layout in kernel.region.loads if node is shift]
    assert layout.shape == shape
    assert all(layout.strides[axis] == 0 for axis in axes)
    assert [s for axis, s in enumerate(layout.strides) if axis not in axes] == [
        contiguous(row)[axis] for axis in range(3) if axis not in axes
    ]


def test_a_loop_that_normalises_is_cut_before_it_computes_more_than_it_saves() -> None:
    """Walk n of a kernel computes again what n - 1 rounds of the loop computed."""
    x: Node = leaf()
    for _ in range(40):
        x = Map("tanh", (Map("sub", (x, Broadcast(Reduce("sum", x, (1,)), S))),))
    made = plan(graph(x))
    sizes = [len(kernel.region.body) for kernel in made.kernels]
    assert sum(sizes) == 40 * 3
    assert 4 <= len(sizes) <= 12
    assert max(sizes) <= 30


def test_many_functions_before_two_walks_stay_in_one_kernel() -> None:
    """Up to a point: computing them twice is cheaper than a trip to memory."""
    x: Node = leaf()
    for _ in range(20):
        x = Map("mul", (Map("sin", (x,)), number(1.5)))
    largest = Map("sub", (x, Broadcast(Reduce("max", x, (1,)), S)))
    assert len(plan(graph(Reduce("sum", largest, (1,)))).kernels) == 1
