"""Contestants come in; the time of one call of each, with raw samples, goes out.

The clock is the judge's. A batch of K calls on K fresh inputs takes T = h(K) + f + K t. h, what handing K outputs over
takes, is measured on the trusted eager worker by a batch whose calls give what they gave before; f, what makes the
first call slower, is read off that worker's batches of one and of many calls; t = (T - h - f) / K. The candidate's own
slope is not asked: slowing small batches down would forge it. Contestants take turns on the same inputs in random
order, and in the reverse order on the next ones (ABBA); each pair of turns is a block. All processes are restarted
between runs. Eager takes part twice, as a second process: the difference between the two is the day's noise. Every
output of the candidate is compared with eager's, computed by the judge.
"""

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate, pairwise
from statistics import median, quantiles
from typing import Any

import torch

from kernelwright.judge.bootstrap import interval, ratio_interval
from kernelwright.judge.budget import Stopwatch
from kernelwright.judge.closeness import close_to_eager
from kernelwright.judge.codec import flatten_arguments, unflatten
from kernelwright.judge.contestant import Contestant, Shape
from kernelwright.judge.correctness import appealed, describe_score, lies_in_inputs, within, write_inputs
from kernelwright.judge.criterion import Yardstick
from kernelwright.judge.large import Rows, fingerprint, row_slices, sliced
from kernelwright.judge.oracle import Oracle, same_bits
from kernelwright.judge.randomness import differences
from kernelwright.judge.reference import Reference, State
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.stillness import Stillness
from kernelwright.judge.verdict import Failed, Interval, Speed, Verdict

__all__ = [
    "AGAIN",
    "CANDIDATE",
    "Clocked",
    "Course",
    "Plan",
    "Samples",
    "plan_batches",
    "rounds_that_fit",
    "run_once",
    "speed_of",
    "summarise",
]

