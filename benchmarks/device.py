"""Problem files come in; each is built, checked against float64 and timed on this GPU, beside eager and torch.compile.

    python benchmarks/device.py benchmarks/problems/relu.py ... --out results.jsonl [--check]

With --check nothing is tuned or timed: whether each file is right, under a CUDA graph too, and survives other calls.

One row of JSON a problem, with device, versions, commit and command; a short table last. Times are CUDA events around
one call with a cold L2 cache, in rounds that visit the contestants in random order; ratios are medians over the rounds.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernelwright.capture import capture
from kernelwright.device import Device, resolve
from kernelwright.emit import emit
from kernelwright.generate import generate
from kernelwright.load import Problem, at_home, instantiate, load
from kernelwright.pipeline import chosen
from kernelwright.settings import read_settings
from kernelwright.simplify import simplify

FLUSH_BYTES = 256 << 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("problems", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    os.environ["TORCH_EXTENSIONS_DIR"] = tempfile.mkdtemp()  # every build is cold
    device = resolve("cuda")
    with turn():
        copy = copy_gbps()
    rows = []
    for path in options.problems:
        try:
            with turn():
                row = one(path, device, copy, options)
        except Exception as error:  # noqa: BLE001  one failing problem is a row, not the end of the run
            row = {"problem": path.stem, "failed": f"{type(error).__name__}: {str(error)[:300]}"}
        row["environment"] = environment(copy)
        rows.append(row)
        print(json.dumps(row), flush=True)
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
        torch.cuda.empty_cache()
    table(rows)


def one(path: Path, device: Device, copy: float, options: argparse.Namespace) -> dict[str, Any]:
    problem = load(path)
    begin = time.perf_counter()
    graph = simplify(capture(problem))
    settings = read_settings()
    planned, choices, tuned = chosen(graph, device, 0.0 if options.check else 30.0, settings)
    program = generate(planned, choices, device)
    source = emit(program, problem)
    optimize_s = time.perf_counter() - begin
    begin = time.perf_counter()
    module = imported(source, problem)
    build_s = time.perf_counter() - begin
    instance = instantiate(problem, 0, "cuda")
    with at_home(problem, "cuda"):
        torch.manual_seed(0)
        new = module.ModelNew(*module.get_init_inputs()).cuda()
    new.load_state_dict(instance.model.state_dict())
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="ModelNew runs")  # a call it was planned for
        error = errors(problem, instance, new, "cuda")
        graphed = under_graph(instance, new)
        survived = survives(instance, new)
        if options.check:
            return {
                "problem": problem.name,
                "build_s": round(build_s, 2),
                "kernels": len(program.sources),
                "error": error,
                "graph_equal": graphed,
                "survives": survived,
            }
        contestants = {"eager": instance.model, "ours": new}
        if not options.no_compile:
            contestants["compile"] = torch.compile(instance.model)
        times = timed(contestants, instance.inputs, options.rounds)
    moved = sum(kernel.bytes_moved for kernel in planned.kernels)
    median = {name: statistics.median(samples) for name, samples in times.items()}
    return {
        "problem": problem.name,
        "optimize_s": round(optimize_s, 2),
        "build_s": round(build_s, 2),
        "kernels": len(program.sources),
        "times_us": {name: round(t, 2) for name, t in median.items()},
        "speedup": {n: round(ratio(times[n], times["ours"]), 4) for n in median if n != "ours"},
        "kernel_bytes": moved,
        "kernel_us": [round(t.median_us, 2) if t.median_us else None for t in tuned],
        "configs": [str(t.choice) for t in tuned],
        "copy_share": [round(k.bytes_moved / copy / 1e3 / t.median_us, 4) if t.median_us else None
                       for k, t in zip(planned.kernels, tuned, strict=True)],
        "floor_share": [round(t.floor_us / t.median_us, 4) if t.median_us else None for t in tuned],
        "library_us": [t.library_us and round(t.library_us, 2) for t in tuned],
        "call_copy_share": round(moved / copy / 1e3 / median["ours"], 4),
        "error": error,
        "graph_equal": graphed,
        "survives": survived,
    }  # fmt: skip


def ratio(theirs: list[float], ours: list[float]) -> float:
    return statistics.median(t / o for t, o in zip(theirs, ours, strict=True))


def imported(source: str, problem: Problem) -> Any:
    folder = Path(tempfile.mkdtemp())
    file = folder / f"{problem.name}_new.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def leaves(value: Any) -> list[torch.Tensor]:
    return [t for v in value for t in leaves(v)] if isinstance(value, (tuple, list)) else [value]


def errors(problem: Problem, instance: Any, new: Any, device: str) -> dict[str, float]:
    """Relative rms error against the same model in float64, ours and eager's; on the largest batch that fits."""
    count = sum(t.numel() for t in instance.inputs if isinstance(t, torch.Tensor))
    before = copied_state(instance.model)
    torch.manual_seed(1)
    eager = leaves(instance.model(*instance.inputs))
    torch.manual_seed(1)
    ours = leaves(new(*instance.inputs))
    for a, b in zip(eager, ours, strict=True):
        assert (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device), "the output has another type"
    if count > 2_000_000_000:
        return {"ours_vs_eager": max(relative(b, a.double()) for a, b in zip(eager, ours, strict=True))}
    wide = instantiate(problem, 0, device)
    exact = wide.model.double()
    exact.load_state_dict(before)
    inputs = [t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in instance.inputs]
    torch.manual_seed(1)
    truth = leaves(exact(*inputs))
    del wide, exact, inputs
    return {
        "ours": max(relative(x, g) for x, g in zip(ours, truth, strict=True)),
        "eager": max(relative(x, g) for x, g in zip(eager, truth, strict=True)),
    }


