"""The nursery: a forked problem is kept as a started one is, and where no process may be forked it says so."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelwright.report.row import Terms
from kernelwright.suite import keeper, runner
from kernelwright.suite.devices import Places
from kernelwright.suite.folder import RunFolder
from kernelwright.suite.nursery import KILLED, Nursery
from kernelwright.suite.problems import find_problems
from tests.suite import fake_suite

ROOT = Path(__file__).resolve().parents[2]
# What is forked does what its order's last word says, as Python.
PROGRAM = f"""
import os, signal, socket, subprocess, sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
from kernelwright.suite import nursery
{{before}}
nursery.serve(socket.socket(fileno=int(sys.argv[1])), exec)
"""
Run = Callable[..., "int | None"]


def nursery(before: str = "") -> Nursery:
    return Nursery(program=[sys.executable, "-c", PROGRAM.format(before=before)])


def asked(one: Nursery, log: Path, word: str, *, limit_s: float = 30.0, let_go: Path | None = None) -> int | None:
    """What it answers; the leash is let go once the file is there."""
    reading, leash = os.pipe()
    order = {"command": ["nothing", word], "log": str(log), "limit_s": limit_s, "memory_bytes": 0, "leash": reading}

    def watch() -> None:
        while let_go is not None and not let_go.is_file():
            time.sleep(0.01)
        os.close(leash)

    watcher = threading.Thread(target=watch if let_go is not None else lambda: None)
    watcher.start()
    try:
        return one.run(order)
    finally:
        watcher.join()
        os.close(reading)
        if let_go is None:
            os.close(leash)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    one = nursery()
    yield lambda word, **options: asked(one, tmp_path / "log.txt", word, **options)
    one.close()


def alive(process: int) -> bool:
    state = keeper.stat_of(process)
    return state is not None and state[1] != "Z"


@pytest.mark.parametrize(
    ("word", "status", "said"),
    [
        ("print('hello', flush=True)", 0, "hello\n"),
        ("os.write(2, b'oh'); os._exit(7)", 7, "oh"),
        ("os.kill(os.getpid(), signal.SIGKILL)", KILLED, ""),
    ],
    ids=["done", "status", "signal"],
)
def test_the_exit_status_and_the_output_are_the_problems_own(
    run: Run, tmp_path: Path, word: str, status: int, said: str
) -> None:
    assert run(f"import os, signal\n{word}") == status
    assert (tmp_path / "log.txt").read_text() == said


def test_an_exception_ends_it_as_it_would_end_an_interpreter(run: Run, tmp_path: Path) -> None:
    assert run("raise ValueError('the model said no')") == 1
    assert (tmp_path / "log.txt").read_text().endswith("ValueError: the model said no\n")


def test_each_problem_has_a_process_of_its_own(run: Run, tmp_path: Path) -> None:
    word = "import builtins, os\nprint(hasattr(builtins, 'left'), flush=True)\nbuiltins.left = 1"
    assert [run(word), run(word)] == [0, 0]
    assert (tmp_path / "log.txt").read_text() == "False\nFalse\n"


def test_a_grandchild_that_left_its_session_dies_when_the_suite_lets_go(run: Run, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    word = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork():\n        os._exit(0)\n"
        f"    made = {str(pid)!r} + '.made'\n"
        "    open(made, 'w').write(str(os.getpid()))\n    os.rename(made, made[:-5])\n"
        "time.sleep(300)"
    )
    assert run(word, let_go=pid) == keeper.LET_GO
    assert not alive(int(pid.read_text()))


def test_one_that_takes_too_long_is_stopped(run: Run) -> None:
    assert run("import time\ntime.sleep(300)", limit_s=0.3) == keeper.OUT_OF_TIME


def test_a_keeper_that_was_killed_counts_as_killed(run: Run) -> None:
    assert run("import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(300)") == KILLED


@pytest.mark.parametrize(
    "before",
    [
        "threading.Thread(target=time.sleep, args=(300,), daemon=True).start()",
        "nursery.has_opened_gpu = lambda: True",
        "os._exit(3)",
    ],
    ids=["a thread", "a GPU", "dead"],
)
def test_one_that_may_not_be_forked_says_so_and_the_problem_is_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    one = nursery(before)
    assert asked(one, tmp_path / "log.txt", "print('forked')") is None
    one.close()

    monkeypatch.setattr(runner, "CHILD", fake_suite.FAKE)
    monkeypatch.setattr(runner, "Nursery", lambda cores: nursery(before))
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "1_x.py").write_text("class Model: ...\n\n\ndef get_inputs():\n    return []\n")
    limits = runner.Limits(20.0, 0, None, 1, 1)
    terms = Terms("cpu", "reference", ("eager",), 5.0, "quick")
    order = runner.Order(terms, Places("cpu", "cpu", ("cpu",)), limits, "abc", "test", fake_suite.FAKE)
    problems = find_problems([tmp_path / "some"])
    outcome = runner.run_suite(problems, order, RunFolder(tmp_path / "run"), done=set(), watch=lambda row, name: None)
    assert [row.verdict for row in outcome.rows] == ["CORRECT"]


def test_all_that_a_problem_imports_leaves_the_nursery_fit_to_be_forked(tmp_path: Path) -> None:
    one = Nursery()
    assert asked(one, tmp_path / "log.txt", "this is no job") == 1
    one.close()
    assert "JSONDecodeError" in (tmp_path / "log.txt").read_text()
