"""Every config of every memory-bound problem of a folder, through emitted files, on one GPU in under 200 seconds.

    python benchmarks/reduce_device.py KernelBench/level1 --out rows.jsonl [--only LayerNorm Pooling] [--configs 5]

For each problem that reduces, normalises, pools, scans or is a loss: configs that the cost model and the tuner would
look at, and the first of each template. 1 processes emit and build a file for each config, while others compile what
torch.compile makes of the originals, 2 another process checks each file against float64 and for the same bits twice,
and times all of them, interleaved with eager and torch.compile, 3 a table says for each problem what it takes, its
share of the bandwidth of a copy and its ratio to the better peer.

A kernel that never ends ends its process after a while, not the run: the config is a row that says so. One line of JSON
a problem. Without a GPU, `--emit FOLDER` writes the files that would be timed.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import zip_longest
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.device import copied_state, copy_gbps, environment, imported, leaves, ratio, relative, timed, turn
from kernelwright.capture import capture
from kernelwright.device import Device, resolve
from kernelwright.emit import emit
from kernelwright.generate import default_choices, generate
from kernelwright.generate.generate import priced_choices, ranked_choices, template_of
from kernelwright.kernels.choices import Choice
from kernelwright.load import Instance, Problem, at_home, instantiate, load
from kernelwright.plan import Kernel, plan
from kernelwright.settings import read_settings
from kernelwright.simplify import simplify
from kernelwright.tune.routes import choose_routes
from kernelwright.tune.tune import floor_of, short_list

# What the names of problems have in them that move more than they compute.
MEMORY_BOUND = (
    r"softmax|norm|pool|reduction_over|argm(ax|in)|cumsum|cumprod|loss"
    r"|_(re|leakyre|se|e|ge|mingptnewge)lu|sigmoid|tanh|swish|softplus|softsign|scalar_mult|diagonal"
)

BUILDERS, COMPILERS = 12, 5

# Of all the time there is, what is left for the process that times.
TIMING_SHARE = 0.45

ROUNDS = 9

# What a result is compared with.
FLOAT64, IEEE = "float64", "IEEE float32"

# Of a result, where TF32 is allowed: what the library has where it uses it, which it does not for few channels.
TF32_ERROR = 2.5e-4

# In place of a pattern: what the tuner would measure, nothing else.
LISTED = "listed"

# A config that says nothing for so long is given up, and its process with it.
HANGS_S = 20.0

# Where a problem has a bar of its own; else it has reached nine tenths of a copy, or so much of the better peer.
BARS = {"23_Softmax": 1.35, "24_LogSoftmax": 1.35, "40_LayerNorm": 1.6}
USUAL_BAR, SHARE_BAR, LOWEST = 1.3, 0.9, 0.97

# A result is wrong if its error is so many times eager's, and more than a few roundings.
WORSE, ROUNDINGS = 4.0, 2e-6


@dataclass(frozen=True, slots=True)
class Emitted:
    """A file with one config of its heaviest kernel."""

    file: Path
    template: str
    config: str
    default: bool


@dataclass(frozen=True, slots=True)
class Job:
    """A problem, its files, and what no kernel can do without."""

    path: Path
    files: tuple[Emitted, ...]
    moved_bytes: int
    floor_us: float


# --- 1: files


def heaviest(kernels: Sequence[Kernel], device: Device) -> Kernel:
    """The one whose best config should take longest."""
    return max(kernels, key=lambda kernel: priced_choices(kernel, device)[0][0])


def tried(kernel: Kernel, device: Device, count: int, like: str) -> list[Choice]:
    """What is chosen, others that the tuner looks at, the first few of each template; or those that are asked for."""
    ranked = ranked_choices(kernel, device)
    if like == LISTED:
        return [*dict.fromkeys([ranked[0], *short_list(kernel, device)])][:count]
    if like:
        alike = [choice for choice in ranked if re.search(like, f"{template_of(choice).name} {choice}")]
        return [*dict.fromkeys([ranked[0], *alike])][:count]
    by_template: dict[str, list[Choice]] = {}
    for choice in ranked:
        by_template.setdefault(template_of(choice).name, []).append(choice)
    pairs = zip_longest(spread(ranked), short_list(kernel, device))
    others = [choice for pair in pairs for choice in pair if choice is not None]
    found = [*dict.fromkeys([ranked[0], *others])][:count]
    firsts = [choice for choices in by_template.values() for choice in choices[:count]]
    return [*dict.fromkeys([*found, *firsts])]


def spread(ranked: Sequence[Choice]) -> list[Choice]:
    """The best for each number of threads that share a row, which the tuner's list does not tell apart."""
    first: dict[tuple[int, int], Choice] = {}
    for choice in ranked:
        first.setdefault((getattr(choice, "threads", 0), getattr(choice, "team", 0)), choice)
    return list(first.values())


