"""Contestants come in; the time of one call of each, with raw samples, goes out.

The clock is the judge's. A batch of K calls on K fresh inputs takes T; what a batch of none takes on the trusted eager
worker, a, is subtracted: t = (T - a) / K. The candidate's own overhead is not asked: it could be inflated to shrink the
difference. Contestants take turns on the same inputs in random order, and in the reverse order on the next ones (ABBA);
each pair of rounds is a block. All processes are restarted between runs. Eager takes part twice, as a second process:
the difference between the two is the day's noise. Every output of the candidate is compared with eager's, computed by
the judge.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch

from kernelwright.judge.bootstrap import interval, ratio_interval
from kernelwright.judge.codec import flatten_arguments
from kernelwright.judge.contestant import Contestant, Shape
from kernelwright.judge.correctness import describe_score, write_inputs
from kernelwright.judge.criterion import Limit, Yardstick, limits_for, score
from kernelwright.judge.oracle import Oracle, same_bits
from kernelwright.judge.reference import Reference, State
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.verdict import Failed, Interval, Speed, Verdict

__all__ = [
    "AGAIN",
    "CANDIDATE",
    "Clocked",
    "Course",
    "Plan",
    "Samples",
    "plan_batches",
    "run_once",
    "speed_of",
    "summarise",
]

AGAIN = "eager again"
CANDIDATE = "candidate"
# Differences below this are nobody's achievement: layout of code and memory alone makes them.
SMALLEST_DIFFERENCE = 0.02
WIDE = 0.10


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure: K calls to a batch, batches to a round of fresh inputs, rounds to a restart."""

    calls: int
    batches: int
    min_rounds: int
    max_rounds: int

    @property
    def slots(self) -> int:
        return self.calls * self.batches


@dataclass(frozen=True, slots=True)
class Turn:
    """Every contestant once on the same inputs: seconds of a batch, in the order they ran."""

    calls: int
    overhead_s: float
    elapsed_s: dict[str, float]
    seed: int


@dataclass(slots=True)
class Samples:
    """Microseconds a call: of each contestant, by restart, block and turn."""

    times_us: dict[str, list[list[list[float]]]] = field(default_factory=dict)
    raw: list[dict[str, Any]] = field(default_factory=list)

    def add_restart(self, turns: Sequence[Turn]) -> None:
        overhead = median(turn.overhead_s for turn in turns)
        for name in turns[0].elapsed_s:
            each = [max(turn.elapsed_s[name] - overhead, 1e-9) / turn.calls * 1e6 for turn in turns]
            self.times_us.setdefault(name, []).append([each[i : i + 2] for i in range(0, len(each), 2)])
        self.raw.append(
            {
                "overhead_us": overhead * 1e6,
                "turns": [
                    {"calls": t.calls, "seed": t.seed, "us": {name: s * 1e6 for name, s in t.elapsed_s.items()}}
                    for t in turns
                ],
            }
        )


@dataclass(frozen=True, slots=True)
class Clocked:
    """What the samples say."""

    times_us: dict[str, Interval]
    speedup: dict[str, Interval]
    noise: float
    speed: Speed


@dataclass(frozen=True, slots=True)
class Course:
    """What all contestants run on."""

    reference: Reference
    oracle: Oracle
    shape: Shape
    state: State
    yards: list[Yardstick]
    """Of the problem's own inputs, one for each output tensor: how far the candidate's may be from eager's."""
    stateful: bool
    verified: bool
    """False only for random models whose generator the candidate uses differently."""


def run_once(
    contestants: dict[str, Contestant],
    course: Course,
    plan: Plan,
    seeds: Seeds,
    samples: Samples,
    until_s: float,
    busy: bool,
    progress: Callable[[float], None],
) -> None:
    """One restart: warm up, then blocks until the time is over."""
    _round(contestants, course, plan, seeds)  # not counted: caches and clocks warm up
    if busy:
        _spread_threads(contestants)
    start = time.perf_counter()
    turns: list[Turn] = []
    for number in range(plan.max_rounds):
        if number >= plan.min_rounds and time.perf_counter() >= until_s:
            break
        turns += _round(contestants, course, plan, seeds)
        progress(min(1.0, (time.perf_counter() - start) / max(until_s - start, 1e-9)))
    samples.add_restart(turns)


def _spread_threads(contestants: dict[str, Contestant]) -> None:
    """Each thread to a core of its own, if all contestants keep as many threads as eager does."""
    counts = {len(contestant.worker.threads()) for contestant in contestants.values()}
    if len(counts) == 1:
        for contestant in contestants.values():
            contestant.worker.spread_threads()


def _round(contestants: dict[str, Contestant], course: Course, plan: Plan, seeds: Seeds) -> list[Turn]:
    """Fresh inputs for several batches; contestants take turns batch by batch, in random order, then in its reverse."""
    input_seeds = [seeds.draw() for _ in range(plan.slots)]
    for contestant in contestants.values():
        if course.stateful:
            contestant.take_state(list(course.state.values()))
        contestant.map(course.shape, range(plan.slots))
    inputs = [course.reference.draw(s) for s in input_seeds]
    write_inputs(contestants[CANDIDATE], inputs)
    rng = random.Random(seeds.draw())
    order = list(contestants)
    turns = []
    for batch in range(plan.batches):
        order = order[::-1] if batch % 2 else rng.sample(order, len(order))
        slots = range(batch * plan.calls, (batch + 1) * plan.calls)
        turns.append(_turn(contestants, order, slots, inputs, seeds.draw()))
    _verify(contestants[CANDIDATE], course, inputs, [turn.seed for turn in turns], plan.calls)
    return turns