AGAIN = "eager again"
CANDIDATE = "candidate"
# Differences below this are nobody's achievement: layout of code and memory alone makes them.
SMALLEST_DIFFERENCE = 0.02
# Half an interval, in the logarithm, from which nothing is said: less is asked if the median itself is close to 1.
WIDE, VERY_WIDE, NEARLY_ONE = 0.10, 0.25, 0.05
WELL_KNOWN = 0.004
APPEALS = 4  # of a round: outputs that differ from eager's and are judged by the oracle, drawn when all is over
SINGLES = 2  # batches of one call in each round: what makes the first call after waking slower
# In each round, calls whose inputs come one at a time, each after the last answer: who does the work of many calls in
# the first is slow there. So many, or as many as take this long.
ONE_BY_ONE, ONE_BY_ONE_S = 16, 0.03
NOTHING_US = 0.01
FEWEST_DRAWS = 48  # calls that tell one distribution from another


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure: K calls to a batch, batches to a round of fresh inputs, rounds to a restart.

    one_by_one  calls of a batch whose inputs come one at a time; two such batches to a round, or none
    """

    calls: int
    batches: int
    one_by_one: int
    min_rounds: int
    max_rounds: int

    @property
    def slots(self) -> int:
        return self.calls * self.batches + SINGLES + 2 * self.one_by_one

    def batch_slots(self) -> list[tuple[range, bool]]:
        """The slots of each batch of a round, and whether they are filled one by one."""
        sizes = [self.calls] * self.batches + [1] * SINGLES
        drip = [self.one_by_one] * 2 if self.one_by_one else []
        starts = [0, *accumulate(sizes + drip)]
        ranges = [range(a, b) for a, b in pairwise(starts)]
        return [(slots, number >= len(sizes)) for number, slots in enumerate(ranges)]


@dataclass(frozen=True, slots=True)
class Turn:
    """Every contestant once on the same inputs: seconds of a batch, in the order they ran; and of one without calls."""

    slots: range
    handed_s: float
    elapsed_s: dict[str, float]
    seed: int
    one_by_one: bool = False

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
            talk = median(t.handed_s / len(t.slots) for t in apart) if apart else 0.0
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
    """Calls of a batch -> seconds that such a batch takes besides its calls, of the trusted worker."""
    sizes = sorted({len(turn.slots) for turn in turns})
    return {calls: median(turn.handed_s for turn in turns if len(turn.slots) == calls) for calls in sizes}


def first_call(turns: Sequence[Turn], handed: dict[int, float]) -> float:
    """Seconds by which the first call after waking is slower than the others, of the trusted worker."""
    most = max(handed)
    if most == 1:
        return 0.0
    spent = {
        calls: median(turn.elapsed_s[AGAIN] - handed[calls] for turn in turns if len(turn.slots) == calls)
        for calls in (1, most)
    }
    slower = spent[1] - (spent[most] - spent[1]) / (most - 1)
    return min(max(0.0, slower), max(0.0, spent[most] / 2))


@dataclass(frozen=True, slots=True)
class Clocked:
    """What the samples say."""

    times_us: dict[str, Interval]
    speedup: dict[str, Interval]
    noise: float
    speed: Speed
    batches_calls: bool


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
    state_yards: dict[str, Yardstick]
    """Of the buffers that calls change, after one group of trials."""
    own_memory: bool
    """Outputs must not lie in inputs."""
    verified: bool
    """False only for random models whose generator the candidate uses differently."""
    large: bool
    tight: bool
    """Outputs of all contestants do not fit beside each other: each gives its memory back after its call."""
    rows: Rows | None
    stillness: Stillness | None = None
    """On a GPU, where kernels may outlast a turn."""

    @property
    def spot_share(self) -> float:
        """How often the oracle is asked besides: large outputs take it long."""
        return 1.0 if sum(yard.eager.numel() for yard in self.yards) <= 1 << 18 else 0.1

    def state_yard(self, name: str, calls: int) -> Yardstick:
        """After so many calls, whose errors may add up."""
        yard = self.state_yards[name]
        return replace(yard, eager_rms=calls * yard.eager_rms, rms=calls * yard.rms)

    def wait_after(self, name: str) -> None:
        """Nobody's turn begins before everybody else's kernels are through."""
        if self.stillness is None:
            return
        self.stillness.wait_after(name)
        if self.stillness.disturbed_by(CANDIDATE):
            raise Failed(Verdict.TAMPERING, "kernels of its own ran on for long after it had said that it was done")


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
    play = _lean_round if course.large else _round
    watch = Stopwatch()
    play(contestants, course, plan, seeds)  # not counted: caches and clocks warm up
    least = rounds_that_fit(plan, until_s - time.perf_counter(), watch.lap())
    if busy:
        _spread_threads(contestants)
    start = time.perf_counter()
    turns: list[Turn] = []
    for number in range(plan.max_rounds):
        if number >= least and time.perf_counter() + watch.last_s >= until_s:
            break
        turns += play(contestants, course, plan, seeds)
        watch.lap()
        if number % 4 == 3 and _settled(turns):
            break
        progress(min(1.0, (time.perf_counter() - start) / max(until_s - start, 1e-9)))
    samples.add_restart(turns)


def rounds_that_fit(plan: Plan, left_s: float, round_s: float) -> int:
    """Rounds that are made whatever the clock says: as many as the plan wants, or one where those would not fit."""
    return plan.min_rounds if plan.min_rounds * round_s <= left_s else 1


def _settled(turns: Sequence[Turn]) -> bool:
    """Whether this restart knows its ratio well enough: what is left then lies between restarts."""
    so_far = Samples()
    so_far.add_restart(turns)
    found = ratio_interval(so_far.times_us[AGAIN], so_far.times_us[CANDIDATE])
    return math.log(found.high / found.low) / 2 < WELL_KNOWN


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
    rng = random.Random(seeds.draw())
    order = list(contestants)
    turns: list[Turn] = []
    for batch, one_by_one in plan.batch_slots():
        order = rng.sample(order, len(order)) if len(turns) % 2 == 0 else order[::-1]
        take = _turn_one_by_one if one_by_one else _turn
        turns.append(take(contestants, course, order, batch, inputs, seeds.draw()))
    _verify(contestants[CANDIDATE], course, inputs, turns, rng)
    return turns


@contextlib.contextmanager
def _blaming(name: str) -> Iterator[None]:
    """What a baseline does is not the candidate's fault."""
    try:
        yield
    except Failed as failed:
        if name == CANDIDATE:
            raise
        raise Failed(Verdict.JUDGE_ERROR, f"the baseline {name} failed: {failed.verdict}, {failed.detail}") from failed


