"""gemm_sm90_bricks: chosen where k is long and W is packed in each call, tried where it may win, and nowhere else."""

from __future__ import annotations

import pytest

from kernelwright.device import resolve
from kernelwright.generate.generate import ranked_choices, template_of
from kernelwright.ir.nodes import Contract, Graph, Map
from kernelwright.kernels import gemm_sm90, gemm_sm90_bricks
from kernelwright.kernels.gemm_shape import Gemm, Operand
from kernelwright.plan import Kernel, Routes, plan
from kernelwright.tune.tune import short_list
from tests.unit.generate.test_reduce import leaf

H200, A100 = resolve("h200"), resolve("a100")
BATCHES, MATRICES = "bik,bkj->bij", "ik,kj->ij"


def kernel_of(equation: str, *shapes: tuple[int, ...]) -> Kernel:
    """Both operands are inputs."""
    a, b = (leaf(number, shape) for number, shape in enumerate(shapes))
    node = Contract(a, b, equation)
    graph = Graph((a, b), (Map("relu", (node,)),), (), 0)
    (kernel,) = plan(graph, Routes(frozenset({node}), frozenset(), "reference")).kernels
    return kernel


LONG = kernel_of(MATRICES, (256, 524288), (524288, 256))
SHORT = kernel_of(BATCHES, (16, 1024, 1024), (16, 1024, 1024))
CHOSEN = {
    "k of 524288": (LONG, "gemm_sm90_bricks"),
    "k of 524288, the second turned": (kernel_of("ik,jk->ij", (256, 524288), (256, 524288)), "gemm_sm90"),
    "16 x 1024^3": (SHORT, "gemm_sm90_turned"),
    "128 x 512x2048x1024": (kernel_of(BATCHES, (128, 512, 1024), (128, 1024, 2048)), "gemm_sm90_turned"),
    "4096^3": (kernel_of(MATRICES, (4096, 4096), (4096, 4096)), "gemm_sm90_turned"),
    "8192^3": (kernel_of(MATRICES, (8192, 8192), (8192, 8192)), "gemm_sm90_turned"),
    "2949^3": (kernel_of(MATRICES, (2949, 2949), (2949, 2949)), "gemm_sm90"),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_bricks_are_chosen_where_packed_rows_would_lie_far_apart(name: str) -> None:
    kernel, template = CHOSEN[name]
    assert template_of(ranked_choices(kernel, H200)[0]).name == template


@pytest.mark.parametrize("kernel", [LONG, SHORT], ids=["k of 524288", "16 x 1024^3"])
def test_the_tuner_tries_bricks_and_rows(kernel: Kernel) -> None:
    tried = {template_of(choice).name for choice in short_list(kernel, H200)}
    assert tried >= {"gemm_sm90", "gemm_sm90_bricks"}


def product(row_pitch: int, k_pitch: int, constant: bool = False, made_by: str = "") -> Gemm:
    a = Operand("float32", 1024, 1, 0, constant=False)
    return Gemm(
        256, 256, 1024, 1, a, Operand("float32", row_pitch, k_pitch, 0, constant, made_by=made_by), 4, 4 * 65536
    )


SIDE_BY_SIDE = product(1, 256)
REFUSED = {
    "a parameter": product(1, 256, constant=True),
    "rows of contiguous k": product(1024, 1),
    "computed on the way": product(1, 256, made_by="W"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_packed_in_each_call_from_rows_side_by_side_is_refused_in_words(name: str) -> None:
    assert gemm_sm90_bricks.configs(REFUSED[name], H200) == ()
    said = gemm_sm90_bricks.why_not(gemm_sm90_bricks.Config(256, 64, 1, 4), REFUSED[name], H200)
    assert "packed in each call" in str(said)


def test_slots_lie_inside_of_bricks() -> None:
    said = gemm_sm90_bricks.why_not(gemm_sm90_bricks.Config(192, 64, 1, 4), SIDE_BY_SIDE, H200)
    assert "does not lie inside a brick" in str(said)
    offered = gemm_sm90_bricks.configs(SIDE_BY_SIDE, H200)
    assert {config.tile_n for config in offered} == {256, 128}
    assert all(type(config) is gemm_sm90_bricks.Config for config in offered)


def test_what_gemm_sm90_refuses_bricks_refuse() -> None:
    config = gemm_sm90_bricks.Config(256, 64, 1, 4)
    assert gemm_sm90_bricks.why_not(config, SIDE_BY_SIDE, A100) == gemm_sm90.why_not(config, SIDE_BY_SIDE, A100)
    assert gemm_sm90_bricks.configs(SIDE_BY_SIDE, A100) == ()


def test_the_entry_packs_bricks_and_multiplies_by_gemm_sm90() -> None:
    text = gemm_sm90_bricks.entry("g", gemm_sm90_bricks.Config(256, 64, 2, 4), SIDE_BY_SIDE, "E")
    assert "kw::gemm_sm90_bricks::pack<2>(" in text
    assert "kw::gemm_sm90::launch<g_Config, E, kw::gemm::AsItLies, kw::gemm_sm90_bricks::Bricks>(" in text
