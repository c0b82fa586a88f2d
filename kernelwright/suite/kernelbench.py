"""A run comes in; the files that KernelBench's own scripts read go out, and the other way round.

    runs/NAME_level2/eval_results.json                                 number -> [what came of each sample]
    runs/NAME_level2/level_2_problem_17_sample_0_kernel.py             the emitted files
    results/timing/DEVICE/baseline_time_torch.json                     level -> file -> times of eager, in milliseconds

KernelBench's own evaluation decides by its own tolerance. What is imported is another's word, and its detail says so.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelwright.errors import UsageError
from kernelwright.report.row import Row, Span, Terms
from kernelwright.suite.folder import RunFolder, latest, write_whole
from kernelwright.suite.names import key_of, level_and_number

__all__ = ["export_run", "import_files"]

# Our baselines, and the names of KernelBench's files for them.
TIMING_FILES = {
    "eager": "baseline_time_torch",
    "compile": "baseline_time_torch_compile_inductor_default",
    "max-autotune": "baseline_time_torch_compile_inductor_max-autotune",
    "graph": "baseline_time_torch_compile_cudagraphs",
}
NOT_COMPILED = ("COMPILE_ERROR", "COMPILE_TIMEOUT", "BAD_CANDIDATE", "BUILD_ERROR", "LOAD_ERROR")


def export_run(source: Path, output: Path, run_name: str) -> Iterator[Path]:
    """The files that were written: one evaluation a level, with its kernels, and one timing file a baseline."""
    folder = RunFolder(source)
    public = [(place, row) for row in latest(folder.rows()) if (place := level_and_number(row.problem)) is not None]
    if not public:
        cure = "Run folders named level1, level2 ... with files named 17_Name.py."
        raise UsageError("no problem of this run is KernelBench's.", where=source, cure=cure)
    for level in sorted({level for (level, _), _ in public}):
        target = output / "runs" / f"{run_name}_level{level}"
        rows = {number: row for (its, number), row in public if its == level}
        results = {str(number): [evaluation_of(rows[number])] for number in sorted(rows)}
        write_whole(target / "eval_results.json", json.dumps(results, indent=4))
        yield target / "eval_results.json"
        for number, row in rows.items():
            emitted = folder.problem_folder(row.problem) / "emitted.py"
            if emitted.is_file():
                write_whole(target / f"level_{level}_problem_{number}_sample_0_kernel.py", emitted.read_text())
    yield from export_times([row for _, row in public], output)


def evaluation_of(row: Row) -> dict[str, Any]:
    """What KernelBench writes of one sample; runtimes in milliseconds, -1 where nothing was timed."""
    ours = row.ours_us
    stats = {} if ours is None else times_object(ours, row)
    return {
        "sample_id": 0,
        "compiled": row.standing in ("right", "wrong") or row.verdict not in NOT_COMPILED,
        "correctness": row.standing == "right",
        "metadata": {
            "hardware": row.terms.device,
            "judge": "kernelwright",
            "verdict": row.verdict,
            "precision": row.terms.precision,
            **({"detail": row.detail} if row.detail else {}),
        },
        "runtime": -1.0 if ours is None else round(ours.median / 1e3, 6),
        "runtime_stats": stats,
    }


def times_object(span: Span, row: Row) -> dict[str, Any]:
    """KernelBench's fields. `mean` is our median, and min and max are the ends of its interval: it says so itself."""
    return {
        "mean": round(span.median / 1e3, 6),
        "std": round((span.high - span.low) / 3.92 / 1e3, 6),
        "min": round(span.low / 1e3, 6),
        "max": round(span.high / 1e3, 6),
        "num_trials": 0,
        "hardware": row.terms.device,
        "device": str(row.environment.get("device", "")),
        "note": "median and its 95% interval, by kernelwright",
    }


def export_times(rows: Sequence[Row], output: Path) -> Iterator[Path]:
    hardware = re.sub(r"\W+", "_", rows[0].terms.device).strip("_")
    for baseline, name in TIMING_FILES.items():
        levels: dict[str, dict[str, Any]] = defaultdict(dict)
        for row in rows:
            if (span := row.times_us.get(baseline)) is not None:
                level, _ = level_and_number(row.problem) or (0, 0)
                levels[f"level{level}"][f"{row.problem.rpartition('/')[2]}.py"] = times_object(span, row)
        if levels:
            path = output / "results" / "timing" / hardware / f"{name}.json"
            write_whole(path, json.dumps(levels, indent=4))
            yield path


def import_files(files: Sequence[Path], output: Path, peer: str, level: int | None) -> Iterator[str]:
    """What each file brought, in words. A timing file adds a peer's times to rows that are there; an evaluation makes
    rows of its own."""
    folder = RunFolder(output)
    for path in files:
        fields = read_json(path)
        with folder.claimed():
            if all(key.startswith("level") for key in fields):
                rows = list(with_peer(latest(folder.rows()), fields, peer))
                what = f"times of {peer}"
            else:
                rows = list(evaluated(fields, level_in(path, level), peer))
                what = f"results of {peer}"
            for row in rows:
                folder.append(row)
        yield f"{path}: {what} for {len(rows)} problems"


def read_json(path: Path) -> Mapping[str, Any]:
    try:
        fields = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise UsageError("there is no such file.", where=path) from error
    except ValueError as error:
        raise UsageError(f"this is no JSON: {error}.", where=path) from error
    if not isinstance(fields, dict) or not fields:
        raise UsageError("this is no eval_results.json and no timing file.", where=path)
    return fields


def with_peer(rows: Sequence[Row], levels: Mapping[str, Any], peer: str) -> Iterator[Row]:
    times = {
        key_of(f"{level}/{Path(name).stem}"): fields["mean"] * 1e3
        for level, problems in levels.items()
        for name, fields in problems.items()
        if isinstance(fields.get("mean"), (int, float))
    }
    for row in rows:
        if (time_us := times.get(key_of(row.problem))) is not None:
            yield replace(row, peers_us={**row.peers_us, peer: time_us})


def evaluated(results: Mapping[str, Any], level: int, peer: str) -> Iterator[Row]:
    """One row a problem: its fastest right sample, else its first."""
    for number, samples in results.items():
        samples = samples if isinstance(samples, list) else [samples]
        right = [s for s in samples if s.get("correctness")]
        best = (
            min(right, key=lambda s: s.get("runtime", -1) if s.get("runtime", -1) > 0 else 1e30)
            if right
            else samples[0]
        )
        runtime_us = float(best.get("runtime") or -1) * 1e3
        metadata = best.get("metadata") or {}
        verdict = "CORRECT" if right else "INCORRECT" if best.get("compiled") else "COMPILE_ERROR"
        yield Row(
            problem=f"level{level}/{number}",
            path="",
            sha256="",
            terms=Terms(str(metadata.get("hardware", "unknown")), "kernelbench", (), 0.0, "imported"),
            verdict=verdict,
            detail=f"evaluated by KernelBench ({peer}), not by this judge",
            times_us={"candidate": Span(runtime_us, runtime_us, runtime_us)} if right and runtime_us > 0 else {},
            environment={"device": str(metadata.get("hardware", "unknown")), "source": peer},
        )


def level_in(path: Path, level: int | None) -> int:
    """As told, or as the folder's name says."""
    found = re.search(r"level_?(\d+)", str(path.resolve()))
    if level is None and found is None:
        raise UsageError("the file does not say which level it is of.", where=path, cure="Add --level N.")
    return level if level is not None else int(found[1]) if found else 0