def _turn(
    contestants: dict[str, Contestant],
    course: Course,
    order: Sequence[str],
    slots: range,
    inputs: Sequence[tuple[Any, ...]],
    seed: int,
) -> Turn:
    """One batch of each. Its inputs are written now and not before, or they could be worked on in an earlier batch."""
    _restore(contestants[CANDIDATE], inputs, slots)
    elapsed = {}
    for name in order:
        with _blaming(name):
            elapsed[name] = contestants[name].call(slots, seed)
        course.wait_after(name)
        if name == CANDIDATE:
            _restore(contestants[name], inputs, slots)
    return Turn(slots, contestants[AGAIN].hand_over(slots, seed), elapsed, seed)


def _turn_one_by_one(
    contestants: dict[str, Contestant],
    course: Course,
    order: Sequence[str],
    slots: range,
    inputs: Sequence[tuple[Any, ...]],
    seed: int,
) -> Turn:
    """One batch of each, an input written only when the answer to the last one is there; as if all took the median."""
    places = contestants[CANDIDATE].layout.slots
    pool = contestants[CANDIDATE].pool

    def fill(slot: int, *, nothing: bool = False) -> None:
        for place, tensor in zip(places[slot], flatten_arguments(inputs[slot])[1], strict=True):
            pool.view(place).copy_(torch.zeros((), dtype=tensor.dtype) if nothing else tensor)

    elapsed = {}
    for name in order:
        for slot in slots:
            fill(slot, nothing=True)
        with _blaming(name):
            elapsed[name] = len(slots) * median(contestants[name].call_one_by_one(slots, seed, fill))
        course.wait_after(name)
        for slot in slots:
            fill(slot)
    handed = len(slots) * median(contestants[AGAIN].hand_over_one_by_one(slots, seed))
    return Turn(slots, handed, elapsed, seed, one_by_one=True)


def _verify(
    contestant: Contestant,
    course: Course,
    inputs: Sequence[tuple[Any, ...]],
    turns: Sequence[Turn],
    rng: random.Random,
) -> None:
    """Every output of a timed call against eager's on the same input; of those that are off, some by the oracle."""
    if not course.verified:
        _verify_distribution(contestant, course, inputs, turns, rng)
        return
    state = course.state
    doubtful: list[tuple[State, Sequence[int], int]] = []
    for slots, seed in (row for turn in turns for row in turn.seeded()):
        expected = course.oracle.eager(state, [inputs[slot] for slot in slots], seed)
        for number, row in zip(slots, expected.calls, strict=True):
            if not all(map(close_to_eager, contestant.outputs(number), row, course.yards)):
                sequence = range(slots.start, number + 1) if course.stateful or course.oracle.random else [number]
                doubtful.append((state, sequence, seed))
        if course.stateful:
            state = expected.state
    for before, numbers, seed in rng.sample(doubtful, min(len(doubtful), APPEALS)):
        calls, number = [inputs[slot] for slot in numbers], numbers[-1]
        _require_right(course, before, calls, seed, contestant.outputs(number), f"call {number + 1}")
    timed = [slot for turn in turns for slot in turn.slots]
    _spot_check(contestant, course, inputs, rng.choice(timed), rng)
    # Last, for it lets the worker run: what the calls left behind.
    for name, value in zip(course.state, contestant.give_state() if course.stateful else (), strict=False):
        if name in course.state_yards and not close_to_eager(value, state[name], course.state_yard(name, len(inputs))):
            raise Failed(Verdict.INCORRECT, f"the buffer {name} is not what the calls while being timed should leave")


