"""Cores kept free for timing: who gets them, and that a whole tree of processes moves."""

import os
import subprocess
import sys

import pytest

from kernelwright.suite.cores import Cores, divided, move_to
from kernelwright.suite.turns import Hold


def test_a_gpu_has_cores_that_nobody_else_uses() -> None:
    found = divided(range(16), "cuda", ["cuda:0"], jobs=10)["cuda:0"]
    assert found.of(Hold.ALONE) == (12, 13, 14, 15)
    assert found.of(Hold.WITH_OTHERS) == found.of(Hold.NOT) == tuple(range(12))


def test_two_gpus_have_cores_of_their_own() -> None:
    found = divided(range(32), "cuda", ["cuda:0", "cuda:1"], jobs=4)
    assert not set(found["cuda:0"].quiet) & set(found["cuda:1"].quiet)
    assert found["cuda:0"].others == found["cuda:1"].others == tuple(range(24))


@pytest.mark.parametrize(
    ("cores", "kind", "jobs"),
    [(16, "cpu", 4), (16, "cuda", 1), (4, "cuda", 4)],
    ids=["the machine itself", "one at a time", "too few"],
)
def test_else_everybody_runs_anywhere(cores: int, kind: str, jobs: int) -> None:
    assert divided(range(cores), kind, ["it"], jobs)["it"] == Cores()


def test_a_process_moves_with_those_below_it() -> None:
    here = os.sched_getaffinity(0)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        move_to([min(here)])
        assert os.sched_getaffinity(child.pid) == os.sched_getaffinity(0) == {min(here)}
        move_to(())
        assert os.sched_getaffinity(0) == {min(here)}
    finally:
        move_to(sorted(here))
        child.communicate(b"\n")
