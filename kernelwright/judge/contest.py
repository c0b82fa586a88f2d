"""A candidate that was found right comes in; its speed against the baselines, with all samples, goes out.

All are started in processes of their own, take turns (`timing.py`), and are started again; what the times say is in
`samples.py`.
"""

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from kernelwright.judge import wire
from kernelwright.judge.beginning import Beginning
from kernelwright.judge.budget import LEAST_RUN_S, Budget, Stopwatch, share_of_restart, time_for_restart
from kernelwright.judge.case import Case
from kernelwright.judge.codec import flatten_arguments, flatten_output
from kernelwright.judge.contestant import Contestant
from kernelwright.judge.correctness import NO_TIME, Echo, Findings, write_inputs
from kernelwright.judge.families import FAMILIES, Family
from kernelwright.judge.floor import floor_us, needed_bytes
from kernelwright.judge.hearing import NO_MEMORY, Hearing
from kernelwright.judge.labels import labels_from_process
from kernelwright.judge.memory import batch_bytes, give_back
from kernelwright.judge.oracle import same_bits
from kernelwright.judge.policy import COMPILED, Policy
from kernelwright.judge.process import Zygote, available_bytes
from kernelwright.judge.reference import Reference, can_be_turned
from kernelwright.judge.samples import AGAIN, CANDIDATE, Clocked, Samples, summarise
from kernelwright.judge.shortage import is_shortage
from kernelwright.judge.stillness import Stillness, kernel_probe
from kernelwright.judge.timing import BaselineFailed, Plan, plan_batches, run_once
from kernelwright.judge.verdict import Label, Speed
from kernelwright.judge.verification import Course
from kernelwright.judge.workshop import Arena, open_arena

__all__ = ["SlowStarters", "begin_slow_starters", "contest"]

LEAST_TIMING_S = 4.0
# Where noise leaves no word on the speed, or an interval as wide as this to each side (in the logarithm), everybody is
# started again and measured for such a share of the budget: of three processes one that was disturbed is a third.
EXTENSION, VAGUE = 0.075, 0.08
# On a busy machine one of two equal processes may be slower by a fifth for as long as it lives: no turn of it tells.
FEWEST_RESTARTS = 2
COMPILE_LIMIT_S = 180.0
UNSEEDED = "its random numbers do not follow from torch's seed: drawn ahead of the clock they would look like speed"
# Between two equal processes, of one restart or more. On a machine that is ours it is a tenth of this.
DISTURBED = 0.2
# Long beside what waking a worker takes, which on a busy machine differs from turn to turn by a millisecond; and short
# beside a restart, which needs many turns: one that is disturbed must not decide.
BATCH_S, BUSY_BATCH_S, GPU_BATCH_S = 0.004, 0.008, 0.04
# Calls of a round on a GPU: their inputs are drawn on the CPU and their outputs verified one by one, which takes longer
# than the calls; more turns on fewer inputs know more.
GPU_SLOTS, FEWEST_GPU_SLOTS = 128, 40
SHORT_BUDGET_S = 20.0  # with less, batches are shorter in proportion: a few rounds still fit


@dataclass(frozen=True, slots=True)
class SlowStarters:
    """Where timing takes place, and the baselines that take long to start: begun beside the examination, kept alive."""

    plan: Plan
    arena: Arena | None
    begun: dict[str, Beginning]


