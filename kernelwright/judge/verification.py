"""Outputs of timed calls come in; nothing goes out, or `Failed`: every one is verified, with the clock stopped."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from kernelwright.judge.budget import Share
from kernelwright.judge.closeness import around, close_to_eager
from kernelwright.judge.codec import flatten_arguments, unflatten
from kernelwright.judge.contestant import Contestant, Sampled, Shape
from kernelwright.judge.correctness import (
    Echo,
    Trial,
    Tried,
    appealed,
    arguments_of,
    decided_by_chance,
    describe_score,
    lies_in_inputs,
    overwrite,
    randomised,
    refusal,
    uninformative,
    within,
    write_call,
    write_inputs,
)
from kernelwright.judge.criterion import Score, Yardstick, limits_for, score
from kernelwright.judge.families import FAMILIES, Family
from kernelwright.judge.large import Rows, fingerprint, row_slices, sliced
from kernelwright.judge.memory import give_back
from kernelwright.judge.oracle import Oracle
from kernelwright.judge.precision import shown_precision
from kernelwright.judge.randomness import CERTAIN, ENOUGH_DRAWS, Chances, differences, misplaced, unlike
from kernelwright.judge.reference import Reference, State
from kernelwright.judge.samples import CANDIDATE, Turn
from kernelwright.judge.shortage import is_shortage
from kernelwright.judge.stillness import Stillness
from kernelwright.judge.verdict import Failed, Verdict

__all__ = [
    "FEWEST_SLOTS",
    "Audits",
    "Course",
    "give_inputs",
    "inquire",
    "inquire_in_place",
    "next_trial",
    "planted",
    "verify",
    "verify_in_place",
]

OWN = Trial(next(family for family in FAMILIES if family.name == "own"), 0, own_weights=True)
Audits = dict[int, Family]  # slots whose inputs are of another family than the problem's own

APPEALS = 4  # of a round: outputs that differ from eager's and are judged by the oracle, drawn when all is over
AUDITS, FEWEST_SLOTS = 4, 64  # of a round: calls on other families' inputs; fewer if a round has fewer calls
FEW_SLOTS = 16  # calls of a round to one such call, where calls are few or the oracle takes long
INQUIRY_S = 1.0  # of the oracle's time, for calls that are not counted
LOOKS = 2  # of a round, calls of a random model that are compared value by value
FEWEST_DRAWS = 48  # calls that tell one distribution from another
ENOUGH_TO_DIFFER = 64  # elements that chance decided otherwise: another seed shows


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
    inputs_stay: bool
    """Calls must not write into their inputs."""
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
    family_yards: dict[str, list[Yardstick]] = field(default_factory=dict)
    """Of these, by name, what was left of the yardsticks when they had served."""
    unseen: tuple[Family, ...] = ()
    """Of these, the ones that there was no time for while the candidate was examined."""
    echo: Echo | None = None
    """Of a random candidate with numbers of its own."""
    unasked: list[str] = field(default_factory=list)
    """What there was no memory for."""

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

    def object_to_written_inputs(self) -> None:
        if self.inputs_stay:
            raise Failed(Verdict.INCORRECT, "forward writes into its inputs while being timed, though not before")

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
        count = max(1, min(AUDITS, len(inputs) // FEW_SLOTS))
    chosen = _surprising(course, rng)[:count]
    audits: Audits = {}
    for slot, family in zip(rng.sample(range(len(inputs)), len(chosen)), chosen, strict=True):
        trial = Trial(family, rng.getrandbits(62), own_weights=True)
        args = arguments_of(trial, course.reference)
        if not refusal(course.oracle, trial, args):
            inputs[slot], audits[slot] = args, family
    return audits


def _surprising(course: Course, rng: random.Random) -> list[Family]:
    """All families in any order, those first that there was no time for before."""
    families = [*rng.sample(course.unseen, len(course.unseen)), *rng.sample(course.families, len(course.families))]
    return list(dict.fromkeys(families))


def next_trial(course: Course, rng: random.Random, share: float) -> Trial:
    """What the next call of a large problem is on: the problem's own inputs, or others that nobody could foresee.

    Changing inputs takes memory of its own: where there is none they stay as they are.
    """
    own = replace(OWN, seed=rng.getrandbits(62))
    if not course.plain or not course.families or rng.random() >= share:
        return own
    trial = Trial(_surprising(course, rng)[0], rng.getrandbits(62), own_weights=True)
    try:
        return own if _is_refused(course, trial) else trial
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
    course.unasked.append("calls on other families")
    return own


def _is_refused(course: Course, trial: Trial) -> bool:
    """By the first rows, where rows are independent."""
    args = arguments_of(trial, course.reference)
    some = args if course.rows is None else sliced(args, course.rows, slice(0, course.rows.chunk))
    return bool(refusal(course.oracle, trial, some))


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
        if course.state_yards:
            _verify_states(contestant, course, inputs, turns, _eager_states(course, inputs, turns), rng)
        return
    state, states = course.state, []
    doubtful: list[tuple[State, Sequence[int], int]] = []
    for turn in turns:
        for slots, seed in turn.seeded():
            expected = course.oracle.eager(state, [inputs[slot] for slot in slots], seed)
            for number, row in zip(slots, expected.calls, strict=True):
                if number in audits:
                    _audit(course, inputs[number], contestant.outputs(number), audits[number], row)
                elif not all(map(close_to_eager, contestant.outputs(number), row, course.yards)):
                    sequence = range(slots.start, number + 1) if course.stateful or course.oracle.random else [number]
                    doubtful.append((state, sequence, seed))
            if course.stateful:
                state = expected.state
        states.append(state)
    for before, numbers, seed in rng.sample(doubtful, min(len(doubtful), APPEALS)):
        calls, number = [inputs[slot] for slot in numbers], numbers[-1]
        _require_right(course, before, calls, seed, contestant.outputs(number), _timed_call(number))
    timed = [slot for turn in turns for slot in turn.slots if slot not in audits]
    _spot_check(contestant, course, inputs, rng.choice(timed), rng)
    if course.stateful:
        _verify_states(contestant, course, inputs, turns, states, rng)


def _eager_states(course: Course, inputs: Sequence[tuple[Any, ...]], turns: Sequence[Turn]) -> list[State]:
    """What each batch should leave behind."""
    state, states = course.state, []
    for turn in turns:
        for slots, seed in turn.seeded():
            state = course.oracle.eager(state, [inputs[slot] for slot in slots], seed).state
        states.append(state)
    return states


def _verify_states(
    contestant: Contestant,
    course: Course,
    inputs: Sequence[tuple[Any, ...]],
    turns: Sequence[Turn],
    states: Sequence[State],
    rng: random.Random,
) -> None:
    """What each batch left behind, some elements of it, against eager's; in the end all. A batch may be one that does
    not count, and what an old call did to a moving average is soon forgotten."""
    names = list(course.state)
    made: list[int] = []
    doubtful: list[tuple[list[int], str, Sampled]] = []
    for turn, state, noted in zip(turns, states, contestant.noted, strict=True):
        made += [slot for slots, _ in turn.seeded() for slot in slots]
        for place, seen in noted.items():
            name = names[place]
            if name in course.state_yards and not close_to_eager(
                seen.values, seen.those_of(state[name]), course.state_yard(name, len(made))
            ):
                doubtful.append((list(made), name, seen))
    for calls, name, seen in rng.sample(doubtful, min(len(doubtful), APPEALS)):
        exact = course.oracle.state_after(course.state, [inputs[slot] for slot in calls])
        _require_state(name, seen.values, seen.those_of(exact[name]), course.state_yard(name, len(calls)))
    # Last, for it lets the worker run.
    found = dict(zip(course.state, contestant.give_state(), strict=True))
    _verify_state(found, states[-1], course, inputs, made)


def _verify_state(
    found: Mapping[str, torch.Tensor],
    eager: State,
    course: Course,
    inputs: Sequence[tuple[Any, ...]],
    order: Sequence[int],
) -> None:
    """What the calls left behind, against eager's; of a buffer that is off, against float64."""
    yards = {name: course.state_yard(name, len(order)) for name in course.state_yards if name in found}
    doubtful = [name for name, yard in yards.items() if not close_to_eager(found[name], eager[name], yard)]
    if not doubtful:
        return
    exact = course.oracle.state_after(course.state, [inputs[slot] for slot in order])
    for name in doubtful:
        _require_state(name, found[name], exact[name], yards[name])


