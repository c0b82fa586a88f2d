"""A problem and a candidate come in; a `Judgement` goes out. Read this first: one step a phase.

read      is the candidate Python that defines ModelNew; does the reference run                this process
build     import it, construct it, call it once; compilers run here                             worker
examine   families of inputs against the float64 oracle, guard bands, repeatability             fresh worker
doubt     wrong answers, made up for this problem, through the same trials                      this process
sanitize  one call under compute-sanitizer, on a GPU                                            fresh worker
start     the candidate and the baselines, each with its weights, called once                   fresh workers
time      batches of calls, interleaved with the baselines, every output verified               the same
"""

import contextlib
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from kernelwright.device import Device
from kernelwright.errors import EnvironmentProblem
from kernelwright.judge import channel_cuda, wire
from kernelwright.judge.beginning import Beginning
from kernelwright.judge.budget import Budget, Share, Stopwatch, WorkClock, share_of_restart, time_for_restart
from kernelwright.judge.candidate import Candidate, Facts, read_facts
from kernelwright.judge.case import Case, leaner, open_case
from kernelwright.judge.cell import RAISED, niceness, set_niceness
from kernelwright.judge.codec import flatten_arguments, flatten_output
from kernelwright.judge.contestant import Contestant
from kernelwright.judge.correctness import (
    NO_TIME,
    Findings,
    Tried,
    decide,
    draw_distribution,
    errors_of,
    examine,
    examine_rows,
    lightened,
    plan_trials,
    write_inputs,
)
from kernelwright.judge.families import FAMILIES, Family
from kernelwright.judge.floor import floor_us, needed_bytes
from kernelwright.judge.labels import labels_from_process, labels_from_text
from kernelwright.judge.memory import batch_bytes, fair_bytes, free_bytes, give_back
from kernelwright.judge.mutants import KillRate, kill_rate
from kernelwright.judge.oracle import same_bits
from kernelwright.judge.policy import COMPILED, Policy
from kernelwright.judge.precision import reduced_precision, shown_precision
from kernelwright.judge.process import available_bytes, borrowed_zygote
from kernelwright.judge.record import read_record, record_of, trials_of
from kernelwright.judge.reference import Reference
from kernelwright.judge.robustness import labels_for_variants
from kernelwright.judge.samples import AGAIN, CANDIDATE, Clocked, Samples, summarise
from kernelwright.judge.sanitize import sanitize
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.shortage import CURE, in_gigabytes, is_shortage, shortage_words
from kernelwright.judge.sources import check_cuda_sources
from kernelwright.judge.stillness import Stillness, kernel_probe
from kernelwright.judge.timing import BaselineFailed, Plan, plan_batches, run_once
from kernelwright.judge.verdict import Errors, Failed, Judgement, Label, Verdict
from kernelwright.judge.verification import Course
from kernelwright.judge.workshop import Arena, Workshop, open_arena, open_workshop
from kernelwright.load import Problem

__all__ = ["judge", "replay"]

Progress = Callable[[str, float], None]
GROUP_BYTES = 64 << 20  # inputs and outputs of one group of trials; the oracle holds them some twenty times
OWN_REPEATS = 3
LEAST_DOUBT_S = 1.0
LEAST_SANITIZE_S = 3.0
LEAST_TIMING_S = 4.0
VARIANTS = 4  # calls on other shapes and layouts, each about as long as a trial
COMPILE_LIMIT_S = 180.0
# Long beside what waking a worker takes, which on a busy machine differs from turn to turn by a millisecond; and short
# beside a restart, which needs many turns: one that is disturbed must not decide.
BATCH_S, BUSY_BATCH_S, GPU_BATCH_S = 0.004, 0.008, 0.04
# Calls of a round on a GPU: their inputs are drawn on the CPU and their outputs verified one by one, which takes longer
# than the calls; more turns on fewer inputs know more.
GPU_SLOTS, FEWEST_GPU_SLOTS = 128, 40
SHORT_BUDGET_S = 20.0  # with less, batches are shorter in proportion: a few rounds still fit