def _spot_check(
    contestant: Contestant, course: Course, inputs: Sequence[tuple[Any, ...]], slot: int, rng: random.Random
) -> None:
    """One call that nobody could foresee: judged by the oracle, and its memory must not be an input's.

    The yardstick of other inputs is coarse where one element of them was ill-conditioned; and a mapping of the inputs'
    pages is a copy of them only in this court.
    """
    found = contestant.outputs(slot)
    plain = not course.stateful and not course.oracle.random
    if plain and rng.random() < course.spot_share:
        _require_right(course, course.state, [inputs[slot]], 0, found, f"call {slot + 1}")
    if course.own_memory and lies_in_inputs(contestant, slot, inputs[slot], found):
        raise Failed(Verdict.INCORRECT, f"the output of call {slot + 1}, while being timed, lies in an input's memory")


def _verify_distribution(
    contestant: Contestant,
    course: Course,
    inputs: Sequence[tuple[Any, ...]],
    turns: Sequence[Turn],
    rng: random.Random,
) -> None:
    """Of a random model with numbers of its own: outputs of timed calls are distributed as eager's on those inputs."""
    slots = [slot for turn in turns for slot in turn.slots]
    if len(slots) < FEWEST_DRAWS:
        return
    chosen = rng.sample(slots, min(len(slots), 2 * FEWEST_DRAWS))
    found = [contestant.outputs(slot) for slot in chosen]
    expected = course.oracle.eager(course.state, [inputs[slot] for slot in chosen], rng.getrandbits(62)).calls
    for position in range(len(course.yards)):
        theirs, ours = (torch.stack([row[position] for row in rows]) for rows in (found, expected))
        if why := differences(theirs, ours):
            raise Failed(Verdict.INCORRECT, f"its random outputs while being timed are distributed differently: {why}")


def _require_right(
    course: Course,
    state: State,
    calls: Sequence[tuple[Any, ...]],
    seed: int,
    found: Sequence[torch.Tensor],
    which: str,
) -> None:
    yards, scores = appealed(course.oracle, state, calls, seed, found)
    for yard, s in zip(yards, scores, strict=True):
        if not within(yard, s):
            raise Failed(Verdict.INCORRECT, f"{which} while being timed: {describe_score(s)}")


def _lean_round(contestants: dict[str, Contestant], course: Course, plan: Plan, seeds: Seeds) -> list[Turn]:
    """Two turns of one call each; inputs exist once, and so do outputs where memory is tight."""
    order = random.Random(seeds.draw()).sample(list(contestants), len(contestants))
    return [_lean_turn(contestants, names, course, seeds) for names in (order, order[::-1])]


def _lean_turn(contestants: dict[str, Contestant], order: Sequence[str], course: Course, seeds: Seeds) -> Turn:
    input_seed, seed, secret = seeds.draw(), seeds.draw(), seeds.draw()
    elapsed, handed = {}, 0.0
    for name in order:
        contestant = contestants[name]
        if course.stateful:
            contestant.take_state(list(course.state.values()))
        contestant.map(course.shape, [0])
        args = course.reference.draw(input_seed)
        given = fingerprint(flatten_arguments(args)[1], secret)
        write_inputs(contestant, [args])
        del args
        with _blaming(name):
            elapsed[name] = contestant.call(range(1), seed)
        course.wait_after(name)
        if name == AGAIN:
            handed = contestant.hand_over(range(1), seed)
        if name == CANDIDATE and course.verified:
            _verify_in_place(contestant, course, input_seed, seed, given, secret)
        if course.tight:
            contestant.release()
    return Turn(range(1), handed, elapsed, seed)


