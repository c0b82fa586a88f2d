"""A problem and a candidate come in; a `Judgement` goes out. Read this first: one step a phase.

read      is the candidate Python that defines ModelNew; does the reference run                    this process
build     import it, construct it, call it once; compilers run here                                 worker
examine   families of inputs against the float64 oracle, guard bands, repeatability                 fresh worker
time      batches of calls, interleaved with the baselines, every output verified                   fresh workers
"""

import contextlib
import math
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernelwright.device import Device
from kernelwright.errors import EnvironmentProblem, KernelwrightError
from kernelwright.judge.candidate import Candidate, Facts, read_facts
from kernelwright.judge.codec import flatten_arguments, flatten_output
from kernelwright.judge.contestant import Contestant, Entry, Layout, Shape, plan_layout
from kernelwright.judge.correctness import Findings, decide, errors_of, examine, plan_trials
from kernelwright.judge.floor import floor_us
from kernelwright.judge.oracle import Oracle
from kernelwright.judge.policy import Policy
from kernelwright.judge.pool import Planner, Pool, make_pool
from kernelwright.judge.process import Cell, Limits, Zygote
from kernelwright.judge.reference import Reference, State, copied_state, open_reference
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.timing import (
    AGAIN,
    CANDIDATE,
    Clocked,
    Course,
    Samples,
    plan_batches,
    run_once,
    summarise,
)
from kernelwright.judge.verdict import Errors, Failed, Judgement, Label, Verdict
from kernelwright.load import Problem

__all__ = ["judge"]

Progress = Callable[[str, float], None]
GROUP_BYTES = 1 << 30  # inputs of one group of trials
POISON = 0x80  # fresh memory then holds 0x7F bytes: 3.4e38 as float32, NaN as float16


@dataclass(slots=True)
class Notes:
    """What is known so far; a failure at any point still leaves a full record."""

    isolation: str = "none"
    labels: set[Label] = field(default_factory=set)
    errors: Errors | None = None
    kill_rate: float | None = None
    clocked: Clocked | None = None
    detail: str = ""
    record: dict[str, Any] = field(default_factory=dict)


def judge(
    problem: Problem, candidate: Candidate, policy: Policy, device: Device, progress: Progress | None = None
) -> Judgement:
    """Whether `candidate` builds, computes what `problem` does, and how fast, with the evidence."""
    notes = Notes()
    report = progress or (lambda phase, share: None)
    with _undisturbed_process():
        try:
            verdict, detail = _proceed(problem, candidate, policy, device, notes, report)
        except Failed as failed:
            verdict, detail = failed.verdict, failed.detail
    return _judgement(verdict, detail, problem, candidate, policy, device, notes)


@contextlib.contextmanager
def _undisturbed_process() -> Iterator[None]:
    """Leave torch's switches in the caller's process as they were."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _proceed(
    problem: Problem, candidate: Candidate, policy: Policy, device: Device, notes: Notes, report: Progress
) -> tuple[Verdict, str]:
    report("read", 0.0)
    facts = read_facts(candidate)
    if facts.problem:
        raise Failed(Verdict.BAD_CANDIDATE, facts.problem)
    case = open_case(problem, policy, device)
    if facts.imports_reference:
        notes.labels.add(Label.IMPORTS_REFERENCE)
    with Zygote() as zygote, _workshop(zygote) as workshop:
        notes.isolation = zygote.strongest_level(case.gpu)
        workshop.write(candidate, facts, problem)
        report("build", 0.0)
        _build(case, zygote, workshop, policy, notes)
        report("examine", 0.0)
        started = time.perf_counter()
        findings = _examine(case, zygote, workshop, policy, notes, lambda share: report("examine", share))
        verdict, detail = decide(findings, lambda failed: "")
        notes.labels |= findings.labels
        notes.errors = errors_of(findings)
        for label in sorted(notes.labels & policy.forbid):
            if verdict is Verdict.CORRECT:
                verdict, detail = Verdict.INCORRECT, f"{FORBIDDEN_WORDS.get(label, label)}, which the policy forbids"
        if verdict is Verdict.CORRECT and policy.timing:
            spent = time.perf_counter() - started
            _time(case, zygote, workshop, policy, findings, notes, max(policy.budget_s - spent, 5.0), report)
    return verdict, detail


FORBIDDEN_WORDS = {
    Label.MUTATES_INPUTS: "forward writes into its inputs and the reference does not",
    Label.ALIASES_INPUT: "the output lies in the memory of an input",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A problem made ready on a device."""

    problem: Problem
    reference: Reference
    oracle: Oracle
    shape: Shape
    state: State
    model_seed: int
    tensors: list[torch.Tensor]
    input_bytes: int
    output_bytes: int
    eager_s: float
    threads: int
    device: Device
    torch_device: torch.device

    @property
    def gpu(self) -> bool:
        return self.torch_device.type == "cuda"

    def entry(self, file: Path, name: str, variant: str) -> Entry:
        arguments = self.reference.constructor_arguments(self.model_seed)
        return Entry(file, name, variant, arguments, tuple(self.state.items()))