# What the judge itself was doing in a phase, should its own memory not suffice for it.
STEPS = {
    "read": "the reference itself",
    "build": "the candidate's first call",
    "examine": "the float64 oracle",
    "doubt": "judging known-bad answers",
    "sanitize": "compute-sanitizer",
    "start": "starting the baselines",
    "time": "timing",
    "conclude": "what the times say",
}
NO_MEMORY = "there was no memory for it"

FORBIDDEN_WORDS = {
    Label.MUTATES_INPUTS: "forward writes into its inputs and the reference does not",
    Label.ALIASES_INPUT: "the output lies in the memory of an input and the reference's does not",
}


def judge(
    problem: Problem, candidate: Candidate, policy: Policy, device: Device, progress: Progress | None = None
) -> Judgement:
    """Whether `candidate` builds, computes what `problem` does, and how fast it is, with the evidence.

    `progress` hears of the phase and how much of it is done. A candidate's failure is a verdict; an exception says
    that this machine cannot judge it (EnvironmentProblem).
    """
    return _judge(problem, candidate, policy, device, progress, Roots({}))


def replay(record: dict[str, Any], progress: Progress | None = None) -> Judgement:
    """Judge again what a record was made from, with the same seeds; times are measured anew."""
    problem, candidate, policy, device, roots = read_record(record)
    return _judge(problem, candidate, policy, device, progress, Roots(roots))


class Roots:
    """The secret that each phase starts from: drawn when the phase begins, or given by a record."""

    def __init__(self, given: dict[str, int]) -> None:
        self._given = given
        self.used: dict[str, int] = {}

    def __call__(self, phase: str) -> Seeds:
        seeds = Seeds(self._given[phase]) if phase in self._given else Seeds.from_entropy()
        self.used[phase] = seeds.root
        return seeds


@dataclass(slots=True)
class Notes:
    """What is known so far; a failure at any point still leaves a full record."""

    isolation: str = "none"
    busy: bool = False
    labels: set[Label] = field(default_factory=set)
    errors: Errors | None = None
    killed: KillRate | None = None
    clocked: Clocked | None = None
    shortage: bool = False
    phase: str = "read"
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hearing:
    """One judgement under way."""

    case: Case
    workshop: Workshop
    policy: Policy
    candidate: Candidate
    text: Facts
    notes: Notes
    roots: Roots
    listener: Progress
    busy: bool
    clock: WorkClock = field(default_factory=WorkClock)

    def report(self, phase: str, share: float) -> None:
        """Whoever listens may let us wait until a device is ours: the budget does not run meanwhile."""
        if share == 0.0:
            self.notes.phase = phase.partition(" ")[0]
            give_back(self.case.torch_device)
        with self.clock.stopped():
            self.listener(phase, share)


def _judge(
    problem: Problem,
    candidate: Candidate,
    policy: Policy,
    device: Device,
    progress: Progress | None,
    roots: Roots,
) -> Judgement:
    notes = Notes()
    with _undisturbed_process():
        try:
            verdict, detail = _proceed(problem, candidate, policy, device, progress or _silent, notes, roots)
        except Failed as failed:
            verdict, detail = failed.verdict, failed.detail
            notes.shortage |= failed.shortage
        except (MemoryError, RuntimeError) as error:  # our own; the candidate's code runs elsewhere
            notes.shortage = is_shortage(error)
            if notes.shortage:
                detail = shortage_words(STEPS[notes.phase], error, torch.device(device.torch_name))
            elif isinstance(error, channel_cuda.DriverError):
                detail = f"a CUDA call of the judge's own failed: {error}"
            else:
                raise
            verdict = Verdict.JUDGE_ERROR
        except OSError as error:  # a full disk, no more processes
            verdict, detail = Verdict.JUDGE_ERROR, f"the system refuses what the judge needs: {error}"
    notes.evidence["seeds"] = roots.used
    return _judgement(verdict, detail, problem, candidate, policy, device, notes)


