"""What timed calls leave in a model's buffers: as eager's, or as float64 has it, and nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelwright.judge.oracle import Oracle
from kernelwright.judge.reference import copied_state, open_reference
from kernelwright.judge.verdict import Failed
from kernelwright.judge.verification import Course, _verify_state
from kernelwright.load import Problem

PROBLEM = """
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.rand(32, 64)]
"""
MEAN = "norm.running_mean"


def timed_on(calls: int) -> tuple[Course, list[tuple], dict[str, torch.Tensor]]:
    """What a candidate was timed on, its inputs, and what eager leaves behind."""
    problem = Problem("small", f"import torch\n{PROBLEM}", Path("small.py"))
    reference = open_reference(problem, torch.device("cpu"))
    model = reference.construct(1)
    oracle, state = Oracle(reference, model, "reference", draws=3), copied_state(model)
    yards = oracle.truth(state, [reference.draw(2)], 0).state
    course = Course(reference, oracle, None, state, [], True, yards, False, False, True, False, False, None)  # type: ignore[arg-type]
    inputs = [reference.draw(seed) for seed in range(10, 10 + calls)]
    return course, inputs, oracle.eager(state, inputs, 0).state


def test_statistics_that_are_rounded_otherwise_are_right():
    course, inputs, eager = timed_on(5)
    found = dict(eager) | {MEAN: eager[MEAN] * (1 + 2e-7)}
    _verify_state(found, eager, course, inputs, range(5))


def test_float64_decides_where_eager_is_the_one_that_is_off():
    course, inputs, eager = timed_on(5)
    off = dict(eager) | {MEAN: eager[MEAN] + 1e-3}
    _verify_state(eager, off, course, inputs, range(5))


@pytest.mark.parametrize("wrong", ["one call too few", "a little larger", "of another order"])
def test_statistics_of_other_calls_are_wrong(wrong: str):
    course, inputs, eager = timed_on(5)
    found = {
        "one call too few": course.oracle.eager(course.state, inputs[:4], 0).state,
        "a little larger": dict(eager) | {MEAN: eager[MEAN] * 1.001},
        "of another order": course.oracle.eager(course.state, inputs[::-1], 0).state,
    }[wrong]
    with pytest.raises(Failed, match=r"norm\.\w+ is not what the calls while being timed should leave"):
        _verify_state(found, eager, course, inputs, range(5))


def test_a_coarser_yardstick_lets_more_pass():
    course, inputs, eager = timed_on(5)
    coarse = {name: replace(yard, eager_rms=1e-3, rms=1e-3) for name, yard in course.state_yards.items()}
    found = dict(eager) | {MEAN: eager[MEAN] * 1.001}
    _verify_state(found, eager, replace(course, state_yards=coarse), inputs, range(5))
