"""Turns come in: seconds of batches, of all contestants; the time of one call of each, and what it amounts to, go out.

A batch of K calls takes T = h(K) + f + K t. h, what handing K outputs over takes, is measured on a trusted eager
worker by a batch whose calls give what they gave before; f, what makes the first call slower, is read off both eager
workers' batches of one and of many calls, or of two that follow one; t = (T - h - f) / K. The candidate's own slope is
not asked: slowing small batches down would forge it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median, quantiles
from typing import Any

from kernelwright.judge.bootstrap import Runs, interval, ratio_interval
from kernelwright.judge.verdict import Interval, Speed

__all__ = ["AGAIN", "CANDIDATE", "Clocked", "Samples", "Turn", "speed_of", "summarise", "well_known"]

AGAIN = "eager again"
CANDIDATE = "candidate"
TRUSTED = ("eager", AGAIN)
# Differences below this are nobody's achievement: layout of code and memory alone makes them.
SMALLEST_DIFFERENCE = 0.02
# Half an interval, in the logarithm, from which nothing is said: less is asked if the median itself is close to 1.
WIDE, VERY_WIDE, NEARLY_ONE = 0.10, 0.25, 0.05
WELL_KNOWN = 0.004
NOTHING_US = 0.01
# Noise that few turns cannot have seen, of one turn: two of them may agree by chance, however noisy the day is.
FEW_TURNS = 0.3


@dataclass(frozen=True, slots=True)
class Turn:
    """Every contestant once on the same inputs: seconds of a batch, in the order they ran; and of one without calls."""

    slots: range
    handed_s: float
    elapsed_s: dict[str, float]
    seed: int
    one_by_one: bool = False
    twice_s: float | None = None
    """Of the trusted eager worker: two calls, where batches have but one."""

    def seeded(self) -> list[tuple[range, int]]:
        """The calls that follow one setting of the random generator, and its seed."""
        if not self.one_by_one:
            return [(self.slots, self.seed)]
        return [(range(slot, slot + 1), self.seed + slot) for slot in self.slots]


@dataclass(slots=True)
class Samples:
    """Microseconds a call: of each contestant, by restart, block and turn."""

    times_us: dict[str, list[list[list[float]]]] = field(default_factory=dict)
    single_us: dict[str, list[float]] = field(default_factory=dict)
    one_by_one: bool = False
    """Whether single_us is of inputs that came one by one; else of batches of one call, which are never more."""
    raw: list[dict[str, Any]] = field(default_factory=list)

    def add_restart(self, turns: Sequence[Turn]) -> None:
        together = [turn for turn in turns if not turn.one_by_one]
        apart = [turn for turn in turns if turn.one_by_one]
        self.one_by_one = bool(apart)
        handed = hand_over(together)
        first = first_call(together, handed)
        most = max(handed)
        for name in turns[0].elapsed_s:
            full = [
                max(t.elapsed_s[name] - handed[most] - first, 1e-9) / most * 1e6
                for t in together
                if len(t.slots) == most
            ]
            self.times_us.setdefault(name, []).append([full[i : i + 2] for i in range(0, len(full), 2)])
            talk = min((t.handed_s / len(t.slots) for t in apart), default=0.0)
            alone = [max(t.elapsed_s[name] / len(t.slots) - talk, 1e-9) * 1e6 for t in apart]
            if not apart:
                alone = [max(t.elapsed_s[name] - handed[1] - first, 1e-9) * 1e6 for t in together if len(t.slots) == 1]
            self.single_us.setdefault(name, []).extend(alone)
        self.raw.append(
            {
                "handed_us": {calls: seconds * 1e6 for calls, seconds in handed.items()},
                "first_call_us": first * 1e6,
                "turns": [
                    {
                        "calls": len(t.slots),
                        "one_by_one": t.one_by_one,
                        "seed": t.seed,
                        "handed_us": t.handed_s * 1e6,
                        "us": {name: s * 1e6 for name, s in t.elapsed_s.items()},
                    }
                    for t in turns
                ],
            }
        )


def hand_over(turns: Sequence[Turn]) -> dict[int, float]:
    """Calls of a batch -> seconds that such a batch takes besides its calls, of the trusted worker.

    The least that was seen: what a busy machine adds to it is not in every batch, and taken off one where it is not,
    it would leave nothing of the calls.
    """
    sizes = sorted({len(turn.slots) for turn in turns})
    return {calls: min(turn.handed_s for turn in turns if len(turn.slots) == calls) for calls in sizes}


def first_call(turns: Sequence[Turn], handed: dict[int, float]) -> float:
    """Seconds by which the first call after waking is slower than the others, of the trusted workers."""
    most = max(handed)
    if most == 1:
        return first_of_two(turns, handed[1])
    one, all_of_them = (
        [turn.elapsed_s[name] - handed[calls] for turn in turns if len(turn.slots) == calls for name in TRUSTED]
        for calls in (1, most)
    )
    # Of the few single calls the least: what a busy machine adds to them is no part of every batch's first call.
    slower = min(one) - (median(all_of_them) - min(one)) / (most - 1)
    return plausible(slower, median(all_of_them))


def first_of_two(turns: Sequence[Turn], handed_s: float) -> float:
    """The same where no batch has more than one call: one takes T = h + f + t. Two more on the same inputs, right after
    it, take h + 2 t: nobody else, the judge least of all, had the GPU in between."""
    slower = [
        turn.elapsed_s[AGAIN] - handed_s - (turn.twice_s - turn.handed_s) / 2
        for turn in turns
        if turn.twice_s is not None
    ]
    if not slower:
        return 0.0
    spent = median(turn.elapsed_s[AGAIN] - handed_s for turn in turns)
    return plausible(median(slower), spent)


def plausible(slower_s: float, spent_s: float) -> float:
    """Noise may say that the first call is faster, or all that takes time: neither leaves a time for the calls."""
    return min(max(0.0, slower_s), max(0.0, spent_s / 2))


@dataclass(frozen=True, slots=True)
class Clocked:
    """What the samples say."""

    times_us: dict[str, Interval]
    speedup: dict[str, Interval]
    noise: float
    speed: Speed
    batches_calls: bool


def well_known(turns: Sequence[Turn]) -> bool:
    """Whether this restart knows its ratio well enough: what is left then lies between restarts."""
    so_far = Samples()
    so_far.add_restart(turns)
    found = ratio_interval(so_far.times_us[AGAIN], so_far.times_us[CANDIDATE])
    return math.log(found.high / found.low) / 2 < WELL_KNOWN


def summarise(samples: Samples, baselines: Sequence[str], floor_us: float) -> Clocked:
    """Intervals of each contestant and of each speed-up, and what they amount to."""
    measured = samples.times_us
    times = {name: interval(runs) for name, runs in measured.items()}
    speedup = {name: _speedup(measured, name) for name in baselines if name in measured}
    noise = 0.0
    if AGAIN in measured and "eager" in measured:
        between = ratio_interval(measured["eager"], measured[AGAIN])
        noise = max(abs(math.log(between.low)), abs(math.log(between.high)), FEW_TURNS / turns_of(measured[AGAIN]))
    alone = _alone(samples, times, noise)
    by_one = alone is Alone.DISAGREES or (alone is Alone.UNCLEAR and _seen_alone(samples))
    if by_one:  # nobody can do the work of such calls ahead: what they say counts, if they are enough to say anything
        measured = {name: [[[us] for us in alone_us]] for name, alone_us in samples.single_us.items()}
        speedup = {name: _speedup(measured, name) for name in speedup}
    known = max(noise, FEW_TURNS / turns_of(measured[CANDIDATE]))
    first = next(iter(speedup.values()), None)
    speed = Speed.INCONCLUSIVE if first is None or _unmeasured(samples) else speed_of(first, known)
    if speed in (Speed.FASTER, Speed.SLOWER) and next(iter(speedup)) == "eager":
        # Eager takes part twice. A process that was disturbed is slow by itself: both must say the same.
        each = (ratio_interval(measured[name], measured[CANDIDATE]) for name in TRUSTED)
        speed = speed if all(speed_of(one, known) is speed for one in each) else Speed.INCONCLUSIVE
    if not times[CANDIDATE].high >= 0.9 * floor_us:
        speed = Speed.IMPOSSIBLE
    if speed is Speed.FASTER and alone is Alone.UNCLEAR and samples.one_by_one and not by_one:
        speed = Speed.INCONCLUSIVE
    return Clocked(times, speedup, noise, speed, alone is Alone.DISAGREES)


def _speedup(measured: Mapping[str, Runs], name: str) -> Interval:
    """Against a baseline, turn by turn; against eager, which takes part twice, by the turns of both."""
    own, theirs = measured[CANDIDATE], measured[name]
    if name == "eager" and AGAIN in measured:
        return ratio_interval(_side_by_side(theirs, measured[AGAIN]), _side_by_side(own, own))
    return ratio_interval(theirs, own)


def _side_by_side(one: Runs, other: Runs) -> list[list[list[float]]]:
    return [[[*a, *b] for a, b in zip(*runs, strict=True)] for runs in zip(one, other, strict=True)]


class Alone(Enum):
    """What calls whose inputs come one by one say of the time that a candidate saves."""

    AGREES = "it is saved there too"
    DISAGREES = "it is not: the work of many calls was done in one of them"
    UNCLEAR = "there is too much noise to say"


def _alone(samples: Samples, times: dict[str, Interval], noise: float) -> Alone:
    """Compared is what it saves over eager, in microseconds: a call alone may take longer for both, if kernels are
    launched while others run, but work that is saved is saved there too; half of it, to be on the safe side."""
    saved = times[AGAIN].median - times[CANDIDATE].median
    alone = [a - c for a, c in zip(samples.single_us[AGAIN], samples.single_us[CANDIDATE], strict=True)]
    if saved < max(noise, SMALLEST_DIFFERENCE) * times[AGAIN].median:
        return Alone.AGREES  # nothing to check: that is nobody's achievement
    if len(alone) < 4:
        return Alone.UNCLEAR
    low, middle, high = quantiles(alone, n=4)
    error = 2 * (high - low) / math.sqrt(len(alone))
    if middle + error < 0.5 * saved:
        return Alone.DISAGREES
    return Alone.AGREES if middle - error > 0.25 * saved else Alone.UNCLEAR


def _unmeasured(samples: Samples) -> bool:
    """Whether much of what was measured is no time at all: the hand-over, as noisy as it is here, takes longer."""
    turns = [us for run in samples.times_us[CANDIDATE] for block in run for us in block]
    return sum(us < NOTHING_US for us in turns) > len(turns) / 4


def _seen_alone(samples: Samples) -> bool:
    """Whether calls one by one were measured, and take longer than talking about them does."""
    both = (*samples.single_us[CANDIDATE], *samples.single_us[AGAIN])
    return samples.one_by_one and sum(us < NOTHING_US for us in both) <= len(both) / 4


def turns_of(runs: Sequence[Sequence[Sequence[float]]]) -> int:
    return max(1, sum(len(block) for run in runs for block in run))


def speed_of(speedup: Interval, noise: float) -> Speed:
    """Faster or slower only beyond the noise that eager has against itself."""
    margin = 1 + max(noise, SMALLEST_DIFFERENCE)
    if not all(math.isfinite(x) and x > 0 for x in (speedup.median, speedup.low, speedup.high)):
        return Speed.IMPOSSIBLE
    if speedup.low > margin:
        return Speed.FASTER
    if speedup.high < 1 / margin:
        return Speed.SLOWER
    # An interval is no narrower than the noise: few turns may agree by chance.
    width = max(math.log(speedup.high / speedup.low) / 2, noise)
    if width > (WIDE if abs(math.log(speedup.median)) > NEARLY_ONE else VERY_WIDE):
        return Speed.INCONCLUSIVE
    return Speed.SAME
