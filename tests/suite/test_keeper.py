"""The keeper: limits hold, and nothing that a problem started outlives it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.suite import keeper

# A grandchild in a session of its own, whose parent is gone: no process group leads to it.
ESCAPES = """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(300)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
time.sleep(float(sys.argv[2]))
"""


def start(
    tmp_path: Path, program: str, *arguments: str, limit_s: float = 30, memory_bytes: int = 0
) -> tuple[subprocess.Popen[bytes], int]:
    reading, leash = os.pipe()
    job = {
        "command": [sys.executable, "-c", program, *arguments],
        "log": str(tmp_path / "log.txt"),
        "limit_s": limit_s,
        "memory_bytes": memory_bytes,
        "leash": reading,
    }
    process = subprocess.Popen([sys.executable, keeper.__file__, json.dumps(job)], pass_fds=[reading])
    os.close(reading)
    return process, leash


def alive(process: int) -> bool:
    state = keeper.stat_of(process)
    return state is not None and state[1] != "Z"


def pid_in(path: Path) -> int:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError("the grandchild did not start")


def test_the_exit_status_and_the_output_are_the_commands_own(tmp_path: Path) -> None:
    process, leash = start(tmp_path, "import sys; print('hello'); sys.exit(7)")
    assert process.wait(30) == 7
    assert (tmp_path / "log.txt").read_text() == "hello\n"
    os.close(leash)


@pytest.mark.parametrize(
    ("lasts_s", "limit_s", "status"), [(0.1, 30, 0), (60, 0.5, keeper.OUT_OF_TIME)], ids=["done", "late"]
)
def test_a_grandchild_that_left_its_session_dies_with_its_problem(
    tmp_path: Path, lasts_s: float, limit_s: float, status: int
) -> None:
    process, leash = start(tmp_path, ESCAPES, str(tmp_path / "pid"), str(lasts_s), limit_s=limit_s)
    escaped = pid_in(tmp_path / "pid")
    assert process.wait(30) == status
    assert not alive(escaped)
    os.close(leash)


def test_the_tree_goes_when_the_suite_is_gone(tmp_path: Path) -> None:
    process, leash = start(tmp_path, ESCAPES, str(tmp_path / "pid"), "60")
    escaped = pid_in(tmp_path / "pid")
    os.close(leash)  # as the kernel does for a suite that was killed
    assert process.wait(30) == keeper.LET_GO
    assert not alive(escaped)


def test_a_problem_that_takes_too_much_memory_is_stopped(tmp_path: Path) -> None:
    program = "import time; x = bytearray(300 << 20); time.sleep(60)"
    process, leash = start(tmp_path, program, memory_bytes=100 << 20)
    assert process.wait(30) == keeper.OUT_OF_MEMORY
    os.close(leash)


def test_the_problem_goes_with_a_keeper_that_was_killed(tmp_path: Path) -> None:
    program = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
    process, leash = start(tmp_path, program, str(tmp_path / "pid"))
    child = pid_in(tmp_path / "pid")
    process.kill()
    process.wait(10)
    end = time.monotonic() + 10
    while alive(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(child)
    os.close(leash)
