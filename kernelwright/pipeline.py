"""The whole compiler, one line a stage: a model file comes in, a judged `ModelNew` goes out. Read this file first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.build import build
from kernelwright.capture import capture
from kernelwright.device import Device, resolve
from kernelwright.emit import emit
from kernelwright.errors import NothingToDo
from kernelwright.generate import Program, default_choices, generate
from kernelwright.ir.text import graph_text
from kernelwright.judge import Candidate, Policy, Precision, judge
from kernelwright.load import Problem, load, problem_of
from kernelwright.plan import plan
from kernelwright.plan.text import plan_text
from kernelwright.report.measured import measured_lines
from kernelwright.result import Result
from kernelwright.settings import Settings, read_settings
from kernelwright.simplify import simplified, simplify
from kernelwright.tune import tune
from kernelwright.tune.routes import choose_routes, settled, without_losers

if TYPE_CHECKING:
    from types import ModuleType

    from torch import nn

    from kernelwright.ir.nodes import Graph
    from kernelwright.kernels.choices import Choice
    from kernelwright.plan import Plan
    from kernelwright.tune.tune import Tuned

Progress = Callable[[str, float], None]
Reserve = Callable[[str, "Graph"], int]

# Of the whole budget, the part that tuning may spend. The judge has what is left when its turn comes, less what
# building the candidate and starting processes take, which is not in its budget; and no less than its share.
TUNING_SHARE, JUDGING_SHARE = 0.3, 0.2
STARTING_S = 20.0


def optimize(
    model: str | Path | ModuleType | nn.Module,
    inputs: Sequence[Any] | None = None,
    *,
    device: str = "auto",
    precision: Precision = "reference",
    budget_s: float = 50.0,
    policy: Policy | None = None,
    settings: Settings | None = None,
    progress: Progress | None = None,
    strict_weights: bool = False,
    reserve: Reserve | None = None,
) -> Result:
    """The model, made faster: load, capture, simplify, plan, tune, generate, emit, judge.

    For a device that is not here the last step is a compile: nothing can be run. `policy`: how it is judged, where
    `precision` and the rest of `budget_s` do not say it all. `strict_weights`: no weight is packed ahead, so that each
    call sees it however it was written. `reserve`: asked before tuning and before judging, with the graph; it may wait
    until the GPU's memory is ours, and says how many bytes are.
    """
    began = time.perf_counter()
    settings = settings or read_settings()
    target = resolve(device)
    problem = load(model) if isinstance(model, (str, Path)) else problem_of(model, inputs)
    stages = Stages(progress)
    graph = stages.run("capture", lambda: capture(problem), graph_text)
    graph, algebra = stages.run("simplify", lambda: simplified(graph), lambda made: graph_text(made[0]))
    tuning_s = budget_s * TUNING_SHARE
    wanted = (policy.precision if policy else precision, strict_weights)
    if reserve is not None and target.present and tuning_s > 0:
        reserve("tune", graph)
    planned, choices, tuned = chosen(graph, target, tuning_s, settings, *wanted, stages)
    refuse_if_nothing_to_do(problem, [kernel for kernel in planned.kernels if 0 not in kernel.region.shape])
    program = stages.run("generate", lambda: generate(planned, choices, target), lambda made: made.text)
    program = replace(program, algebra=algebra)
    source = stages.run("emit", lambda: emit(program, problem), str)
    result = Result(problem, target, source, program, tuned, None, stages.dumps, stages.seconds)
    if not target.present:
        stages.run("build", lambda: build(program.text, target, settings))
        return result
    if policy is None:
        judging_s = max(JUDGING_SHARE * budget_s, budget_s - (time.perf_counter() - began) - STARTING_S)
        # Not sanitized: our own tests do that to these kernels, and `check` does it here.
        policy = Policy(budget_s=judging_s, precision=precision, sanitize=False)
    if reserve is not None:
        policy = replace(policy, gpu_bytes=reserve("judge", graph))
    return judged(result, policy, stages, progress)


def chosen(
    graph: Graph,
    target: Device,
    tuning_s: float,
    settings: Settings,
    precision: str = "reference",
    strict_weights: bool = False,
    stages: Stages | None = None,
) -> tuple[Plan, dict[str, Choice], tuple[Tuned, ...]]:
    """The plan that measuring leaves, and a config for each of its kernels."""
    stages = stages or Stages(None)
    text = partial(plan_text, device=target)
    # With no time to measure, the cost model decides, as it does for a device that is not here.
    known = target if tuning_s > 0 else replace(target, present=False)
    tuned_for = partial(tune, device=known, budget_s=tuning_s, settings=settings, progress=stages.progress)
    routes = stages.run("route", lambda: choose_routes(graph, known, tuning_s, settings, precision, strict_weights))
    planned = stages.run("plan", lambda: plan(graph, routes), text)
    choices, tuned = stages.run("tune", lambda: tuned_for(planned))
    better = without_losers(routes, planned, tuned, known.present)
    if routes.reducing and known.present:
        apart = stages.run("plan", lambda: plan(graph, replace(routes, reducing=frozenset())))
        _, rows = stages.run("tune", lambda: tuned_for(apart))
        better = settled(routes, (planned, tuned), (apart, rows), known.present)
    if better != routes:
        planned = stages.run("plan", lambda: plan(graph, better), text)
        choices, tuned = stages.run("tune", lambda: tuned_for(planned))
    return planned, choices, tuned


def judged(result: Result, policy: Policy, stages: Stages, progress: Progress | None) -> Result:
    """The result with the judge's word, and the emitted file with the measured figures in its docstring."""
    candidate = Candidate(result.source, result.problem.name)
    judgement = stages.run("judge", lambda: judge(result.problem, candidate, policy, result.device, progress))
    source = emit(result.program, result.problem, measured_lines(judgement, result.tuned))
    return replace(result, source=source, judgement=judgement)


