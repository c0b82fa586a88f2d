"""The numbers that sum a run up."""

import math

from kernelwright.report.row import Span
from kernelwright.report.summary import fast_share, said_of, summarise
from tests.suite.made import failed_row, make_row

ROWS = [
    make_row("a/fast", 4.0),
    make_row("a/same", 1.0),
    make_row("a/slow", 0.5),
    make_row("a/constant", 100.0, degenerate=True),
    failed_row("a/wrong", "INCORRECT"),
    failed_row("a/kept", "NOTHING_TO_DO"),
]


def test_means_are_over_right_timed_problems_that_are_not_degenerate() -> None:
    eager = summarise(ROWS).against[0]
    assert (eager.baseline, eager.timed) == ("eager", 3)
    assert (eager.faster, eager.same, eager.slower) == (1, 1, 1)
    assert math.isclose(eager.geomean, (4.0 * 1.0 * 0.5) ** (1 / 3))
    assert eager.median == 1.0
    assert eager.best == (4.0, "a/fast")


def test_every_row_has_one_standing() -> None:
    summary = summarise(ROWS)
    assert dict(summary.standings) == {"right": 4, "wrong": 1, "unchanged": 1}
    assert summary.degenerate == ("a/constant",)


def test_the_share_that_is_faster_counts_all_problems_and_only_right_ones() -> None:
    share = fast_share(ROWS, "eager")
    assert share(1.0) == 2 / 6
    assert share(0.0) == 4 / 6
    assert share(1000.0) == 0.0


def test_a_difference_within_the_noise_is_none() -> None:
    assert said_of(Span(1.10, 1.05, 1.15), 0.20) == "same"
    assert said_of(Span(1.10, 1.05, 1.15), 0.01) == "faster"
    assert said_of(Span(1.01, 1.005, 1.015), 0.0) == "same"  # less than code layout alone makes
    assert said_of(Span(0.80, 0.75, 0.85), None) == "slower"


def test_a_run_of_failures_alone_still_has_a_summary() -> None:
    summary = summarise([failed_row("a", "BUG")])
    assert summary.against == ()
    assert dict(summary.standings) == {"broken": 1}


def test_what_the_judge_cannot_say_is_in_no_mean_and_nobodys_best() -> None:
    clear, unclear = make_row("clear", 2.0), make_row("unclear", 3000.0, speed="INCONCLUSIVE")
    eager = summarise([clear, unclear]).against[0]
    assert (eager.timed, eager.unclear, eager.best) == (1, 1, (2.0, "clear"))
    assert math.isclose(eager.geomean, 2.0)
    assert unclear.over("eager") is None
    assert fast_share([clear, unclear], "eager")(100.0) == 0.0
