"""What is said of a problem from its graph and its plan: family, arithmetic, floor, picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.capture import capture
from kernelwright.device import resolve
from kernelwright.ir.nodes import Graph
from kernelwright.load import load
from kernelwright.plan import plan
from kernelwright.report.facts import says_nothing
from kernelwright.report.picture import picture_of
from kernelwright.report.row import Span
from kernelwright.report.work import work_of
from kernelwright.simplify import simplify

PROBLEMS = Path(__file__).resolve().parents[2] / "benchmarks" / "suite"

FAMILIES = {
    "mlp_relu": "gemm",
    "attention_head": "attention",
    "attention_block": "attention",
    "conv_relu_pool": "conv",
    "conv_transpose_tanh": "conv-transpose",
    "layernorm_residual": "norm",
    "rmsnorm": "norm",
    "l2_normalise": "norm",
    "softmax_temperature": "softmax",
    "loss_cross_entropy": "loss",
    "lstm_small": "recurrent",
    "pool_chain": "pooling",
    "cumulative_gate": "scan",
    "frozen_table": "gather",
    "elementwise_long_chain": "elementwise",
}


def graph_of(name: str) -> Graph:
    return simplify(capture(load(PROBLEMS / f"{name}.py")))


@pytest.mark.parametrize(("name", "family"), FAMILIES.items())
def test_a_problem_is_of_the_family_a_person_would_name(name: str, family: str) -> None:
    assert work_of(graph_of(name), resolve("h200")).family == family


def test_the_floor_of_a_pointwise_problem_is_its_bytes() -> None:
    device = resolve("h200")
    work = work_of(graph_of("elementwise_long_chain"), device)
    assert work.bytes_moved == 2 * 600 * 600 * 4
    assert (work.flops, work.bound) == (0, "memory")
    assert work.floor_us == pytest.approx(work.bytes_moved / device.copy_gbps / 1e3)


def test_arithmetic_of_products_and_convolutions_is_counted_by_hand() -> None:
    assert work_of(graph_of("mlp_relu"), resolve("h200")).flops == 2 * 256 * 128 * 512 * 2
    assert work_of(graph_of("conv_residual"), resolve("h200")).flops == 2 * (2 * 4 * 12 * 12 * 9 * 40 * 40)
    # Each of 32 x 32 inputs meets 4 x 4 taps, from 16 channels to 8.
    assert work_of(graph_of("conv_transpose_tanh"), resolve("h200")).flops == 2 * 4 * 32 * 32 * 16 * 16 * 8
    depthwise = 2 * 4 * 24 * 9 * 40 * 40
    assert work_of(graph_of("conv_depthwise_separable"), resolve("h200")).flops == depthwise + 2 * 4 * 24 * 32 * 40 * 40


@pytest.mark.parametrize("path", sorted(PROBLEMS.glob("*.py"))[::3], ids=lambda path: path.stem)
def test_a_plan_is_drawn_with_every_step_and_no_loose_end(path: Path) -> None:
    planned = plan(graph_of(path.stem))
    picture = picture_of(planned)
    kinds = [box.kind for box in picture.boxes]
    steps = [kind for kind in kinds if kind not in ("input", "output")]
    assert len(steps) == len(planned.steps)
    assert kinds.count("kernel") == len(planned.kernels)
    fed = {arrow.target for arrow in picture.arrows}
    for number, box in enumerate(picture.boxes):
        assert number in fed or box.kind == "input" or box.weights, f"nothing leads to {box}"
    assert all(arrow.source < arrow.target for arrow in picture.arrows)


@pytest.mark.parametrize(
    ("ratio", "nothing"),
    [
        (Span(2.0, 1.9, 2.1), False),
        (Span(3e6, 2.0, 3.1e6), True),
        (Span(1e-6, 2e-7, 2e6), True),
        (Span(1.0, 0.0, 2.0), True),
    ],
)
def test_a_ratio_whose_interval_spans_everything_says_nothing(ratio: Span, nothing: bool) -> None:
    assert says_nothing(ratio) is nothing
