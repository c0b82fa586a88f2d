"""What nobody foresaw ends a command with its exit code too, in words and as JSON, and never as a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import kernelwright.pipeline
from kernelwright.cli import main
from kernelwright.suite.cli import as_ours


def raising(error: Exception) -> object:
    def explained(*_: object) -> None:
        raise error

    return explained


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            ZeroDivisionError("division by zero"),
            3,
            "this is a bug of kernelwright: ZeroDivisionError: division by zero.",
        ),
        (AssertionError(), 3, "this is a bug of kernelwright: AssertionError."),
        (PermissionError(13, "Permission denied", "/cache/x"), 4, "/cache/x: Permission denied."),
    ],
    ids=["a bug", "a bug without words", "the system"],
)
def test_an_unforeseen_error_has_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, code: int, said: str
) -> None:
    monkeypatch.setattr(kernelwright.pipeline, "explained", raising(error))
    ended = CliRunner().invoke(main, ["explain", str(tmp_path / "model.py")])
    assert ended.exit_code == code
    assert said in ended.output
    assert ("Traceback" in ended.output) == (code == 3)


def test_an_unforeseen_error_is_json_where_json_was_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernelwright.pipeline, "optimize", raising(KeyError("x")))
    ended = CliRunner().invoke(main, ["optimize", str(tmp_path / "model.py"), "--json"])
    assert ended.exit_code == 3
    found = json.JSONDecoder().raw_decode(ended.output[ended.output.index("{") :])[0]
    assert found["verdict"] is None
    assert found["error_kind"] == "InternalError"


def test_an_error_of_the_system_without_a_file_is_a_bug() -> None:
    assert as_ours(OSError("odd")).exit_code == 3