def begin_slow_starters(hearing: Hearing, stack: contextlib.ExitStack) -> SlowStarters:
    """torch.compile takes tens of seconds where nothing is cached: it compiles while the candidate is examined.

    It may start before the candidate is built: what it is given now is not what it is timed on.
    """
    case = hearing.case
    target, slots = (BUSY_BATCH_S if hearing.busy else BATCH_S), 512
    if case.gpu:
        share = min(1.0, hearing.policy.budget_s / SHORT_BUDGET_S)
        target, slots = GPU_BATCH_S * share, max(FEWEST_GPU_SLOTS, int(GPU_SLOTS * share))
    most = min(slots, wire.MAX_CLAIMS // max(1, len(case.shape.leaves)))
    plan = plan_batches(case.eager_s, case.input_bytes + case.output_bytes, _timing_memory(case), target, most)
    slow = [name for name in hearing.policy.baselines if name in COMPILED]
    if not slow or (case.large and _is_tight(case, len(hearing.policy.baselines) + 4)):
        return SlowStarters(plan, None, {})  # where memory is tight nothing is held twice
    arena = stack.enter_context(open_arena(case, 1 if case.large else plan.slots))
    begun = {name: _begun(hearing, name, arena, raised=False) for name in slow}
    for beginning in begun.values():
        stack.callback(beginning.end)
    return SlowStarters(plan, arena, begun)


def _begun(hearing: Hearing, name: str, arena: Arena, *, raised: bool) -> Beginning:
    """A baseline that starts beside other work: everything that draws at random or forks is done before."""
    case = hearing.case
    variant = "plain" if name in ("eager", AGAIN) else name
    contestant, entry = hearing.workshop.unloaded_baseline(name, variant, arena, raised=raised)
    write_inputs(contestant, [case.arguments()])
    if case.large:
        give_back(case.torch_device)

    def start() -> None:
        contestant.load(entry, case.model_seed, case.worker_device)
        contestant.take_state(list(case.state.values()))
        contestant.map(case.shape, [0])
        # The first call may compile for a long time; it is not part of the measurement.
        usual, contestant.call_limit_s = contestant.call_limit_s, COMPILE_LIMIT_S
        contestant.call(range(1), 0)
        contestant.call_limit_s = usual
        if case.large:
            contestant.release()

    return Beginning(contestant, start, case.torch_device)


def contest(hearing: Hearing, findings: Findings, budget: Budget, slow: SlowStarters) -> None:
    """Everybody takes turns; where others turn out to use the machine, once more, by processes made for that."""
    hearing.report("start", 0.0)
    end_s = hearing.clock() + max(budget.left("time"), min(LEAST_TIMING_S, budget.total_s / 2))
    try:
        _take_turns(hearing, findings, budget, slow, end_s)
    except _Disturbed:
        hearing.notes.busy = True
        hearing.notes.evidence["started_again"] = "others use the machine: two equal processes differed too much"
        for beginning in slow.begun.values():
            beginning.end()
        with contextlib.ExitStack() as stack:
            workshop = hearing.workshop.with_workers_of(stack.enter_context(Zygote(busy=True)))
            hearing = replace(hearing, workshop=workshop, busy=True)
            _take_turns(hearing, findings, budget, begin_slow_starters(hearing, stack), end_s)


class _Disturbed(Exception):
    """What was measured so far says nothing: threads that spin at barriers waited for some that did not run."""


def _take_turns(hearing: Hearing, findings: Findings, budget: Budget, slow: SlowStarters, end_s: float) -> None:
    case, policy, notes = hearing.case, hearing.policy, hearing.notes

    def left() -> float:
        return end_s - hearing.clock()

    kept = _ready_in_time(hearing, slow, left() / 2)
    own = next(tried for tried in findings.tried if tried.trial.family.name == "own")
    families, unseen = _audit_families(findings, policy)
    course = Course(
        reference=_never_the_same(case),
        oracle=case.oracle,
        shape=case.shape,
        state=case.state,
        yards=own.yards,
        stateful=bool(findings.state_scores or case.updated),
        # The first of each: from one call on the problem's own inputs, as those are that will be timed.
        state_yards={name: yard for name, yard, _ in reversed(findings.state_scores)},
        own_memory=Label.ALIASES_INPUT in policy.forbid - case.habits,
        inputs_stay=Label.MUTATES_INPUTS in policy.forbid - case.habits,
        verified="by_distribution" not in notes.evidence,
        large=case.large,
        tight=case.large and _is_tight(case, len(policy.baselines) + 2),
        rows=case.rows,
        stillness=Stillness(kernel_probe(case.torch_device)) if case.gpu else None,
        families=families,
        family_yards={t.trial.family.name: t.yards for t in reversed(findings.tried) if t.trial.own_weights},
        unseen=unseen,
        echo=findings.echo,
    )
    seeds = hearing.roots("time")
    samples = Samples()
    if "graph" in policy.baselines and not case.gpu:
        notes.evidence["left_out"]["graph"] = "a CUDA graph needs a GPU"
    baselines = [name for name in policy.baselines if name not in notes.evidence["left_out"]]

    def clocked(floor_us: float = 0.0) -> Clocked:
        return summarise(samples, [name for name in baselines if name not in notes.evidence["left_out"]], floor_us)

    with contextlib.ExitStack() as outer:
        arena = slow.arena or outer.enter_context(open_arena(case, 1 if case.large else slow.plan.slots))
        starting_s = 0.0
        restart, restarts, extensions = 0, policy.restarts, policy.extensions
        while restart < restarts:
            more = restarts - restart
            part = (restart / restarts, 1 / restarts)
            hearing.report("start", part[0])
            watch = Stopwatch()
            with contextlib.ExitStack() as stack:
                contestants = _start_all(hearing, arena, baselines, kept, stack, left() / 3)
                if not contestants:
                    return  # the reference does not run in a fresh process; the record says why
                starting_s = watch.lap()
                hearing.report("time", part[0])
                until = time.perf_counter() + min(policy.restart_s, share_of_restart(left(), starting_s, more))
                heard = lambda done, part=part: hearing.report("time", part[0] + done * part[1])
                try:
                    run_once(contestants, course, slow.plan, seeds, samples, until, hearing.busy, heard)
                except BaselineFailed as failed:  # once more without it
                    notes.evidence["left_out"][failed.name] = failed.why
                    kept.pop(failed.name, None)
                    continue
                restart += 1
                if not (hearing.busy or case.gpu) and clocked().noise > DISTURBED:
                    raise _Disturbed
                if restart == restarts or not time_for_restart(restart, left(), starting_s):
                    restarts = restart
                    if extensions and (_is_vague(clocked()) or (hearing.busy and restart < FEWEST_RESTARTS)):
                        restarts, extensions = restart + 1, extensions - 1
                        end_s = hearing.clock() + starting_s + max(EXTENSION * budget.total_s, LEAST_RUN_S)
                    else:  # ending processes and counting take seconds, and no device
                        hearing.report("conclude", 0.0)
                notes.labels |= labels_from_process(contestants[CANDIDATE], hearing.text) - {Label.NO_CUSTOM_KERNEL}
    if restart < policy.restarts:
        budget.skipped["restarts"] = f"{policy.restarts - restart} of {policy.restarts}: no time left"
    budget.skipped |= dict.fromkeys(course.unasked, NO_MEMORY)
    floor = floor_us(needed_bytes(case), case.device)
    notes.clocked = clocked(floor)
    if notes.clocked.batches_calls:
        notes.labels.add(Label.BATCHES_CALLS)
    if not course.verified and _is_unseeded(findings.echo, restart):
        notes.labels.add(Label.UNSEEDED)
        notes.evidence["label_reasons"][Label.UNSEEDED] = UNSEEDED
        if notes.clocked.speed is Speed.FASTER:
            notes.clocked = replace(notes.clocked, speed=Speed.INCONCLUSIVE)
    notes.evidence |= {"samples": samples.raw, "noise": notes.clocked.noise, "floor_us": floor}


def _is_unseeded(echo: Echo | None, processes: int) -> bool:
    """Whether a candidate's random numbers were not seen to follow from the seed, in each process that was timed: then
    nobody knows whether the time of drawing them is in the time of its calls."""
    return echo is None or echo.strange or len(echo.left) < processes


def _is_vague(clocked: Clocked) -> bool:
    """Whether nothing can be said of the speed, or of how much it is."""
    first = next(iter(clocked.speedup.values()), None)
    wide = first is not None and math.log(first.high / first.low) / 2 > VAGUE
    return wide or clocked.speed is Speed.INCONCLUSIVE


def _audit_families(findings: Findings, policy: Policy) -> tuple[tuple[Family, ...], tuple[Family, ...]]:
    """Those that timed calls may be on, and which of them were left out for want of time: a candidate that is slow only
    while it is examined has its reasons. One thing is right on each of them: no ties."""
    untimely = {name for name, reason in findings.dropped if reason.startswith(NO_TIME)}
    useless = {name for name, _ in findings.dropped} - untimely
    tried = {tried.trial.family.name for tried in findings.tried} - untimely
    useful = [f for f in FAMILIES if f.name in policy.families and f.name not in useless | {"own"} and not f.ties]
    return tuple(useful), tuple(family for family in useful if family.name not in tried)


def _never_the_same(case: Case) -> Reference:
    """The reference, made to draw other inputs each time where its file does not: nothing that is kept may serve."""
    floats, integers = _constant_arguments(case)
    usual = _finite_outputs(case, case.reference) if floats or integers else []
    for chosen in map(frozenset, ([*floats, *integers], floats, integers, *([number] for number in floats))):
        stirred = replace(case.reference, stirred=chosen)
        try:
            if chosen and _finite_outputs(case, stirred) == usual:
                return stirred
        except (RuntimeError, ValueError, IndexError, AssertionError, TypeError) as error:
            if is_shortage(error):
                raise
    return case.reference  # it insists on its own numbers


def _constant_arguments(case: Case) -> tuple[list[int], list[int]]:
    """Which floating-point tensors are the same for every seed, and which of integers. Of a large problem none, unless
    all are: trying what becomes of it then takes a whole call's memory.

    Integers that may be tied to others, as offsets are to lengths, stay as they are, and so do all others then.
    """
    first, second = (flatten_arguments(case.reference.draw(seed))[1] for seed in (1, 2))
    same = [same_bits(a, b) for a, b in zip(first, second, strict=True)]
    if case.large and not all(same):
        return [], []
    floats = [number for number, tensor in enumerate(first) if same[number] and tensor.is_floating_point()]
    integers = [number for number, tensor in enumerate(first) if same[number] and _is_of_integers(tensor)]
    return floats, integers if all(can_be_turned(first[number]) for number in integers) else []


def _is_of_integers(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()


def _finite_outputs(case: Case, reference: Reference) -> list[bool]:
    """Of each output tensor, whether all of it is finite."""
    output = flatten_output(reference.call(case.oracle.model, reference.draw(1)))[1]
    return [bool(torch.isfinite(leaf).all()) for leaf in output if isinstance(leaf, torch.Tensor)]


def _ready_in_time(hearing: Hearing, slow: SlowStarters, limit_s: float) -> dict[str, Contestant]:
    """Those of the slow starters that are ready; the others are left out, and the record says why."""
    left_out = hearing.notes.evidence.setdefault("left_out", {})
    ready = {}
    end_s = time.perf_counter() + limit_s
    for name, beginning in slow.begun.items():
        why = beginning.wait(end_s - time.perf_counter())
        if why:
            left_out[name] = why
        else:
            ready[name] = beginning.contestant
            beginning.contestant.worker.put_ahead()
    return ready


def _start_all(
    hearing: Hearing,
    arena: Arena,
    baselines: Sequence[str],
    kept: dict[str, Contestant],
    stack: contextlib.ExitStack,
    limit_s: float,
) -> dict[str, Contestant]:
    """The candidate and its baselines, each in a fresh process; a baseline that cannot run here is left out.

    Nobody, if eager cannot: there is nothing to compare with. `kept` were started before and stay. `limit_s` is for
    what a baseline compiles.
    """
    case, left_out = hearing.case, hearing.notes.evidence.setdefault("left_out", {})
    hearing.workshop.restore()
    wanted = [name for name in dict.fromkeys(["eager", AGAIN, *baselines]) if name not in left_out]
    begun: dict[str, Beginning] = {}
    for name in (name for name in wanted if name not in kept):
        begun[name] = _begun(hearing, name, arena, raised=True)
        stack.callback(begun[name].end)
        if case.large:  # their outputs might not fit beside each other
            begun[name].join(COMPILE_LIMIT_S)
    contestants = {CANDIDATE: stack.enter_context(contextlib.closing(hearing.workshop.candidate(arena, raised=True)))}
    contestants[CANDIDATE].take_state(list(case.state.values()))
    for name in wanted:
        plain = name in ("eager", AGAIN)
        why = begun[name].wait(COMPILE_LIMIT_S if plain else max(limit_s, 2.0)) if name in begun else ""
        if why:
            left_out[name] = why
            if plain:
                hearing.notes.shortage |= begun[name].shortage
                return {}
        else:
            contestants[name] = kept[name] if name in kept else begun[name].contestant
    _give_weights(contestants, case)
    return contestants


def _give_weights(contestants: dict[str, Contestant], case: Case) -> None:
    """Once more to all but the candidate, which stands still: the memory that weights are handed over in is shared, and
    it was running while they got theirs."""
    contestants[CANDIDATE].map(case.shape, [])
    for name, contestant in contestants.items():
        if name != CANDIDATE:
            contestant.take_state(list(case.state.values()))


def _is_tight(case: Case, contestants: int) -> bool:
    """Whether the outputs of all, beside the inputs and what a forward keeps between its steps, are too much."""
    each = 2 * case.output_bytes + case.footprint.between
    return 2 * case.input_bytes + contestants * each > case.room.left()


def _timing_memory(case: Case) -> int:
    if case.gpu:
        return batch_bytes(case.footprint, case.room.left())
    return min(available_bytes() // 16, 1 << 30)
