"""Turns at a device: timing is alone, the rest goes together, nobody starves."""

import time
from functools import partial
from pathlib import Path

import pytest

from kernelwright.suite.turns import Hold, Turns, hold_of
from tests.suite.background import in_background


@pytest.mark.parametrize(
    ("phase", "kind", "hold"),
    [
        ("capture", "cuda", Hold.NOT),
        ("capture", "cpu", Hold.WITH_OTHERS),
        ("tuning add_kernel", "cuda", None),
        ("tune", "cuda", Hold.ALONE),
        ("judge", "cuda", Hold.WITH_OTHERS),
        ("read", "cuda", None),
        ("build", "cuda", Hold.NOT),
        ("build", "cpu", Hold.WITH_OTHERS),
        ("examine", "cuda", Hold.WITH_OTHERS),
        ("start", "cuda", Hold.NOT),
        ("time", "cuda", Hold.ALONE),
        ("time", "cpu", Hold.ALONE),
        ("conclude", "cuda", Hold.NOT),
        ("conclude", "cpu", Hold.WITH_OTHERS),
    ],
)
def test_a_phase_has_the_device_as_the_table_says(phase: str, kind: str, hold: Hold | None) -> None:
    assert hold_of(phase, kind) is hold


def test_one_that_times_waits_for_those_that_check_and_they_for_it(tmp_path: Path) -> None:
    first, second, timing = (Turns(tmp_path, "cuda:0", alone=False) for _ in range(3))
    first.take(Hold.WITH_OTHERS)
    second.take(Hold.WITH_OTHERS)  # together
    got = in_background(lambda: timing.take(Hold.ALONE))
    got.join(0.2)
    assert got.is_alive()
    first.take(Hold.NOT)
    second.take(Hold.NOT)
    got.join(5)
    assert not got.is_alive()
    back = in_background(lambda: first.take(Hold.WITH_OTHERS))
    back.join(0.2)
    assert back.is_alive()
    timing.take(Hold.NOT)
    back.join(5)
    assert not back.is_alive()


def test_newcomers_queue_behind_one_that_waits_to_be_alone(tmp_path: Path) -> None:
    order: list[str] = []
    checking, timing, newcomer = (Turns(tmp_path, "cpu", alone=False) for _ in range(3))
    checking.take(Hold.WITH_OTHERS)

    def wait_alone() -> None:
        timing.take(Hold.ALONE)
        order.append("timing")
        timing.take(Hold.NOT)

    def come_late() -> None:
        newcomer.take(Hold.WITH_OTHERS)
        order.append("newcomer")

    one = in_background(wait_alone)
    time.sleep(0.2)
    other = in_background(come_late)
    time.sleep(0.2)
    assert order == []
    checking.take(Hold.NOT)
    one.join(5)
    other.join(5)
    assert order == ["timing", "newcomer"]


def test_those_that_wait_to_be_alone_go_one_after_the_other(tmp_path: Path) -> None:
    order: list[str] = []
    checking, first, second, newcomer = (Turns(tmp_path, "cuda:0", alone=False) for _ in range(4))
    checking.take(Hold.WITH_OTHERS)

    def come(name: str, turns: Turns, hold: Hold) -> None:
        turns.take(hold)
        order.append(name)
        time.sleep(0.1)
        turns.take(Hold.NOT)

    threads = []
    for name, turns, hold in (
        ("timing", first, Hold.ALONE),
        ("newcomer", newcomer, Hold.WITH_OTHERS),
        ("timing", second, Hold.ALONE),
    ):
        threads.append(in_background(partial(come, name, turns, hold)))
        time.sleep(0.1)
    checking.take(Hold.NOT)
    for thread in threads:
        thread.join(5)
    assert order == ["timing", "timing", "newcomer"]


def test_two_gpus_do_not_wait_for_each_other(tmp_path: Path) -> None:
    Turns(tmp_path, "cuda:0", alone=False).take(Hold.ALONE)
    other = in_background(lambda: Turns(tmp_path, "cuda:1", alone=False).take(Hold.ALONE))
    other.join(5)
    assert not other.is_alive()


def test_a_problem_that_is_run_alone_shares_the_device_with_nobody(tmp_path: Path) -> None:
    turns = Turns(tmp_path, "cuda:0", alone=True)
    turns.enter("judge")
    assert turns.hold is Hold.ALONE
    turns.enter("capture")
    assert turns.hold is Hold.NOT


def test_where_nothing_is_measured_tuning_needs_no_device(tmp_path: Path) -> None:
    turns = Turns(tmp_path, "cuda:0", alone=False, measured=False)
    for phase in ("route", "tune"):
        turns.enter(phase)
        assert turns.hold is Hold.NOT


def test_each_new_hold_is_told(tmp_path: Path) -> None:
    told: list[Hold] = []
    turns = Turns(tmp_path, "cuda:0", alone=False, moved=told.append)
    turns.enter("judge")
    turns.enter("time")
    turns.enter("time")
    assert told == [Hold.NOT, Hold.WITH_OTHERS, Hold.NOT, Hold.ALONE]
