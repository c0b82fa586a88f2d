"""The judge's GPU cases on this machine's GPU: one JSON line each, with the verdict, what was expected, and the time.

python benchmarks/judge_gpu_cases.py --out results.jsonl                every case of tests/cheats/gpu_cases.py
python benchmarks/judge_gpu_cases.py --only X32 --only F8               some of them, by how their names begin
python benchmarks/judge_gpu_cases.py --large                            the full-size problems, with peak memory
python benchmarks/judge_gpu_cases.py --same 20                          the reference against itself, 20 times
python benchmarks/judge_gpu_cases.py --same 20 --on-cpu                 on the CPU, and twice the work, with the load
python benchmarks/judge_gpu_cases.py --calibrate cuda                   scores of honest and coarse kernels
python benchmarks/judge_gpu_cases.py --breakdown                        where the judge's time goes, what it measures
python benchmarks/judge_gpu_cases.py --profile problem.py ...           what the judge itself does, phase by phase
python benchmarks/judge_gpu_cases.py --everything --out results.jsonl   all of these in the order of their worth, 290 s

Takes turns with a suite that runs on the same GPU.
"""

import argparse
import contextlib
import cProfile
import json
import os
import pstats
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from kernelwright.device import resolve
from kernelwright.judge import Candidate, Judgement, Policy, Verdict, extract, judge, shared_workers, timing
from kernelwright.judge.correctness import Trial, arguments_of, uninformative
from kernelwright.judge.criterion import score
from kernelwright.judge.families import FAMILIES
from kernelwright.judge.modes import rounded
from kernelwright.judge.oracle import Oracle
from kernelwright.judge.reference import open_reference
from kernelwright.load import Problem, load
from kernelwright.suite.cores import divided, move_to
from kernelwright.suite.efforts import EFFORTS
from kernelwright.suite.runner import locks_folder
from kernelwright.suite.turns import Hold, Turns
from tests.cheats.gpu_cases import GPU_CASES, LARGE_CASES, TIMED, GpuCase

TESTS = Path(__file__).resolve().parent.parent / "tests"
CPU_PROBLEMS, CPU_CONTROLS = TESTS / "cheats" / "problems", TESTS / "controls" / "candidates"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--same", type=int, default=0)
    parser.add_argument("--on-cpu", action="store_true")
    parser.add_argument("--calibrate", choices=["cpu", "cuda"])
    parser.add_argument("--breakdown", action="store_true")
    parser.add_argument("--profile", nargs="+", type=Path, metavar="PROBLEM.py")
    parser.add_argument("--everything", action="store_true")
    parser.add_argument("--limit", type=float, default=270.0, help="seconds after which no further case is begun")
    options = parser.parse_args()
    lines: list[dict[str, object]] = []

    def say(line: dict[str, object]) -> None:
        lines.append(line)
        print(json.dumps(line), flush=True)
        if options.out:
            options.out.write_text("".join(json.dumps(each) + "\n" for each in lines))

    with shared_workers():
        if options.everything:
            everything(options.limit, say)
        elif options.profile:
            for path in options.profile:
                profile(path, say)
        elif options.breakdown:
            breakdown(options.limit, say)
        elif options.calibrate:
            calibrate(torch.device(options.calibrate), say)
        elif options.same and options.on_cpu:
            same_on_cpu(options.same, say)
        elif options.same:
            same(options.same, options.limit, say)
        else:
            run(LARGE_CASES if options.large else GPU_CASES, options.only, options.limit, say)


def everything(limit_s: float, say) -> None:
    """Exploits and faults first, then how true the times are, the full sizes, the noise, and the yardsticks."""
    end = time.perf_counter() + limit_s
    left = lambda: end - time.perf_counter()
    run(GPU_CASES, [], 0.5 * limit_s, say)
    breakdown(left(), say)
    run(LARGE_CASES, [], left(), say)
    same(20, left() - 15, say)
    if left() > 10:
        calibrate(torch.device("cuda"), say)


