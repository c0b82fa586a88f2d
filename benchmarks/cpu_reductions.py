"""Reductions of 16 M elements with their neighbours come in; each is timed on this CPU beside eager and torch.compile.

    python benchmarks/cpu_reductions.py [WORD ...] --out results.jsonl

A word picks the problems whose names contain it. All contestants run in one process, in rounds A B C C B A,
so that what else the machine does hits all alike; wall-clock time of one call, on all cores. With --busy, for a machine
that others use at the same time: one thread, and the time that it ran. `least` are ratios of the least times,
`median` of the medians. One row of JSON a problem, with device, versions, commit and command; a table last.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.device import commit, errors, imported
from kernelwright.capture import capture
from kernelwright.device import Device, resolve
from kernelwright.emit import emit
from kernelwright.generate import generate
from kernelwright.load import Problem, at_home, instantiate, load
from kernelwright.pipeline import chosen
from kernelwright.settings import read_settings
from kernelwright.simplify import simplify

# What is asked of each: so many times as fast as eager and as torch.compile.
BARS = {"eager": 1.5, "compile": 1.0}

ELEMENTS = 1 << 24

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Case:
    """A model as text: what forward() returns, what it takes, and what its constructor makes."""

    name: str
    forward: str
    inputs: tuple[str, ...]
    made: str = ""

    @property
    def text(self) -> str:
        names = ", ".join("xyz"[: len(self.inputs)])
        made = f"\n        {self.made}" if self.made else ""
        return (
            "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
            f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__(){made}\n\n"
            f"    def forward(self, {names}):\n        return {self.forward}\n\n\n"
            f"def get_inputs():\n    return [{', '.join(self.inputs)}]\n\n\n"
            "def get_init_inputs():\n    return []\n"
        )


def rows_of(length: int) -> str:
    return f"torch.randn({ELEMENTS // length}, {length})"


def row_cases(length: int) -> list[Case]:
    """What is computed of whole rows."""
    x = rows_of(length)
    norm = f"nn.LayerNorm({length})"
    return [
        Case(f"softmax_{length}", "torch.softmax(x, 1)", (x,)),
        Case(f"relu_softmax_scale_{length}", "torch.softmax(torch.relu(x), 1) * 2.0", (x,)),
        Case(f"log_softmax_{length}", "F.log_softmax(x * 0.5, 1)", (x,)),
        Case(f"layernorm_relu_residual_{length}", "torch.relu(self.norm(x)) + y", (x, x), f"self.norm = {norm}"),
        Case(f"rmsnorm_{length}", "self.norm(x)", (x,), f"self.norm = nn.RMSNorm({length})"),
        Case(f"sum_last_{length}", "torch.sum(torch.abs(x), 1)", (x,)),
        Case(f"mean_last_{length}", "torch.mean(x * x, 1)", (x,)),
        Case(f"var_last_{length}", "torch.var(torch.relu(x), 1)", (x,)),
        Case(f"argmax_last_{length}", "torch.argmax(torch.abs(x), 1)", (x,)),
        Case(f"cumsum_{length}", "torch.cumsum(torch.relu(x), 1)", (x,)),
    ]


def axis_cases() -> list[Case]:
    """Over the first and a middle axis."""
    first, middle = "torch.randn(4096, 4096)", "torch.randn(64, 512, 512)"
    found = []
    for fn, text in {
        "sum": "torch.sum(torch.abs(x), {})",
        "mean": "torch.mean(x * x, {})",
        "var": "torch.var(torch.relu(x), {})",
        "max": "torch.amax(torch.abs(x), {})",
        "argmax": "torch.argmax(torch.abs(x), {})",
        "softmax": "torch.softmax(torch.relu(x), {})",
        "cumsum": "torch.cumsum(torch.relu(x), {})",
    }.items():
        found.append(Case(f"{fn}_first", text.format(0), (first,)))
        found.append(Case(f"{fn}_middle", text.format(1), (middle,)))
    found.append(Case("max_and_where_middle", "torch.max(torch.relu(x), 1)[0]", (middle,)))
    return found


def image_cases() -> list[Case]:
    """Over images: windows and statistics of channels."""
    x = "torch.randn(16, 64, 128, 128)"
    scores, labels = "torch.randn(16384, 1024)", "torch.randint(0, 1024, (16384,))"
    return [
        Case("relu_max_pool_2", "F.max_pool2d(torch.relu(x), 2)", (x,)),
        Case("relu_max_pool_3_stride_2", "F.max_pool2d(torch.relu(x), 3, 2, 1)", (x,)),
        Case("relu_max_pool_3_stride_1", "F.max_pool2d(torch.relu(x), 3, 1, 1)", (x,)),
        Case("relu_avg_pool_2", "F.avg_pool2d(torch.relu(x), 2)", (x,)),
        Case("relu_avg_pool_3_stride_2", "F.avg_pool2d(torch.relu(x), 3, 2, 1)", (x,)),
        Case("batchnorm_train_relu", "torch.relu(self.norm(x))", (x,), "self.norm = nn.BatchNorm2d(64)"),
        Case("groupnorm_relu", "torch.relu(self.norm(x))", (x,), "self.norm = nn.GroupNorm(8, 64)"),
        Case("instancenorm_relu", "torch.relu(self.norm(x))", (x,), "self.norm = nn.InstanceNorm2d(64)"),
        Case("global_mean", "torch.relu(x).mean((2, 3))", (x,)),
        Case("cross_entropy", "F.cross_entropy(x * 0.5, y)", (scores, labels)),
        Case("mse", "F.mse_loss(x, y)", (rows_of(4096), rows_of(4096))),
        Case("sum_all", "torch.sum(x * x)", (rows_of(4096),)),
    ]


def every_case() -> list[Case]:
    return [*(case for length in (64, 4096, 65536) for case in row_cases(length)), *axis_cases(), *image_cases()]


def run(everything: list[Case], script: str) -> None:
    """The cases that the command line names: a line each as it is measured, then the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    device = resolve("cpu")
    if options.busy:
        torch.set_num_threads(1)
    clock = time.thread_time if options.busy else time.perf_counter
    cases = [c for c in everything if not options.words or any(word in c.name for word in options.words)]
    rows = []
    for case in cases:
        row = {**measured(case, device, options.rounds, clock), "environment": environment(device, script)}
        rows.append(row)
        print(line_of(row), file=sys.stderr, flush=True)
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    table(rows)


