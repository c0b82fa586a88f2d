"""Outputs of timed calls come in; nothing goes out, or `Failed`: every one is verified, with the clock stopped."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kernelwright.judge.closeness import around, close_to_eager
from kernelwright.judge.codec import unflatten
from kernelwright.judge.contestant import Contestant, Shape
from kernelwright.judge.correctness import (
    Trial,
    Tried,
    appealed,
    arguments_of,
    describe_score,
    lies_in_inputs,
    refusal,
    uninformative,
    within,
    write_inputs,
)
from kernelwright.judge.criterion import Score, Yardstick, limits_for, score
from kernelwright.judge.families import FAMILIES, Family
from kernelwright.judge.large import Rows, fingerprint, row_slices, sliced
from kernelwright.judge.oracle import Oracle
from kernelwright.judge.precision import shown_precision
from kernelwright.judge.randomness import Chances, differences, misplaced
from kernelwright.judge.reference import Reference, State
from kernelwright.judge.samples import CANDIDATE, Turn
from kernelwright.judge.stillness import Stillness
from kernelwright.judge.verdict import Failed, Verdict

__all__ = ["Audits", "Course", "planted", "verify", "verify_in_place"]

OWN = Trial(next(family for family in FAMILIES if family.name == "own"), 0, own_weights=True)
Audits = dict[int, Family]  # slots whose inputs are of another family than the problem's own

APPEALS = 4  # of a round: outputs that differ from eager's and are judged by the oracle, drawn when all is over
AUDITS, FEWEST_SLOTS = 4, 64  # of a round: calls on other families' inputs; fewer if a round has fewer calls
RARE_AUDITS = 0.25  # rounds with one such call, where calls are few or the oracle takes long
FEWEST_DRAWS = 48  # calls that tell one distribution from another


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
    chances: dict[int, list[Chances]] = field(default_factory=dict)
    """Of a random model, by the candidate's process: one for each output tensor."""
    families: tuple[Family, ...] = ()
    """Some timed calls are on inputs of these."""
    unseen: tuple[Family, ...] = ()
    """Of these, the ones that there was no time for while the candidate was examined."""

    @property
    def plain(self) -> bool:
        """A call's answer is its inputs' alone."""
        return not self.stateful and not self.oracle.random

    @property
    def spot_share(self) -> float:
        """How often the oracle is asked besides: large outputs take it long."""
        return 1.0 if sum(math.prod(yard.shape) for yard in self.yards) <= 1 << 18 else 0.1

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


