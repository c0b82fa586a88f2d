"""The judge's time: stages end when they should, what does not fit is left out and named, slow starts run beside."""

import threading
import time
from types import SimpleNamespace

import pytest
import torch

from kernelwright.judge.beginning import Beginning
from kernelwright.judge.budget import (
    SHARES,
    Budget,
    Share,
    Stopwatch,
    WorkClock,
    share_of_restart,
    time_for_restart,
)
from kernelwright.judge.verdict import Failed, Verdict


class Clock:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_stages_end_one_after_the_other_and_a_third_is_left_for_timing():
    ends = list(SHARES.values())
    assert ends == sorted(ends)
    assert ends[-1] == 1.0
    assert SHARES["time"] - SHARES["sanitize"] >= 0.3


def test_a_stage_that_uses_little_leaves_its_time_to_the_next(clock: Clock):
    budget = Budget(100, clock)
    clock.now += 10
    assert budget.left("examine") == pytest.approx(100 * SHARES["examine"] - 10)
    assert budget.left("time") == pytest.approx(90)
    clock.now += 200
    assert budget.left("time") == 0


def test_a_step_that_does_not_fit_is_left_out_and_named(clock: Clock):
    budget = Budget(10, clock)
    assert budget.allows("doubt", "known-bad answers", 1.0)
    assert not budget.skipped
    clock.now += 5
    assert not budget.allows("doubt", "known-bad answers", 1.0)
    assert budget.skipped == {"known-bad answers": "would take about 1.0 s, 0.8 s were left"}


def test_steps_that_fit_never_overrun_when_the_last_tells_of_the_next(clock: Clock):
    budget, watch, done = Budget(60, clock), Stopwatch(clock), 0
    while done < 2 or budget.fits("examine", watch.last_s):
        clock.now += 4.0
        watch.lap()
        done += 1
    assert clock.now - 100 <= SHARES["examine"] * 60
    assert done == 6


def test_all_contestants_are_started_once_whatever_it_takes_and_again_only_if_it_fits():
    assert time_for_restart(0, -5.0, 0.0)
    assert time_for_restart(1, 6.0, 4.0)
    assert not time_for_restart(1, 4.5, 4.0)
    assert not time_for_restart(2, 0.5, 0.0)


@pytest.mark.parametrize("starting_s", [0.5, 4.0, 9.0])
def test_restarts_share_what_starting_leaves(starting_s: float):
    left, spent = 20.0 - starting_s, 0.0
    for restart in range(3):
        if restart and not time_for_restart(restart, left, starting_s):
            break
        left -= starting_s if restart else 0.0
        share = share_of_restart(left, starting_s, 3 - restart)
        left, spent = left - share, spent + share
    assert left >= 0
    assert spent > 0


def test_a_share_is_over_when_it_is_over(clock: Clock):
    share = Share(2.0, clock)
    assert share.lasts()
    clock.now += 2.0
    assert not share.lasts()


# --- slow starts


class FakeContestant:
    name = "compile"

    def __init__(self) -> None:
        self.closed = 0
        self.worker = SimpleNamespace(tree=list)

    def close(self) -> None:
        self.closed += 1


def begun(start) -> Beginning:
    return Beginning(FakeContestant(), start, torch.device("cpu"))  # type: ignore[arg-type]


def test_a_start_that_succeeds_beside_other_work_is_ready():
    assert begun(lambda: None).wait(30) == ""


def test_a_start_that_fails_says_why():
    def fail() -> None:
        raise Failed(Verdict.RUNTIME_ERROR, "it does not compile")

    assert begun(fail).wait(30) == "it does not compile"


def test_a_start_that_is_not_ready_in_time_is_ended():
    ended = threading.Event()
    slow = begun(lambda: ended.wait(60) and None)
    slow.contestant.worker.tree = lambda: ended.set() or []  # taking the worker down ends its start
    began = time.perf_counter()
    assert slow.wait(0.01) == "it was not ready in time"
    assert slow.contestant.closed == 1
    assert time.perf_counter() - began < 30


def test_a_work_clock_stands_still_while_we_wait() -> None:
    now = 0.0
    clock = WorkClock(lambda: now)
    budget = Budget(10.0, clock)
    now = 2.0
    with clock.stopped():
        now = 60.0
    assert clock() == 2.0
    assert budget.left("time") == 8.0
