"""Random graphs of maps, reductions, scans and windows, on a GPU, against float64.

    python benchmarks/random_device.py make FOLDER [--count 500]   # needs nvcc and hypothesis, no GPU
    python benchmarks/random_device.py run FOLDER [--out rows.jsonl]

The graphs are those of the tests that run on a CPU; beside them are windows, and long rows, for which every template of
reductions is taken in turn. Each kernel gets any of its configs, however little promising. Libraries are made where
there is a compiler and run where there is a GPU: right is what is as near to float64 as PyTorch, the same bits twice.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.device import environment
from kernelwright.device import resolve
from kernelwright.generate.generate import program_text, ranked_choices, template_of
from kernelwright.ir.dtypes import DType, float32, float64
from kernelwright.ir.interpret import interpret
from kernelwright.ir.nodes import Const, Graph, Group, Input, Map, Node, Reduce, Windows
from kernelwright.kernels.choices import Choice
from kernelwright.plan import Kernel
from kernelwright.plan.steps import contiguous
from tests.cases_of_rows import softmax_case, weighted_case
from tests.property.graphs_of_rows import Case
from tests.property.runs_of_rows import Run
from tests.property.runs_of_rows import difference as difference_of_rows
from tests.property.runs_of_scans import difference as difference_of_scans

H200 = resolve("h200")
A_BATCH = 20
NVCC = (
    "nvcc",
    "-O3",
    "-std=c++17",
    "-fmad=false",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-shared",
    "-Xcompiler=-fPIC",
)

# Of all graphs: with reductions, with scans, with windows; the others have long rows.
SHARES = {"rows": 0.44, "scans": 0.28, "windows": 0.16}
LONG_COLUMNS = (4096, 8191, 20000, 32768, 65536, 98304, 99996)
LONG_ROWS = (1, 2, 3, 7, 40)

# --- graphs


def drawn(strategy: Any, count: int) -> list[Any]:
    """So many examples, the same each time."""
    from hypothesis import HealthCheck, Phase, given, settings

    found: list[Any] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found[:count]


def window_case(seed: int) -> Case:
    """A map, the windows of it, what they reduce to, and a map of that."""
    chance = random.Random(seed)
    rank = chance.randint(1, 3)
    window = tuple(chance.choice((2, 3, 4)) for _ in range(rank))
    stride = tuple(chance.choice((1, 1, 2, 3)) for _ in range(rank))
    dilation = tuple(chance.choice((1, 1, 1, 2)) for _ in range(rank))
    extents = tuple(chance.choice((7, 12, 20, 33)) + d * (n - 1) for n, d in zip(window, dilation, strict=True))
    shape = (chance.choice((1, 3)), *extents)
    fn = chance.choice(("max", "sum", "min"))

    def built(dtype: DType) -> Graph:
        x = Input("x0", 0, shape, dtype, contiguous(shape))
        inside: Node = Map("mul", (x, Const(0.5, dtype))) if chance_of_map else x
        seen = Windows(inside, tuple(range(1, rank + 1)), window, stride, dilation)
        y = Reduce(fn, seen, tuple(range(rank + 1, 2 * rank + 1)))
        return Graph((x,), (Map("add", (y, Const(1.0, dtype))),), (), Group("tuple", (0,)))

    chance_of_map = chance.random() < 0.5
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return Case(built(float32), built(float64), (tensor,))


def long_case(seed: int) -> Case:
    """Softmax, or LayerNorm with weights, of rows that blocks share."""
    chance = random.Random(seed)
    columns = chance.choice(LONG_COLUMNS)
    shape = (chance.choice(LONG_ROWS), columns)
    if chance.random() < 0.5:
        return softmax_case(torch.randn(shape, generator=torch.Generator().manual_seed(seed)))
    return weighted_case(shape, seed)


MADE: dict[str, Callable[[int], Case]] = {"windows": window_case, "long": long_case}


def every_case(count: int) -> Iterator[tuple[str, Case, int]]:
    """What kind of graph it is, the graph, and what it is made of again: a number, or for others itself."""
    from tests.property.graphs_of_rows import cases as rows
    from tests.property.graphs_of_scans import cases as scans

    sizes = {kind: round(count * share) for kind, share in SHARES.items()}
    for kind, strategy in (("rows", rows()), ("scans", scans())):
        yield from ((kind, case, -1) for case in drawn(strategy, sizes[kind]))
    yield from (("windows", window_case(seed), seed) for seed in range(sizes["windows"]))
    yield from (("long", long_case(seed), seed) for seed in range(count - sum(sizes.values())))


def any_choice(draw: int, kind: str, kernel: Kernel) -> Choice:
    """Any config; of long rows, any of a template that has its turn."""
    ranked = ranked_choices(kernel, H200)
    if kind == "long":
        names = sorted({template_of(choice).name for choice in ranked})
        ranked = [choice for choice in ranked if template_of(choice).name == names[draw % len(names)]]
    return ranked[random.Random(draw).randrange(len(ranked))]


# --- where there is a compiler


def make(folder: Path, count: int, jobs: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = list(every_case(count))
    random.Random(0).shuffle(found)
    batches = [found[first : first + A_BATCH] for first in range(0, len(found), A_BATCH)]
    with ThreadPoolExecutor(jobs) as pool:
        for number, said in enumerate(pool.map(partial(compiled, folder), range(len(batches)), batches)):
            print(f"batch {number} of {len(batches)}: {said}", flush=True)


def compiled(folder: Path, number: int, batch: Sequence[tuple[str, Case, int]]) -> str:
    runs = []
    for place, (kind, case, _) in enumerate(batch):
        choose = partial(any_choice, number * A_BATCH + place, kind)
        runs.append(Run.of(place, case, H200, choose))
    text = program_text([launch for run in runs for launch in run.program.launches], "cuda")
    source = folder / f"batch{number}.cu"
    source.write_text(text)
    done = subprocess.run([*NVCC, "-o", str(source.with_suffix(".so")), str(source)], capture_output=True, text=True)
    if done.returncode:
        return done.stderr[:400]
    rows = []
    for run, (kind, case, seed) in zip(runs, batch, strict=True):
        templates = [f"{template_of(s.choice).name} {s.choice}" for s in run.program.sources]
        forward = run.forward_text.replace("torch.device('cpu')", "torch.device('cuda')")
        rows.append({"kind": kind, "seed": seed, "case": None if kind in MADE else case, "forward": forward})
        rows[-1] |= {"templates": templates}
    source.with_suffix(".pickle").write_bytes(pickle.dumps(rows))
    source.unlink()
    return f"{len(rows)} graphs"


# --- where there is a GPU


def run(folder: Path, out: Path | None) -> None:
    counts: dict[str, int] = {}
    templates: dict[str, int] = {}
    wrong: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.pickle")):
        library = ctypes.CDLL(str(path.with_suffix(".so").resolve()))
        for row in pickle.loads(path.read_bytes()):
            counts[row["kind"]] = counts.get(row["kind"], 0) + 1
            for template in {text.split()[0] for text in row["templates"]}:
                templates[template] = templates.get(template, 0) + 1
            said = checked(row, library)
            if said:
                wrong.append({"batch": path.stem, "kind": row["kind"], "said": said, "templates": row["templates"]})
                print(wrong[-1], flush=True)
    result = {"graphs": sum(counts.values()), "kinds": counts, "templates": templates, "wrong": wrong}
    print(json.dumps(result))
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(result | {"environment": environment(0.0)}) + "\n")


def checked(row: dict[str, Any], library: ctypes.CDLL) -> str:
    """What is wrong with a graph's results, if anything."""
    case = row["case"] or MADE[row["kind"]](row["seed"])
    inputs = [on_gpu(x) for x in case.tensors]

    def launch(entry: str, *tensors: torch.Tensor) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = getattr(library, entry)(*[ctypes.c_void_p(t.data_ptr()) for t in tensors], 0, stream)
        assert code == 0, f"{entry}: CUDA error {code}"

    scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "launch": launch}
    exec(row["forward"], scope)
    try:
        got, again = ([t.cpu() for t in scope["forward"](SimpleNamespace(), *inputs)] for _ in range(2))
    except (AssertionError, RuntimeError) as error:
        return str(error)[:200]
    usual = interpret(case.graph, list(case.tensors), {})
    exact = interpret(case.wide, [x.double() if x.is_floating_point() else x for x in case.tensors], {})
    difference = difference_of_scans if row["kind"] == "scans" else difference_of_rows
    for place, (ours, second, theirs, true) in enumerate(zip(got, again, usual, exact, strict=True)):
        if ours.numpy().tobytes() != second.numpy().tobytes():
            return f"result {place} is not the same twice"
        if ours.dtype is torch.float64:  # nothing wider says what is true
            said = "" if is_near_in_float64(ours, true) else "differs from PyTorch in float64"
        else:
            said = difference(ours, theirs, true)
        if said:
            return f"result {place}: {said}"
    return ""


def is_near_in_float64(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Within rounding of sums of thousands, which may cancel."""
    return torch.allclose(ours, theirs, rtol=1e-10, atol=1e-11, equal_nan=True)


def on_gpu(x: torch.Tensor) -> torch.Tensor:
    """With the strides it has, which the kernels were made for."""
    moved = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")
    return moved.copy_(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("make", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.what == "make":
        make(options.folder, options.count, options.jobs)
    else:
        run(options.folder, options.out)


if __name__ == "__main__":
    main()