def _proceed(
    problem: Problem,
    candidate: Candidate,
    policy: Policy,
    device: Device,
    report: Progress,
    notes: Notes,
    roots: Roots,
) -> tuple[Verdict, str]:
    report("read", 0.0)
    text = read_facts(candidate)
    if text.problem:
        raise Failed(Verdict.BAD_CANDIDATE, text.problem)
    notes.labels |= labels_from_text(text)
    _require_device(candidate, text, device)
    case = open_case(problem, policy, device, roots("model"))
    with borrowed_zygote() as zygote, open_workshop(zygote, case, policy) as workshop:
        notes.isolation, notes.busy = workshop.level, zygote.busy
        workshop.write(candidate, text)
        hearing = Hearing(case, workshop, policy, candidate, text, notes, roots, report, zygote.busy)
        try:
            return _hear(hearing)
        except Failed as failed:
            raise _cleared_of_gpu_trouble(_cleared_of_shortage(failed, case), case) from failed


def _hear(hearing: Hearing) -> tuple[Verdict, str]:
    """Build, examine, doubt, sanitize, time."""
    policy, notes = hearing.policy, hearing.notes
    with contextlib.ExitStack() as stack:
        slow_starters = _begin_slow_starters(hearing, stack) if policy.timing else None
        hearing.report("build by rows" if hearing.case.rows else "build", 0.0)
        _build(hearing)
        budget = Budget(policy.budget_s, hearing.clock)
        notes.evidence["skipped"] = budget.skipped
        hearing.report("examine", 0.0)
        hearing, findings, verdict, detail = _examined(hearing, budget)
        notes.labels |= findings.labels - hearing.case.habits
        notes.errors = errors_of(findings)
        notes.evidence |= trials_of(findings)
        notes.evidence["label_reasons"] = dict(findings.reasons)
        if policy.mutants and findings.tried:
            hearing.report("doubt", 0.0)
            _doubt(hearing, findings, budget)
        findings.tried = [lightened(tried) for tried in findings.tried]
        own_kernels = Label.NO_CUSTOM_KERNEL not in notes.labels
        if verdict is Verdict.CORRECT and policy.sanitize and hearing.case.gpu and own_kernels:
            hearing.report("sanitize", 0.0)
            _sanitize(hearing, budget)
        forbidden = sorted(notes.labels & policy.forbid)
        if verdict is Verdict.CORRECT and forbidden:
            return Verdict.INCORRECT, FORBIDDEN_WORDS.get(forbidden[0], f"the policy forbids {forbidden[0]}")
        if verdict is Verdict.CORRECT and slow_starters is not None:
            with _ahead_of_others():
                _time(hearing, findings, budget, slow_starters)
    return verdict, detail


def _build(hearing: Hearing) -> None:
    """In a worker of its own, so that whatever compiles has compiled; what it built is kept for the next workers."""
    case = hearing.case
    with open_arena(case, 1) as arena:
        started = time.perf_counter()
        with contextlib.closing(hearing.workshop.candidate(arena, build=True)) as contestant:
            contestant.map(case.shape, [0])
            write_inputs(contestant, [case.reference.draw(hearing.roots("build").draw())])
            give_back(case.torch_device)
            contestant.call(range(1), 0)
            hearing.notes.evidence["build_s"] = time.perf_counter() - started
            with contextlib.suppress(Failed):  # a forward that does not run under a dispatch mode stays untraced
                contestant.trace()
            if contestant.worker.alive():
                hearing.notes.labels |= labels_from_process(contestant, hearing.text)
    hearing.workshop.keep()


def _examined(hearing: Hearing, budget: Budget) -> tuple[Hearing, Findings, Verdict, str]:
    """Where memory turns out to be short, once more with as little of it as can be; the hearing goes on so."""
    try:
        return hearing, *_examine(hearing, budget)
    except (Failed, MemoryError, RuntimeError) as error:
        if not _is_short(error) or hearing.case.large:
            raise
    # Not before the exception is gone: what it was raised from still has its tensors.
    hearing.notes.evidence["lean"] = "memory was short; inputs and outputs are held once"
    lean = replace(hearing, case=leaner(hearing.case))
    lean.report("examine by rows" if lean.case.rows else "examine", 0.0)
    return lean, *_examine(lean, budget)