def _verify_in_place(
    contestant: Contestant, course: Course, input_seed: int, seed: int, given: list[int], secret: int
) -> None:
    """The one output against eager's, some rows at a time where rows are independent."""
    views = [contestant.pool.view(place) for place in contestant.layout.slots[0]]
    if fingerprint(views, secret) != given:
        write_inputs(contestant, [course.reference.draw(input_seed)])
    args: tuple[Any, ...] = unflatten(course.shape.arguments, views)
    parts = list(row_slices(course.rows, secret)) if course.rows else [None]
    for part in parts:
        some = args if part is None or course.rows is None else sliced(args, course.rows, part)
        eager, found = course.oracle.eager(course.state, [some], seed).calls[0], contestant.outputs(0, part)
        if not all(map(close_to_eager, found, eager, course.yards)):
            _require_right(course, course.state, [some], seed, found, "a call")


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
    alone = _alone(samples, times)
    if alone is Alone.DISAGREES or (alone is Alone.UNCLEAR and samples.one_by_one):
        speedup = {name: _one_by_one(samples, name) for name in speedup}
    first = next(iter(speedup.values()), None)
    speed = Speed.INCONCLUSIVE if first is None or _unmeasured(samples) else speed_of(first, noise)
    if not times[CANDIDATE].high >= 0.9 * floor_us:
        speed = Speed.IMPOSSIBLE
    if speed is Speed.FASTER and alone is Alone.UNCLEAR and samples.one_by_one:
        speed = Speed.INCONCLUSIVE
    return Clocked(times, speedup, noise, speed, alone is Alone.DISAGREES)


class Alone(Enum):
    """What calls whose inputs come one by one say of the time that a candidate saves."""

    AGREES = "it is saved there too"
    DISAGREES = "it is not: the work of many calls was done in one of them"
    UNCLEAR = "there is too much noise to say"


def _alone(samples: Samples, times: dict[str, Interval]) -> Alone:
    """Compared is what it saves over eager, in microseconds: a call alone may take longer for both, if kernels are
    launched while others run, but work that is saved is saved there too; half of it, to be on the safe side."""
    saved = times[AGAIN].median - times[CANDIDATE].median
    alone = [a - c for a, c in zip(samples.single_us[AGAIN], samples.single_us[CANDIDATE], strict=True)]
    if saved < SMALLEST_DIFFERENCE * times[AGAIN].median:
        return Alone.AGREES  # nothing to check
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


def _one_by_one(samples: Samples, name: str) -> Interval:
    """The speed-up over calls that are made one at a time."""
    return ratio_interval([[[t] for t in samples.single_us[name]]], [[[t] for t in samples.single_us[CANDIDATE]]])


def speed_of(speedup: Interval, noise: float) -> Speed:
    """Faster or slower only beyond the noise that eager has against itself."""
    margin = 1 + max(noise, SMALLEST_DIFFERENCE)
    if not all(math.isfinite(x) and x > 0 for x in (speedup.median, speedup.low, speedup.high)):
        return Speed.IMPOSSIBLE
    if speedup.low > margin:
        return Speed.FASTER
    if speedup.high < 1 / margin:
        return Speed.SLOWER
    width = math.log(speedup.high / speedup.low) / 2
    if width > (WIDE if abs(math.log(speedup.median)) > NEARLY_ONE else VERY_WIDE):
        return Speed.INCONCLUSIVE
    return Speed.SAME


def plan_batches(
    seconds_a_call: float, bytes_a_call: int, memory_bytes: int, target_s: float, most_slots: int = 512
) -> Plan:
    """Batches that last about `target_s`, as many of them to a round as fit; always an even number."""
    room = max(2 + SINGLES, min(most_slots, memory_bytes // max(bytes_a_call, 1)))
    wanted = math.ceil(target_s / max(seconds_a_call, 1e-7))
    one_by_one = 0
    if wanted > 1 and room >= 16:
        one_by_one = max(2, min(ONE_BY_ONE, int(ONE_BY_ONE_S / max(seconds_a_call, 1e-7)), room // 8))
    fitting = room - SINGLES - 2 * one_by_one
    calls = max(1, min(wanted, fitting // 2))
    batches = max(2, min(8, fitting // calls) // 2 * 2)
    return Plan(calls=calls, batches=batches, one_by_one=one_by_one, min_rounds=2, max_rounds=60)