def _turn(
    contestants: dict[str, Contestant],
    order: Sequence[str],
    slots: range,
    inputs: Sequence[tuple[Any, ...]],
    seed: int,
) -> Turn:
    overhead = contestants[AGAIN].call(range(0), seed)
    elapsed = {}
    for name in order:
        elapsed[name] = contestants[name].call(slots, seed)
        if name == CANDIDATE:
            _restore(contestants[name], inputs, slots)
    return Turn(len(slots), overhead, elapsed, seed)


def _verify(
    contestant: Contestant, course: Course, inputs: Sequence[tuple[Any, ...]], seeds: Sequence[int], calls: int
) -> None:
    """Every output of a timed call against eager's on the same input."""
    if not course.verified:
        return
    state = course.state
    for batch, seed in enumerate(seeds):
        first = batch * calls
        expected = course.oracle.eager(state, inputs[first : first + calls], seed)
        if course.stateful:
            state = expected.state
        for number, row in enumerate(expected.calls, first):
            for e, c, yard in zip(row, contestant.outputs(number), course.yards, strict=True):
                if close_at_once(c, e, yard):
                    continue
                s = score(c, _yard_around(e, yard))
                if not (s.within(_doubled(limits_for(e.dtype))) or _rounding_decides(c, e, yard)):
                    detail = f"call {number + 1} of {len(inputs)} while being timed: {describe_score(s)}"
                    raise Failed(Verdict.INCORRECT, detail)


def close_at_once(candidate: torch.Tensor, eager: torch.Tensor, yard: Yardstick) -> bool:
    """So close that nothing finer need be asked; most outputs are, and this costs one pass."""
    if not eager.dtype.is_floating_point:
        return torch.equal(candidate, eager)
    limit = limits_for(eager.dtype)
    bound = min(limit.loose_worst * yard.eager_rms, limit.loose_rms * yard.rms)
    return float((candidate - eager).abs().max()) <= bound if eager.numel() else True


def _yard_around(eager: torch.Tensor, own: Yardstick) -> Yardstick:
    """Eager's answer takes the oracle's place; the condition estimate of other inputs, at its largest, the spread's."""
    flat = eager.reshape(-1)
    if not eager.dtype.is_floating_point:
        return replace(own, exact=flat, eager=flat, settled=None)
    largest = float(own.spread.max()) if own.spread is not None and own.spread.numel() else 0.0
    return replace(own, exact=flat.double(), eager=flat, spread=None, eager_rms=own.eager_rms + largest)


def _rounding_decides(candidate: torch.Tensor, eager: torch.Tensor, own: Yardstick) -> bool:
    """Indices of near ties may differ; about as many as were unsettled on the inputs that made the yardstick."""
    if eager.dtype.is_floating_point or own.settled is None:
        return False
    unsettled = 1 - float(own.settled.double().mean())
    return float((candidate != eager).double().mean()) <= 3 * unsettled + 1e-3 * (unsettled > 0)


def _doubled(limit: Limit) -> Limit:
    """Both sides are off from the truth here, and inputs differ from those that made the yardstick."""
    return Limit(4 * limit.loose_rms, 4 * limit.loose_worst, 0, 0)


def _restore(contestant: Contestant, inputs: Sequence[tuple[Any, ...]], slots: range) -> None:
    """Whoever comes next gets the inputs as they were."""
    for slot in slots:
        _, tensors = flatten_arguments(inputs[slot])
        for place, tensor in zip(contestant.layout.slots[slot], tensors, strict=True):
            view = contestant.pool.view(place)
            if not same_bits(view, tensor):
                view.copy_(tensor)


def summarise(samples: Samples, baselines: Sequence[str], floor_us: float) -> Clocked:
    """Intervals of each contestant and of each speed-up, and what they amount to."""
    measured = samples.times_us
    times = {name: interval(runs) for name, runs in measured.items()}
    speedup = {name: ratio_interval(measured[name], measured[CANDIDATE]) for name in baselines if name in measured}
    noise = 0.0
    if AGAIN in measured and "eager" in measured:
        between = ratio_interval(measured["eager"], measured[AGAIN])
        noise = max(abs(math.log(between.low)), abs(math.log(between.high)))
    first = next(iter(speedup.values()), None)
    speed = Speed.INCONCLUSIVE if first is None else speed_of(first, noise)
    if not times[CANDIDATE].high >= 0.9 * floor_us:
        speed = Speed.IMPOSSIBLE
    return Clocked(times, speedup, noise, speed)


def speed_of(speedup: Interval, noise: float) -> Speed:
    """Faster or slower only beyond the noise that eager has against itself."""
    margin = 1 + max(noise, SMALLEST_DIFFERENCE)
    if not all(math.isfinite(x) and x > 0 for x in (speedup.median, speedup.low, speedup.high)):
        return Speed.IMPOSSIBLE
    if speedup.low > margin:
        return Speed.FASTER
    if speedup.high < 1 / margin:
        return Speed.SLOWER
    if math.log(speedup.high / speedup.low) / 2 > WIDE:
        return Speed.INCONCLUSIVE
    return Speed.SAME


def plan_batches(seconds_a_call: float, bytes_a_call: int, memory_bytes: int, target_s: float) -> Plan:
    """Batches that last about `target_s`, as many of them to a round as fit; always an even number."""
    fitting = max(2, min(512, memory_bytes // max(bytes_a_call, 1)))
    calls = max(1, min(math.ceil(target_s / max(seconds_a_call, 1e-7)), fitting // 2))
    batches = max(2, min(8, fitting // calls) // 2 * 2)
    return Plan(calls=calls, batches=batches, min_rounds=2, max_rounds=60)