def _require_state(name: str, found: torch.Tensor, exact: torch.Tensor, own: Yardstick) -> None:
    yard = around(exact, own)
    s = score(found, yard)
    if not within(yard, s):
        words = f"the buffer {name} is not what the calls while being timed should leave: {describe_score(s)}"
        raise Failed(Verdict.INCORRECT, words)


def _audit(
    course: Course,
    args: tuple[Any, ...],
    found: Sequence[torch.Tensor],
    family: Family,
    eager: Sequence[torch.Tensor],
) -> None:
    """By the oracle; where that takes long, only if the output is off eager's."""
    known = course.family_yards.get(family.name) if course.spot_share < 1.0 else None
    if known and all(map(close_to_eager, found, eager, known)):
        return
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
        yards, scores = _require_right(course, course.state, [inputs[slot]], 0, found, _timed_call(slot))
        _require_own_precision(course, Tried(OWN, course.state, 0, inputs[slot], yards, scores, tuple(found)))
    if course.own_memory and lies_in_inputs(contestant, slot, inputs[slot], found):
        raise Failed(Verdict.INCORRECT, f"the output of call {slot + 1}, while being timed, lies in an input's memory")


def inquire(contestant: Contestant, course: Course, batches: Sequence[range], slots: int, rng: random.Random) -> None:
    """Rounds that look like timed ones and are not counted, when nobody expects them.

    With other weights: who folds them into something once it is timed must hear of new ones. Of models with state or
    chance, whose timed inputs are the problem's own throughout, on inputs of other families. And of a candidate with
    random numbers of its own, with seeds that another process had.
    """
    weights = bool(course.state) and contestant.takes_state
    asked = [[OWN.family]] if weights else []
    if course.families and not course.plain:
        asked.append(_surprising(course, rng)[: min(AUDITS, len(batches[0]))])
    for families in rng.sample(asked, len(asked)):
        own_weights = families != [OWN.family]
        try:
            state = course.state if own_weights else randomised(course.state, rng.getrandbits(62))
            _inquire(contestant, course, state, families, own_weights, batches, slots, rng)
        except (MemoryError, RuntimeError) as error:  # our own: there is one more set of weights, and the oracle
            if not is_shortage(error):
                raise
            course.unasked.append("calls with other weights" if not own_weights else "calls on other families")
    if course.echo is not None:
        _listen(contestant, course, course.echo, batches, slots, rng)
    if weights:
        contestant.take_state(list(course.state.values()))


