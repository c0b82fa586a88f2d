"""Which reductions of a convolution's result its own kernel takes, and what is left to others."""

from __future__ import annotations

import pytest

from benchmarks.conv_device import conv_of, leaf, module_of
from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Conv,
    Graph,
    Group,
    Map,
    Node,
    Permute,
    Reduce,
    Reshape,
    Scan,
    Windows,
)
from kernelwright.plan import Kernel, Plan, Routes, plan
from kernelwright.plan.tiles import Pieces, pieces_of

SHAPE = (4, 12, 16, 18)


def conv(text: str = "Conv2d(8, 12, 3, padding=1)", shape: tuple[int, ...] = (4, 8, 16, 18)) -> Conv:
    return conv_of(module_of(text), shape)


def planned(node: Conv, *outputs: Node) -> Plan:
    structure = 0 if len(outputs) == 1 else Group("tuple", tuple(range(len(outputs))))
    graph = Graph((node.x,), outputs, (), structure)  # type: ignore[arg-type]
    own = frozenset({node})
    return plan(graph, Routes(own, frozenset(), "reference", reducing=own))


def functions(kernel: Kernel) -> list[str]:
    return [node.fn for node in kernel.region.body]


def spread(value: Node, shape: tuple[int, ...]) -> Node:
    return Broadcast(value, shape)


def softmax(x: Node, axes: tuple[int, ...]) -> Node:
    powers = Map("exp", (Map("sub", (x, spread(Reduce("max", x, axes), x.shape))),))
    return Map("div", (powers, spread(Reduce("exponentials", x, axes), x.shape)))


def norm(x: Node, axes: tuple[int, ...]) -> Node:
    mean = Map("mul", (Reduce("sum", x, axes), Const(0.01, float32)))
    scale = Map("rsqrt", (Map("add", (Reduce("deviations", x, axes), Const(1.0, float32))),))
    return Map("mul", (Map("sub", (x, spread(mean, x.shape))), spread(scale, x.shape)))


def test_what_follows_along_the_channels_is_all_in_one_kernel() -> None:
    node = conv()
    (kernel,) = planned(node, softmax(Map("relu", (node,)), (1,))).kernels
    assert kernel.core is not None
    assert kernel.region.given is node
    assert functions(kernel) == ["relu", "max", "sub", "exp", "exponentials", "div"]
    assert [layout.buffer.name for _, layout in kernel.region.stores] == ["y"]


def test_rows_in_pieces_are_finished_in_the_kernel_and_used_in_another() -> None:
    node = conv()
    first, second = planned(node, norm(Map("relu", (node,)), (2, 3))).kernels
    assert functions(first) == ["relu", "sum", "mul", "deviations", "add", "rsqrt"]
    assert functions(second) == ["sub", "mul"]
    assert second.core is None
    stored = [layout.shape for _, layout in first.region.stores]
    assert sorted(stored) == [(4, 12, 1, 1), (4, 12, 1, 1), SHAPE]


def test_a_mean_leaves_nothing_of_the_result_in_memory() -> None:
    node = conv()
    (kernel,) = planned(node, Map("mul", (Reduce("sum", node, (2, 3)), Const(0.1, float32)))).kernels
    assert [layout.buffer.shape for _, layout in kernel.region.stores] == [(4, 12, 1, 1)]


def test_channels_may_be_grouped() -> None:
    node = conv()
    first, _ = planned(node, norm(Reshape(node, (4, 3, 4, 16, 18)), (2, 3, 4))).kernels
    assert first.region.shape == (4, 3, 4, 16, 18)
    stored = dict(first.region.stores)
    assert stored[node].shape == first.region.shape
    assert stored[node].buffer.shape == SHAPE


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        (SHAPE, (2, 3), Pieces(1, False)),
        (SHAPE, (0, 2, 3), Pieces(1, True)),
        (SHAPE, (1, 2, 3), Pieces(12, False)),
        (SHAPE, (0, 1, 2, 3), Pieces(12, True)),
        ((4, 3, 4, 16, 18), (2, 3, 4), Pieces(4, False)),
        ((4, 3, 4, 16, 18), (1, 2, 3, 4), Pieces(12, False)),
        ((4, 3, 4, 16, 18), (3, 4), Pieces(1, False)),
        ((4, 12, 288), (2,), Pieces(1, False)),
        (SHAPE, (3,), None),
        (SHAPE, (0, 1), None),
        ((4, 3, 4, 16, 18), (1, 3, 4), None),
        ((48, 16, 18), (1, 2), None),
        ((4, 12, 18, 16), (0, 1), None),
    ],
)
def test_a_row_is_neighbouring_channels_over_all_of_space(
    shape: tuple[int, ...], axes: tuple[int, ...], expected: Pieces | None
) -> None:
    assert pieces_of(shape, axes, conv()) == expected


