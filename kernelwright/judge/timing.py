"""Contestants come in; their turns, seconds of batches on the judge's clock, go out (`samples.py` makes times of them).

Contestants take turns on the same fresh inputs in random order, and in the reverse order on the next ones (ABBA); each
pair of turns is a block. All processes are restarted between runs. Eager takes part twice, as a second process: the
difference between the two is the day's noise. Every output of the candidate is verified (`verification.py`).
"""

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median
from typing import Any

from kernelwright.judge.budget import Stopwatch
from kernelwright.judge.codec import flatten_arguments
from kernelwright.judge.contestant import Contestant
from kernelwright.judge.correctness import Trial, write_call
from kernelwright.judge.memory import give_back
from kernelwright.judge.oracle import same_bits
from kernelwright.judge.samples import AGAIN, CANDIDATE, Samples, Turn, well_known
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.verdict import Failed, Verdict
from kernelwright.judge.verification import (
    FEWEST_SLOTS,
    Course,
    give_inputs,
    inquire,
    inquire_in_place,
    next_trial,
    planted,
    verify,
    verify_in_place,
)

__all__ = ["BaselineFailed", "Plan", "plan_batches", "rounds_that_fit", "run_once"]

SINGLES = 2  # batches of one call in each round: what makes the first call after waking slower
# In each round, calls whose inputs come one at a time, each after the last answer: who does the work of many calls in
# the first is slow there. So many, or as many as take this long.
ONE_BY_ONE, ONE_BY_ONE_S = 16, 0.03
# Of short calls, so many to a batch: how much slower the first one is, is known badly, and one call would not tell it.
# No more: at a load of 6 a batch of six loses its core more often, the slower the contestant the more.
FEW_CALLS, SHORT_CALL_S = 3, 0.02
# Full batches of a round; more than the fewest where there is room for so many calls to each, while they take no longer
# than this, and the round is a small one, of which more is audited. Asking the oracle takes longer than they do, and a
# median of few turns is a noisy one.
FEWEST_BATCHES, MOST_BATCHES, SLOTS_TO_A_BATCH, BATCHES_S = 8, 16, 32, 0.35
LEAN_AUDITS = 0.25  # of the calls of a large problem are on inputs of other families
INQUIRIES = 1 / 16  # of the rounds are followed by batches that are not counted, and so is the last


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

    def full_batches(self) -> list[range]:
        return [slots for slots, _ in self.batch_slots()[: self.batches]]

    def batch_slots(self) -> list[tuple[range, bool]]:
        """The slots of each batch of a round, and whether they are filled one by one."""
        sizes = [self.calls] * self.batches + [1] * SINGLES
        drip = [self.one_by_one] * 2 if self.one_by_one else []
        starts = [0, *accumulate(sizes + drip)]
        ranges = [range(a, b) for a, b in pairwise(starts)]
        return [(slots, number >= len(sizes)) for number, slots in enumerate(ranges)]


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
    rng = random.Random(seeds.draw())
    for number in range(plan.max_rounds):
        if number >= least and time.perf_counter() + watch.last_s >= until_s:
            break
        turns += play(contestants, course, plan, seeds)
        watch.lap()
        if number % 4 == 3 and well_known(turns):
            break
        if rng.random() < INQUIRIES:
            _inquire(contestants, course, plan, rng)
        progress(min(1.0, (time.perf_counter() - start) / max(until_s - start, 1e-9)))
    _inquire(contestants, course, plan, rng)
    samples.add_restart(turns)


def _inquire(contestants: dict[str, Contestant], course: Course, plan: Plan, rng: random.Random) -> None:
    if course.large:
        inquire_in_place(contestants[CANDIDATE], course, rng)
    else:
        inquire(contestants[CANDIDATE], course, plan.full_batches(), plan.slots, rng)


def rounds_that_fit(plan: Plan, left_s: float, round_s: float) -> int:
    """Rounds that are made whatever the clock says: as many as the plan wants, or one where those would not fit."""
    return plan.min_rounds if plan.min_rounds * round_s <= left_s else 1


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
    audits = planted(course, inputs, rng)
    order = list(contestants)
    turns: list[Turn] = []
    for batch, one_by_one in plan.batch_slots():
        order = rng.sample(order, len(order)) if len(turns) % 2 == 0 else order[::-1]
        take = _turn_one_by_one if one_by_one else _turn
        turns.append(take(contestants, course, order, batch, inputs, seeds.draw()))
    verify(contestants[CANDIDATE], course, inputs, turns, rng, audits)
    return turns


class BaselineFailed(Exception):
    """A baseline that can be done without has failed while it was timed."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why


@contextlib.contextmanager
def _blaming(name: str) -> Iterator[None]:
    """What a baseline does is not the candidate's fault; without eager there is nothing to compare with."""
    try:
        yield
    except Failed as failed:
        if name == CANDIDATE:
            raise
        if name not in ("eager", AGAIN):
            raise BaselineFailed(name, f"{failed.verdict} while it was timed: {failed.detail}") from failed
        words = f"the baseline {name} failed: {failed.verdict}, {failed.detail}"
        raise Failed(Verdict.JUDGE_ERROR, words, shortage=failed.shortage) from failed


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
            contestants[name].note_state()
        if name == CANDIDATE and _restore(contestants[name], inputs, slots):
            course.object_to_written_inputs()
    return Turn(slots, contestants[AGAIN].hand_over(slots, seed), elapsed, seed)