def open_case(problem: Problem, policy: Policy, device: Device) -> Case:
    """Run the reference once; what it cannot do is BAD_REFERENCE, never the candidate's fault."""
    if not device.present:
        raise EnvironmentProblem(
            f"{device.name} is not in this machine, so nothing can be run on it.",
            where="judge",
            cure="Use --device cpu, or judge on a machine that has one.",
        )
    seeds = Seeds.from_entropy()
    torch_device = torch.device(device.torch_name)
    try:
        reference = open_reference(problem, torch_device)
        seed = seeds.draw()
        model = reference.construct(seed)
        args = reference.draw(seeds.draw())
        state = copied_state(model)
        output = reference.call(model, args)
        threads = torch.get_num_threads()
        eager_s = _seconds(lambda: reference.call(model, args), torch_device)
        torch.set_num_threads(1)
        alone_s = _seconds(lambda: reference.call(model, args), torch_device)
        if alone_s > 0.02 and torch_device.type == "cpu":
            torch.set_num_threads(threads)  # else one thread is enough, and it waits for no other
    except KernelwrightError as error:
        raise Failed(Verdict.BAD_REFERENCE, str(error).replace("\n", " ")) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise Failed(Verdict.BAD_REFERENCE, f"the reference runs out of memory: {error}") from error
    except Exception as error:  # noqa: BLE001  a problem's own code may raise anything
        raise Failed(Verdict.BAD_REFERENCE, f"the reference raises {type(error).__name__}: {error}") from error
    _, tensors = flatten_arguments(args)
    _, leaves = flatten_output(output)
    oracle = Oracle(reference, model, policy.precision, draws=4 if eager_s < 0.2 else 2)
    return Case(
        problem=problem,
        reference=reference,
        oracle=oracle,
        shape=Shape.of(args, output, torch_device),
        state=state,
        model_seed=seed,
        tensors=tensors,
        input_bytes=sum(t.numel() * t.itemsize for t in tensors),
        output_bytes=sum(t.numel() * t.itemsize for t in leaves if isinstance(t, torch.Tensor)),
        eager_s=min(eager_s, alone_s),
        threads=threads,
        device=device,
        torch_device=torch_device,
    )


def _seconds(call: Callable[[], Any], device: torch.device) -> float:
    """The shortest of some calls; only to plan by."""
    best, end = math.inf, time.perf_counter() + 0.25
    for _ in range(20):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() > end:
            break
    return best