def measured(case: Case, device: Device, rounds: int, clock: Clock) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{case.name}.py"
        path.write_text(case.text)
        problem = load(path)
        source, configs = optimized(problem, device)
    instance = instantiate(problem, 0, "cpu")
    module = imported(source, problem)
    with at_home(problem, "cpu"):
        torch.manual_seed(0)
        new = module.ModelNew(*module.get_init_inputs())
    new.load_state_dict(instance.model.state_dict())
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="ModelNew runs")  # a call it was planned for
        error = errors(problem, instance, new, "cpu")
        contestants = {"eager": instance.model, "compile": torch.compile(instance.model), "ours": new}
        times = timed(contestants, instance.inputs, rounds, clock)
    return {
        "problem": case.name,
        "forward": case.forward,
        "least_ms": {name: round(min(samples), 3) for name, samples in times.items()},
        "median_ms": {name: round(statistics.median(samples), 3) for name, samples in times.items()},
        "least": {name: round(min(times[name]) / min(times["ours"]), 3) for name in BARS},
        "median": {name: round(statistics.median(times[name]) / statistics.median(times["ours"]), 3) for name in BARS},
        "configs": configs,
        "error": error,
    }


def optimized(problem: Problem, device: Device) -> tuple[str, list[str]]:
    """The emitted file, and the config of each of its kernels."""
    settings = read_settings()
    graph = simplify(capture(problem))
    planned, choices, tuned = chosen(graph, device, 30.0, settings)
    return emit(generate(planned, choices, device), problem), [str(row.choice) for row in tuned]


def timed(contestants: dict[str, Any], inputs: tuple[Any, ...], rounds: int, clock: Clock) -> dict[str, list[float]]:
    """Milliseconds of single calls: each round calls all of them, then all in the other order."""
    for model in contestants.values():
        for _ in range(2):
            model(*inputs)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name in (*contestants, *reversed(contestants)):
            begin = clock()
            result = contestants[name](*inputs)
            times[name].append((clock() - begin) * 1e3)
            del result
    return times


def environment(device: Device, script: str) -> dict[str, Any]:
    return {
        "device": f"CPU: {device.name}",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit(),
        "command": " ".join(["python", script, *(w for w in sys.argv[1:] if "/" not in w)]),
        "date": time.strftime("%Y-%m-%d"),
    }


def table(rows: list[dict[str, Any]]) -> None:
    titles = f"{'eager ms':>10}{'compile':>9}{'ours':>9}{'vs eager':>10}{'(median)':>10}{'compile':>9}{'(median)':>10}"
    print(f"{'problem':<32}{titles}  error ours/eager")
    for row in rows:
        print(line_of(row))
    for name, bar in BARS.items():
        below = [row["problem"] for row in rows if not row["least"][name] >= bar]
        print(f"below {bar} x {name}: {', '.join(below) or 'none'}")


def line_of(row: dict[str, Any]) -> str:
    ms, least, median = row["least_ms"], row["least"], row["median"]
    error = "/".join(f"{value:.1e}" for value in row["error"].values())
    return (
        f"{row['problem']:<32}{ms['eager']:>10.2f}{ms['compile']:>9.2f}{ms['ours']:>9.2f}"
        f"{least['eager']:>9.2f}x{median['eager']:>9.2f}x{least['compile']:>8.2f}x{median['compile']:>9.2f}x  {error}"
    )


if __name__ == "__main__":
    run(every_case(), "benchmarks/cpu_reductions.py")
