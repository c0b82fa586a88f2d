"""The most promising configs of each template for some products, side by side, on one H200 in under four minutes.

    python benchmarks/gemm_ways.py --out ways.jsonl [--only 16x1024 float16 ...] [--each 2] [--processes 3]

1 many processes compile every config, 2 a process for each product, which may hang and is then ended: the error of
each config against float64, whether more runs and a CUDA graph give the same bits, its times beside eager (and
torch.compile, where that is the bar) and the other configs, visited in turn, and those of its launches by the profiler.
What torch.compile takes differs from process to process by more than it does within one: --processes measures anew. A
line of JSON for each config and process; the table comes last.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.device import FLUSH_BYTES, copy_gbps, environment, ratio, relative, timed, turn, under_graph
from benchmarks.gemm_device import Case, imported, models, rand
from kernelwright.capture import capture
from kernelwright.device import resolve
from kernelwright.emit import emit
from kernelwright.generate import generate
from kernelwright.generate.generate import priced_choices, template_of
from kernelwright.kernels.choices import Choice
from kernelwright.load import at_home, instantiate, load
from kernelwright.plan import Kernel, Plan, Routes, plan, prepared
from kernelwright.simplify import simplify
from kernelwright.tune.routes import may_be_ours

ROUNDS = 10
PROCESSES = 12
LIMIT_S = 240.0  # of everything
ONE_S, ONE_COMPILED_S = 30.0, 50.0  # of one product, from the start of its process to its end
PROFILED = 5  # calls
WORTH_IT = 1.5  # times the best price: templates beyond it are left out


Sizes = tuple[int, int, int]
CUBE: Sizes = (4096, 4096, 4096)


def halves(dtype: str, sizes: Sizes = CUBE) -> Case:
    return parts_of_halves(dtype, "bias, gelu, residual", "F.gelu(self.layer(x0)) + x1", (("compile", 1.1),), sizes)


def parts_of_halves(
    dtype: str, name: str, body: str, bars: tuple[tuple[str, float], ...] = (), sizes: Sizes = CUBE
) -> Case:
    """Without bars: what each part of that epilogue takes."""
    m, n, k = sizes
    inputs = (rand(m, k, dtype=dtype), *([rand(m, n, dtype=dtype)] if "x1" in body else []))
    layer = f"nn.Linear({k}, {n}, bias={'bias' in name}).to(torch.{dtype})"
    size = f"{m}^3" if m == n == k else f"{m}x{n}x{k}"
    return Case(f"{dtype} {size} {name}", body, inputs, layer, bars)


def batches(name: str, b: int, m: int, n: int, k: int) -> Case:
    return Case(name, "torch.bmm(x0, x1)", (rand(b, m, k), rand(b, k, n)), bars=(("eager", 3.8),))


# Products that miss their bars, or held them by little, and one whose k lies between those that were measured.
CASES = (
    batches("16x1024^3", 16, 1024, 1024, 1024),
    batches("128x512x2048x1024", 128, 512, 2048, 1024),
    Case("256x256x524288", "x0 @ x1", (rand(256, 524288), rand(524288, 256)), bars=(("eager", 2.0),)),
    Case("1024x1024x65536", "x0 @ x1", (rand(1024, 65536), rand(65536, 1024)), bars=()),
    Case("4096^3", "x0 @ x1", (rand(4096, 4096), rand(4096, 4096)), bars=(("eager", 3.8),)),
    Case("4096^3, first turned", "x0.t() @ x1", (rand(4096, 4096), rand(4096, 4096)), bars=(("eager", 3.8),)),
    Case("1024x8192x8192 relu", "torch.relu(self.layer(x0))", (rand(1024, 8192),), "nn.Linear(8192, 8192)",
         (("eager", 4.4),)),
    halves("float16"),
    halves("bfloat16"),
    halves("float16", (8192, 4096, 1024)),
    halves("float16", (8192, 1024, 4096)),
    parts_of_halves("float16", "alone", "self.layer(x0)"),
    parts_of_halves("float16", "bias, gelu", "F.gelu(self.layer(x0))"),
    parts_of_halves("float16", "bias, residual", "self.layer(x0) + x1"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Way:
    """A product and a config for it, by its place in the list that every process makes for itself."""

    case: Case
    number: int
    template: str
    config: str
    model_us: float


# --- configs: the same list in every process


def planned(path: Path) -> tuple[Plan, Kernel]:
    graph = simplify(capture(load(path)))
    device = resolve("cuda")
    own = frozenset(node for node in prepared(graph).nodes() if may_be_ours(node, device))
    made = plan(graph, Routes(own, frozenset(), "reference"))
    return made, next(kernel for kernel in made.kernels if kernel.core is not None)


def ways_of(case: Case, path: Path, each: int) -> list[Way]:
    """The first few of each template, as far as they are not hopeless."""
    _, kernel = planned(path)
    kept: dict[str, list[Way]] = {}
    priced = priced_choices(kernel, resolve("cuda"))
    for number, (price, choice) in enumerate(priced):
        of_template = kept.setdefault(template_of(choice).name, [])
        if len(of_template) < each and price <= WORTH_IT * priced[0][0]:
            config = re.sub(r"^.*Config", "", str(choice))
            of_template.append(Way(case, number, template_of(choice).name, config, price))
    return [way for ways in kept.values() for way in ways]


def emitted(path: Path, number: int) -> Path:
    """The model file with this config, written and built."""
    device = resolve("cuda")
    made, kernel = planned(path)
    choices: dict[str, Choice] = {k.name: priced_choices(k, device)[0][1] for k in made.kernels}
    choices[kernel.name] = priced_choices(kernel, device)[number][1]
    file = path.with_name(f"{path.stem}_way{number}.py")
    file.write_text(emit(generate(made, choices, device), load(path)))
    return file


def built(job: tuple[Path, int]) -> str:
    """ "" or why it could not be built."""
    try:
        imported(emitted(*job))
    except Exception as error:  # noqa: BLE001  one config that does not compile is a row, not the end of the run
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


# --- the configs of one product, in a process of their own


def measured(path: Path, numbers: Sequence[int], against_compile: bool) -> list[dict[str, Any]]:
    files = [path.with_name(f"{path.stem}_way{number}.py") for number in numbers]
    instance = models(path, files[0])[0]
    ways = {str(number): models(path, file)[1] for number, file in zip(numbers, files, strict=True)}
    with torch.no_grad():
        eager = instance.model(*instance.inputs)
        wide = instantiate(load(path), 0, "cuda")
        with at_home(load(path), "cuda"):
            exact = wide.model.double()(*[x.double() for x in instance.inputs])
        found = {name: checked(instance, new, eager, exact) for name, new in ways.items()}
        del exact, wide
        contestants = {"eager": instance.model, **ways}
        if against_compile:
            contestants["compile"] = torch.compile(instance.model)
        times = timed(contestants, instance.inputs, ROUNDS)
        launches = {name: launches_us(new, instance.inputs) for name, new in ways.items()}
    others = [name for name in times if name not in ways]
    return [
        {
            "us": {"ours": middle(times[name]), **{other: middle(times[other]) for other in others}},
            "speed": {other: round(ratio(times[other], times[name]), 3) for other in others},
            "launches_us": launches[name],
            **found[name],
        }
        for name in ways
    ]


def middle(times: list[float]) -> float:
    return round(statistics.median(times), 1)


def checked(instance: Any, new: Any, eager: torch.Tensor, exact: torch.Tensor) -> dict[str, Any]:
    ours = new(*instance.inputs)
    return {
        "error": {"ours": relative(ours, exact), "eager": relative(eager, exact)},
        "same_bits": all(torch.equal(new(*instance.inputs), ours) for _ in range(10)),
        "graph_equal": under_graph(instance, new),
    }


def launches_us(model: Any, inputs: Sequence[Any]) -> dict[str, float]:
    """Medians of what the profiler says of each launch of a call; nothing where it does not work."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(PROFILED):
                flush.zero_()
                model(*inputs)
            torch.cuda.synchronize()
        events = [e for e in profile.events() if "kw" in e.name]
    except RuntimeError as error:
        return {f"no profile: {error}"[:80]: 0.0}
    times: dict[str, list[float]] = {}
    for event in events:
        found = re.search(r"(pack_\w+|multiply_kernel|sum_parts|largest_\w+|copy_\w+)", event.name)
        times.setdefault(found[1] if found else event.name[:40], []).append(event.time_range.elapsed_us())
    return {name: middle(taken) for name, taken in times.items()}