class Workshop:
    """The private folder of a candidate's workers: its text, what it builds, and nothing from one worker to the next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.kept = folder / "kept"
        self.baseline = folder / "baseline"
        for path in (self.folder, self.baseline):
            path.mkdir()

    def write(self, candidate: Candidate, facts: Facts, problem: Problem) -> None:
        (self.folder / "candidate.py").write_text(candidate.text, encoding="utf-8")
        if facts.imports_reference:
            (self.folder / "model.py").write_text(problem.source, encoding="utf-8")
        (self.baseline / "model.py").write_text(problem.source, encoding="utf-8")

    def keep(self) -> None:
        """Remember the folder as the build left it."""
        shutil.copytree(self.folder, self.kept, symlinks=True, ignore_dangling_symlinks=True)

    def restore(self) -> None:
        """As the build left it: what a later worker wrote is gone before the next one starts."""
        if self.kept.exists():
            shutil.rmtree(self.folder)
            shutil.copytree(self.kept, self.folder, symlinks=True, ignore_dangling_symlinks=True)


@contextlib.contextmanager
def _workshop(zygote: Zygote) -> Iterator[Workshop]:
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=zygote.folder))
    folder.chmod(0o711)
    try:
        yield Workshop(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _arena(case: Case, slots: int) -> Iterator[tuple[Pool, Layout]]:
    planner = Planner()
    layout = plan_layout(planner, case.tensors, slots, list(case.state.values()))
    pool = make_pool(planner, case.torch_device)
    try:
        yield pool, layout
    finally:
        pool.close()


def _contestant(
    name: str,
    case: Case,
    zygote: Zygote,
    folder: Path,
    policy: Policy,
    arena: tuple[Pool, Layout],
    *,
    perturb: int = 0,
    raised: bool = False,
) -> Contestant:
    pool, layout = arena
    limits = Limits(memory_bytes=_memory_limit())
    cell = Cell(folder, limits, case.threads, case.gpu, zygote.level, (case.problem.path.resolve(),), perturb, raised)
    worker = zygote.start(cell, pool.fd)
    return Contestant(name, worker, pool, layout, policy.load_limit_s, policy.call_limit_s)


def _build(case: Case, zygote: Zygote, workshop: Workshop, policy: Policy, notes: Notes) -> None:
    """Import, construct and call once in a worker of its own, so that whatever compiles has compiled."""
    with _arena(case, 1) as arena:
        contestant = _contestant(CANDIDATE, case, zygote, workshop.folder, policy, arena)
        contestant.load_limit_s = contestant.call_limit_s = policy.build_limit_s
        with contextlib.closing(contestant):
            started = time.perf_counter()
            contestant.load(
                case.entry(workshop.folder / "candidate.py", "ModelNew", "plain"), case.model_seed, case.torch_device
            )
            contestant.map(case.shape, [0])
            args = case.reference.draw(Seeds.from_entropy().draw())
            _, tensors = flatten_arguments(args)
            for place, tensor in zip(contestant.layout.slots[0], tensors, strict=True):
                contestant.pool.view(place).copy_(tensor)
            contestant.call(range(1), 0)
            notes.record["build_s"] = time.perf_counter() - started
    workshop.keep()


def _examine(
    case: Case, zygote: Zygote, workshop: Workshop, policy: Policy, notes: Notes, progress: Callable[[float], None]
) -> Findings:
    workshop.restore()
    own_repeats = 3
    group = max(1, min(16, GROUP_BYTES // max(1, case.input_bytes + case.output_bytes)))
    deadline = time.perf_counter() + 0.5 * policy.budget_s
    with _arena(case, group) as arena:
        contestant = _contestant(CANDIDATE, case, zygote, workshop.folder, policy, arena, perturb=POISON)
        with contextlib.closing(contestant):
            entry = case.entry(workshop.folder / "candidate.py", "ModelNew", "plain")
            contestant.load(entry, case.model_seed, case.torch_device)
            seeds = Seeds.from_entropy()  # drawn now: the candidate is loaded and cannot know them
            notes.record["examine_seed"] = seeds.root
            trials = plan_trials(policy.families, seeds, own_repeats)
            return examine(
                contestant,
                case.reference,
                case.oracle,
                case.shape,
                case.state,
                trials,
                seeds,
                group,
                lambda: time.perf_counter() > deadline,
                progress,
            )


def _time(
    case: Case,
    zygote: Zygote,
    workshop: Workshop,
    policy: Policy,
    findings: Findings,
    notes: Notes,
    budget_s: float,
    report: Progress,
) -> None:
    memory = _timing_memory(case)
    plan = plan_batches(case.eager_s, case.input_bytes + case.output_bytes, memory, 0.02 if case.gpu else 0.004)
    own = next(tried for tried in findings.tried if tried.trial.family.name == "own")
    course = Course(
        reference=case.reference,
        oracle=case.oracle,
        shape=case.shape,
        state=case.state,
        yards=own.yards,
        stateful=bool(findings.state_scores),
        verified=True,
    )
    seeds = Seeds.from_entropy()
    notes.record["timing_seed"] = seeds.root
    samples = Samples()
    baselines = [name for name in policy.baselines if name != "graph" or case.gpu]
    end = time.perf_counter() + budget_s
    for restart in range(policy.restarts):
        share = (end - time.perf_counter()) / (policy.restarts - restart)
        with _arena(case, plan.slots) as arena:
            contestants: dict[str, Contestant] = {}
            try:
                _start_all(case, zygote, workshop, policy, arena, baselines, contestants, notes)
                until = time.perf_counter() + max(0.5, share - (time.perf_counter() - (end - share)))
                until = min(until, time.perf_counter() + share)
                done = restart / policy.restarts
                run_once(
                    contestants,
                    course,
                    plan,
                    seeds,
                    samples,
                    until,
                    zygote.busy,
                    lambda part, done=done: report("time", done + part / policy.restarts),  # type: ignore[misc]
                )
            finally:
                for contestant in contestants.values():
                    contestant.close()
    notes.clocked = summarise(
        samples, [b for b in baselines if b in samples.times_us], floor_us(case.output_bytes, case.device)
    )
    notes.record["samples"] = samples.raw


def _start_all(
    case: Case,
    zygote: Zygote,
    workshop: Workshop,
    policy: Policy,
    arena: tuple[Pool, Layout],
    baselines: Sequence[str],
    contestants: dict[str, Contestant],
    notes: Notes,
) -> None:
    """The candidate and its baselines, each in a fresh process; a baseline that cannot run here is left out."""
    workshop.restore()
    variants = {"eager": "plain", AGAIN: "plain", "compile": "compile", "graph": "graph"}
    for name in [CANDIDATE, "eager", AGAIN, *(b for b in baselines if b != "eager")]:
        if name in notes.record.get("left_out", {}):
            continue
        ours = name == CANDIDATE
        folder = workshop.folder if ours else workshop.baseline
        contestant = _contestant(name, case, zygote, folder, policy, arena, raised=True)
        contestants[name] = contestant
        file = folder / ("candidate.py" if ours else "model.py")
        entry = case.entry(file, "ModelNew" if ours else "Model", "plain" if ours else variants[name])
        try:
            contestant.load(entry, case.model_seed, case.torch_device)
            contestant.take_state(list(case.state.values()))
            if not ours:
                _warm(contestant, case)
        except Failed as failed:
            if ours:
                raise
            if name in ("eager", AGAIN):
                raise Failed(Verdict.JUDGE_ERROR, f"the {name} baseline failed: {failed.detail}") from failed
            notes.record.setdefault("left_out", {})[name] = failed.detail
            contestants.pop(name).close()


def _warm(contestant: Contestant, case: Case) -> None:
    """The first call of a baseline may compile for a long time; it is not part of the measurement."""
    contestant.map(case.shape, [0])
    for place, tensor in zip(contestant.layout.slots[0], case.tensors, strict=True):
        contestant.pool.view(place).copy_(tensor)
    limit = contestant.call_limit_s
    contestant.call_limit_s = max(limit, 180.0)
    contestant.call(range(1), 0)
    contestant.call_limit_s = limit


def _memory_limit() -> int:
    return int(0.8 * _available_bytes())


def _timing_memory(case: Case) -> int:
    if case.gpu:
        free, _ = torch.cuda.mem_get_info(case.torch_device)
        return int(free // 8)
    return int(min(_available_bytes() // 16, 1 << 30))


def _available_bytes() -> int:
    with open("/proc/meminfo") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 8 << 30


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
    return Judgement(
        verdict=verdict,
        speed=clocked.speed if clocked else None,
        labels=tuple(sorted(notes.labels)),
        detail=detail,
        errors=notes.errors,
        speedup=clocked.speedup if clocked else {},
        times_us=clocked.times_us if clocked else {},
        kill_rate=notes.kill_rate,
        isolation=notes.isolation,
        environment=environment(device),
        record=notes.record,
    )


def environment(device: Device) -> dict[str, Any]:
    return {
        "device": device.name,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
    }
