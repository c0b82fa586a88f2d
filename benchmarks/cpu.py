"""Problem files come in; each is built, checked against float64 and timed on this CPU, beside eager and torch.compile.

    python benchmarks/cpu.py benchmarks/problems/pointwise_chain_32m.py ... --out results.jsonl

Wall-clock time of one call, in rounds that visit the contestants in random order; ratios are medians over the rounds,
so that what else the machine does hits all alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.device import commit, errors, imported, ratio, table
from kernelwright.capture import capture
from kernelwright.device import Device, resolve
from kernelwright.emit import emit
from kernelwright.generate import generate
from kernelwright.load import at_home, instantiate, load
from kernelwright.plan import plan
from kernelwright.settings import read_settings
from kernelwright.simplify import simplify
from kernelwright.tune import tune


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("problems", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    os.environ["TORCH_EXTENSIONS_DIR"] = tempfile.mkdtemp()  # every build is cold
    device = resolve("cpu")
    rows = []
    for path in options.problems:
        row = {**one(path, device, options.rounds), "environment": environment(device)}
        rows.append(row)
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    table(rows)


def one(path: Path, device: Device, rounds: int) -> dict[str, Any]:
    problem = load(path)
    begin = time.perf_counter()
    planned = plan(simplify(capture(problem)))
    choices, tuned = tune(planned, device, 20.0, read_settings())
    source = emit(generate(planned, choices, device), problem)
    optimize_s = time.perf_counter() - begin
    begin = time.perf_counter()
    module = imported(source, problem)
    build_s = time.perf_counter() - begin
    instance = instantiate(problem, 0, "cpu")
    with at_home(problem, "cpu"):
        torch.manual_seed(0)
        new = module.ModelNew(*module.get_init_inputs())
    new.load_state_dict(instance.model.state_dict())
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="ModelNew runs")  # a call it was planned for
        error = errors(problem, instance, new, "cpu")
        contestants = {"eager": instance.model, "ours": new, "compile": torch.compile(instance.model)}
        times = timed(contestants, instance.inputs, rounds)
    return {
        "problem": problem.name,
        "optimize_s": round(optimize_s, 2),
        "build_s": round(build_s, 2),
        "kernels": len(planned.kernels),
        "times_us": {name: round(statistics.median(samples), 1) for name, samples in times.items()},
        "speedup": {name: round(ratio(times[name], times["ours"]), 4) for name in times if name != "ours"},
        "kernel_us": [t.median_us and round(t.median_us, 1) for t in tuned],
        "configs": [str(t.choice) for t in tuned],
        "copy_share": [t.median_us and round(t.floor_us / t.median_us, 4) for t in tuned],
        "error": error,
        "graph_equal": "",
    }


def timed(contestants: dict[str, Any], inputs: tuple[Any, ...], rounds: int) -> dict[str, list[float]]:
    for model in contestants.values():
        for _ in range(3):
            model(*inputs)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name in random.sample(list(contestants), len(contestants)):
            begin = time.perf_counter()
            contestants[name](*inputs)
            times[name].append((time.perf_counter() - begin) * 1e6)
    return times


def environment(device: Device) -> dict[str, Any]:
    return {
        "device": f"CPU: {device.name}",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit(),
        "command": "python benchmarks/cpu.py " + " ".join(p for p in sys.argv[1:] if p.endswith(".py")),
        "date": time.strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    main()
