"""A loaded candidate and the oracle come in; scores of every trial, and what else was seen, go out.

A trial is one call on inputs of one family. Trials are called in groups, all outputs held until the last call is done:
a candidate that hands out one buffer again and again shows. Each group is called twice, with different bytes around the
inputs: a candidate that reads outside its tensors, or is not repeatable, shows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, takewhile
from typing import Any

import torch

from kernelwright.judge.budget import Share, Stopwatch
from kernelwright.judge.case import Case
from kernelwright.judge.closeness import close_to_eager
from kernelwright.judge.codec import flatten_arguments, unflatten
from kernelwright.judge.contestant import Contestant
from kernelwright.judge.criterion import STEADY, Jumps, Score, Yardstick, chunks, limits_for, score
from kernelwright.judge.families import FAMILIES, Family, randomised_state, transformed
from kernelwright.judge.large import fingerprint, row_slices, sliced
from kernelwright.judge.memory import give_back, most_kept
from kernelwright.judge.oracle import Oracle, Truth, same_bits
from kernelwright.judge.pool import FILLS
from kernelwright.judge.randomness import ENOUGH_DRAWS, differences, far_from, misplaced
from kernelwright.judge.reference import Reference, Refused, State, seeded
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.verdict import Errors, Failed, Label, Verdict

__all__ = [
    "NO_TIME",
    "Echo",
    "Findings",
    "Trial",
    "Tried",
    "accurate",
    "appealed",
    "arguments_of",
    "decide",
    "decided_by_chance",
    "describe_score",
    "draw_distribution",
    "drawn_echo",
    "errors_of",
    "examine",
    "examine_rows",
    "follows_the_seed",
    "lies_in_inputs",
    "lightened",
    "overwrite",
    "passes",
    "plan_trials",
    "randomised",
    "refusal",
    "state_drawn_differently",
    "within",
    "write_call",
    "write_inputs",
]

DRAWS = 64
# Families whose elements are alike: of others a few elements decide what a variance is, and chance does.
ALIKE = ("own", "zero_mean", "scaled_1e-2", "scaled_1e3")
LOOKS = 8  # of these, calls whose values are compared one by one
REPEATS = 8
ECHOES = 12
SEEDED_CALLS, DECIDED = 32, 16  # calls at most, until chance has decided so many elements
LOOKED_AT = 20  # any number: nobody works against this one
MOST_FAILED = 4  # trials of a large problem that failed and are kept, to tell why
NO_TIME = "no time left"
ILL_CONDITIONED = 1e-2  # Y beyond this share of the output: the reference's own answer is mostly rounding


@dataclass(frozen=True, slots=True)
class Trial:
    """One call to be made: inputs of a family, and whether weights are the problem's own or random ones."""

    family: Family
    seed: int
    own_weights: bool


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial that was made: from which state and inputs, the yardsticks, the scores of each output tensor.

    found  the outputs themselves, kept where they fail or nearly so
    """

    trial: Trial
    state: State
    seed: int
    arguments: tuple[Any, ...]
    yards: list[Yardstick]
    scores: list[Score]
    found: tuple[torch.Tensor, ...] = ()


@dataclass(slots=True)
class Echo:
    """Answers of a random candidate to one call with several seeds while it was examined; its other processes are given
    the same.

    Numbers that follow from the generator's seed come again. Others may have been drawn at any time before: ahead of
    the calls that are timed, each to be used once, they are as fresh as can be.
    """

    arguments: tuple[Any, ...]
    seeds: list[int]
    answers: list[list[torch.Tensor]]
    left: dict[int, set[int]] = field(default_factory=dict)
    """Of each process that was asked, the seeds that it has not had."""
    strange: bool = False
    """Whether one of them answered otherwise, or the same whatever the seed."""

    def left_for(self, process: int) -> set[int]:
        return self.left.setdefault(process, set(range(len(self.seeds))))


@dataclass(slots=True)
class Findings:
    """What correctness found."""

    tried: list[Tried] = field(default_factory=list)
    dropped: list[tuple[str, str]] = field(default_factory=list)
    labels: set[Label] = field(default_factory=set)
    state_scores: list[tuple[str, Yardstick, Score]] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    outside_reads: list[str] = field(default_factory=list)
    damaged_bands: int = 0
    reasons: dict[Label, str] = field(default_factory=dict)
    """What was seen, of labels that need explaining."""
    echo: Echo | None = None
    """Of a random candidate with numbers of its own."""
    trial_s: float = 0.0
    """How long the last trial took, roughly."""


def plan_trials(families: Sequence[str], seeds: Seeds, own_repeats: int, *, weights: bool) -> list[Trial]:
    """In the order of their worth: own inputs; zero mean and own inputs with random weights; the other families.

    The first two are made whatever time they take; own inputs come `own_repeats` times in all with their own weights.
    The first inputs come again with other weights, and again but for a few elements: an answer that was kept shows.
    """
    table = {family.name: family for family in FAMILIES}
    zero_mean = [name for name in ("zero_mean",) if name in families]
    rest = [name for name in families if name not in ("own", *zero_mean)] + ["own"] * (own_repeats - 1)
    planned = [("own", True)] + [(name, False) for name in [*zero_mean, "own"] if weights]
    planned += [(name, True) for name in [*zero_mean, *rest]]
    first = seeds.draw()
    kept = {("own", False), ("outliers", True)}
    trials = [Trial(table[n], first if (n, own) in kept else seeds.draw(), own) for n, own in planned[1:]]
    return [Trial(table["own"], first, own_weights=True), *trials]


ALWAYS = 2


def examine(
    contestant: Contestant,
    case: Case,
    trials: Sequence[Trial],
    seeds: Seeds,
    group_size: int,
    left_s: Callable[[], float],
    progress: Callable[[float], None],
) -> Findings:
    """Run the trials in groups that share their weights; raises `Failed` where the candidate breaks off.

    `left_s` says how many seconds are left. The last trials tell how long the next take.
    """
    findings, other, trials = _prepared(contestant, case, trials, seeds)
    most = 1 if case.large else most_kept(case.footprint, case.room.left())
    done, watch, each_s = 0, Stopwatch(), 0.0
    while done < len(trials):
        if done >= ALWAYS and not each_s < left_s():
            findings.dropped += [(trial.family.name, NO_TIME) for trial in trials[done:]]
            break
        own_weights = trials[done].own_weights
        alike = list(takewhile(lambda trial, own=own_weights: trial.own_weights is own, trials[done:]))  # type: ignore[misc]
        fitting = group_size
        while fitting > 1 and done >= ALWAYS and not fitting * each_s < left_s():
            fitting //= 2
        group = alike[:fitting]
        done += len(group)
        drawn = [(trial, arguments_of(trial, case.reference)) for trial in group]
        answered = [(trial, args) for trial, args in drawn if _is_answered(case, trial, args, findings)]
        if answered:
            _examine_group(contestant, case, case.state if own_weights else other, answered, seeds, findings)
            _lighten_all_but(most, findings)
        each_s = watch.lap() / max(1, len(answered))
        progress(done / len(trials))
    findings.trial_s = each_s
    return findings


def _is_answered(case: Case, trial: Trial, args: tuple[Any, ...], findings: Findings) -> bool:
    if reason := refusal(case.oracle, trial, args):
        findings.dropped.append((trial.family.name, reason))
    return not reason


def refusal(oracle: Oracle, trial: Trial, args: tuple[Any, ...]) -> str:
    """Why the reference does not take these inputs; "" if it does. It may ask for a range, as a probability has one,
    and so may a candidate. The problem's own inputs it takes."""
    if trial.family.name == "own":
        return ""
    try:
        oracle.attempt(args, trial.seed)
    except Refused as refused:
        return f"the reference raises {refused} there"
    return ""


