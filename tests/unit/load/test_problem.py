"""What `load` makes of a path, before anything in the file runs."""

from pathlib import Path

import pytest

from kernelwright.errors import BadProblem
from kernelwright.load import load


def test_a_problem_is_named_after_its_file(tmp_path: Path) -> None:
    file = tmp_path / "12_gated_mlp.py"
    file.write_text("x = 1\n")
    problem = load(file)
    assert (problem.name, problem.source, problem.path) == ("12_gated_mlp", "x = 1\n", file)


def test_loading_runs_nothing_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text("raise RuntimeError('was run')\n")
    assert load(str(file)).source.startswith("raise")


def test_loading_a_file_does_not_need_the_file_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text("x = 1\n")
    problem = load(file)
    file.unlink()
    assert problem.source == "x = 1\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("# -*- coding: latin-1 -*-\nname = 'Müller'\n".encode("latin-1"), "Müller"),
        ("name = 'Müller'\n".encode(), "Müller"),
        (b"\xef\xbb\xbfname = 'bom'\n", "name = 'bom'\n"),
        (b"a = 1\r\nb = 2\r\n", "a = 1\nb = 2\n"),
    ],
    ids=["latin-1 declared", "utf-8", "byte-order mark", "line ends of Windows"],
)
def test_the_declared_encoding_is_respected(tmp_path: Path, content: bytes, text: str) -> None:
    file = tmp_path / "p.py"
    file.write_bytes(content)
    source = load(file).source
    assert text in source
    assert not source.startswith("\ufeff")


@pytest.mark.parametrize(
    ("content", "cause", "line"),
    [
        (b"x = 1\ndef f(:\n", "not Python", 2),
        (b"name = 'M\xfcller'\n", "encoding", None),
        (b"# coding: no-such-encoding\n", "encoding", None),
        (b"x = 1\x00\n", "not Python", None),
    ],
    ids=["syntax error", "undeclared latin-1", "unknown encoding", "null byte"],
)
def test_text_that_is_not_python_is_refused_with_file_cause_and_cure(
    tmp_path: Path, content: bytes, cause: str, line: int | None
) -> None:
    file = tmp_path / "broken.py"
    file.write_bytes(content)
    with pytest.raises(BadProblem) as caught:
        load(file)
    assert caught.value.where == (f"{file}:{line}" if line else str(file))
    assert cause in caught.value.what
    assert caught.value.cure
    assert caught.value.exit_code == 2


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadProblem, match="no such file") as caught:
        load(tmp_path / "absent.py")
    assert caught.value.where.endswith("absent.py")
    assert caught.value.cure


def test_a_folder_is_refused_and_the_suite_named(tmp_path: Path) -> None:
    with pytest.raises(BadProblem, match="folder") as caught:
        load(tmp_path)
    assert "suite" in caught.value.cure