def emitted(path: Path, folder: Path, count: int, like: str, name: str) -> Job:
    """In a process of its own: the files of a problem, not built yet."""
    device = resolve(name)
    problem = load(path)
    graph = simplify(capture(problem))
    planned = plan(graph, choose_routes(graph, replace(device, present=False), 0.0, read_settings(), "reference"))
    choices = default_choices(planned, device)
    kernel = heaviest(planned.kernels, device)
    files = []
    for number, choice in enumerate(tried(kernel, device, count, like)):
        program = generate(planned, choices | {kernel.name: choice}, device)
        file = folder / f"{path.stem}_{number}.py"
        file.write_text(emit(program, problem))
        template = template_of(choice).name
        files.append(Emitted(file, template, str(choice), number == 0))
    moved = sum(kernel.bytes_moved for kernel in planned.kernels)
    return Job(path, tuple(files), moved, sum(floor_of(kernel, device) for kernel in planned.kernels))


def built(file: Path) -> None:
    """In a process of its own: the library of a file, in the cache of extensions."""
    imported(file.read_text(), load(file))


def compiled(path: Path) -> None:
    """In a process of its own: what torch.compile makes of a problem, in its cache."""
    run_compiled(path)
    torch.cuda.empty_cache()  # others need the memory


def on_gpu(problem: Problem) -> Instance:
    """Weights and inputs, made where they are used: billions of random numbers take a CPU longer than what is timed."""
    with torch.device("cuda"):
        return instantiate(problem, 0, "cuda")


def run_compiled(path: Path) -> None:
    instance = on_gpu(load(path))
    with torch.no_grad():
        torch.compile(instance.model)(*instance.inputs)
    torch.cuda.synchronize()


# --- 2: times, in a process that may be given up


def serve(wire: Connection, rounds: int, peers: bool, truth: str) -> None:
    """Takes jobs, tells before each file that it begins, and gives a row for each job."""
    with turn():
        copy = copy_gbps()
        torch.cuda.empty_cache()
    wire.send(("copy", copy))
    while True:
        job, skipped = wire.recv()
        try:
            with turn():
                row = measured_row(job, skipped, wire, copy, rounds, peers, truth)
                torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001  one failing problem is a row, not the end of the run
            row = {"problem": job.path.stem, "failed": f"{type(error).__name__}: {str(error)[:300]}"}
        torch.cuda.empty_cache()
        wire.send(("row", row))


def measured_row(
    job: Job, skipped: Mapping[Path, str], wire: Connection, copy: float, rounds: int, peers: bool, against: str
) -> dict[str, Any]:
    problem = load(job.path)
    instance = on_gpu(problem)
    contestants: dict[str, Any] = {"eager": instance.model}
    rows: dict[str, dict[str, Any]] = {}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="ModelNew runs")  # a call it was planned for
        if peers:
            wire.send(("at", None))
            contestants["compile"] = torch.compile(instance.model)
            contestants["compile"](*instance.inputs)
        truth, theirs, against = true_results(instance, against)
        for one in job.files:
            key = str(one.file)
            rows[key] = {
                "config": one.config,
                "template": one.template,
                "default": one.default,
            }
            if one.file in skipped:
                rows[key]["status"] = skipped[one.file]
                continue
            wire.send(("at", one.file))
            model, verdict = checked(one, job, instance, truth, theirs)
            rows[key] |= verdict
            if verdict["status"] == "right":
                contestants[key] = model
        del truth
        torch.cuda.empty_cache()
        wire.send(("at", None))
        times = timed(contestants, instance.inputs, rounds)
    return row_of(job, rows, times, copy, {"eager_error": theirs, "against": against})


def true_results(instance: Instance, against: str) -> tuple[list[torch.Tensor], float, str]:
    """In float64, and eager's error; where the memory does not suffice, eager's own results. Or in IEEE float32, for
    convolutions that the library takes seconds for in float64, and TF32 is a thousand times less exact than."""
    state = copied_state(instance.model)
    eager = leaves(instance.model(*instance.inputs))
    instance.model.load_state_dict(state)
    if against == IEEE:
        with torch.backends.cudnn.flags(allow_tf32=False):
            truth = leaves(instance.model(*instance.inputs))
        instance.model.load_state_dict(state)
        theirs = max(relative(x, y) for x, y in zip(eager, truth, strict=True))
        return truth, max(theirs, TF32_ERROR), IEEE
    try:
        exact = deepcopy(instance.model).double()
        wide = [t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in instance.inputs]
        truth = leaves(exact(*wide))
        return truth, max(relative(x, y) for x, y in zip(eager, truth, strict=True)), FLOAT64
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return eager, 0.0, "eager"