def _lighten_all_but(most: int, findings: Findings) -> None:
    """The first trials, which are worth most, stay whole, and some that failed; of the others the scores do."""
    whole = failed = 0
    for place, tried in enumerate(findings.tried):
        if not tried.arguments:
            continue
        if whole < most:
            whole += 1
        elif not passes(tried) and failed < MOST_FAILED:
            failed += 1
        else:
            findings.tried[place] = lightened(tried)


def _prepared(
    contestant: Contestant, case: Case, trials: Sequence[Trial], seeds: Seeds
) -> tuple[Findings, State, list[Trial]]:
    """Other weights, and only the trials that can be made if weights cannot be handed over."""
    findings, other = Findings(), randomised(case.state, seeds.draw())
    if case.updated and not contestant.takes_state:
        words = f"the reference updates {case.updated[0]} in each call, which it does not have under that name or place"
        raise Failed(Verdict.INCORRECT, words)
    if case.state and not contestant.takes_state:
        findings.labels.add(Label.WEIGHTS_BY_SEED)
        return findings, other, [trial for trial in trials if trial.own_weights]
    return findings, other, list(trials)


def examine_rows(
    contestant: Contestant,
    case: Case,
    trials: Sequence[Trial],
    seeds: Seeds,
    left_s: Callable[[], float],
    progress: Callable[[float], None],
) -> Findings:
    """The same for a large problem whose rows are independent: one call at a time, scored some rows at a time."""
    findings, other, trials = _prepared(contestant, case, trials, seeds)
    watch = Stopwatch()
    for number, trial in enumerate(trials):
        if number >= ALWAYS and not watch.last_s < left_s():
            findings.dropped += [(left.family.name, NO_TIME) for left in trials[number:]]
            break
        state = case.state if trial.own_weights else other
        share = Share(left_s() / min(4, len(trials) - number))
        _examine_by_rows(contestant, case, state, trial, seeds, findings, share.lasts)
        watch.lap()
        progress((number + 1) / len(trials))
    return findings