def inquire_in_place(contestant: Contestant, course: Course, rng: random.Random) -> None:
    """The same of a large problem: a call with other weights, and one on inputs of another family."""
    if not course.verified:
        return
    try:
        if course.state and contestant.takes_state:
            other = replace(course, state=randomised(course.state, rng.getrandbits(62)))
            _inquire_in_place(contestant, other, replace(OWN, seed=rng.getrandbits(62)), rng)
        _inquire_in_place(contestant, course, next_trial(course, rng, share=1.0), rng)
    except (MemoryError, RuntimeError) as error:  # our own
        if not is_shortage(error):
            raise
        course.unasked.append("calls with other weights and on other families")
    contestant.take_state(list(course.state.values()))


def _inquire_in_place(contestant: Contestant, course: Course, trial: Trial, rng: random.Random) -> None:
    seed, secret = rng.getrandbits(62), rng.getrandbits(62)
    contestant.take_state(list(course.state.values()))
    given = give_inputs(contestant, course, trial, secret)
    give_back(contestant.pool.memory.bytes.device)  # the worker may need it
    contestant.call(range(1), seed)
    course.wait_after(CANDIDATE)
    verify_in_place(contestant, course, trial, seed, given, secret)
    if course.tight:
        contestant.release()


def _inquire(
    contestant: Contestant,
    course: Course,
    state: State,
    families: Sequence[Family],
    own_weights: bool,
    batches: Sequence[range],
    slots: int,
    rng: random.Random,
) -> None:
    """A round: who takes care in some of its batches only is asked in all of them. In each, calls that nobody can
    foresee are on inputs of these families, and are judged by the oracle: one, and as many as there is time for."""
    contestant.take_state(list(state.values()))
    contestant.map(course.shape, range(slots))
    asked: list[tuple[range, int, Trial, list[tuple[Any, ...]], State]] = []
    for batch in batches:
        trials = [Trial(family, rng.getrandbits(62), own_weights) for family in families]
        inputs, placed = _with_trials(course, trials, len(batch), rng)
        seed = rng.getrandbits(62)
        _call_batch(contestant, course, batch, inputs, seed)
        asked += [(batch[: n + 1], seed, trial, inputs[: n + 1], state) for n, trial in placed.items()]
        if course.stateful:
            state = course.oracle.eager(state, inputs, seed).state
    share = Share(INQUIRY_S)
    for calls, seed, trial, inputs, before in rng.sample(asked, len(asked)):
        _require_right_trial(course, trial, before, inputs, seed, contestant.outputs(calls[-1]), rng)
        if not share.lasts():
            break