def breakdown(limit_s: float, say) -> None:
    """The reference against itself: what the judge measures beside CUDA events in this process, and what it took off.

    events_us   a call, by CUDA events around twenty of them
    eager_us    a call, by the judge
    handed_us   calls of a batch -> what handing their outputs over took
    phases_s    where the judge's own time went
    """
    end = time.perf_counter() + limit_s
    for name in ("rectify", "linear", "linear_full", "relu_large"):
        if time.perf_counter() > end:
            say({"breakdown": name, "skipped": "no time left"})
            continue
        case = GpuCase(f"breakdown of {name}", "itself", name, (Verdict.CORRECT,), replace(TIMED, budget_s=8))
        line = judged(case, keep=("samples",))
        samples = line.pop("samples", None) or [{}]
        say(
            {
                "breakdown": name,
                "events_us": events_us(case.task()),
                "eager_us": line.get("times_us", {}).get("eager"),  # type: ignore[attr-defined]
                "handed_us": samples[0].get("handed_us"),
                "first_call_us": samples[0].get("first_call_us"),
                "one_by_one_us": one_by_one_us(samples[0].get("turns", [])),
                **line,
            }
        )


def profile(path: Path, say) -> None:
    """The reference against itself, as `suite run --effort glance` judges it: where this process spends each phase."""
    effort = EFFORTS["glance"]
    policy = Policy(
        budget_s=effort.budget_s,
        baselines=("eager",),
        restarts=effort.restarts,
        restart_s=effort.restart_s,
        robustness=effort.robustness,
        sanitize=False,
        families=effort.families,
    )
    task = load(path)
    itself = Candidate(re.sub(r"\bModel\b", "ModelNew", task.source), "itself")
    profilers: dict[str, cProfile.Profile] = {}
    begun: dict[str, float] = {}
    rounds_s: list[float] = []
    started = time.perf_counter()

    def heard(phase: str, share: float) -> None:
        if share == 0.0:
            for profiler in profilers.values():
                profiler.disable()
            begun.setdefault(phase, time.perf_counter() - started)
            profilers.setdefault(phase, cProfile.Profile()).enable()

    def clocked(whole: Callable) -> Callable:
        def round_of(*args):
            begin = time.perf_counter()
            try:
                return whole(*args)
            finally:
                rounds_s.append(round(time.perf_counter() - begin, 3))

        return round_of

    timing._round, timing._lean_round = clocked(timing._round), clocked(timing._lean_round)
    judgement = judge(task, itself, policy, resolve("cuda"), heard)
    for profiler in profilers.values():
        profiler.disable()
    phases_s = durations(begun, time.perf_counter() - started)
    say({"profile": task.name, **told(judgement), "phases_s": phases_s, "rounds_s": rounds_s})
    for phase, profiler in profilers.items():
        print(f"-- {phase}")
        pstats.Stats(profiler).sort_stats("tottime").print_stats(14)
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(36)


def events_us(task: Problem) -> float:
    """By CUDA events, on one set of inputs: the kernels alone, with warm caches."""
    reference = open_reference(task, torch.device("cuda"))
    model, args = reference.construct(0), reference.draw(1)
    for _ in range(3):
        reference.call(model, args)
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(20):
        reference.call(model, args)
    stop.record()
    torch.cuda.synchronize()
    return round(start.elapsed_time(stop) / 20 * 1e3, 2)


def one_by_one_us(turns: list[dict]) -> dict[str, float]:
    """Contestant -> a call whose input came alone."""
    apart = [turn for turn in turns if turn.get("one_by_one")]
    names = apart[0]["us"] if apart else {}
    each = {n: [(t["us"][n] - t["handed_us"]) / t["calls"] for t in apart] for n in names}
    return {name: round(median(values), 2) for name, values in each.items()}