def _examine_by_rows(
    contestant: Contestant,
    case: Case,
    state: State,
    trial: Trial,
    seeds: Seeds,
    findings: Findings,
    has_time: Callable[[], bool],
) -> None:
    assert case.rows is not None
    seed, secret, order = seeds.draw(), seeds.draw(), seeds.draw()
    prints, givens = [], []
    for fill in reversed(FILLS):  # what is scored is the last call: with NaN around its inputs
        called = _call_in_place(contestant, case, state, trial, seed, fill, secret, findings)
        if called is None:
            return
        inputs, given = called
        prints.append(
            [fingerprint(contestant.outputs(0, part, in_place=True), secret) for part in row_slices(case.rows, order)]
        )
        givens.append(given)
    if prints[0] != prints[1] and givens[0] == givens[1]:
        findings.differing.append(trial.family.name)
    for number, part in enumerate(row_slices(case.rows, order)):
        args, found = sliced(inputs, case.rows, part), contestant.outputs(0, part, in_place=True)
        if number >= 2 and not has_time():
            own = next(t for t in findings.tried if t.trial is trial)
            eager = case.oracle.eager(state, [args], seed).calls[0]
            if all(map(close_to_eager, found, eager, own.yards)):
                continue
            # Not close: then this part is judged by its own yardstick after all.
        yards = case.oracle.truth(state, [args], seed).calls[0]
        if reason := uninformative(yards, trial.family):
            findings.dropped.append((trial.family.name, reason))
            return
        scores = [score(c, yard) for c, yard in zip(found, yards, strict=True)]
        if not all(map(within, yards, scores)) and all(map(passes, findings.tried)):
            yards, scores = appealed(case.oracle, state, [args], seed, found)
        if number == 0:
            args = unflatten(*_copied(args))
            kept = tuple(t.clone() for t in found) if not accurate(yards, scores) else ()
            findings.tried.append(Tried(trial, state, seed, args, yards, scores, kept))
        else:
            findings.tried.append(lightened(Tried(trial, state, seed, (), yards, scores)))


def _call_in_place(
    contestant: Contestant,
    case: Case,
    state: State,
    trial: Trial,
    seed: int,
    fill: int,
    secret: int,
    findings: Findings,
) -> tuple[tuple[Any, ...], list[int]] | None:
    """One call whose inputs lie nowhere but in the pool; the inputs, as they were given, and their fingerprint. None if
    the reference does not take the first of their rows: for a call of its own on all of them there may be no room."""
    assert case.rows is not None
    if contestant.shape is not None and case.room.left() < 3 * case.input_bytes:
        contestant.release()  # inputs are drawn, changed and written where its last output lies
    contestant.take_state(list(state.values()))
    contestant.map(case.shape, [0])
    contestant.pool.fill_bands(fill)
    given = _write_trial(contestant, case, trial, secret)
    views = [contestant.pool.view(place) for place in contestant.layout.slots[0]]
    inputs: tuple[Any, ...] = unflatten(case.shape.arguments, views)
    if not _is_answered(case, trial, sliced(inputs, case.rows, slice(0, case.rows.chunk)), findings):
        return None
    give_back(case.torch_device)
    contestant.call(range(1), seed)
    note_memory_use(contestant, 1, findings)
    findings.damaged_bands += contestant.pool.damaged_bands()
    if fingerprint(views, secret) != given:
        findings.labels.add(Label.MUTATES_INPUTS)
        _write_trial(contestant, case, trial, secret)
    return inputs, given