def refuse_if_nothing_to_do(problem: Problem, kernels: Sequence[object]) -> None:
    if not kernels:
        raise NothingToDo(
            "no kernel of ours would help: what this model computes is left to PyTorch.",
            where=problem.path,
            cure="Run it as it is. `kernelwright explain` shows the graph.",
        )


def planned_program(path: str | Path, device: Device) -> Program:
    """A model file as generated for a device by the cost model alone: nothing is measured."""
    problem = load(path)
    graph = simplify(capture(problem))
    planned = plan(graph, choose_routes(graph, replace(device, present=False), 0.0, read_settings()))
    return generate(planned, default_choices(planned, device), device)


def explained(path: str | Path, device: str, after: str) -> dict[str, str]:
    """What each stage up to `after` makes of a model file, as text. Nothing is measured, built or run."""
    target = resolve(device)
    problem = load(path)
    stages = Stages(None)
    graph = stages.run("capture", lambda: capture(problem), graph_text)
    graph, algebra = stages.run("simplify", lambda: simplified(graph), lambda made: graph_text(made[0]))
    routes = choose_routes(graph, replace(target, present=False), 0.0, read_settings())
    planned = stages.run("plan", lambda: plan(graph, routes), lambda made: plan_text(made, target))
    if after in ("generate", "emit"):
        choices = default_choices(planned, target)
        program = stages.run("generate", lambda: generate(planned, choices, target), lambda made: made.text)
        stages.run("emit", lambda: emit(replace(program, algebra=algebra), problem), str)
    return stages.dumps


def write_dumps(result: Result, folder: Path) -> None:
    """One file a stage: capture.txt, ..., generate.cu or .cpp, emit.py."""
    folder.mkdir(parents=True, exist_ok=True)
    endings = {"generate": "cu" if result.device.kind == "cuda" else "cpp", "emit": "py"}
    for number, (stage, text) in enumerate(result.dumps.items(), 1):
        (folder / f"{number}_{stage}.{endings.get(stage, 'txt')}").write_text(text)


class Stages:
    """Runs stages, keeping what each made as text and how long it took."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.dumps: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def run(self, name: str, stage: Callable[[], Any], text: Callable[[Any], str] | None = None) -> Any:
        if self.progress is not None:
            self.progress(name, 0.0)
        begin = time.perf_counter()
        made = stage()
        self.seconds[name] = round(time.perf_counter() - begin, 3)
        if text is not None:
            self.dumps[name] = text(made)
        return made
