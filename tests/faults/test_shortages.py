"""The judge itself runs out of memory, step by step: a sound verdict or less evidence, never an exception."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernelwright.judge import Verdict, contest, procedure
from kernelwright.judge.oracle import Oracle
from tests.cheats.court import PROBLEMS, QUICK, TIMED, candidate, verdict_on
from tests.controls.test_controls import HERE

HONEST = candidate(HERE, "p01_honest_kernel")
MUTANTS = replace(QUICK, mutants=True)


def out_of_memory(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 14.00 GiB.")


def test_an_oracle_that_needs_too_much_is_asked_about_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Oracle.truth
    rows: list[int] = []

    def short_of_memory(self: Oracle, state: Any, calls: Any, *rest: Any, **named: Any) -> Any:
        rows.append(calls[0][0].shape[0])
        return out_of_memory() if calls[0][0].shape[0] > 8 else whole(self, state, calls, *rest, **named)

    monkeypatch.setattr(Oracle, "truth", short_of_memory)
    monkeypatch.setattr("kernelwright.judge.large.MOST_CHUNK_BYTES", 8 * 37 * 4 * 2)
    judgement = verdict_on(HONEST, "rectify", QUICK)
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert max(rows) > 8 >= rows[-1]
    assert "lean" in judgement.record
    assert not judgement.shortage


def test_an_oracle_that_always_needs_too_much_is_the_judges_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Oracle, "truth", out_of_memory)
    judgement = verdict_on(HONEST, "rectify", QUICK)
    assert judgement.verdict is Verdict.JUDGE_ERROR
    assert judgement.shortage
    assert judgement.record["shortage"] is True
    assert judgement.detail.startswith("the float64 oracle needs 14.00 GiB more memory")


def test_known_bad_answers_that_need_too_much_are_left_out_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.judge.mutants._rejected", out_of_memory)
    judgement = verdict_on(HONEST, "rectify", MUTANTS)
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert "no memory" in judgement.record["skipped"]["known-bad answers"]
    assert not judgement.shortage


def test_a_wrong_answer_is_wrong_even_if_its_arithmetic_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procedure, "reduced_precision", out_of_memory)
    text = (PROBLEMS / "rectify.py").read_text().replace("class Model(", "class ModelNew(")
    wrong = replace(HONEST, text=text.replace("        return ", "        return 1.01 * "))
    judgement = verdict_on(wrong, "rectify", QUICK)
    assert judgement.verdict is Verdict.INCORRECT, judgement.detail
    assert "the arithmetic of wrong answers" in judgement.record["skipped"]


@pytest.mark.parametrize("step", ["open_arena", "run_once", "_never_the_same"])
def test_whatever_else_runs_out_is_a_shortage_of_the_judges(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr(contest, step, out_of_memory)
    judgement = verdict_on(HONEST, "rectify", TIMED)
    assert judgement.verdict is Verdict.JUDGE_ERROR, judgement.detail
    assert judgement.shortage


def test_a_candidate_that_runs_out_is_out_of_memory_and_may_be_run_again() -> None:
    text = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        "
    hungry = replace(HONEST, text=text + "raise torch.AcceleratorError('CUDA error: out of memory')\n")
    judgement = verdict_on(hungry, "rectify", QUICK)
    assert judgement.verdict is Verdict.OOM, judgement.detail
    assert judgement.shortage
