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
from dataclasses import asdict, replace
from typing import Any

import torch

from kernelwright.device import Device
from kernelwright.errors import EnvironmentProblem
from kernelwright.judge import channel_cuda
from kernelwright.judge.budget import (
    Budget,
    Share,
)
from kernelwright.judge.candidate import Candidate, Facts, read_facts
from kernelwright.judge.case import Case, leaner, open_case
from kernelwright.judge.cell import RAISED, niceness, set_niceness
from kernelwright.judge.contest import begin_slow_starters, contest
from kernelwright.judge.contestant import Contestant
from kernelwright.judge.correctness import (
    Findings,
    Tried,
    decide,
    draw_distribution,
    drawn_echo,
    errors_of,
    examine,
    examine_rows,
    follows_the_seed,
    lightened,
    plan_trials,
    state_drawn_differently,
    write_inputs,
)
from kernelwright.judge.hearing import NO_MEMORY, Hearing, Notes, Progress, Roots
from kernelwright.judge.labels import labels_from_process, labels_from_text
from kernelwright.judge.memory import fair_bytes, free_bytes, give_back
from kernelwright.judge.mutants import kill_rate
from kernelwright.judge.policy import Policy
from kernelwright.judge.precision import reduced_precision, shown_precision
from kernelwright.judge.process import Others, borrowed_zygote
from kernelwright.judge.record import read_record, record_of, trials_of
from kernelwright.judge.robustness import labels_for_variants
from kernelwright.judge.sanitize import sanitize
from kernelwright.judge.shortage import CURE, in_gigabytes, is_shortage, shortage_words
from kernelwright.judge.sources import check_cuda_sources
from kernelwright.judge.verdict import Failed, Judgement, Label, Verdict
from kernelwright.judge.workshop import open_arena, open_workshop
from kernelwright.load import Problem

__all__ = ["judge", "replay"]

GROUP_BYTES = 64 << 20  # inputs and outputs of one group of trials; the oracle holds them some twenty times
OWN_REPEATS = 3
LEAST_DOUBT_S = 1.0
LEAST_SANITIZE_S = 3.0
# What a random model's candidate that draws other numbers may look like, until its distribution is known: now and then
# it gives the reference's answers.
BY_CHANCE = (Verdict.CORRECT, Verdict.INCORRECT, Verdict.NONDETERMINISTIC)
VARIANTS = 4  # calls on other shapes and layouts, each about as long as a trial

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
    others = Others()
    case = open_case(problem, policy, device, roots("model"))
    with borrowed_zygote(busy=others.busy()) as zygote, open_workshop(zygote, case, policy) as workshop:
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
        slow_starters = begin_slow_starters(hearing, stack) if policy.timing else None
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
                contest(hearing, findings, budget, slow_starters)
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
    seeds = hearing.roots("chance")
    if verdict not in BY_CHANCE or (verdict is Verdict.CORRECT and follows_the_seed(contestant, hearing.case, seeds)):
        return verdict, detail
    why = draw_distribution(contestant, hearing.case, findings, seeds, left_s)
    if why:
        return Verdict.INCORRECT, f"its random outputs are distributed differently: {why}"
    if why := state_drawn_differently(contestant, hearing.case, findings, seeds):
        return Verdict.INCORRECT, why
    hearing.notes.evidence["by_distribution"] = True
    findings.echo = drawn_echo(contestant, hearing.case, seeds)
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