def _turn_one_by_one(
    contestants: dict[str, Contestant],
    course: Course,
    order: Sequence[str],
    slots: range,
    inputs: Sequence[tuple[Any, ...]],
    seed: int,
) -> Turn:
    """One batch of each, an input written only when the answer to the last one is there; as if all took the median, if
    each answer can be seen to be all that its call had to do."""
    places = contestants[CANDIDATE].layout.slots
    pool = contestants[CANDIDATE].pool

    def fill(slot: int) -> None:
        write_call(contestants[CANDIDATE], slot, inputs[slot])

    elapsed = {}
    for name in order:
        for slot in slots:
            for place in places[slot]:
                pool.view(place).zero_()
        with _blaming(name):
            calls = contestants[name].call_one_by_one(slots, seed, fill)
        # What calls leave in the state is looked at after the last: done in a few of them, it is still of all.
        elapsed[name] = sum(calls) if course.stateful else len(slots) * median(calls)
        if name == CANDIDATE:
            contestants[name].note_state()
        course.wait_after(name)
        for slot in slots:
            fill(slot)
    handed = len(slots) * median(contestants[AGAIN].hand_over_one_by_one(slots, seed))
    return Turn(slots, handed, elapsed, seed, one_by_one=True)


def _lean_round(contestants: dict[str, Contestant], course: Course, plan: Plan, seeds: Seeds) -> list[Turn]:
    """Two turns of one call each; inputs exist once, and so do outputs where memory is tight."""
    rng = random.Random(seeds.draw())
    order = rng.sample(list(contestants), len(contestants))
    share = 0.0 if course.tight else LEAN_AUDITS  # inquiries are left, which may run out of memory
    return [
        _lean_turn(contestants, names, course, next_trial(course, rng, share), seeds) for names in (order, order[::-1])
    ]


def _lean_turn(
    contestants: dict[str, Contestant], order: Sequence[str], course: Course, trial: Trial, seeds: Seeds
) -> Turn:
    seed, secret = seeds.draw(), seeds.draw()
    elapsed, handed, twice = {}, 0.0, None
    for name in order:
        contestant = contestants[name]
        if course.tight:
            _make_room(contestant, course)
        if course.stateful:
            contestant.take_state(list(course.state.values()))
        given = give_inputs(contestant, course, trial, secret)
        if course.tight:
            give_back(contestant.pool.memory.bytes.device)  # the worker needs it now
        with _blaming(name):
            elapsed[name] = contestant.call(range(1), seed)
        course.wait_after(name)
        if name == AGAIN:
            handed = contestant.hand_over(range(1), seed)
            if course.stillness is not None and not course.tight:
                twice = _twice(contestant, course, seed)
        if name == CANDIDATE and course.verified:
            verify_in_place(contestant, course, trial, seed, given, secret)
        if course.tight:
            contestant.release()
    return Turn(range(1), handed, elapsed, seed, twice_s=twice)


def _twice(contestant: Contestant, course: Course, seed: int) -> float:
    """Seconds of two calls on the same inputs, by a worker that we trust not to remember the first."""
    contestant.map(course.shape, [0, 0])
    with _blaming(contestant.name):
        elapsed = contestant.call(range(2), seed)
    course.wait_after(contestant.name)
    return elapsed


def _make_room(contestant: Contestant, course: Course) -> None:
    """A call on nothing: one that has given its memory back gets it again, which would count as its time."""
    contestant.map(course.shape, [0])
    for place in contestant.layout.slots[0]:
        contestant.pool.view(place).zero_()
    with _blaming(contestant.name):
        contestant.call(range(1), 0)


def _restore(contestant: Contestant, inputs: Sequence[tuple[Any, ...]], slots: range) -> bool:
    """Whoever comes next gets the inputs as they were; whether they were not."""
    written = False
    for slot in slots:
        _, tensors = flatten_arguments(inputs[slot])
        for place, tensor in zip(contestant.layout.slots[slot], tensors, strict=True):
            view = contestant.pool.view(place)
            if not same_bits(view, tensor):
                view.copy_(tensor)
                written = True
    return written


def plan_batches(
    seconds_a_call: float, bytes_a_call: int, memory_bytes: int, target_s: float, most_slots: int = 512
) -> Plan:
    """Batches that last about `target_s`, as many of them to a round as fit; always an even number."""
    call_s = max(seconds_a_call, 1e-7)
    room = max(2 + SINGLES, min(most_slots, memory_bytes // max(bytes_a_call, 1)))
    fewest = max(2, min(FEW_CALLS, room // (2 * FEWEST_BATCHES))) if call_s < SHORT_CALL_S else 1
    wanted = max(math.ceil(target_s / call_s), fewest)
    one_by_one = 0
    if wanted > 1 and room >= 16:
        one_by_one = max(2, min(ONE_BY_ONE, int(ONE_BY_ONE_S / call_s), room // 8))
    fitting = room - SINGLES - 2 * one_by_one
    calls = max(1, min(wanted, fitting // 2))
    small = min(FEWEST_SLOTS - 1 - SINGLES - 2 * one_by_one, int(BATCHES_S / call_s))
    most = max(FEWEST_BATCHES, min(MOST_BATCHES, room // SLOTS_TO_A_BATCH, small // calls))
    batches = max(2, min(most, fitting // calls) // 2 * 2)
    return Plan(calls=calls, batches=batches, one_by_one=one_by_one, min_rounds=2, max_rounds=60)
