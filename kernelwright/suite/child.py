"""A `Job` comes in on the command line; its row goes out, as result.json in the job's folder.

Started or forked by the suite below a keeper, one process a problem. Everything is written before result.json, which
is renamed into place last: where it is, the problem is done.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.errors import (
    BadProblem,
    BuildError,
    EnvironmentProblem,
    KernelwrightError,
    NothingToDo,
    UnsupportedProblem,
    UsageError,
)
from kernelwright.report.row import Row, row_line
from kernelwright.settings import Settings, read_settings
from kernelwright.suite.cores import move_to
from kernelwright.suite.efforts import EFFORTS
from kernelwright.suite.folder import write_whole
from kernelwright.suite.job import Job, read_job
from kernelwright.suite.turns import Hold, Turns

if TYPE_CHECKING:
    from kernelwright.build import KernelResources
    from kernelwright.ir.nodes import Graph
    from kernelwright.judge import Policy
    from kernelwright.judge.process import Zygote
    from kernelwright.result import Result
    from kernelwright.suite.memory import Promises

LOG = logging.getLogger(__name__)

# An exception that ends a problem, and the verdict it is in a row; the first that fits.
VERDICTS: tuple[tuple[type[KernelwrightError], str], ...] = (
    (UnsupportedProblem, "UNSUPPORTED"),
    (NothingToDo, "NOTHING_TO_DO"),
    (BadProblem, "BAD_PROBLEM"),
    (UsageError, "BAD_PROBLEM"),
    (BuildError, "BUILD_ERROR"),
    (EnvironmentProblem, "ENVIRONMENT"),
)


def main() -> None:
    run(sys.argv[1])


def run(text: str) -> None:
    """Do what the `Job` in this text asks for, and end the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    job = read_job(text)
    began = time.perf_counter()
    move_to(job.cores.others)
    turns = Turns(
        Path(job.locks),
        job.device,
        alone=job.alone,
        measured=EFFORTS[job.terms.effort].tuning,
        moved=lambda hold: move_to(job.cores.of(hold)),
    )
    row = outcome(job, turns)
    write_whole(Path(job.folder) / "result.json", row_line(replace(row, wall_s=round(time.perf_counter() - began, 1))))
    logging.shutdown()
    os._exit(0)  # the row is on disk: nothing that torch does on its way out can change it, or hang


def outcome(job: Job, turns: Turns) -> Row:
    """What our own errors say is a verdict; any other exception ends this process, whose last words the suite reads."""
    turns.enter("load")
    (Path(job.folder) / "original.py").write_bytes(Path(job.path).read_bytes())
    try:
        with workers_of(job) as workers:  # started first: beside all that is done before judging
            prepare(job, turns)
            return optimized(job, turns, workers)
    except KernelwrightError as error:
        LOG.info("%s: %s\n%s", type(error).__name__, error, getattr(error, "log", ""))
        verdict = next((word for kind, word in VERDICTS if isinstance(error, kind)), "BUG")
        row = Row(
            job.problem, job.path, job.sha256, job.terms, verdict, detail=str(error), environment=environment(job)
        )
    return seen_without_kernels(row, job, turns) if verdict == "NOTHING_TO_DO" else row


def prepare(job: Job, turns: Turns) -> None:
    """On a GPU that is here: what tuning compiles is compiled before our turn comes."""
    from kernelwright.device import resolve
    from kernelwright.suite.ahead import compile_ahead

    device = resolve(job.device)
    if device.kind == "cuda" and device.present and EFFORTS[job.terms.effort].tuning:
        turns.enter("capture")
        count = compile_ahead(Path(job.path), device, job.terms.precision, settings_of(job))
        LOG.info("%d sources compiled ahead", count)


@contextmanager
def workers_of(job: Job) -> Iterator[Zygote]:
    """Where the judge takes its workers from; at the isolation that earlier problems found, if they did."""
    from kernelwright.judge import shared_workers
    from kernelwright.judge.cell import LEVELS

    with shared_workers(next((level for level in LEVELS if level in job.isolations), "")) as workers:
        yield workers


def optimized(job: Job, turns: Turns, workers: Zygote) -> Row:
    from kernelwright.pipeline import optimize
    from kernelwright.report.facts import row_of

    promises = promises_of(job)
    phases: list[tuple[str, float]] = []

    def progress(phase: str, share: float) -> None:
        if phase == "judge":
            workers.wait_until_ready()  # while nobody waits for us: from here on we hold the device
        announce(phase, share, turns, promises, phases)

    def reserve(phase: str, graph: Graph) -> int:
        assert promises is not None
        workers.wait_until_ready()  # as above, of memory
        return promises.reserve(phase, graph)

    result = optimize(
        Path(job.path),
        device=job.device,
        budget_s=job.terms.budget_s if EFFORTS[job.terms.effort].tuning else 0.0,
        policy=policy_of(job),
        settings=settings_of(job),
        progress=progress,
        reserve=reserve if promises is not None else None,
    )
    turns.take(Hold.NOT)
    if promises is not None:
        release_cached_memory()
        promises.release()
    result.seconds.update(durations(phases), waited=round(turns.waited_s, 1))
    keep(result, Path(job.folder))
    return row_of(result, job.problem, job.sha256, job.terms, environment(job), resources_of(result, job))