def run(cases: tuple[GpuCase, ...], only: list[str], limit_s: float, say) -> None:
    end = time.perf_counter() + limit_s
    wrong = 0
    for case in cases:
        if only and not any(re.match(name, case.name) for name in only):
            continue
        if time.perf_counter() > end:
            say({"case": case.name, "skipped": "no time left"})
            continue
        line = judged(case)
        wrong += not line["ok"]
        say(line)
    say({"wrong": wrong, "environment": environment()})


def judged(case: GpuCase, keep: tuple[str, ...] = ()) -> dict[str, object]:
    started = time.perf_counter()
    torch.cuda.reset_peak_memory_stats()
    begun: dict[str, float] = {}
    turns = Turns(locks_folder(), "cuda:0", alone=False)
    cores = divided(sorted(os.sched_getaffinity(0)), "cuda", ["cuda:0"], jobs=2)["cuda:0"]
    turns.moved = lambda hold: move_to(cores.of(hold))

    def heard(phase: str, share: float) -> None:
        if case.alone:
            turns.take(Hold.ALONE)
        else:
            turns.enter(phase)
        begun.setdefault(phase, time.perf_counter() - started)

    try:
        heard("judge", 0.0)
        with smaller_card(case.card_bytes), Watched() as watched:
            judgement = judge(case.task(), case.text(), case.policy, resolve("cuda"), heard)
        turns.take(Hold.NOT)
    except Exception as error:  # noqa: BLE001  the next case shall be tried all the same
        return {"case": case.name, "ok": False, "raised": f"{type(error).__name__}: {error}"[:500]}
    complaints = case.complaints(judgement)
    return {
        "case": case.name,
        "ok": not complaints,
        "complaints": complaints,
        **told(judgement),
        "seconds": round(time.perf_counter() - started, 1),
        "phases_s": durations(begun, time.perf_counter() - started),
        **{name: judgement.record.get(name) for name in keep},
        "judge_peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
        "all_peak_gb": round(watched.most / 1e9, 2),
    }


@contextlib.contextmanager
def smaller_card(card_bytes: int) -> Iterator[None]:
    """Another process holds what is free beyond that."""
    torch.cuda.empty_cache()
    held = torch.cuda.mem_get_info()[0] - card_bytes
    if not card_bytes or held <= 0:
        yield
        return
    code = f"import torch; held = torch.empty({held - (600 << 20)}, dtype=torch.uint8, device='cuda'); print(); input()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        yield
    finally:
        holder.kill()
        holder.wait()


# Asking the driver took 16 ms on an H200, and whatever else wants it meanwhile waits.
LOOK_EVERY_S = 0.2


class Watched:
    """The most memory of the GPU that all processes together have, beyond what they had before."""

    def __init__(self) -> None:
        self.most = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        before, _ = torch.cuda.mem_get_info()
        while not self._done.wait(LOOK_EVERY_S):
            self.most = max(self.most, before - torch.cuda.mem_get_info()[0])

    def __enter__(self) -> "Watched":
        torch.cuda.empty_cache()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def durations(begun: dict[str, float], end: float) -> dict[str, float]:
    """Phase -> seconds, from when each began."""
    ends = [*list(begun.values())[1:], end]
    return {name: round(stop - start, 1) for (name, start), stop in zip(begun.items(), ends, strict=True)}


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
        "skipped": judgement.record.get("skipped"),
        "label_reasons": judgement.record.get("label_reasons"),
        "known_bad": judgement.record.get("known_bad"),
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


