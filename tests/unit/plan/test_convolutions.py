"""A convolution of ours is one kernel with what follows it, and routes follow what was measured."""

from __future__ import annotations

import pytest

from benchmarks.conv_device import conv_of, kernel_of, module_of
from kernelwright.device import resolve
from kernelwright.generate.generate import default_choices
from kernelwright.ir.nodes import Broadcast, Const, Conv, Graph, Map, Reduce, Reshape
from kernelwright.plan import Convolution, Plan, Routes, plan
from kernelwright.plan.convolutions import phases_of, why_not_ours
from kernelwright.tune.routes import without_losers
from kernelwright.tune.tune import Tuned


def conv(text: str, shape: tuple[int, ...]) -> Conv:
    return conv_of(module_of(text), shape)


def planned(node: Conv, precision: str = "reference", tf32: bool = False) -> tuple[Plan, Routes]:
    graph = Graph((node.x,), (Map("relu", (node,)),), (), 0)  # type: ignore[arg-type]
    routes = Routes(frozenset({node}), frozenset(), precision, tf32)
    return plan(graph, routes), routes


def test_a_plain_convolution_is_one_phase() -> None:
    node = conv("Conv2d(3, 4, 3, stride=2, padding=1)", (2, 3, 9, 8))
    (phase,) = phases_of(node)
    assert (phase.taps, phase.outputs) == (9, 20)


def test_a_transposed_convolution_has_a_phase_for_each_remainder() -> None:
    node = conv("ConvTranspose2d(3, 4, 3, stride=2)", (2, 3, 5, 5))
    assert sorted(phase.taps for phase in phases_of(node)) == [1, 2, 2, 4]
    assert sum(phase.outputs for phase in phases_of(node)) == 11 * 11


def test_what_follows_a_convolution_of_ours_is_in_its_kernel() -> None:
    kernel = kernel_of(conv("Conv2d(8, 64, 3)", (2, 8, 16, 16)), "conv_kernel", "tf32", with_epilogue=True)
    assert isinstance(kernel.core, Convolution)
    assert [node.fn for node in kernel.region.maps] == ["add", "mul", "leaky_relu"]
    assert kernel.core.flops == 2 * 2 * 64 * 14 * 14 * 8 * 9


def test_what_follows_it_in_another_shape_is_in_its_kernel_too() -> None:
    """relu(conv) in groups of channels, less its mean over a group: only what needs the mean is computed later."""
    node = conv("Conv2d(8, 12, 3)", (2, 8, 16, 16))
    grouped = Map("relu", (Reshape(node, (2, 3, 4, 14, 14)),))
    mean = Map("div", (Reduce("sum", grouped, (2, 3, 4)), Const(784.0, node.dtype)))
    graph = Graph((node.x,), (Map("sub", (grouped, Broadcast(mean, grouped.shape))),), (), 0)  # type: ignore[arg-type]
    made = plan(graph, Routes(frozenset({node}), frozenset(), "reference"))
    assert [[m.fn for m in kernel.region.maps] for kernel in made.kernels if kernel.core is not None] == [["relu"]]
    assert not any(m.fn == "relu" for kernel in made.kernels if kernel.core is None for m in kernel.region.maps)


@pytest.mark.parametrize(
    ("precision", "tf32", "used"),
    [("reference", False, "ieee"), ("reference", True, "reference"), ("ieee", True, "ieee"), ("tf32", False, "tf32")],
)
def test_tf32_is_used_where_the_flag_or_the_user_allows_it(precision: str, tf32: bool, used: str) -> None:
    made, _ = planned(conv("Conv2d(8, 8, 3)", (2, 8, 16, 16)), precision, tf32)
    assert [kernel.core.precision for kernel in made.kernels if kernel.core is not None] == [used]


def test_an_empty_convolution_is_not_ours() -> None:
    assert why_not_ours(conv("Conv2d(8, 8, 3)", (2, 8, 16, 16))) is None
    assert "empty" in (why_not_ours(conv("Conv2d(8, 8, 3)", (0, 8, 16, 16))) or "")


def tuned(made: Plan, ours_us: float | None, library_us: float | None) -> list[Tuned]:
    choices = default_choices(made, resolve("h200"))
    return [Tuned(k.name, choices[k.name], ours_us, 1.0, "model", 0, library_us) for k in made.kernels]


@pytest.mark.parametrize(
    ("ours_us", "library_us", "present", "kept"),
    [(5.0, 6.0, True, True), (6.0, 5.0, True, False), (None, None, True, False), (None, None, False, True)],
    ids=["faster", "slower", "not measured", "no GPU here"],
)
def test_on_a_gpu_only_what_was_measured_faster_is_ours(
    ours_us: float | None, library_us: float | None, present: bool, kept: bool
) -> None:
    made, routes = planned(conv("Conv2d(8, 8, 3)", (2, 8, 16, 16)))
    left = without_losers(routes, made, tuned(made, ours_us, library_us), present)
    assert (left.own == routes.own) == kept