def durations(phases: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Seconds of the judge's phases, from when each began; the last one ends now. Waiting for a turn is in them."""
    ends = [*(began for _, began in phases[1:]), time.perf_counter()]
    spent: dict[str, float] = {}
    for (phase, began), end in zip(phases, ends, strict=True):
        spent[phase] = round(spent.get(phase, 0.0) + end - began, 1)
    within = list(spent).index("judge") if "judge" in spent else len(spent)
    return {f"judge: {phase}": spent[phase] for phase in list(spent)[within + 1 :]}


def resources_of(result: Result, job: Job) -> Sequence[KernelResources]:
    """What the compiler says of the kernels of a GPU: registers, spills.

    By nvcc, as the emitted file is built, and without the host's half of it. What the judge had built is not asked: it
    lies in a folder that a candidate wrote. For a GPU that is not here all of it was built, and is found again.
    """
    from kernelwright.build import build_cuda_library, library_resources
    from kernelwright.build.cubin import compile_with_nvcc

    text, arch = result.program.text, result.device.arch
    if result.device.kind != "cuda":
        return ()
    if not result.device.present:
        return library_resources(build_cuda_library(text, arch, settings_of(job)))
    return compile_with_nvcc(text, arch, settings_of(job)).kernels


def settings_of(job: Job) -> Settings:
    """The environment's, with this problem's share of the compilers."""
    return replace(read_settings(), jobs=job.compilers)


def promises_of(job: Job) -> Promises | None:
    """This problem's memory on a GPU that is here; a CPU's is the machine's, which the runner looks after."""
    from kernelwright.device import resolve
    from kernelwright.judge.policy import COMPILED
    from kernelwright.suite.memory import Ledger, Promises

    device = resolve(job.device)
    if device.kind != "cuda" or not device.present:
        return None
    import torch

    total = torch.cuda.get_device_properties(device.torch_name).total_memory
    # A baseline that compiles begins while the candidate is built, with inputs of its own.
    idle = not set(COMPILED) & set(job.terms.baselines)
    return Promises(Ledger(Path(job.locks), job.device, total), alone=job.alone, idle=idle)


def announce(
    phase: str, share: float, turns: Turns, promises: Promises | None, phases: list[tuple[str, float]]
) -> None:
    """A phase begins when its turn has come; whoever waits for a GPU keeps no memory on it that it does not use."""
    if share == 0.0:
        phases.append((phase.partition(" ")[0], time.perf_counter()))
        release_cached_memory()
        if promises is not None:
            promises.enter(phase)
    turns.enter(phase)
    if share == 0.0:
        LOG.info(phase)


def release_cached_memory() -> None:
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def policy_of(job: Job) -> Policy:
    from kernelwright.judge import Policy

    effort = EFFORTS[job.terms.effort]
    fields: dict[str, Any] = {} if effort.families is None else {"families": effort.families}
    return Policy(
        budget_s=job.terms.budget_s * effort.judging,
        baselines=job.terms.baselines,
        precision=job.terms.precision,  # type: ignore[arg-type]
        timing=bool(job.terms.baselines),
        restarts=effort.restarts,
        extensions=effort.restarts - 1,
        restart_s=effort.restart_s,
        robustness=effort.robustness,
        sanitize=False,
        **fields,
    )


def keep(result: Result, folder: Path) -> None:
    """The emitted file, what each stage made, the plan as a picture, and the judge's whole record."""
    from kernelwright.pipeline import write_dumps
    from kernelwright.report.boxes import picture_json
    from kernelwright.report.picture import picture_of

    (folder / "emitted.py").write_text(result.source)
    write_dumps(result, folder / "dumps")
    (folder / "plan.json").write_text(picture_json(picture_of(result.program.plan)))
    if result.judgement is not None:
        with gzip.open(folder / "record.json.gz", "wt") as file:
            json.dump(result.judgement.record, file)


def seen_without_kernels(row: Row, job: Job, turns: Turns) -> Row:
    """The row of a problem that stays as it is, with what there would have been to do."""
    from kernelwright.capture import capture
    from kernelwright.device import resolve
    from kernelwright.load import load
    from kernelwright.plan import plan
    from kernelwright.report.boxes import picture_json
    from kernelwright.report.picture import picture_of
    from kernelwright.report.work import work_of
    from kernelwright.simplify import simplify

    turns.enter("capture")
    try:
        graph = simplify(capture(load(job.path)))
    except KernelwrightError:
        return row
    (Path(job.folder) / "plan.json").write_text(picture_json(picture_of(plan(graph))))
    return replace(row, work=work_of(graph, resolve(job.device)))


def environment(job: Job) -> Mapping[str, Any]:
    import platform

    import torch

    return {
        "device": job.terms.device,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "commit": job.commit,
        "command": job.command,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