def same_on_cpu(times: int, say) -> None:
    """The reference against itself, a candidate that does everything twice, and how long a judgement takes."""
    task, heavy = (load(CPU_PROBLEMS / f"{name}.py") for name in ("linear_timed", "linear_heavy"))
    itself = Candidate(task.source.replace("class Model(", "class ModelNew("), "itself")
    # Twice the work is twice the time where what is done once, reading new inputs and the call itself, is little.
    twice = extract((CPU_CONTROLS / "p02_twice_the_work.py").read_text(), ".py")
    short = Policy(budget_s=12, baselines=("eager",), mutants=False, robustness=False)
    runs = [
        *[("itself", task, itself, short)] * times,
        *[("twice", heavy, twice, short)] * (times // 2),
        ("default policy", task, itself, Policy()),
    ]
    for number, (name, problem, candidate, policy) in enumerate(runs):
        started = time.perf_counter()
        judgement = judge(problem, candidate, policy, resolve("cpu"))
        seconds = round(time.perf_counter() - started, 1)
        load_1min = round(os.getloadavg()[0], 1)
        say({"run": number, "candidate": name, **told(judgement), "seconds": seconds, "load": load_1min})


def calibrate(device: torch.device, say) -> None:
    """Scores of kernels whose quality is known, in units of the yardstick, worst over the families of inputs."""
    for name, (forward, shapes, variants) in CALIBRATION.items():
        inputs = ", ".join(f"torch.rand{tuple(shape)}" for shape in shapes)
        source = PROBLEM.format(forward=forward, inputs=inputs)
        reference = open_reference(Problem(name, source, Path("calibration.py")), device)
        oracle = Oracle(reference, reference.construct(0), "reference", draws=4)
        ratios: dict[str, dict[str, tuple[float, float]]] = {}
        for number, family in enumerate(FAMILIES):
            args = arguments_of(Trial(family, number, True), reference)
            yards = oracle.truth({}, [args], 0).calls[0]
            if uninformative(yards, family):
                continue
            for variant, compute in variants.items():
                found = score(compute(*args), yards[0])
                ratios.setdefault(variant, {})[family.name] = (found.rms, found.worst)
        for variant, by_family in ratios.items():
            rms = max(by_family, key=lambda f: by_family[f][0])
            worst = max(by_family, key=lambda f: by_family[f][1])
            say(
                {
                    "problem": name,
                    "variant": variant,
                    "own_rms": round(by_family["own"][0], 2),
                    "own_max": round(by_family["own"][1], 2),
                    "rms": float(f"{by_family[rms][0]:.3g}"),
                    "rms_family": rms,
                    "max": float(f"{by_family[worst][1]:.3g}"),
                    "max_family": worst,
                }
            )


PROBLEM = """
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, a, b=None):
        return {forward}


def get_inputs():
    return [{inputs}]
"""


def one_accumulator(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k : k + 1]
    return total


def in_blocks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return sum(a[:, k : k + 32] @ b[k : k + 32] for k in range(0, a.shape[1], 32))


def in_pairs(dtype: torch.dtype) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Three products of halves, low parts scaled up so that they do not underflow."""

    def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        high = x.to(dtype).float()
        return high, ((x - high) * 2048).to(dtype).float() / 2048

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a_scale, b_scale = a.abs().max().clamp_min(1e-30), b.abs().max().clamp_min(1e-30)
        (ah, al), (bh, bl) = halves(a / a_scale), halves(b / b_scale)
        return (ah @ bh + (ah @ bl + al @ bh)) * (a_scale * b_scale)

    return multiply


def narrow(precision: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda a, b: rounded(a, precision) @ rounded(b, precision)


def online_softmax(a: torch.Tensor) -> torch.Tensor:
    top, total = torch.full_like(a[:, :1], -torch.inf), torch.zeros_like(a[:, :1])
    for block in a.split(64, dim=1):
        higher = torch.maximum(top, block.max(1, keepdim=True).values)
        total = total * torch.exp(top - higher) + torch.exp(block - higher).sum(1, keepdim=True)
        top = higher
    return torch.exp(a - top) / total


def layer_norm(a: torch.Tensor, eps: float = 1e-5, unbiased: bool = False) -> torch.Tensor:
    return (a - a.mean(1, keepdim=True)) / torch.sqrt(a.var(1, keepdim=True, unbiased=unbiased) + eps)


def welford(a: torch.Tensor) -> torch.Tensor:
    mean, squares = torch.zeros_like(a[:, 0]), torch.zeros_like(a[:, 0])
    for i in range(a.shape[1]):
        delta = a[:, i] - mean
        mean = mean + delta / (i + 1)
        squares = squares + delta * (a[:, i] - mean)
    return (a - mean[:, None]) / torch.sqrt(squares / a.shape[1] + 1e-5)[:, None]


def chunked_sum(a: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(a[:, 0])
    for i in range(a.shape[1]):
        total = total + a[:, i]
    return total


def without_last(a: torch.Tensor) -> torch.Tensor:
    e = torch.exp(a - a.max(1, keepdim=True).values)
    return e / e[:, :-1].sum(1, keepdim=True)


MATMULS = {
    "eager": lambda a, b: a @ b,
    "blocks of 32": in_blocks,
    "one accumulator": one_accumulator,
    "float16 pairs": in_pairs(torch.float16),
    "bfloat16 pairs": in_pairs(torch.bfloat16),
    "BAD tf32": narrow("tf32"),
    "BAD fp16": narrow("fp16"),
    "BAD bf16": narrow("bf16"),
    "BAD last product missing": lambda a, b: a[:, :-1] @ b[:-1],
}
# name -> (the reference, shapes of its inputs, variants of it)
CALIBRATION = {
    "matmul K=1024": ("a @ b", [(128, 1024), (1024, 128)], MATMULS),
    "matmul K=8192": ("a @ b", [(32, 8192), (8192, 32)], MATMULS),
    "softmax": (
        "torch.softmax(a, 1)",
        [(16, 4096)],
        {
            "eager": lambda a: torch.softmax(a, 1),
            "online": online_softmax,
            "BAD zeros": torch.zeros_like,
            "BAD last element missing": without_last,
            "BAD fp16": lambda a: torch.softmax(a.half().float(), 1),
        },
    ),
    "layer norm": (
        "F.layer_norm(a, a.shape[1:])",
        [(64, 1024)],
        {
            "eager": lambda a: torch.nn.functional.layer_norm(a, a.shape[1:]),
            "two passes": layer_norm,
            "Welford": welford,
            "BAD epsilon 1e-6": lambda a: layer_norm(a, 1e-6),
            "BAD unbiased variance": lambda a: layer_norm(a, unbiased=True),
        },
    ),
    "sum of 16384": (
        "a.sum(1)",
        [(64, 16384)],
        {
            "eager": lambda a: a.sum(1),
            "one accumulator": chunked_sum,
            "BAD last element missing": lambda a: a[:, :-1].sum(1),
            "BAD bf16": lambda a: a.bfloat16().float().sum(1),
        },
    ),
    "mean squared error": (
        "((a - b) ** 2).mean()",
        [(512, 513), (512, 513)],
        {
            "eager": lambda a, b: ((a - b) ** 2).mean(),
            "by rows": lambda a, b: ((a - b) ** 2).sum(1).sum() / a.numel(),
            "BAD half of the rows": lambda a, b: ((a - b)[:256] ** 2).mean(),
            "BAD fp16": lambda a, b: ((a.half() - b.half()).float() ** 2).mean(),
        },
    ),
    "gelu": (
        "F.gelu(a)",
        [(256, 1024)],
        {
            "eager": torch.nn.functional.gelu,
            "erf by hand": lambda a: 0.5 * a * (1 + torch.erf(a * 0.7071067811865476)),
            "BAD tanh form": lambda a: torch.nn.functional.gelu(a, approximate="tanh"),
        },
    ),
}


def environment() -> dict[str, object]:
    properties = torch.cuda.get_device_properties(0)
    return {"gpu": properties.name, "torch": torch.__version__, "cuda": torch.version.cuda}


if __name__ == "__main__":
    main()
