"""Statistics of times: intervals, verdicts on speed, and the plan of batches."""

import math
import random
from dataclasses import replace

import pytest

from kernelwright.judge import Interval, Speed
from kernelwright.judge.bootstrap import interval, ratio_interval
from kernelwright.judge.samples import CANDIDATE, Clocked, Samples, Turn, speed_of, summarise
from kernelwright.judge.timing import plan_batches, rounds_that_fit


def noisy(
    centre: float, runs: int = 3, blocks: int = 12, noise: float = 0.05, seed: int = 0
) -> list[list[list[float]]]:
    rng = random.Random(seed)
    return [[[centre * math.exp(rng.gauss(0, noise)) for _ in range(2)] for _ in range(blocks)] for _ in range(runs)]


def test_the_interval_holds_the_truth():
    found = interval(noisy(100.0))
    assert found.low < 100 < found.high
    assert found.median == pytest.approx(100, rel=0.03)


def test_noise_that_both_share_cancels():
    rng = random.Random(1)
    spells = [[[math.exp(rng.gauss(0, 1)) for _ in range(2)] for _ in range(20)] for _ in range(3)]
    slow = [[[2 * t for t in block] for block in run] for run in spells]
    found = ratio_interval(slow, spells)
    assert (found.median, found.low, found.high) == pytest.approx((2, 2, 2))


def test_restarts_that_differ_widen_the_interval():
    alike = interval(noisy(100, noise=0.01))
    apart = interval([run for centre in (90, 100, 110) for run in noisy(centre, runs=1, noise=0.01)])
    assert apart.high - apart.low > 3 * (alike.high - alike.low)


@pytest.mark.parametrize(
    ("speedup", "noise", "speed"),
    [
        (Interval(1.5, 1.4, 1.6), 0.01, Speed.FASTER),
        (Interval(1.03, 1.025, 1.04), 0.05, Speed.SAME),
        (Interval(0.5, 0.48, 0.52), 0.01, Speed.SLOWER),
        (Interval(1.0, 0.99, 1.01), 0.0, Speed.SAME),
        (Interval(1.2, 0.8, 1.9), 0.01, Speed.INCONCLUSIVE),
        (Interval(1.15, 0.99, 1.25), 0.01, Speed.INCONCLUSIVE),
        (Interval(1.01, 0.9, 1.2), 0.01, Speed.SAME),
        (Interval(math.inf, 1.0, math.inf), 0.01, Speed.IMPOSSIBLE),
        (Interval(math.nan, 1.0, 2.0), 0.01, Speed.IMPOSSIBLE),
    ],
)
def test_speed_is_said_only_beyond_the_noise(speedup: Interval, noise: float, speed: Speed):
    assert speed_of(speedup, noise) is speed


def turns(
    times_us: dict[str, float],
    alone_us: dict[str, float] | None = None,
    handed_us: float = 2.0,
    first_us: float = 0.0,
) -> list[Turn]:
    """Waking takes 100 us, handing an output over `handed_us`, and the first call `first_us` more than the others."""

    def turn(calls: int, each: dict[str, float]) -> Turn:
        handed = 100 + calls * handed_us
        elapsed = {name: (handed + first_us + calls * t) * 1e-6 for name, t in each.items()}
        return Turn(range(calls), handed * 1e-6, elapsed, 0)

    return [turn(50, times_us) for _ in range(6)] + [turn(1, alone_us or times_us) for _ in range(6)]


def test_the_overhead_of_a_batch_is_not_a_calls_time():
    samples = Samples()
    samples.add_restart(turns({"eager": 100.0, "eager again": 100.0, CANDIDATE: 50.0}))
    clocked = summarise(samples, ["eager"], 0.0)
    assert clocked.times_us[CANDIDATE].median == pytest.approx(50.0)
    assert clocked.speedup["eager"].median == pytest.approx(2.0)
    assert clocked.speed is Speed.FASTER


@pytest.mark.parametrize("handed_us", [0.0, 3.0, 40.0])
@pytest.mark.parametrize("first_us", [0.0, 200.0])
def test_neither_handing_over_nor_a_slower_first_call_brings_ratios_closer_to_one(handed_us: float, first_us: float):
    samples = Samples()
    times = {"eager": 30.0, "eager again": 30.0, CANDIDATE: 10.0}
    samples.add_restart(turns(times, handed_us=handed_us, first_us=first_us))
    clocked = summarise(samples, ["eager"], 0.0)
    assert clocked.times_us["eager"].median == pytest.approx(30.0)
    assert clocked.speedup["eager"].median == pytest.approx(3.0)
    assert not clocked.batches_calls


def test_single_calls_that_were_disturbed_do_not_make_all_first_calls_slow():
    times = {"eager": 3000.0, "eager again": 3000.0, CANDIDATE: 6000.0}
    disturbed = [
        replace(turn, elapsed_s={name: s + 0.004 for name, s in turn.elapsed_s.items()})
        if len(turn.slots) == 1 and number % 3
        else turn
        for number, turn in enumerate(turns(times))
    ]
    samples = Samples()
    samples.add_restart(disturbed)
    assert summarise(samples, ["eager"], 0.0).speedup["eager"].median == pytest.approx(0.5)