def planted(course: Course, inputs: list[tuple[Any, ...]], rng: random.Random) -> Audits:
    """Put inputs of other families in the place of some, which nobody could foresee.

    Whoever can tell that it is timed need not be right on anything else than the problem's own data, if nothing else
    comes: a softmax can leave its maximum out, a constant argument need not be looked at.
    """
    if not course.families or not course.plain:
        return {}
    count = min(AUDITS, len(inputs) // FEWEST_SLOTS) if course.spot_share == 1.0 else 0
    if not count:
        count = int(bool(course.unseen) or rng.random() < RARE_AUDITS)
    families = [
        *rng.sample(course.unseen, min(count, len(course.unseen))),
        *rng.sample(course.families, len(course.families)),
    ]
    chosen = list(dict.fromkeys(families))[:count]
    audits: Audits = {}
    for slot, family in zip(rng.sample(range(len(inputs)), len(chosen)), chosen, strict=True):
        trial = Trial(family, rng.getrandbits(62), own_weights=True)
        args = arguments_of(trial, course.reference)
        if not refusal(course.oracle, trial, args):
            inputs[slot], audits[slot] = args, family
    return audits


def verify(
    contestant: Contestant,
    course: Course,
    inputs: Sequence[tuple[Any, ...]],
    turns: Sequence[Turn],
    rng: random.Random,
    audits: Audits,
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
            if number not in audits and not all(map(close_to_eager, contestant.outputs(number), row, course.yards)):
                sequence = range(slots.start, number + 1) if course.stateful or course.oracle.random else [number]
                doubtful.append((state, sequence, seed))
        if course.stateful:
            state = expected.state
    for before, numbers, seed in rng.sample(doubtful, min(len(doubtful), APPEALS)):
        calls, number = [inputs[slot] for slot in numbers], numbers[-1]
        _require_right(course, before, calls, seed, contestant.outputs(number), f"call {number + 1}")
    for number, family in audits.items():
        _audit(course, inputs[number], contestant.outputs(number), family)
    timed = [slot for turn in turns for slot in turn.slots if slot not in audits]
    _spot_check(contestant, course, inputs, rng.choice(timed), rng)
    if course.stateful:  # last, for it lets the worker run
        order = [slot for turn in turns for slots, _ in turn.seeded() for slot in slots]
        _verify_state(dict(zip(course.state, contestant.give_state(), strict=True)), state, course, inputs, order)


def _verify_state(
    found: State, eager: State, course: Course, inputs: Sequence[tuple[Any, ...]], order: Sequence[int]
) -> None:
    """What the calls left behind, against eager's; of a buffer that is off, against float64."""
    yards = {name: course.state_yard(name, len(order)) for name in course.state_yards}
    doubtful = [name for name, yard in yards.items() if not close_to_eager(found[name], eager[name], yard)]
    if not doubtful:
        return
    exact = course.oracle.state_after(course.state, [inputs[slot] for slot in order])
    for name in doubtful:
        yard = around(exact[name], yards[name])
        s = score(found[name], yard)
        if not within(yard, s):
            words = f"the buffer {name} is not what the calls while being timed should leave: {describe_score(s)}"
            raise Failed(Verdict.INCORRECT, words)


def _audit(course: Course, args: tuple[Any, ...], found: Sequence[torch.Tensor], family: Family) -> None:
    yards, scores = appealed(course.oracle, course.state, [args], 0, found)
    if uninformative(yards, family):
        return
    for yard, s in zip(yards, scores, strict=True):
        if not within(yard, s):
            words = f"a call on {family.name} inputs while being timed, though not before: {describe_score(s)}"
            raise Failed(Verdict.INCORRECT, words)


def _spot_check(
    contestant: Contestant, course: Course, inputs: Sequence[tuple[Any, ...]], slot: int, rng: random.Random
) -> None:
    """One call that nobody could foresee: judged by the oracle, and its memory must not be an input's.

    The yardstick of other inputs is coarse where one element of them was ill-conditioned; and a mapping of the inputs'
    pages is a copy of them only in this court.
    """
    found = contestant.outputs(slot)
    if course.plain and rng.random() < course.spot_share:
        yards, scores = _require_right(course, course.state, [inputs[slot]], 0, found, f"call {slot + 1}")
        _require_own_precision(course, Tried(OWN, course.state, 0, inputs[slot], yards, scores, tuple(found)))
    if course.own_memory and lies_in_inputs(contestant, slot, inputs[slot], found):
        raise Failed(Verdict.INCORRECT, f"the output of call {slot + 1}, while being timed, lies in an input's memory")


def _verify_distribution(
    contestant: Contestant,
    course: Course,
    inputs: Sequence[tuple[Any, ...]],
    turns: Sequence[Turn],
    rng: random.Random,
) -> None:
    """Of a random model with numbers of its own: outputs of timed calls are distributed as eager's on those inputs, and
    no two calls of one process share their numbers."""
    slots = [slot for turn in turns for slot in turn.slots]
    chances = course.chances.setdefault(contestant.worker.pid, [Chances() for _ in course.yards])
    fresh = chances[0].room > 0
    if not fresh:
        slots = rng.sample(slots, min(len(slots), 2 * FEWEST_DRAWS))
    chosen = rng.sample(range(len(slots)), min(len(slots), 2 * FEWEST_DRAWS))
    found = [contestant.outputs(slot) for slot in slots]
    expected, again = (
        course.oracle.eager(course.state, [inputs[slot] for slot in slots], rng.getrandbits(62)).calls for _ in range(2)
    )
    for position, chance in enumerate(chances):
        theirs, ours, others = (torch.stack([row[position] for row in rows]) for rows in (found, expected, again))
        why = differences(theirs[chosen], ours[chosen]) if len(slots) >= FEWEST_DRAWS else ""
        allowed = limits_for(ours.dtype).loose_rms * course.yards[position].rms
        pairs = (misplaced(theirs[n], torch.stack([ours[n], others[n]]), allowed) for n in chosen)
        why = why or next(filter(None, pairs), "")
        if fresh and not why:
            chance.add(theirs, ours, others)
            why = chance.repeated()
        if why:
            raise Failed(Verdict.INCORRECT, f"its random outputs while being timed are distributed differently: {why}")


def _require_right(
    course: Course,
    state: State,
    calls: Sequence[tuple[Any, ...]],
    seed: int,
    found: Sequence[torch.Tensor],
    which: str,
) -> tuple[list[Yardstick], list[Score]]:
    yards, scores = appealed(course.oracle, state, calls, seed, found)
    for yard, s in zip(yards, scores, strict=True):
        if not within(yard, s):
            raise Failed(Verdict.INCORRECT, f"{which} while being timed: {describe_score(s)}")
    return yards, scores


def _require_own_precision(course: Course, tried: Tried) -> None:
    """An answer that just passes, on inputs on which little precision is missed, may have been made with less."""
    if precision := shown_precision([tried], course.oracle):
        raise Failed(Verdict.REDUCED_PRECISION, f"the error while being timed is that of {precision} arithmetic")


def verify_in_place(
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
        eager = course.oracle.eager(course.state, [some], seed).calls[0]
        found = contestant.outputs(0, part, in_place=True)
        if not all(map(close_to_eager, found, eager, course.yards)):
            _require_right(course, course.state, [some], seed, found, "a call")