def attempted(path: Path, ways: Sequence[Way]) -> list[dict[str, Any]]:
    """What a process of its own found for each; one that takes too long is ended."""
    compiles = any(against == "compile" for against, _ in ways[0].case.bars)
    seconds = ONE_COMPILED_S if compiles else ONE_S
    numbers = [str(way.number) for way in ways]
    command = [sys.executable, __file__, "--one", str(path), *numbers, *(["--compile"] if compiles else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return [{"failed": f"did not end in {seconds:.0f} s"} for _ in ways]
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return [{"failed": done.stderr.strip()[-300:]} for _ in ways]
    found: list[dict[str, Any]] = json.loads(lines[-1])
    return found


# --- the run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of cases")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after which nothing new is begun")
    parser.add_argument("--each", type=int, default=1, help="configs of each template")
    parser.add_argument("--processes", type=int, default=1, help="for each product, one after the other")
    parser.add_argument("--one", nargs="*", help="a model file and numbers of configs: what is measured, as JSON")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    if options.one:
        path, numbers = Path(options.one[0]), [int(number) for number in options.one[1:]]
        torch.set_float32_matmul_precision("highest")
        with turn():
            found = measured(path, numbers, options.compile)
        print(json.dumps(found))
        return
    if options.out is None:
        parser.error("--out is needed")
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", tempfile.mkdtemp())
    cases = [c for c in CASES if not options.only or any(part in c.name for part in options.only)]
    run(cases, options.each, options.processes, options.out, time.monotonic() + options.limit)


def run(cases: Sequence[Case], each: int, processes: int, out: Path, deadline: float) -> None:
    folder = Path(tempfile.mkdtemp())
    paths = {case: folder / f"case{number}.py" for number, case in enumerate(cases)}
    for case, path in paths.items():
        path.write_text(case.text())
    ways = [way for case, path in paths.items() for way in ways_of(case, path, each)]
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        problems = list(pool.map(built, [(paths[way.case], way.number) for way in ways]))
    print(f"{len(ways)} configs built, {deadline - time.monotonic():.0f} s left", flush=True)
    about = environment(copy_gbps())
    torch.cuda.empty_cache()
    rows = []
    for case in cases:
        of_case = [(way, problem) for way, problem in zip(ways, problems, strict=True) if way.case is case]
        good = [way for way, problem in of_case if not problem]
        found_of = [(way, {"failed": problem}) for way, problem in of_case if problem]
        for _ in range(processes):
            in_time = time.monotonic() < deadline
            measures = attempted(paths[case], good) if good and in_time else [{"failed": "no time left"} for _ in good]
            found_of += zip(good, measures, strict=True)
        for way, found in found_of:
            row = {
                "case": way.case.name,
                "template": way.template,
                "config": way.config,
                "model_us": round(way.model_us, 1),
                "bars": dict(way.case.bars),
                **found,
            }
            rows.append(row)
            with out.open("a") as file:
                file.write(json.dumps({**row, "environment": about}) + "\n")
    table(rows)


def table(rows: list[dict[str, Any]]) -> None:
    print(f"{'case':<36}{'us':>8}{'model':>7}{'eager':>7}{'compile':>8}{'error':>10}{'eager':>9}  same  config")
    for row in sorted(rows, key=lambda r: (r["case"], r.get("us", {}).get("ours", 1e9))):
        name = f"{row['template']}{row['config']}"
        if "failed" in row:
            print(f"{row['case']:<36}{'-':>8}  {name}: {row['failed'][-120:]!r}")
            continue
        speed, error = row["speed"], row["error"]
        print(
            f"{row['case']:<36}{row['us']['ours']:>8.1f}{row['model_us']:>7.0f}"
            f"{speed['eager']:>6.2f}x{speed.get('compile', 0):>7.2f}x{error['ours']:>10.1e}{error['eager']:>9.1e}"
            f"  {'yes' if row['same_bits'] and row['graph_equal'] else 'NO':<5} {name}"
            f"  {' '.join(f'{launch} {us}' for launch, us in row['launches_us'].items())}"
        )


if __name__ == "__main__":
    main()