def _write_trial(contestant: Contestant, case: Case, trial: Trial, secret: int) -> list[int]:
    args = arguments_of(trial, case.reference)
    write_inputs(contestant, [args])
    return fingerprint(flatten_arguments(args)[1], secret)


def _copied(args: tuple[Any, ...]) -> tuple[Any, list[torch.Tensor]]:
    template, tensors = flatten_arguments(args)
    return template, [t.clone() for t in tensors]


def bare(yard: Yardstick) -> Yardstick:
    """A yardstick that has served: its kind without its numbers; of the spread, the largest."""
    nothing = yard.eager[:0].clone()
    spread = yard.spread.max().reshape(1) if yard.spread is not None and yard.spread.numel() else None
    return replace(yard, exact=nothing, eager=nothing, spread=spread, settled=None, jumps=STEADY)


def lightened(tried: Tried) -> Tried:
    """What is left of a trial once nothing more is asked of it: its scores."""
    return replace(tried, arguments=(), yards=[bare(yard) for yard in tried.yards], found=())


def randomised(state: State, seed: int) -> State:
    with seeded(seed):
        return randomised_state(state)


def _examine_group(
    contestant: Contestant,
    case: Case,
    state: State,
    group: Sequence[tuple[Trial, tuple[Any, ...]]],
    seeds: Seeds,
    findings: Findings,
) -> None:
    trials, calls = [trial for trial, _ in group], [args for _, args in group]
    seed = seeds.draw()
    first = _call_all(contestant, case, state, calls, seed, FILLS[0], findings)
    if lies_in_inputs(contestant, 0, calls[0], first[0]):
        findings.labels.add(Label.ALIASES_INPUT)
    after = contestant.give_state()
    if case.large:
        # Its outputs are read where they lie, and there is room for one of them: the second call's takes its place.
        secret = seeds.draw()
        prints = [fingerprint(row, secret) for row in first]
        first = again = _call_all(contestant, case, state, calls, seed, FILLS[1], findings)
        varying = [n for n in range(len(calls)) if fingerprint(first[n], secret) != prints[n]]
    else:
        again = _call_all(contestant, case, state, calls, seed, FILLS[1], findings)
        varying = [n for n in range(len(calls)) if not _same_outputs(first[n], again[n])]
    if varying and not case.large:

        def call(fill: int) -> list[list[torch.Tensor]]:
            outputs = _call_all(contestant, case, state, calls, seed, fill, findings)
            return [outputs[n] for n in varying]

        answers = {fill: [row[n] for n in varying] for fill, row in zip(FILLS, (first, again), strict=True)}
        if _bytes_decide(call, answers, seeds):
            findings.outside_reads += [trials[n].family.name for n in varying]
    if not varying:
        again = first
    truth = case.oracle.truth(state, calls, seed)
    for number, trial in enumerate(trials):
        yards = truth.calls[number]
        if reason := uninformative(yards, trial.family):
            findings.dropped.append((trial.family.name, reason))
            continue
        if trial.family.ties:
            yards = [without_indices(yard) for yard in yards]
        scores = [score(c, yard) for c, yard in zip(first[number], yards, strict=True)]
        if not all(map(within, yards, scores)) and all(map(passes, findings.tried)) and not trial.family.ties:
            before = calls[:number] if case.oracle.random or truth.changed else []
            yards, scores = appealed(case.oracle, state, [*before, calls[number]], seed, first[number])
        kept = tuple(t.clone() for t in first[number]) if not accurate(yards, scores) else ()
        findings.tried.append(Tried(trial, state, seed, calls[number], yards, scores, kept))
        if trial.family.name == "integers" and any(map(_inexact, first[number], yards)):
            findings.labels.add(Label.INEXACT_INTEGERS)
        if number in varying and not case.large:
            findings.differing.append(trial.family.name)
            repeat = [score(c, yard) for c, yard in zip(again[number], yards, strict=True)]
            findings.tried.append(Tried(trial, state, seed, calls[number], yards, repeat, tuple(again[number])))
    if case.large and varying:
        findings.differing += [trials[n].family.name for n in varying]
    if after:
        _score_state(dict(zip(state, after, strict=True)), state, truth, findings)


