"""The suite's own small problems: enough of them, sound, small, and of every family that people bring."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from kernelwright.load import at_home, instantiate, load

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "suite"
PROBLEMS = sorted(FOLDER.glob("*.py"))
KINDS = (
    "mlp",
    "attention",
    "conv",
    "norm",
    "loss",
    "lstm",
    "gru",
    "rnn",
    "tuple",
    "buffer",
    "bfloat16",
    "float64",
    "int",
    "bool",
)


def test_there_are_at_least_forty_and_every_kind_is_among_them() -> None:
    assert len(PROBLEMS) >= 40
    for kind in KINDS:
        assert any(kind in path.stem for path in PROBLEMS), kind


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_a_small_problem_is_small_says_what_it_is_and_runs(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text()))
    assert said
    assert said.endswith(".")
    problem = load(path)
    instance = instantiate(problem, 0, "cpu")
    sizes = [value.numel() for value in instance.inputs if isinstance(value, torch.Tensor)]
    assert 0 < sum(sizes) < 1 << 20
    with torch.no_grad(), at_home(problem, "cpu"):
        instance.model(*instance.inputs)