def _with_trials(
    course: Course, trials: Sequence[Trial], calls: int, rng: random.Random
) -> tuple[list[tuple[Any, ...]], dict[int, Trial]]:
    """Inputs of so many calls, and which of them are these trials."""
    inputs = [course.reference.draw(rng.getrandbits(62)) for _ in range(calls)]
    placed: dict[int, Trial] = {}
    for number, trial in zip(rng.sample(range(calls), len(trials)), trials, strict=True):
        args = arguments_of(trial, course.reference)
        if not refusal(course.oracle, trial, args):
            inputs[number], placed[number] = args, trial
    return inputs, placed


def _call_batch(
    contestant: Contestant, course: Course, batch: range, inputs: Sequence[tuple[Any, ...]], seed: int
) -> None:
    for slot, args in zip(batch, inputs, strict=True):
        write_call(contestant, slot, args)
    contestant.call(batch, seed)
    course.wait_after(CANDIDATE)


def _listen(
    contestant: Contestant, course: Course, echo: Echo, batches: Sequence[range], slots: int, rng: random.Random
) -> None:
    """A round whose batches begin with the call and the seeds that another process was given; each seed comes once."""
    left = echo.left_for(contestant.worker.pid)
    chosen = rng.sample(sorted(left), min(len(left), len(batches)))
    left.difference_update(chosen)
    contestant.take_state(list(course.state.values()))
    contestant.map(course.shape, range(slots))
    heard = []
    for batch, number in zip(batches, chosen, strict=False):
        others = [course.reference.draw(rng.getrandbits(62)) for _ in batch[1:]]
        _call_batch(contestant, course, batch, [echo.arguments, *others], echo.seeds[number])
        heard.append(contestant.outputs(batch[0]))
        if not all(map(close_to_eager, heard[-1], echo.answers[number], course.yards)):
            echo.strange = True
    for (one, this), (two, that) in pairwise(zip(chosen, heard, strict=True)):
        seeds = echo.seeds[one], echo.seeds[two]
        decided = decided_by_chance(course.oracle, course.state, echo.arguments, seeds)
        if decided >= ENOUGH_TO_DIFFER and all(map(close_to_eager, this, that, course.yards)):
            echo.strange = True


def _require_right_trial(
    course: Course,
    trial: Trial,
    state: State,
    calls: Sequence[tuple[Any, ...]],
    seed: int,
    found: Sequence[torch.Tensor],
    rng: random.Random,
) -> None:
    """The last of these calls, which began from that state."""
    *before, args = calls
    if course.stateful and not course.oracle.random:
        state, calls = course.oracle.eager(state, before, seed).state, [args]
    elif course.plain or not course.verified:
        calls = [args]
    yards = course.oracle.truth(state, calls, seed).calls[-1]
    if uninformative(yards, trial.family):
        return
    kind = f"on {trial.family.name} inputs" if trial.own_weights else "with other weights"
    which = f"a call {kind} while being timed, though not before"
    if not course.verified:
        often = course.oracle.eager(state, [args] * ENOUGH_DRAWS, rng.getrandbits(62)).calls
        for position, yard in enumerate(yards):
            draws = torch.stack([row[position] for row in often])
            why = misplaced(found[position], draws, limits_for(yard.dtype).loose_rms * yard.rms)
            if why := why or unlike(found[position], draws):
                raise Failed(Verdict.INCORRECT, f"{which}: {why}")
        return
    scores = [score(c, yard) for c, yard in zip(found, yards, strict=True)]
    if not all(map(within, yards, scores)):
        yards, scores = _require_right(course, state, calls, seed, found, which)
    if not course.oracle.random:
        _require_own_precision(course, Tried(trial, state, seed, args, yards, scores, tuple(found)))


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
        if ours.numel() >= CERTAIN and torch.equal(ours, others):
            _require_steady(course, position, inputs, slots, theirs, ours)
            continue
        close = partial(close_to_eager, own=course.yards[position])
        why = differences(theirs[chosen], ours[chosen], close) if len(slots) >= FEWEST_DRAWS else ""
        allowed = limits_for(ours.dtype).loose_rms * course.yards[position].rms
        pairs = (misplaced(theirs[n], torch.stack([ours[n], others[n]]), allowed) for n in chosen)
        why = why or next(filter(None, pairs), "")
        for number in chosen[:LOOKS] if not why else ():
            often = course.oracle.eager(course.state, [inputs[slots[number]]] * ENOUGH_DRAWS, rng.getrandbits(62)).calls
            draws = torch.stack([row[position] for row in often])
            why = why or misplaced(theirs[number], draws, allowed) or unlike(theirs[number], draws)
        if fresh and not why:
            chance.add(theirs, ours, others)
            why = chance.repeated()
        if why:
            raise Failed(Verdict.INCORRECT, f"its random outputs while being timed are distributed differently: {why}")