def test_one_of_the_two_eager_processes_that_was_disturbed_does_not_make_all_first_calls_slow():
    times = {"eager": 3000.0, "eager again": 3000.0, CANDIDATE: 6000.0}
    disturbed = [
        replace(turn, elapsed_s=turn.elapsed_s | {"eager again": turn.elapsed_s["eager again"] + 0.004})
        if len(turn.slots) == 1
        else turn
        for turn in turns(times)
    ]
    samples = Samples()
    samples.add_restart(disturbed)
    assert summarise(samples, ["eager"], 0.0).speedup["eager"].median == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("call_s", "calls", "batches"),
    [(0.0005, 8, 8), (0.001, 4, 8), (0.0033, 3, 14), (0.006, 3, 16), (0.015, 3, 8), (0.3, 1, 8)],
)
def test_short_calls_are_never_alone_in_a_batch_and_few_of_them_make_more_batches(
    call_s: float, calls: int, batches: int
):
    plan = plan_batches(call_s, 1 << 10, 1 << 30, 0.004)
    assert (plan.calls, plan.batches) == (calls, batches)


def test_where_room_is_scarce_eight_batches_matter_more_than_their_calls():
    plan = plan_batches(0.005, 1, 40, 0.004)
    assert (plan.calls, plan.batches) == (2, 8)


def test_one_large_call_at_a_time_is_measured_without_the_judges_own_reading():
    samples = Samples()
    one = Turn(range(1), 4.7e-3, {"eager": 7.7e-3, "eager again": 7.7e-3, CANDIDATE: 6.2e-3}, 0)
    samples.add_restart([one] * 8)
    clocked = summarise(samples, ["eager"], 0.0)
    assert clocked.times_us["eager"].median == pytest.approx(3000)
    assert clocked.speedup["eager"].median == pytest.approx(2.0)


def test_what_makes_a_large_first_call_slower_is_read_off_two_of_them():
    """h = 2 ms, f = 1 ms; a call of eager 3 ms, of the candidate 1.5 ms. The least h is taken off all batches."""
    samples = Samples()
    one = Turn(range(1), 2e-3, {"eager": 6e-3, "eager again": 6e-3, CANDIDATE: 4.5e-3}, 0, twice_s=8e-3)
    samples.add_restart([one] * 8)
    clocked = summarise(samples, ["eager"], 0.0)
    assert clocked.times_us["eager"].median == pytest.approx(3000)
    assert clocked.speedup["eager"].median == pytest.approx(2.0)


def test_slowing_small_batches_down_gains_nothing():
    """A slope of its own, T(50) - T(1), would make such a candidate look fast; the trusted worker's does not."""
    samples = Samples()
    times = {"eager": 100.0, "eager again": 100.0, CANDIDATE: 100.0}
    samples.add_restart(turns(times, times | {CANDIDATE: 4000.0}))
    clocked = summarise(samples, ["eager"], 0.0)
    assert clocked.speedup["eager"].median < 1.01
    assert clocked.speed is not Speed.FASTER


def test_a_disturbed_process_of_eager_makes_nobody_faster():
    samples = Samples()
    samples.add_restart(turns({"eager": 180.0, "eager again": 105.0, CANDIDATE: 100.0}))
    assert summarise(samples, ["eager"], 0.0).speed is Speed.INCONCLUSIVE


def test_a_speed_up_over_eager_is_by_the_turns_of_both_its_processes():
    """One process of the two is always a little slower: alone it would make a ratio of 1.04 or of 1."""
    samples = Samples()
    samples.add_restart(turns({"eager": 104.0, "eager again": 100.0, CANDIDATE: 100.0}))
    clocked = summarise(samples, ["eager"], 0.0)
    assert clocked.speedup["eager"].median == pytest.approx(1.02, abs=0.001)
    assert clocked.speed is Speed.SAME


def test_two_turns_do_not_know_the_noise_of_a_day():
    both = {"eager": 100.0, "eager again": 100.0, CANDIDATE: 107.0}
    few, many = Samples(), Samples()
    few.add_restart([turn for number, turn in enumerate(turns(both)) if number % 6 < 2])
    many.add_restart(turns(both) * 4)
    assert summarise(few, ["eager"], 0.0).speed is Speed.INCONCLUSIVE
    assert summarise(many, ["eager"], 0.0).speed is Speed.SLOWER


def test_faster_than_memory_is_impossible():
    samples = Samples()
    samples.add_restart(turns({"eager": 100.0, "eager again": 100.0, CANDIDATE: 1.0}))
    assert summarise(samples, ["eager"], 20.0).speed is Speed.IMPOSSIBLE


def one_by_one(times_us: dict[str, float], wobble: float = 0.0) -> list[Turn]:
    """Sixteen calls whose inputs come one at a time: 60 us of talk for each, and the call itself."""
    talk = 16 * 60e-6
    rng = random.Random(4)
    elapsed = lambda t: talk + 16 * (t + rng.gauss(0, wobble)) * 1e-6
    return [
        Turn(range(16), talk, {name: elapsed(t) for name, t in times_us.items()}, 0, one_by_one=True) for _ in range(8)
    ]