def relative(x: torch.Tensor, truth: torch.Tensor) -> float:
    if not x.is_floating_point():
        return float((x.double() - truth.double()).abs().max()) if x.numel() else 0.0
    difference = x.double().sub_(truth.double())
    return float(difference.norm() / truth.double().norm().clamp_min(1e-300))


def under_graph(instance: Any, new: Any) -> bool:
    """Whether a captured and replayed call gives, and leaves in buffers, what a plain one does; on newer data."""
    static = [t.clone() if isinstance(t, torch.Tensor) else t for t in instance.inputs]
    before = copied_state(new)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        new(*static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = leaves(new(*static))
    for t in static:
        if isinstance(t, torch.Tensor) and t.is_floating_point():
            t.mul_(0.5)
    new.load_state_dict(before)
    graph.replay()
    left = copied_state(new)
    new.load_state_dict(before)
    plain = leaves(new(*static))
    torch.cuda.synchronize()
    same_state = all(torch.equal(value, left[name]) for name, value in new.state_dict().items())
    new.load_state_dict(before)
    return same_state and all(torch.equal(a, b) for a, b in zip(captured, plain, strict=True))


def copied_state(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def survives(instance: Any, new: Any) -> dict[str, bool]:
    """Calls it was not planned for: half the batch, float64, a turned input; the answer, or the error, is eager's."""
    variants = {
        "batch": lambda t: t[: max(t.shape[0] // 2, 1)] if t.dim() else t,
        "dtype": lambda t: t.double() if t.is_floating_point() else t,
        "strides": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t,
    }
    results = {}
    for name, change in variants.items():
        inputs = [change(t) if isinstance(t, torch.Tensor) else t for t in instance.inputs]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results[name] = same_outcome(outcome(instance.model, inputs), outcome(new, inputs))
    return results


def outcome(model: Any, inputs: list[Any]) -> Any:
    state = copied_state(model)
    torch.manual_seed(2)
    try:
        return leaves(model(*[t.clone() if isinstance(t, torch.Tensor) else t for t in inputs]))
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error)
    finally:
        model.load_state_dict(state)


def same_outcome(theirs: Any, ours: Any) -> bool:
    if not isinstance(theirs, list) or not isinstance(ours, list):
        return theirs == ours
    pairs = list(zip(theirs, ours, strict=True))
    return all(a.shape == b.shape and a.dtype == b.dtype and close(a, b) for a, b in pairs)


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.is_floating_point() or not a.numel():
        return torch.equal(a, b)
    return float((a.double() - b.double()).norm()) <= 1e-3 * float(a.double().norm())


@contextmanager
def turn() -> Iterator[None]:
    """Where several of these run at once, so that some compile while one measures: the GPU is one's at a time. The
    variable KERNELWRIGHT_GPU_TURNS names a file that they share."""
    shared = os.environ.get("KERNELWRIGHT_GPU_TURNS")
    if shared is None:
        yield
        return
    with Path(shared).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def timed(contestants: dict[str, Any], inputs: tuple[Any, ...], rounds: int) -> dict[str, list[float]]:
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    for model in contestants.values():
        for _ in range(3):
            model(*inputs)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name in random.sample(list(contestants), len(contestants)):
            flush.zero_()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            # Half a millisecond: the launches are queued before the GPU is free, on a slow host too.
            torch.cuda._sleep(1_000_000)
            begin.record()
            contestants[name](*inputs)
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3)
    return times


def copy_gbps() -> float:
    """Bytes read plus bytes written a second, of a 4 GB copy: the best of ten."""
    source = torch.empty(1 << 30, device="cuda").uniform_()
    target = torch.empty_like(source)
    samples = []
    for _ in range(10):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        samples.append(2 * source.numel() * 4 / begin.elapsed_time(end) / 1e6)
    return max(samples)


def commit() -> str:
    """Of the tree that is measured; where it travelled without its history, the caller says."""
    told = os.environ.get("KERNELWRIGHT_COMMIT")
    return (
        told
        or subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
    )


def is_no_path_elsewhere(argument: str) -> bool:
    return not argument.startswith("/")


def environment(copy: float) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
        "copy_gbps": round(copy, 1),
        "commit": commit(),
        "command": " ".join(
            ["python", f"benchmarks/{Path(sys.argv[0]).name}", *filter(is_no_path_elsewhere, sys.argv[1:])]
        ),
        "date": time.strftime("%Y-%m-%d"),
    }


def table(rows: list[dict[str, Any]]) -> None:
    titles = f"{'ours us':>10}{'eager':>8}{'compile':>9}{'copy%':>8}{'build s':>9}{'opt s':>7}"
    print(f"\n{'problem':<26}{titles}  error ours/eager, graph")
    for row in rows:
        if "failed" in row:
            print(f"{row['problem']:<26}{row['failed'][:110]}")
            continue
        if "times_us" not in row:
            print(f"{row['problem']:<26}{row['error']} graph {row['graph_equal']} {row['survives']}")
            continue
        shares = [s for s in row["copy_share"] if s] or [0.0]
        speed = row["speedup"]
        error = "/".join(f"{v:.1e}" for v in row["error"].values())
        lost = [name for name, ok in row.get("survives", {}).items() if not ok]
        print(
            f"{row['problem']:<26}{row['times_us']['ours']:>10.1f}"
            f"{speed['eager']:>7.3f}x{speed.get('compile', 0):>8.3f}x"
            f"{max(shares):>8.1%}{row['build_s']:>9.2f}{row['optimize_s']:>7.1f}  {error} {row['graph_equal']}"
            f"{' LOST ' + ','.join(lost) if lost else ''}"
        )


if __name__ == "__main__":
    main()
