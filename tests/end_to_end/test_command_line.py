"""The command as a user meets it: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kernelwright.cli import main

PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return {returned}


def get_inputs():
    return [torch.randn(37, 20)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {returned}
"""


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    return written(tmp_path, "problem.py", PROBLEM.format(returned="torch.relu(x) * 2 + 1"))


def test_optimize_writes_a_file_and_says_what_the_judge_said(problem: Path, tmp_path: Path) -> None:
    target, page = tmp_path / "out" / "new.py", tmp_path / "page.html"
    done = command("optimize", problem, "-o", target, "--device", "cpu", "--budget", "12s", "--report", page, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["verdict"] == "CORRECT"
    assert "class ModelNew(Model)" in target.read_text()
    assert page.read_text().startswith("<!doctype html>")


def test_a_record_can_be_judged_again(problem: Path, tmp_path: Path) -> None:
    right = written(tmp_path, "right.py", CANDIDATE.format(returned="x.clamp(min=0) * 2 + 1"))
    record = tmp_path / "record.json"
    assert command("check", problem, right, "--no-timing", "--record", record).exit_code == 0
    again = command("check", "--replay", record)
    assert again.exit_code == 0, again.output
    assert "CORRECT" in again.stdout


def test_a_wrong_candidate_is_said_to_be_wrong_where(problem: Path, tmp_path: Path) -> None:
    wrong = written(tmp_path, "wrong.py", CANDIDATE.format(returned="torch.relu(x) * 2 + 1.001"))
    done = command("check", problem, wrong, "--no-timing")
    assert done.exit_code == 1
    assert "INCORRECT" in done.stdout
    assert "should be" in done.stdout


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("x = 1\n", 2, "Model"),
        ("import no_such_module_anywhere\n", 2, "no_such_module_anywhere"),
        ("class Model(:\n", 2, "strange.py:1"),
        (PROBLEM.format(returned="{'y': x}"), 5, "dict"),
        (PROBLEM.format(returned="x if x.sum() > 0 else -x"), 5, "depends on values"),
        (PROBLEM.format(returned="torch.relu(x[:0]) + 1"), 5, "left to PyTorch"),
    ],
    ids=["no model", "a failing import", "a syntax error", "a dict", "control flow", "a batch of none"],
)
def test_what_cannot_be_done_is_said_with_its_reason(tmp_path: Path, text: str, code: int, says: str) -> None:
    path = written(tmp_path, "strange.py", text)
    done = command("optimize", path, "-o", tmp_path / "new.py", "--device", "cpu")
    assert done.exit_code == code, done.output
    assert says in done.output
    assert not (tmp_path / "new.py").exists()


def test_a_file_that_is_not_there_is_named_and_leaves_no_folder(tmp_path: Path) -> None:
    done = command("optimize", tmp_path / "nowhere" / "model.py")
    assert done.exit_code == 2
    assert "nowhere/model.py" in done.output
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("arguments", [(), ("model.py",), ("model.py", "new.py", "--replay", __file__)])
def test_check_takes_two_files_or_a_record(arguments: tuple[str, ...]) -> None:
    done = command("check", *arguments)
    assert done.exit_code == 2
    assert "--replay RECORD" in done.output


@pytest.mark.parametrize("stage", ["capture", "simplify", "plan", "generate", "emit"])
def test_every_stage_can_be_looked_at(problem: Path, stage: str) -> None:
    done = command("explain", problem, "--after", stage, "--device", "h200")
    assert done.exit_code == 0, done.output
    assert "relu" in done.stdout


def test_doctor_speaks_json() -> None:
    done = command("doctor", "--json")
    assert json.loads(done.stdout)