def _require_steady(
    course: Course,
    position: int,
    inputs: Sequence[tuple[Any, ...]],
    slots: Sequence[int],
    found: torch.Tensor,
    eager: torch.Tensor,
) -> None:
    """An output of a random model that chance has no part in: as any other; what is off is judged by the oracle."""
    yard = course.yards[position]
    doubtful = [n for n in range(len(slots)) if not close_to_eager(found[n], eager[n], yard)]
    for number in doubtful[:APPEALS]:
        args = inputs[slots[number]]
        for yards in course.oracle.searches(course.state, [args], 0):
            s = score(found[number], yards[position])
            if within(yards[position], s):
                break
        else:
            raise Failed(Verdict.INCORRECT, f"{_timed_call(slots[number])}: output {position}: {describe_score(s)}")


def _timed_call(slot: int) -> str:
    return f"call {slot + 1} while being timed"


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
            raise Failed(Verdict.INCORRECT, f"{which}: {describe_score(s)}")
    return yards, scores


def _require_own_precision(course: Course, tried: Tried) -> None:
    """An answer that just passes, on inputs on which little precision is missed, may have been made with less."""
    if precision := shown_precision([tried], course.oracle):
        raise Failed(Verdict.REDUCED_PRECISION, f"the error while being timed is that of {precision} arithmetic")


def give_inputs(contestant: Contestant, course: Course, trial: Trial, secret: int) -> list[int]:
    """The inputs of one call, which exist once, are written where the worker looks; what tells if they are changed."""
    contestant.map(course.shape, [0])
    args = arguments_of(trial, course.reference)
    write_inputs(contestant, [args])
    return fingerprint(flatten_arguments(args)[1], secret)


def verify_in_place(
    contestant: Contestant, course: Course, trial: Trial, seed: int, given: list[int], secret: int
) -> None:
    """The one output against eager's, some rows at a time where rows are independent."""
    views = [contestant.pool.view(place) for place in contestant.layout.slots[0]]
    if fingerprint(views, secret) != given:
        course.object_to_written_inputs()
        write_inputs(contestant, [arguments_of(trial, course.reference)])
    args: tuple[Any, ...] = unflatten(course.shape.arguments, views)
    own = trial.family.name == "own"
    yards = course.yards if own else course.family_yards.get(trial.family.name)
    parts = list(row_slices(course.rows, secret)) if course.rows else [None]
    for part in parts:
        some = args if part is None or course.rows is None else sliced(args, course.rows, part)
        answers = course.oracle.eager(course.state, [some], seed)
        eager, after = answers.calls[0], answers.state
        found = contestant.outputs(0, part, in_place=True)
        if yards and all(map(close_to_eager, found, eager, yards)):
            continue
        if own:
            _require_right(course, course.state, [some], seed, found, "a call while being timed")
        else:
            _audit(course, some, found, trial.family, eager)
    if course.stateful:  # rows are whole then
        names = list(course.state)
        left = {names[place]: tensor for place, tensor in contestant.left_behind().items()}
        _verify_state(left, after, course, [args], [0])
    if course.own_memory and _lies_in_views(contestant, views, parts[-1], secret):
        raise Failed(Verdict.INCORRECT, "an output, while being timed, lies in an input's memory")


def _lies_in_views(contestant: Contestant, views: Sequence[torch.Tensor], part: slice | None, secret: int) -> bool:
    """Whether these rows of the output change with the inputs, which nobody needs any more."""
    before = fingerprint(contestant.outputs(0, part, in_place=True), secret)
    overwrite(views)
    return fingerprint(contestant.outputs(0, part, in_place=True), secret) != before