def checked(
    one: Emitted, job: Job, instance: Any, truth: Sequence[torch.Tensor], theirs: float
) -> tuple[Any, dict[str, Any]]:
    """ModelNew on the same state, and whether it is right, and the same twice."""
    problem = load(one.file)
    try:
        module = imported(problem.source, problem)
        with at_home(load(job.path), "cuda"):
            torch.manual_seed(0)
            model = module.ModelNew(*module.get_init_inputs()).cuda()
        state = instance.model.state_dict()
        model.load_state_dict(state)
        first = leaves(model(*instance.inputs))
        model.load_state_dict(state)
        again = leaves(model(*instance.inputs))
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001  a config that does not run is a row of its own
        if not still_runs():
            os._exit(1)
        return None, {"status": f"{type(error).__name__}: {str(error)[:200]}"}
    same = all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, again, strict=True))
    del again
    off = max(relative(x, y) for x, y in zip(first, truth, strict=True))
    right = off <= max(WORSE * theirs, ROUNDINGS)  # False for NaN
    status = "right" if right and same else "wrong" if not right else "not the same twice"
    return model, {"status": status, "error": off}


def still_runs() -> bool:
    """Whether CUDA goes on after an error: not after one of a kernel, as after one of a launch."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def row_of(
    job: Job, rows: dict[str, dict[str, Any]], times: dict[str, list[float]], copy: float, more: dict[str, Any]
) -> dict[str, Any]:
    peers = {name: statistics.median(times[name]) for name in ("eager", "compile") if name in times}
    best = min(peers, key=lambda name: peers[name])
    for key, row in rows.items():
        if key in times:
            median = statistics.median(times[key])
            row["us"] = round(median, 1)
            row["copy_share"] = round(job.moved_bytes / copy / 1e3 / median, 4)
            row["ratio"] = round(ratio(times[best], times[key]), 4)
    return {
        "problem": job.path.stem,
        "moved_bytes": job.moved_bytes,
        "floor_us": round(job.floor_us, 1),
        "peers_us": {name: round(value, 1) for name, value in peers.items()},
        "best_peer": best,
        **more,
        "configs": sorted(rows.values(), key=lambda row: row.get("us", math.inf)),
    }


class Worker:
    """The process that times, started anew when a kernel of its never ends."""

    def __init__(self, rounds: int, peers: bool, truth: str) -> None:
        self.rounds, self.peers, self.truth = rounds, peers, truth
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.wire, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.rounds, self.peers, self.truth), daemon=True)
        self.process.start()
        assert self.wire.poll(120), "the process that times did not start"
        _, self.copy = self.wire.recv()

    def row(self, job: Job) -> dict[str, Any]:
        skipped: dict[Path, str] = {}
        while True:
            self.wire.send((job, skipped))
            kind, what, at, ended = "at", None, None, "never ends"
            while kind == "at":
                at = what
                if not self.wire.poll(HANGS_S if at else 3 * HANGS_S):
                    break
                try:
                    kind, what = self.wire.recv()
                except EOFError:
                    ended = "ends its process"
                    break
            if kind == "row":
                assert isinstance(what, dict)
                return what
            self.process.kill()
            self.process.join()
            self.start()
            if at is None:
                return {"problem": job.path.stem, "failed": "the process that times said nothing any more"}
            skipped[at] = ended


# --- 3: all of it


def chosen_problems(folder: Path, names: str, only: Sequence[str]) -> list[Path]:
    """By name, in the order of their numbers."""
    found = [path for path in folder.glob("*.py") if re.search(names, path.stem, re.IGNORECASE)]
    wanted = [path for path in found if not only or any(part.lower() in path.stem.lower() for part in only)]
    return sorted(wanted, key=lambda path: (int((re.match(r"\d+", path.stem) or ["0"])[0]), path.stem))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--names", default=MEMORY_BOUND, help="problems whose names this pattern finds")
    parser.add_argument("--only", nargs="*", default=[], help="problems whose names contain one of these")
    parser.add_argument("--configs", type=int, default=5, help="that the tuner would look at, and of each template")
    parser.add_argument("--like", default="", help=f"configs that this pattern finds, or '{LISTED}'")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--no-compile", action="store_true", help="eager is the only peer")
    parser.add_argument("--ieee", action="store_true", help="compare with IEEE float32, not float64: convolutions")
    parser.add_argument("--limit", type=float, default=190.0, help="seconds after which nothing new is begun")
    parser.add_argument("--emit", type=Path, help="only write the files here, for an H200 that is not")
    options = parser.parse_args()
    deadline = time.monotonic() + options.limit
    paths = chosen_problems(options.folder, options.names, options.only)
    if options.emit is not None:
        options.emit.mkdir(parents=True, exist_ok=True)
        for path in paths:
            job = emitted(path, options.emit, options.configs, options.like, "h200")
            print(path.stem, *(f"\n    {one.template} {one.config}" for one in job.files))
        return
    os.environ["TORCH_EXTENSIONS_DIR"] = tempfile.mkdtemp()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
    built_by = deadline - TIMING_SHARE * options.limit
    jobs = prepared(paths, options.configs, options.like, not options.no_compile, built_by)
    worker = Worker(options.rounds, not options.no_compile, IEEE if options.ieee else FLOAT64)
    rows = []
    for job in jobs:
        if time.monotonic() > deadline:
            print(f"no time left for {job.path.stem} and what follows it")
            break
        row = worker.row(job) | {"environment": environment(worker.copy)}
        rows.append(row)
        print(short(row), flush=True)
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    table(rows)


def prepared(paths: Sequence[Path], count: int, like: str, peers: bool, deadline: float) -> list[Job]:
    """Files emitted and built, and torch.compile's cache filled, until the deadline: what is missing then, the process
    that times builds when it comes to it, and what fails says so there."""
    context = multiprocessing.get_context("spawn")
    folder = Path(tempfile.mkdtemp())
    jobs: list[Job] = []
    with ProcessPoolExecutor(BUILDERS, context) as builders, ProcessPoolExecutor(COMPILERS, context) as compilers:
        waiting: list[Future[None]] = [compilers.submit(compiled, path) for path in paths] if peers else []
        for path, job in [(path, builders.submit(emitted, path, folder, count, like, "cuda")) for path in paths]:
            error = job.exception()
            if error is not None:
                print(f"{path.stem}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                continue
            jobs.append(job.result())
            waiting += [builders.submit(built, one.file) for one in job.result().files]
        _, late = wait(waiting, timeout=max(1.0, deadline - time.monotonic()))
        for future in late:
            future.cancel()
    print(f"built all but {len(late)}, {deadline - time.monotonic():.0f} s left", flush=True)
    return jobs


def best_of(row: dict[str, Any]) -> dict[str, Any] | None:
    return next((c for c in row["configs"] if "us" in c), None)


def default_of(row: dict[str, Any]) -> dict[str, Any] | None:
    return next((c for c in row["configs"] if "us" in c and c["default"]), None)


def holds(row: dict[str, Any], config: dict[str, Any]) -> bool:
    bar = BARS.get(row["problem"])
    if bar is not None:
        return bool(config["ratio"] >= bar)
    return bool(config["ratio"] >= USUAL_BAR or (config["copy_share"] >= SHARE_BAR and config["ratio"] >= LOWEST))


def short(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['problem']:<34}{row['failed'][:120]}"
    text = f"{row['problem'][:33]:<34}{row['peers_us'][row['best_peer']]:>9.1f}"
    for config in (default_of(row), best_of(row)):
        if config is None:
            text += f"{'-':>26}"
        else:
            mark = " " if holds(row, config) else "!"
            text += f"{config['us']:>10.1f}{config['ratio']:>7.2f}x{config['copy_share']:>7.0%}{mark}"
    return text


def table(rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{'problem':<34}{'peer us':>9}{'chosen':>26}{'best':>26}")
    done = [row for row in rows if "failed" not in row]
    for row in rows:
        print(short(row))
    for row in done:
        wrong = [c for c in row["configs"] if c["status"] != "right"]
        for config in wrong:
            print(f"{row['problem']}: {config['template']} {config['config']}: {config['status']}")
        new = best_of(row)
        if new is not None:
            print(f"{row['problem'][:33]:<34}{new['template']} {new['config']}")
    for name, pick in (("chosen", default_of), ("the best of all", best_of)):
        ratios = [c["ratio"] for row in done if (c := pick(row)) is not None and "ratio" in c]
        if ratios:
            print(
                f"{name}: {math.exp(statistics.fmean(map(math.log, ratios))):.3f}x over the better peer, {len(ratios)}"
            )
    print("!: misses its bar")


if __name__ == "__main__":
    main()
