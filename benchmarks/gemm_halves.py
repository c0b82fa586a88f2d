"""A 16-bit linear layer of 4096^3 with bias, gelu and residual beside torch.compile, each time in a process of its own.

    python benchmarks/gemm_halves.py --out halves.jsonl [--processes 5]

What torch.compile takes differs from process to process by more than rounds of one process do, and so does what is
asked of us: a run of one process says little. A line of JSON for each process and type; the table comes last.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.device import copy_gbps, environment, ratio, relative, timed, turn
from benchmarks.gemm_device import imported, models
from benchmarks.gemm_ways import emitted, halves
from kernelwright.load import at_home, instantiate, load

ROUNDS = 20
LIMIT_S = 60.0  # of a process
TYPES = ("float16", "bfloat16")


def measured(path: Path, file: Path) -> dict[str, Any]:
    instance, new = models(path, file)
    with torch.no_grad():
        times = timed({"ours": new, "compile": torch.compile(instance.model)}, instance.inputs, ROUNDS)
        ours, eager = new(*instance.inputs), instance.model(*instance.inputs)
        wide = instantiate(load(path), 0, "cuda")
        with at_home(load(path), "cuda"):
            exact = wide.model.double()(*[x.double() for x in instance.inputs])
    return {
        "us": {name: round(statistics.median(taken), 1) for name, taken in times.items()},
        "speed": round(ratio(times["compile"], times["ours"]), 3),
        "error": {"ours": relative(ours, exact), "eager": relative(eager, exact)},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--one", nargs=2, help="a model file and its emitted one: what is measured, as JSON")
    options = parser.parse_args()
    if options.one:
        with turn():
            print(json.dumps(measured(*map(Path, options.one))))
        return
    if options.out is None:
        parser.error("--out is needed")
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", tempfile.mkdtemp())
    run(options.out, options.processes)


def run(out: Path, processes: int) -> None:
    folder = Path(tempfile.mkdtemp())
    files: dict[str, tuple[Path, Path]] = {}
    for dtype in TYPES:
        path = folder / f"{dtype}.py"
        path.write_text(halves(dtype).text())
        files[dtype] = path, emitted(path, 0)
        imported(files[dtype][1])
    about = environment(copy_gbps())
    torch.cuda.empty_cache()
    speeds: dict[str, list[float]] = {dtype: [] for dtype in TYPES}
    for number in range(processes):
        for dtype, pair in files.items():
            command = [sys.executable, __file__, "--one", *map(str, pair)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            if done.returncode:
                print(f"{dtype}, process {number}: {done.stderr.strip()[-300:]}")
                continue
            found = json.loads(done.stdout.strip().splitlines()[-1])
            speeds[dtype].append(found["speed"])
            with out.open("a") as file:
                file.write(json.dumps({"case": dtype, "process": number, **found, "environment": about}) + "\n")
    for dtype, of_processes in speeds.items():
        middle = statistics.median(of_processes) if of_processes else 0.0
        print(f"{dtype:<10} {middle:.3f} x torch.compile, the middle of {sorted(of_processes)}")


if __name__ == "__main__":
    main()