def test_a_reduction_of_something_else_is_not_joined() -> None:
    node = conv()
    other = leaf("other", SHAPE, parameter=True)
    kernels = planned(node, Map("relu", (node,)), Reduce("max", Map("exp", (other,)), (1,))).kernels
    assert not [kernel for kernel in kernels if kernel.core is not None and kernel.region.axes]


def test_what_waits_for_the_result_in_another_way_is_not_joined() -> None:
    """The sum along rows must be finished before the kernel that reduces the channels starts."""
    node = conv()
    whole = Reduce("sum", node, (0, 1, 2, 3))
    shifted = Map("sub", (node, spread(Map("exp", (whole,)), SHAPE)))
    kernels = planned(node, Reduce("max", shifted, (1,))).kernels
    (joined,) = [kernel for kernel in kernels if kernel.core is not None]
    assert "max" not in functions(joined)
    assert "sum" in functions(joined)


def test_a_turned_result_is_not_joined() -> None:
    node = conv(shape=(12, 8, 16, 18))
    turned = Permute(node, (1, 0, 2, 3))
    kernels = planned(node, Reduce("max", turned, (1,))).kernels
    assert not [kernel for kernel in kernels if kernel.core is not None and kernel.region.axes]


def test_running_values_are_not_joined() -> None:
    node = conv()
    kernels = planned(node, Map("relu", (Scan("sum", node, 1),))).kernels
    assert not [kernel for kernel in kernels if kernel.core is not None and kernel.region.axes]


def test_channels_of_groups_are_whole_in_no_tile() -> None:
    node = conv("Conv2d(8, 12, 3, padding=1, groups=2)")
    kernels = planned(node, Reduce("max", node, (1,))).kernels
    assert not [kernel for kernel in kernels if kernel.core is not None and kernel.region.axes]


def test_what_others_read_is_stored_too() -> None:
    node = conv()
    kernels = planned(node, Reduce("max", node, (1,)), node).kernels
    (joined,) = [kernel for kernel in kernels if kernel.core is not None]
    assert {layout.shape for _, layout in joined.region.stores} == {SHAPE, (4, 1, 16, 18)}


def windows(x: Node, size: int, stride: int) -> Windows:
    return Windows(x, (2, 3), (size, size), (stride, stride), (1, 1))


def test_windows_side_by_side_are_pooled_in_the_kernel() -> None:
    node = conv()
    bias = spread(Reshape(leaf("bias", (12,), parameter=True), (12, 1, 1)), SHAPE)
    pooled = Reduce("max", windows(Map("add", (node, bias)), 2, 2), (4, 5))
    (kernel,) = planned(node, Map("relu", (pooled,))).kernels
    assert functions(kernel) == ["add", "max", "relu"]
    assert kernel.region.window == (2, 2)
    ((_, layout),) = kernel.region.loads
    assert (layout.shape, layout.strides) == ((4, 12, 8, 9, 2, 2), (0, 1, 0, 0, 0, 0))


def test_windows_that_overlap_are_not_joined() -> None:
    node = conv()
    kernels = planned(node, Reduce("max", windows(node, 3, 2), (4, 5))).kernels
    assert not [kernel for kernel in kernels if kernel.core is not None and kernel.region.axes]


def test_what_is_pooled_and_needed_besides_is_not_joined() -> None:
    """Places in no window would not be stored."""
    node = conv()
    kernels = planned(node, Reduce("max", windows(node, 2, 2), (4, 5)), Map("relu", (node,))).kernels
    assert not [kernel for kernel in kernels if kernel.core is not None and kernel.region.axes]


def test_windows_that_are_seen_again_are_not_joined() -> None:
    node = conv()
    seen = windows(node, 2, 2)
    kernels = planned(node, Map("sub", (seen, spread(Reduce("max", seen, (4, 5)), seen.shape)))).kernels
    assert not [kernel for kernel in kernels if kernel.core is not None and kernel.region.axes]