def _examine(hearing: Hearing, budget: Budget) -> tuple[Findings, Verdict, str]:
    case, policy = hearing.case, hearing.policy
    group = 1 if case.large else max(1, min(16, GROUP_BYTES // max(1, case.input_bytes + case.output_bytes)))
    variants = policy.robustness and not case.large
    hearing.workshop.restore()
    with (
        open_arena(case, group, spare=variants) as arena,
        contextlib.closing(hearing.workshop.candidate(arena, poison=True)) as contestant,
    ):
        # Drawn now: the candidate is loaded and cannot know them.
        seeds = hearing.roots("examine")
        trials = plan_trials(policy.families, seeds, 1 if case.large else OWN_REPEATS, weights=bool(case.state))
        left = lambda: budget.left("examine")
        heard = lambda share: hearing.report("examine", share)
        if case.rows is not None:
            findings = examine_rows(contestant, case, trials, seeds, left, heard)
        else:
            findings = examine(contestant, case, trials, seeds, group, left, heard)
        verdict, detail = decide(findings, lambda tried: _named_precision(hearing, tried, budget))
        if case.oracle.random:
            verdict, detail = _consider_chance(hearing, contestant, findings, verdict, detail, left)
        if verdict is Verdict.CORRECT and variants:
            _other_layouts(hearing, contestant, findings, budget)
    return findings, verdict, detail


def _is_short(error: Exception) -> bool:
    """Whether memory was short, ours or the candidate's."""
    return error.shortage if isinstance(error, Failed) else is_shortage(error)


def _other_layouts(hearing: Hearing, contestant: Contestant, findings: Findings, budget: Budget) -> None:
    """Labels for what it takes besides the problem's own shapes and layouts, if there is time and memory."""
    step = "other batch sizes and layouts"
    if not budget.allows("variants", step, VARIANTS * findings.trial_s):
        return
    try:
        found = labels_for_variants(contestant, hearing.case, hearing.roots("variants"))
    except (Failed, MemoryError, RuntimeError) as error:
        if not _is_short(error):
            raise
        budget.skipped[step] = NO_MEMORY
    else:
        findings.labels |= set(found)
        findings.reasons |= found


def _named_precision(hearing: Hearing, tried: Sequence[Tried], budget: Budget) -> str:
    """The arithmetic that explains the errors. A wrong answer is one without a name as well."""
    try:
        return reduced_precision(tried, hearing.case.oracle) or shown_precision(tried, hearing.case.oracle)
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
    budget.skipped["the arithmetic of wrong answers"] = NO_MEMORY
    return ""


def _consider_chance(
    hearing: Hearing,
    contestant: Contestant,
    findings: Findings,
    verdict: Verdict,
    detail: str,
    left_s: Callable[[], float],
) -> tuple[Verdict, str]:
    """A random model: the same generator used the same way, or else the same distribution."""
    findings.labels.add(Label.RANDOM)
    if verdict is not Verdict.INCORRECT:
        return verdict, detail
    why = draw_distribution(contestant, hearing.case, findings, hearing.roots("chance"), left_s)
    if why:
        return Verdict.INCORRECT, f"its random outputs are distributed differently: {why}"
    hearing.notes.evidence["by_distribution"] = True
    return Verdict.CORRECT, "it draws other random numbers than the reference, from the same distribution"


def _doubt(hearing: Hearing, findings: Findings, budget: Budget) -> None:
    share = Share(max(budget.left("doubt"), min(LEAST_DOUBT_S, budget.total_s / 10)))
    killed = kill_rate(findings.tried, hearing.case.oracle, lambda: not share.lasts())
    if killed.unmade:
        budget.skipped["known-bad answers"] = f"{', '.join(killed.unmade)}: {NO_MEMORY}"
    hearing.notes.killed = killed
    hearing.notes.evidence["known_bad"] = {
        "made": list(killed.made),
        "survivors": list(killed.survivors),
        "constant": list(killed.constant),
    }
    if killed.survivors or killed.constant:
        hearing.notes.labels.add(Label.WEAK_TASK)


def _sanitize(hearing: Hearing, budget: Budget) -> None:
    limit = min(hearing.policy.sanitize_limit_s, budget.left("sanitize"))
    if not budget.allows("sanitize", "compute-sanitizer", LEAST_SANITIZE_S):
        return
    found = sanitize(hearing.case, hearing.workshop, hearing.candidate.text, limit)
    hearing.notes.evidence["sanitizer"] = [asdict(finding) for finding in found]
    complaints = [finding for finding in found if finding.outcome == "found"]
    if complaints:
        raise Failed(Verdict.MEMORY_VIOLATION, f"compute-sanitizer ({complaints[0].tool}): {complaints[0].complaint}")


@dataclass(frozen=True, slots=True)
class SlowStarters:
    """Where timing takes place, and the baselines that take long to start: begun beside the examination, kept alive."""

    plan: Plan
    arena: Arena | None
    begun: dict[str, Beginning]


def _begin_slow_starters(hearing: Hearing, stack: contextlib.ExitStack) -> SlowStarters:
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


def _time(hearing: Hearing, findings: Findings, budget: Budget, slow: SlowStarters) -> None:
    case, policy, notes = hearing.case, hearing.policy, hearing.notes
    hearing.report("start", 0.0)
    end_s = hearing.clock() + max(budget.left("time"), min(LEAST_TIMING_S, budget.total_s / 2))

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
        stateful=bool(findings.state_scores),
        # The first of each: from one call on the problem's own inputs, as those are that will be timed.
        state_yards={name: yard for name, yard, _ in reversed(findings.state_scores)},
        own_memory=Label.ALIASES_INPUT in policy.forbid - case.habits,
        verified="by_distribution" not in notes.evidence,
        large=case.large,
        tight=case.large and _is_tight(case, len(policy.baselines) + 2),
        rows=case.rows,
        stillness=Stillness(kernel_probe(case.torch_device)) if case.gpu else None,
        families=families,
        unseen=unseen,
    )
    seeds = hearing.roots("time")
    samples = Samples()
    if "graph" in policy.baselines and not case.gpu:
        notes.evidence["left_out"]["graph"] = "a CUDA graph needs a GPU"
    baselines = [name for name in policy.baselines if name not in notes.evidence["left_out"]]
    with contextlib.ExitStack() as outer:
        arena = slow.arena or outer.enter_context(open_arena(case, 1 if case.large else slow.plan.slots))
        starting_s = 0.0
        restart = 0
        while restart < policy.restarts:
            more = policy.restarts - restart
            if not time_for_restart(restart, left(), starting_s):
                budget.skipped["restarts"] = f"{more} of {policy.restarts}: no time left"
                break
            part = (restart / policy.restarts, 1 / policy.restarts)
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
                if restart == policy.restarts:  # ending processes and counting take seconds, and no device
                    hearing.report("conclude", 0.0)
                notes.labels |= labels_from_process(contestants[CANDIDATE], hearing.text) - {Label.NO_CUSTOM_KERNEL}
    floor = floor_us(needed_bytes(case), case.device)
    notes.clocked = summarise(samples, [name for name in baselines if name not in notes.evidence["left_out"]], floor)
    if notes.clocked.batches_calls:
        notes.labels.add(Label.BATCHES_CALLS)
    notes.evidence |= {"samples": samples.raw, "noise": notes.clocked.noise, "floor_us": floor}


def _audit_families(findings: Findings, policy: Policy) -> tuple[tuple[Family, ...], tuple[Family, ...]]:
    """Those that timed calls may be on, and which of them were left out for want of time: a candidate that is slow only
    while it is examined has its reasons. One thing is right on each of them: no ties."""
    useless = {name for name, reason in findings.dropped if reason != NO_TIME}
    tried = {tried.trial.family.name for tried in findings.tried}
    useful = [f for f in FAMILIES if f.name in policy.families and f.name not in useless | {"own"} and not f.ties]
    return tuple(useful), tuple(family for family in useful if family.name not in tried)


def _never_the_same(case: Case) -> Reference:
    """The reference, made to draw other inputs each time if its file does not: no answer that is kept may serve."""
    first, second = (flatten_arguments(case.reference.draw(seed))[1] for seed in (1, 2))
    if not all(map(same_bits, first, second)) or not any(t.is_floating_point() for t in first):
        return case.reference
    stirred = replace(case.reference, stirred=True)
    try:
        output = flatten_output(case.reference.call(case.oracle.model, stirred.draw(1)))[1]
    except (RuntimeError, ValueError, IndexError, AssertionError, TypeError) as error:
        if is_shortage(error):
            raise
        return case.reference  # it insists on its own numbers
    finite = all(bool(torch.isfinite(leaf).all()) for leaf in output if isinstance(leaf, torch.Tensor))
    return stirred if finite else case.reference


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
    return contestants


def _require_device(candidate: Candidate, text: Facts, device: Device) -> None:
    """A CUDA candidate without a GPU: what can be checked is checked, then the machine is named as what is missing."""
    if device.present and not (text.cuda and device.kind == "cpu"):
        return
    checked = check_cuda_sources(candidate.text, device) if text.cuda else "it is Python and defines ModelNew"
    missing = (
        f"{device.name} is not in this machine" if not device.present else "it needs a GPU and the device is a CPU"
    )
    raise EnvironmentProblem(
        f"the candidate cannot be run here: {missing}. Checked so far: {checked}.",
        where=candidate.name,
        cure="Judge it on a machine with the GPU; nothing was found wrong with it.",
    )


def _cleared_of_gpu_trouble(failed: Failed, case: Case) -> Failed:
    """After a fault the GPU is tried out: one that no longer works is not this candidate's verdict."""
    suspicious = failed.verdict in (Verdict.GPU_FAULT, Verdict.CRASH, Verdict.TIMEOUT)
    if case.gpu and suspicious and not channel_cuda.probe():
        return Failed(Verdict.JUDGE_ERROR, f"the GPU does not answer any more, after: {failed.detail}")
    return failed


def _cleared_of_shortage(failed: Failed, case: Case) -> Failed:
    """A candidate that ran out of memory is to blame only if it had as much as the reference takes, and more."""
    if not case.gpu or failed.verdict is not Verdict.OOM:
        return failed
    due, had = fair_bytes(case.footprint), free_bytes(case.torch_device)
    if had >= due:
        return failed
    words = (
        f"the candidate had {in_gigabytes(had)} of GPU memory and is due {in_gigabytes(due)} ({failed.detail}). {CURE}"
    )
    return Failed(Verdict.JUDGE_ERROR, words, shortage=True)


def _is_tight(case: Case, contestants: int) -> bool:
    """Whether the outputs of all, beside the inputs and what a forward keeps between its steps, are too much."""
    each = 2 * case.output_bytes + case.footprint.between
    return 2 * case.input_bytes + contestants * each > case.room.left()


def _timing_memory(case: Case) -> int:
    if case.gpu:
        return batch_bytes(case.footprint, case.room.left())
    return min(available_bytes() // 16, 1 << 30)


def _judgement(
    verdict: Verdict,
    detail: str,
    problem: Problem,
    candidate: Candidate,
    policy: Policy,
    device: Device,
    notes: Notes,
) -> Judgement:
    clocked = notes.clocked
    judgement = Judgement(
        verdict=verdict,
        speed=clocked.speed if clocked else None,
        labels=tuple(sorted(notes.labels)),
        detail=detail,
        errors=notes.errors,
        speedup=clocked.speedup if clocked else {},
        times_us=clocked.times_us if clocked else {},
        kill_rate=notes.killed.rate if notes.killed else None,
        shortage=notes.shortage,
        isolation=notes.isolation,
        environment=_environment(device, notes.busy),
        record=notes.evidence,
    )
    return replace(judgement, record=record_of(judgement, problem, candidate, policy, device.torch_name))


def _environment(device: Device, busy: bool) -> dict[str, Any]:
    return {
        "device": device.name,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
        "busy": busy,
        "gpu": channel_cuda.telemetry() if device.kind == "cuda" and device.present else None,
    }


@contextlib.contextmanager
def _undisturbed_process() -> Iterator[None]:
    """Leave torch's switches in the caller's process as they were, whatever the problem's file does to them."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    precision, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = cudnn


@contextlib.contextmanager
def _ahead_of_others() -> Iterator[None]:
    """The judge reads the clock: what it waits for a core, once a worker is done, would count as the worker's time."""
    usual = niceness()
    set_niceness(RAISED, RAISED)
    try:
        yield
    finally:
        set_niceness(*usual)


def _silent(phase: str, share: float) -> None:
    """Nobody listens."""