def clocked_with(together: dict[str, float], apart: dict[str, float], wobble: float = 0.0) -> Clocked:
    samples = Samples()
    samples.add_restart(turns(together) + one_by_one(apart, wobble))
    return summarise(samples, ["eager"], 0.0)


def test_work_done_ahead_in_the_first_call_shows_when_inputs_come_one_by_one():
    fast = {"eager": 20.0, "eager again": 20.0, CANDIDATE: 2.0}
    clocked = clocked_with(fast, fast | {CANDIDATE: 20.0})
    assert clocked.batches_calls
    assert clocked.speedup["eager"].median == pytest.approx(1.0, rel=0.01)
    assert clocked.speed is not Speed.FASTER


def test_who_saves_no_more_than_the_noise_has_nothing_to_confirm_one_by_one():
    """Eager differs from itself by 5 %; the candidate is 3 % faster in batches, and slow where it was disturbed."""
    times = {"eager": 100.0, "eager again": 105.0, CANDIDATE: 102.0}
    clocked = clocked_with(times, times | {CANDIDATE: 200.0})
    assert clocked.speed is Speed.SAME
    assert not clocked.batches_calls


def test_what_calls_one_by_one_cannot_confirm_is_not_called_faster():
    fast = {"eager": 20.0, "eager again": 20.0, CANDIDATE: 2.0}
    clocked = clocked_with(fast, fast | {CANDIDATE: 20.0}, wobble=400.0)
    assert clocked.speed is not Speed.FASTER


def test_two_calls_one_by_one_confirm_a_large_difference_and_no_small_one():
    def clocked(candidate_us: float) -> Clocked:
        times = {"eager": 300.0, "eager again": 300.0, CANDIDATE: candidate_us}
        samples = Samples()
        samples.add_restart(turns(times) + one_by_one(times)[:2])
        return summarise(samples, ["eager"], 0.0)

    assert clocked(100.0).speed is Speed.FASTER
    assert clocked(270.0).speed is not Speed.FASTER


def test_calls_that_are_lost_in_the_talk_about_them_are_nobodys_speed_up():
    samples = Samples()
    times = {"eager": 30.0, "eager again": 30.0, CANDIDATE: 10.0}
    samples.add_restart(turns(times) + one_by_one(times | {CANDIDATE: -5.0})[:2])
    clocked = summarise(samples, ["eager"], 0.0)
    assert clocked.speedup["eager"].median == pytest.approx(3.0, rel=0.01)
    assert clocked.speed is Speed.INCONCLUSIVE


@pytest.mark.parametrize("wobble", [0.0, 30.0])
def test_an_honest_candidate_is_as_fast_when_inputs_come_one_by_one(wobble: float):
    """On a GPU each call then waits for its launch as well, eager's more of them."""
    clocked = clocked_with(
        {"eager": 40.0, "eager again": 40.0, CANDIDATE: 10.0},
        {"eager": 60.0, "eager again": 60.0, CANDIDATE: 25.0},
        wobble,
    )
    assert not clocked.batches_calls
    assert clocked.speedup["eager"].median == pytest.approx(4.0)


def test_a_round_that_takes_too_long_is_made_once():
    plan = plan_batches(1e-4, 1 << 10, 1 << 30, 0.004)
    assert rounds_that_fit(plan, 10.0, 1.0) == plan.min_rounds
    assert rounds_that_fit(plan, 1.5, 1.0) == 1
    assert rounds_that_fit(plan, -3.0, 1.0) == 1


def test_batches_last_long_enough_and_fit():
    plan = plan_batches(1e-4, 1 << 10, 1 << 30, 0.004)
    assert plan.calls * 1e-4 >= 0.004
    assert plan.slots <= 512
    big = plan_batches(0.5, 1 << 28, 1 << 29, 0.004)
    assert (big.calls, big.batches) == (1, 2)
    assert [len(batch) for batch, _ in big.batch_slots()] == [1, 1, 1, 1]
    assert [one_by_one for _, one_by_one in plan.batch_slots()][-2:] == [True, True]
    slots = [slot for batch, _ in plan.batch_slots() for slot in batch]
    assert slots == list(range(plan.slots))
    assert plan_batches(1e-4, 1 << 10, 1 << 30, 0.004, most_slots=100).slots <= 100


@pytest.mark.parametrize("call_s", [1e-6, 1e-4, 3e-3, 0.011, 0.05])
@pytest.mark.parametrize("room", [4, 20, 100, 512])
def test_a_plan_fits_and_checks_batches_of_many_calls_one_by_one(call_s: float, room: int):
    plan = plan_batches(call_s, 1, room, 0.02)
    assert plan.slots <= room
    assert plan.batches >= 2
    assert (plan.one_by_one >= 2) == (call_s < 0.02 and room >= 16)
    assert plan.one_by_one * call_s < 0.05
