"""Two runs side by side: what changed beyond the noise, and nothing else."""

from dataclasses import replace

from kernelwright.suite.compare import compared, comparison_text
from tests.suite.made import failed_row, make_row


def test_a_change_beyond_both_intervals_counts_and_one_within_does_not() -> None:
    before = [make_row("a/up", 2.0), make_row("a/down", 2.0), make_row("a/still", 2.0)]
    after = [make_row("a/up", 2.5), make_row("a/down", 1.5), make_row("a/still", 2.02)]
    found = compared(before, after)
    assert [change.problem for change in found.faster] == ["a/up"]
    assert [change.problem for change in found.slower] == ["a/down"]
    assert [change.problem for change in found.same] == ["a/still"]


def test_the_same_change_is_noise_where_the_intervals_are_wide() -> None:
    found = compared([make_row("a", 2.0, spread=0.2)], [make_row("a", 2.5, spread=0.2)])
    assert not found.faster
    assert found.same[0].margin > 1.25


def test_eager_against_itself_widens_what_counts_as_noise() -> None:
    noisy = [replace(make_row("a", over), noise=0.3) for over in (2.0, 2.5)]
    assert not compared(noisy[:1], noisy[1:]).faster


def test_verdicts_that_turned_are_named() -> None:
    before = [make_row("a/broke"), failed_row("a/mended", "INCORRECT"), failed_row("a/other", "BUG")]
    after = [failed_row("a/broke", "CRASH", "it crashed"), make_row("a/mended"), failed_row("a/other", "OUT_OF_TIME")]
    found = compared(before, after)
    assert [t.problem for t in found.newly_wrong] == ["a/broke"]
    assert [t.problem for t in found.newly_right] == ["a/mended"]
    assert [t.problem for t in found.otherwise] == ["a/other"]
    text = comparison_text(found)
    assert "a/broke  CORRECT -> CRASH  it crashed" in text


def test_problems_of_one_run_only_are_listed_and_public_ones_are_matched_by_number() -> None:
    before = [make_row("level1/3_Batched_matmul"), make_row("a/gone")]
    after = [make_row("checkout/KernelBench/level1/3_Batched", 3.0), make_row("a/new")]
    found = compared(before, after)
    assert len(found.faster) == 1
    assert (found.only_before, found.only_after) == (("a/gone",), ("a/new",))


def test_without_eager_times_are_held_against_times() -> None:
    alone = make_row("a")
    before = replace(alone, speedup={}, times_us={"candidate": alone.times_us["candidate"]})
    faster = {name: replace(span, median=50.0, low=49.5, high=50.5) for name, span in before.times_us.items()}
    (change,) = compared([before], [replace(before, times_us=faster)]).faster
    assert (change.basis, change.factor) == ("time", 2.0)
