"""The judge's GPU cases on this machine's GPU: one JSON line each, with the verdict, what was expected, and the time.

python benchmarks/judge_gpu_cases.py --out results.jsonl                every case of tests/cheats/gpu_cases.py
python benchmarks/judge_gpu_cases.py --only X32 --only F8               some of them
python benchmarks/judge_gpu_cases.py --large                            the full-size problems, with peak memory
python benchmarks/judge_gpu_cases.py --same 20                          the reference against itself, 20 times
python benchmarks/judge_gpu_cases.py --calibrate                        scores of honest and coarse kernels
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from kernelwright.device import resolve
from kernelwright.judge import Judgement, judge, shared_workers
from tests.cheats.gpu_cases import GPU_CASES, LARGE_CASES, TIMED, GpuCase


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--same", type=int, default=0)
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--limit", type=float, default=230.0, help="seconds after which no further case is begun")
    options = parser.parse_args()
    lines: list[dict[str, object]] = []

    def say(line: dict[str, object]) -> None:
        lines.append(line)
        print(json.dumps(line), flush=True)
        if options.out:
            options.out.write_text("".join(json.dumps(each) + "\n" for each in lines))

    with shared_workers():
        if options.calibrate:
            calibrate(say)
        elif options.same:
            same(options.same, options.limit, say)
        else:
            run(LARGE_CASES if options.large else GPU_CASES, options.only, options.limit, say)


def run(cases: tuple[GpuCase, ...], only: list[str], limit_s: float, say) -> None:
    end = time.perf_counter() + limit_s
    wrong = 0
    for case in cases:
        if only and not any(case.name.startswith(name) for name in only):
            continue
        if time.perf_counter() > end:
            say({"case": case.name, "skipped": "no time left"})
            continue
        line = judged(case)
        wrong += not line["ok"]
        say(line)
    say({"wrong": wrong, "environment": environment()})


def judged(case: GpuCase) -> dict[str, object]:
    started = time.perf_counter()
    torch.cuda.reset_peak_memory_stats()
    try:
        judgement = judge(case.task(), case.text(), case.policy, resolve("cuda"))
    except Exception as error:  # noqa: BLE001  the next case shall be tried all the same
        return {"case": case.name, "ok": False, "raised": f"{type(error).__name__}: {error}"[:500]}
    complaints = case.complaints(judgement)
    return {
        "case": case.name,
        "ok": not complaints,
        "complaints": complaints,
        **told(judgement),
        "seconds": round(time.perf_counter() - started, 1),
        "judge_peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
    }


def told(judgement: Judgement) -> dict[str, object]:
    return {
        "verdict": judgement.verdict,
        "speed": judgement.speed,
        "labels": list(judgement.labels),
        "detail": judgement.detail[:300],
        "speedup": {name: [round(x, 4) for x in asdict(i).values()] for name, i in judgement.speedup.items()},
        "times_us": {name: round(i.median, 2) for name, i in judgement.times_us.items()},
        "noise": judgement.record.get("noise"),
        "floor_us": judgement.record.get("floor_us"),
        "left_out": judgement.record.get("left_out"),
        "sanitizer": judgement.record.get("sanitizer"),
        "isolation": judgement.isolation,
    }


def same(times: int, limit_s: float, say) -> None:
    """The reference against itself: SAME every time, or the noise is not understood."""
    case = replace(next(c for c in GPU_CASES if c.name.startswith("P10")), policy=replace(TIMED, budget_s=6))
    end = time.perf_counter() + limit_s
    for number in range(times):
        if time.perf_counter() > end:
            break
        say({"run": number, **judged(case)})


def calibrate(say) -> None:
    """Scores of kernels whose quality is known, in units of the yardstick, on the GPU's own eager."""
    from benchmarks.judge_calibration import scores

    for line in scores(torch.device("cuda")):
        say(line)


def environment() -> dict[str, object]:
    properties = torch.cuda.get_device_properties(0)
    return {"gpu": properties.name, "torch": torch.__version__, "cuda": torch.version.cuda}


if __name__ == "__main__":
    main()