def lies_in_inputs(contestant: Contestant, slot: int, args: tuple[Any, ...], output: Sequence[torch.Tensor]) -> bool:
    """Whether a call's output changes when its inputs are overwritten, with the worker stopped: no matter what the
    worker says of its addresses, then they share memory."""
    views = [contestant.pool.view(place) for place in contestant.layout.slots[slot]]
    # An output that is read where it lies would change together with what it is compared with.
    before = fingerprint(output, LOOKED_AT) if contestant.pool.memory.bytes.is_cuda else None
    overwrite(views)
    now = contestant.peek(slot)
    shared = not _same_outputs(now, output) if before is None else fingerprint(now, LOOKED_AT) != before
    for view, tensor in zip(views, flatten_arguments(args)[1], strict=True):
        view.copy_(tensor)
    return shared


def overwrite(views: Sequence[torch.Tensor]) -> None:
    """With anything else than they hold."""
    for view in views:
        view.view(torch.uint8).bitwise_not_() if view.is_contiguous() and view.dim() else view.fill_(1)


def _bytes_decide(
    call: Callable[[int], list[list[torch.Tensor]]], answers: dict[int, list[list[torch.Tensor]]], seeds: Seeds
) -> bool:
    """Whether the bytes around the inputs decide what comes out: each gives its own answer, again and again.

    The order is random, so that an output which is sometimes finished late agrees with it once in 256 times.
    """
    for _ in range(REPEATS):
        fill = FILLS[seeds.draw() % 2]
        if not all(map(_same_outputs, call(fill), answers[fill])):
            return False
    return True


def appealed(
    oracle: Oracle, state: State, calls: Sequence[tuple[Any, ...]], seed: int, found: Sequence[torch.Tensor]
) -> tuple[list[Yardstick], list[Score]]:
    """Before a failure counts, the last of these calls is judged again, with a search for elements that jump; and if it
    fails still, with a longer one."""
    for yards in oracle.searches(state, calls, seed):
        scores = [score(c, yard) for c, yard in zip(found, yards, strict=True)]
        if all(map(within, yards, scores)):
            break
    return yards, scores


def _inexact(candidate: torch.Tensor, yard: Yardstick) -> bool:
    """Eager is exact, as sums of small integers can be, and the candidate is not."""
    exact = all(torch.equal(yard.eager[part].double(), yard.exact[part].double()) for part in chunks(yard.eager))
    return exact and not torch.equal(candidate.reshape(-1), yard.eager)


