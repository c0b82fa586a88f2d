"""Folders of problem files come in; for each file: is it planned and generated for a GPU, and does nvcc take all of it?

    python benchmarks/compile_all.py KernelBench/level1 KernelBench/level2 --out compile.jsonl [--no-build]

Needs no GPU. Each row has the kernels' names, the digest of the generated text (two runs must agree) and what the
compiler says of registers and spills. A file that is done in --out is not done again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernelwright.build import build_cuda_library, library_resources
from kernelwright.device import Device, resolve
from kernelwright.errors import KernelwrightError
from kernelwright.pipeline import planned_program


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--no-build", action="store_true")
    options = parser.parse_args()
    done = {json.loads(line)["problem"] for line in options.out.open()} if options.out.exists() else set()
    device = resolve(options.device)
    files = [path for folder in options.folders for path in sorted(folder.glob("*.py"))]
    for path in files:
        name = f"{path.parent.name}/{path.stem}"
        if name in done:
            continue
        row = {"problem": name, **one(path, device, build=not options.no_build)}
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row)[:200], flush=True)


def one(path: Path, device: Device, build: bool) -> dict[str, Any]:
    begin = time.perf_counter()
    try:
        program = planned_program(path, device)
        row: dict[str, Any] = {
            "state": "ok" if program.sources else "no kernel",
            "kernels": [source.kernel.name for source in program.sources],
            "digest": hashlib.sha256(program.text.encode()).hexdigest()[:16],
            "plan_s": round(time.perf_counter() - begin, 2),
        }
        if build and program.text:
            library = build_cuda_library(program.text, device.arch)
            resources = library_resources(library)
            row["registers"] = max(r.registers for r in resources)
            row["spills"] = [r.name for r in resources if r.spills]
    except KernelwrightError as error:
        row = {"state": f"exit {error.exit_code}", "detail": str(error).replace("\n", " ")[:400]}
    except Exception as error:  # noqa: BLE001  a bug of ours is a row too
        row = {"state": "bug", "detail": f"{type(error).__name__}: {error}"[:400]}
    row["seconds"] = round(time.perf_counter() - begin, 2)
    return row


if __name__ == "__main__":
    main()