def _same_outputs(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    return all(same_bits(x, y) for x, y in zip(a, b, strict=True))


def _call_all(
    contestant: Contestant,
    case: Case,
    state: State,
    calls: Sequence[tuple[Any, ...]],
    seed: int,
    fill: int,
    findings: Findings,
) -> list[list[torch.Tensor]]:
    """One batch: weights, fresh argument tensors, inputs, calls; then what came out and what was touched."""
    pool, slots = contestant.pool, contestant.layout.slots[: len(calls)]
    contestant.take_state(list(state.values()))
    contestant.map(case.shape, range(len(calls)))
    pool.fill_bands(fill)
    write_inputs(contestant, calls)
    contestant.call(range(len(calls)), seed)
    outputs = [contestant.outputs(number, in_place=case.large) for number in range(len(calls))]
    note_memory_use(contestant, len(calls), findings)
    findings.damaged_bands += pool.damaged_bands()
    for args, places in zip(calls, slots, strict=True):
        _, tensors = flatten_arguments(args)
        if not all(same_bits(pool.view(place), t) for place, t in zip(places, tensors, strict=True)):
            findings.labels.add(Label.MUTATES_INPUTS)
    return outputs


def write_inputs(contestant: Contestant, calls: Sequence[tuple[Any, ...]]) -> None:
    for slot, args in enumerate(calls[: len(contestant.layout.slots)]):
        write_call(contestant, slot, args)


def write_call(contestant: Contestant, slot: int, args: tuple[Any, ...]) -> None:
    for place, tensor in zip(contestant.layout.slots[slot], flatten_arguments(args)[1], strict=True):
        contestant.pool.view(place).copy_(tensor)


def note_memory_use(contestant: Contestant, calls: int, findings: Findings) -> None:
    """Two outputs in one place, or an output in an argument's place."""
    claims = sorted(claim for claim in contestant.claims(calls) if claim[1])
    for a, b in pairwise(claims):
        if a[0] + a[1] > b[0]:
            findings.labels.add(Label.REUSES_OUTPUT_BUFFER)
            where = f"outputs of one batch lie at {a[0]:#x} (+{a[1]:,}) and {b[0]:#x} (+{b[1]:,})"
            findings.reasons.setdefault(Label.REUSES_OUTPUT_BUFFER, where)
    base = contestant.pool_base()
    if base and any(base <= address < base + contestant.pool.size for address, _ in claims):
        findings.labels.add(Label.ALIASES_INPUT)


def arguments_of(trial: Trial, reference: Reference) -> tuple[Any, ...]:
    """The same arguments from the same seed, each time it is asked."""
    args = reference.draw(trial.seed)
    with seeded(trial.seed ^ 0x5EED):
        return transformed(args, trial.family)


def uninformative(yards: Sequence[Yardstick], family: Family) -> str:
    """Why these inputs say nothing of a candidate; the problem's own inputs always do."""
    if family.name == "own":
        return ""
    for yard in yards:
        if yard.dtype.is_floating_point:
            if not bool(torch.isfinite(yard.eager).all()):
                return "the reference is not finite there"
            if yard.conditioning > max(ILL_CONDITIONED, 64 * float(torch.finfo(yard.dtype).eps)):
                return "the reference is ill-conditioned there"
    return ""


def without_indices(yard: Yardstick) -> Yardstick:
    """Nothing is asked of integers where ties decide them."""
    if yard.dtype.is_floating_point:
        return yard
    free = torch.zeros_like(yard.eager, dtype=torch.bool)
    return replace(yard, settled=free, jumps=Jumps(flips=free.numel()))


def _score_state(after: State, before: State, truth: Truth, findings: Findings) -> None:
    """What forward should leave alone it must leave alone; what it updates it must update."""
    for name, value in after.items():
        if name in truth.changed:
            yard = truth.state[name]
            findings.state_scores.append((name, yard, score(value, yard)))
        elif not same_bits(value, before[name]):
            raise Failed(Verdict.INCORRECT, f"forward changed {name}, which the reference leaves alone")


def errors_of(findings: Findings) -> Errors | None:
    """Errors on the problem's own inputs relative to the output's size, and the worst scores anywhere."""
    own = [
        (yard, s)
        for tried in findings.tried
        if tried.trial.family.name == "own"
        for yard, s in zip(tried.yards, tried.scores, strict=True)
        if yard.dtype.is_floating_point
    ]
    if not own:
        return None

    def worst(ratio: Callable[[Yardstick, Score], float]) -> float:
        return max(ratio(yard, s) / yard.scale_rms if yard.scale_rms else 0.0 for yard, s in own)

    scores = [s for tried in findings.tried for s in tried.scores]
    return Errors(
        candidate_rms=worst(lambda yard, s: math.inf if s.special else s.error_rms),
        candidate_max=worst(lambda yard, s: math.inf if s.special else s.error_worst),
        eager_rms=worst(lambda yard, s: yard.shown_rms),
        eager_max=worst(lambda yard, s: yard.eager_worst),
        yardstick_rms=max(s.rms for s in scores),
        yardstick_max=max(s.worst for s in scores),
    )


def decide(findings: Findings, name_precision: Callable[[Sequence[Tried]], str]) -> tuple[Verdict, str]:
    """The verdict on the outputs. `name_precision` gives the precision whose error explains all failures, or ""."""
    if findings.damaged_bands:
        return Verdict.MEMORY_VIOLATION, "it wrote outside the tensors it was given"
    if findings.outside_reads:
        return Verdict.MEMORY_VIOLATION, (
            f"its output on {findings.outside_reads[0]} inputs depends on the bytes around its inputs"
        )
    failed = [tried for tried in findings.tried if not passes(tried)]
    if failed:
        kinds = {tried.trial for tried in failed}
        right = {tried.trial for tried in findings.tried if passes(tried)}
        if findings.differing and kinds & right:
            return Verdict.NONDETERMINISTIC, f"the same inputs gave right and wrong answers; {describe(failed[0])}"
        if precision := name_precision(findings.tried):
            return Verdict.REDUCED_PRECISION, f"the error is that of {precision} arithmetic; {describe(failed[0])}"
        return Verdict.INCORRECT, describe(failed[0])
    for name, yard, s in findings.state_scores:
        if not s.within_loose(limits_for(yard.dtype)):
            return Verdict.INCORRECT, f"the buffer {name} afterwards: {describe_score(s)}"
    if findings.differing:
        findings.labels.add(Label.NONDETERMINISTIC_ROUNDING)
        findings.reasons[Label.NONDETERMINISTIC_ROUNDING] = f"two calls differ: {', '.join(findings.differing)}"
    rough = [tried for tried in findings.tried if not accurate(tried.yards, tried.scores)]
    if rough and (precision := name_precision(findings.tried)):
        return Verdict.REDUCED_PRECISION, f"the error is that of {precision} arithmetic; {describe(rough[0])}"
    if rough:
        findings.labels.add(Label.LOOSE_ACCURACY)
    return Verdict.CORRECT, ""


def passes(tried: Tried) -> bool:
    """Within the loose limits, each output tensor."""
    return all(map(within, tried.yards, tried.scores))


def accurate(yards: Sequence[Yardstick], scores: Sequence[Score]) -> bool:
    """Within the limits that need no label."""
    return all(s.within(limits_for(yard.dtype)) for yard, s in zip(yards, scores, strict=True))


def within(yard: Yardstick, s: Score) -> bool:
    return s.within_loose(limits_for(yard.dtype))


def describe(tried: Tried) -> str:
    worst = max(range(len(tried.scores)), key=lambda i: tried.scores[i].worst)
    s = tried.scores[worst]
    which = f"output {worst} " if len(tried.scores) > 1 else ""
    weights = "" if tried.trial.own_weights else ", random weights"
    return f"{which}on {tried.trial.family.name} inputs{weights}: {describe_score(s)}"


def describe_score(s: Score) -> str:
    """Where it is worst, what stands there and what should."""
    place = f"[{', '.join(map(str, s.where))}]" if s.where else "the value"
    size = "" if s.special or not math.isfinite(s.worst) else f", {s.worst:.3g} times the yardstick (64 passes)"
    rms = "" if s.special else f", rms {s.rms:.3g} (16 passes)"
    return f"{place} is {s.got:.9g}, should be {s.want:.9g}{size}{rms}"


def draw_distribution(
    contestant: Contestant, case: Case, findings: Findings, seeds: Seeds, left_s: Callable[[], float]
) -> str:
    """Why the candidate's random outputs are distributed differently than the reference's; "" if they are not."""
    kinds: dict[tuple[str, bool], Tried] = {}
    for tried in findings.tried:
        if tried.trial.family.name in ALIKE:
            kinds.setdefault((tried.trial.family.name, tried.trial.own_weights), tried)
    watch = Stopwatch()
    for number, ((name, own_weights), tried) in enumerate(kinds.items()):
        if number >= ALWAYS and not watch.last_s < left_s():
            findings.dropped.append((name, f"{NO_TIME} for its distribution"))
            continue
        if why := _drawn_differently(contestant, case, tried, seeds):
            return f"on {name} inputs{'' if own_weights else ', random weights'}, {why}"
        watch.lap()
    return ""


def state_drawn_differently(contestant: Contestant, case: Case, findings: Findings, seeds: Seeds) -> str:
    """Why what a random candidate's calls leave in the state is not what the reference's do; "" if it is.

    Where chance has no part in it, it is right or wrong as any other's; `findings` keeps what was seen of those alone.
    """
    if not findings.state_scores:
        return ""
    args = case.reference.draw(seeds.draw())
    _answer_of(contestant, case, args, seeds.draw())
    found = dict(zip(case.state, contestant.give_state(), strict=True))
    draws = [case.oracle.eager(case.state, [args], seeds.draw()).state for _ in range(ENOUGH_DRAWS)]
    hang_on_chance = {name for name in found if not all(same_bits(state[name], draws[0][name]) for state in draws)}
    findings.state_scores = [row for row in findings.state_scores if row[0] not in hang_on_chance]
    for name, yard, s in findings.state_scores:
        if not within(yard, s):
            return f"the buffer {name} afterwards: {describe_score(s)}"
    for name in sorted(hang_on_chance):
        if why := far_from(found[name], torch.stack([state[name] for state in draws])):
            return f"the buffer {name} afterwards is {why}"
    return ""


def _drawn_differently(contestant: Contestant, case: Case, tried: Tried, seeds: Seeds) -> str:
    """The same for many calls on one input of that trial's kind."""
    args, slots = arguments_of(replace(tried.trial, seed=seeds.draw()), case.reference), len(contestant.layout.slots)
    theirs: list[list[torch.Tensor]] = []
    while len(theirs) < DRAWS:
        contestant.take_state(list(tried.state.values()))
        contestant.map(case.shape, range(slots))
        write_inputs(contestant, [args] * slots)
        contestant.call(range(slots), seeds.draw())
        theirs += [contestant.outputs(number) for number in range(slots)]
    ours = case.oracle.eager(tried.state, [args] * DRAWS, seeds.draw()).calls
    for position, yard in enumerate(tried.yards):
        candidate = torch.stack([row[position] for row in theirs[:DRAWS]])
        reference = torch.stack([row[position] for row in ours])
        allowed = limits_for(yard.dtype).loose_rms * yard.rms
        looked_at = (candidate[seeds.draw() % DRAWS] for _ in range(LOOKS))
        why = differences(candidate, reference, partial(close_to_eager, own=yard))
        if why := why or next(filter(None, (misplaced(one, reference, allowed) for one in looked_at)), ""):
            return why
    return ""


def follows_the_seed(contestant: Contestant, case: Case, seeds: Seeds) -> bool:
    """Whether a random candidate that gave the reference's answers has its random numbers, too.

    Where chance decides little, a hundredth of a few elements say, answers may agree although the numbers do not: it is
    asked until chance has decided enough.
    """
    decided = 0
    for _ in range(0 if case.large else SEEDED_CALLS):
        args, seed = case.reference.draw(seeds.draw()), seeds.draw()
        found = _answer_of(contestant, case, args, seed)
        yards = case.oracle.truth(case.state, [args], seed).calls[-1]
        scores = [score(c, yard) for c, yard in zip(found, yards, strict=True)]
        if not all(map(within, yards, scores)):
            yards, scores = appealed(case.oracle, case.state, [args], seed, found)
        if not all(map(within, yards, scores)):
            return False
        decided += decided_by_chance(case.oracle, case.state, args, (seed, seeds.draw()))
        if decided >= DECIDED:
            break
    return True


def drawn_echo(contestant: Contestant, case: Case, seeds: Seeds) -> Echo | None:
    """None for a large problem, whose inputs and outputs are not kept."""
    if case.large:
        return None
    echo = Echo(case.reference.draw(seeds.draw()), [seeds.draw() for _ in range(ECHOES)], [])
    echo.answers += [_answer_of(contestant, case, echo.arguments, seed) for seed in echo.seeds]
    return echo


def _answer_of(contestant: Contestant, case: Case, args: tuple[Any, ...], seed: int) -> list[torch.Tensor]:
    """To one call by itself, from the problem's own state."""
    contestant.take_state(list(case.state.values()))
    contestant.map(case.shape, [0])
    write_inputs(contestant, [args])
    contestant.call(range(1), seed)
    return contestant.outputs(0)


def decided_by_chance(oracle: Oracle, state: State, args: tuple[Any, ...], seeds: tuple[int, int]) -> int:
    """How many elements of the reference's answer to one call are others with another seed."""
    one, other = (oracle.eager(state, [args], seed).calls[0] for seed in seeds)
    return sum(int((a != b).sum()) for a, b in zip(one, other, strict=True))
