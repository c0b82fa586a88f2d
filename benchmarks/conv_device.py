"""Builds the convolution templates on one GPU, checks random geometries against float64, and times them beside PyTorch.

    python benchmarks/conv_device.py --out results.jsonl [--only check times sanitize] [--count 500] [--compiled]
    python benchmarks/conv_device.py --out results.jsonl --only configs --names "few channels 8->64" "64->128 3x3"

Every measurement is a line of JSON in the file given; a short table comes last. Without a GPU, `--only build` compiles
what `check` would run. About five minutes on an H200 machine with 16 cores; `--compiled` adds torch.compile.

`configs` checks and times every config of every template (`--templates`: some alone; `--most 3`: the first of each
kind), in a process of its own: one that hangs is ended, and the next one goes on; with `--compiled` beside eager and
torch.compile. 2026-11-16-conv-kept-h200.jsonl in benchmarks/results has two such runs, 2026-11-16-conv-sent-h200.jsonl
another, with `check` before it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.device import commit
from kernelwright.build import build_all, build_cuda_library, library_resources
from kernelwright.device import Device, resolve
from kernelwright.errors import BuildError
from kernelwright.generate.conv import shape_of
from kernelwright.generate.generate import launch_of, priced_choices, program_text, source_of
from kernelwright.generate.program import Launch
from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import Broadcast, Const, Conv, Graph, Input, Map, Node, Param, Reshape
from kernelwright.kernels import conv_direct, conv_mma, conv_sm90, conv_sm90_kept, conv_sm90_ring
from kernelwright.kernels.conv_shape import ConvShape
from kernelwright.plan import Buffer, Convolution, Kernel, Routes, plan
from kernelwright.plan.steps import contiguous
from kernelwright.settings import read_settings
from kernelwright.tune.measure import cuda_clock, product_runs, rounds
from kernelwright.tune.tune import short_list

# Kernels of one library: nvcc takes as long for a header as for several kernels.
BUNDLE = 8
# Error of a result over the same convolution of magnitudes: what rounding of the operands or of the sum may do.
LIMITS = {"tf32": 1.1e-3, "ieee": 2e-6}

# name, module, input, what eager takes of a bar: milliseconds on the H200 that the issue asks for (None: a ratio only).
TIMED: dict[str, tuple[str, tuple[int, ...]]] = {
    "few channels 8->64": ("Conv2d(8, 64, 3)", (128, 8, 128, 128)),
    "3->96 11x11 /4": ("Conv2d(3, 96, 11, stride=4, padding=2)", (256, 3, 224, 224)),
    "3-d 3->64": ("Conv3d(3, 64, 3)", (16, 3, 64, 64, 64)),
    "64->128 3x3": ("Conv2d(64, 128, 3)", (8, 64, 256, 512)),
    "64->128 3x3 at 128": ("Conv2d(64, 128, 3)", (64, 64, 128, 128)),
    "32->64 5x9": ("Conv2d(32, 64, (5, 9))", (8, 32, 512, 512)),
    "16->128 3x3": ("Conv2d(16, 128, 3)", (4, 16, 1024, 1024)),
    "1-d 64->128": ("Conv1d(64, 128, 3)", (16, 64, 131072)),
    "1x1 64->128": ("Conv2d(64, 128, 1)", (16, 64, 512, 512)),
    "transposed 64->64": ("ConvTranspose2d(64, 64, 3)", (8, 64, 512, 512)),
    "transposed 64->128 /2": ("ConvTranspose2d(64, 128, 4, stride=2)", (64, 64, 64, 64)),
    "transposed 64->64 /2": ("ConvTranspose2d(64, 64, 3, stride=2, padding=1, output_padding=1)", (32, 64, 128, 128)),
    "transposed 3-d 32->64 /2": (
        "ConvTranspose3d(32, 64, 3, stride=2, padding=1, output_padding=1)",
        (16, 32, 16, 32, 32),
    ),
    "transposed 3-d 32->64": ("ConvTranspose3d(32, 64, (3, 5, 5))", (4, 32, 64, 64, 64)),
    "transposed 3-d /2": ("ConvTranspose3d(32, 32, 3, stride=2, padding=1)", (4, 32, 32, 64, 128)),
    "transposed 1-d /2": ("ConvTranspose1d(32, 64, 3, stride=2, padding=1, dilation=2)", (16, 32, 131072)),
    "depthwise 3x3": ("Conv2d(64, 64, 3, groups=64)", (16, 64, 512, 512)),
    "depthwise 3x7": ("Conv2d(128, 128, (3, 7), groups=128)", (32, 128, 128, 256)),
}


class Streamed:
    """Weights that stream, also where they could stay."""

    cost_us = staticmethod(conv_sm90_kept.cost_us)

    @staticmethod
    def configs(shape: ConvShape, device: Device) -> Sequence[Any]:
        return conv_sm90_kept.best_of_each(conv_sm90_kept.streams(shape, device), shape, device)


TEMPLATES: dict[str, Any] = {
    **{"wgmma": conv_sm90, "mma": conv_mma, "direct": conv_direct, "ring": conv_sm90_ring},
    **{"kept": conv_sm90_kept, "streamed": Streamed},
}
# A config that has not answered after so many seconds hangs.
PATIENCE_S = 20
TURNS = 21


# --- kernels


def leaf(name: str, shape: Sequence[int], parameter: bool) -> Node:
    shape = tuple(shape)
    strides = contiguous(shape)
    return Param(name, shape, float32, strides) if parameter else Input(name, 0, shape, float32, strides)


def kernel_of(conv: Conv, name: str, precision: str, with_epilogue: bool) -> Kernel:
    """The convolution with its bias, and, if asked, a division and a leaky relu after it."""
    column = (conv.shape[1], *(1,) * len(conv.stride))
    bias = Reshape(leaf("bias", (conv.shape[1],), parameter=True), column)
    y: Node = Map("add", (conv, Broadcast(bias, conv.shape)))
    if with_epilogue:
        y = Map("leaky_relu", (Map("mul", (y, Const(0.5, float32))), Const(0.01, float32)))
    x = conv.x
    assert isinstance(x, Input)
    graph = Graph((x,), (y,), (), 0)
    (kernel,) = plan(graph, Routes(frozenset({conv}), frozenset(), precision)).kernels
    assert isinstance(kernel.core, Convolution)
    return replace(kernel, name=name)


def random_conv(chance: random.Random) -> Conv:
    """A small convolution of any kind: odd sizes, strides, dilations, groups, more padding than there is input."""
    rank = chance.choice((1, 2, 2, 3))
    most = {1: 200, 2: 24, 3: 9}[rank]
    groups = chance.choice((1, 1, 1, 2, 3, 8))
    depthwise = groups > 1 and chance.random() < 0.5
    channels = groups * (1 if depthwise else chance.choice((1, 3, 8, 16, 17, 40)))
    outputs = groups * (chance.choice((1, 2)) if depthwise else chance.choice((1, 5, 16, 33, 70)))

    def each(*choices: int) -> tuple[int, ...]:
        return tuple(chance.choice(choices) for _ in range(rank))

    kernel, stride, dilation = each(1, 2, 3, 3, 5), each(1, 1, 2, 3), each(1, 1, 2)
    padding, space = each(0, 1, 2), tuple(chance.randint(1, most) for _ in range(rank))
    transposed = chance.random() < 0.4
    output_padding = (0,) * rank
    if transposed:
        output_padding = tuple(chance.randrange(max(s, d)) for s, d in zip(stride, dilation, strict=True))
        padding = (0,) * rank if min(space) < 4 else padding
    else:
        reaches = [d * (k - 1) + 1 - 2 * p for d, k, p in zip(dilation, kernel, padding, strict=True)]
        space = tuple(max(n, reach, 1) for n, reach in zip(space, reaches, strict=True))
    shape = (channels, outputs // groups) if transposed else (outputs, channels // groups)
    x = leaf("x", (chance.randint(1, 3), channels, *space), parameter=False)
    weight = leaf("weight", (*shape, *kernel), parameter=True)
    conv = Conv(x, weight, stride, padding, dilation, groups, transposed, output_padding)
    return conv if min(conv.shape) > 0 else random_conv(chance)


@dataclass(frozen=True, slots=True)
class Case:
    conv: Conv
    kernel: Kernel
    choice: Any
    precision: str
    template: str


def random_cases(count: int, device: Device, seed: int, templates: Sequence[str] = tuple(TEMPLATES)) -> list[Case]:
    """Each with a template in turn, and with any config that fits."""
    chance = random.Random(seed)
    cases: list[Case] = []
    while len(cases) < count:
        number = len(cases)
        precision = chance.choice(("tf32", "ieee"))
        name = templates[number % len(templates)]
        conv = random_conv(chance)
        kernel = kernel_of(conv, f"conv_{number}_kernel", precision, with_epilogue=False)
        choices = TEMPLATES[name].configs(shape_of(kernel), device)
        if choices:
            cases.append(Case(conv, kernel, chance.choice(choices), precision, name))
    return cases


# --- running them


def bundles_of(cases: Sequence[Case]) -> list[tuple[Sequence[Case], list[Launch], str]]:
    found = []
    for first in range(0, len(cases), BUNDLE):
        part = cases[first : first + BUNDLE]
        launches = [
            launch_of(f"run_{first + i}", [case.kernel], {case.kernel.name: case.choice}) for i, case in enumerate(part)
        ]
        found.append((part, launches, program_text(launches, "cuda")))
    return found


def stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def run(library: ctypes.CDLL, launch: Launch, tensors: dict[str, torch.Tensor]) -> None:
    def address(buffer: Buffer) -> ctypes.c_void_p:
        if buffer.name not in tensors:
            tensors[buffer.name] = torch.zeros(buffer.shape, dtype=buffer.dtype.to_torch(), device="cuda")
            if buffer.packed_from is not None:
                pack = getattr(library, buffer.packed_by)
                assert pack(address(buffer.packed_from), address(buffer), stream()) == 0, "packing failed"
        return ctypes.c_void_p(tensors[buffer.name].data_ptr())

    code = getattr(library, launch.entry)(*map(address, launch.pointers), torch.cuda.current_device(), stream())
    assert code == 0, f"CUDA error {code & 0xFFFF}"


def checked(case: Case, library: ctypes.CDLL, launch: Launch, seed: int) -> dict[str, Any]:
    """The largest error over the same convolution of magnitudes, and whether a second run gave the same bits."""
    conv = case.conv
    torch.manual_seed(seed)
    x, weight = (torch.randn(n.shape, device="cuda") for n in (conv.x, conv.weight))
    bias = torch.randn(conv.shape[1], device="cuda")
    result = launch.allocations[-1].name
    found = []
    for _ in range(2):
        tensors = {"x": x, "weight": weight, "bias": bias, result: torch.full(conv.shape, torch.nan, device="cuda")}
        run(library, launch, tensors)
        found.append(tensors[result])
    geometry: Any = (conv.stride, conv.padding, conv.dilation, conv.transposed, conv.output_padding, conv.groups)
    exact = torch.convolution(x.double().cpu(), weight.double().cpu(), bias.double().cpu(), *geometry)
    scale = torch.convolution(x.double().abs().cpu(), weight.double().abs().cpu(), bias.double().abs().cpu(), *geometry)
    error = ((found[0].double().cpu() - exact).abs() / scale.clamp_min(1e-30)).max().item()
    same = bool(torch.equal(*found))
    return {
        "phase": "check",
        "geometry": f"{tuple(conv.x.shape)} {tuple(conv.weight.shape)} {geometry}",
        "template": case.template,
        "precision": case.precision,
        "config": str(case.choice),
        "error": error,
        "same_bits": same,
        "good": same and error <= LIMITS[case.precision if case.template != "direct" else "ieee"],
    }


def check(count: int, seed: int, templates: Sequence[str], device: Device) -> Iterator[dict[str, Any]]:
    settings = read_settings()
    bundles = bundles_of(random_cases(count, device, seed, templates))
    built = build_all([partial(build_cuda_library, text, device.arch, settings) for *_, text in bundles], settings)
    for (part, launches, _), library in zip(bundles, built, strict=True):
        if isinstance(library, BuildError):
            yield {"phase": "check", "good": False, "geometry": f"{len(part)} cases", "error": str(library)[:2000]}
            continue
        loaded = ctypes.CDLL(str(library))
        for number, (case, launch) in enumerate(zip(part, launches, strict=True)):
            yield checked(case, loaded, launch, seed + number)


# --- times


def module_of(text: str) -> nn.Module:
    module: nn.Module = eval(f"nn.{text}", {"nn": nn})
    return module


class Model(nn.Module):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.conv = module_of(text)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.leaky_relu(self.conv(x) / 2, 0.01)


def conv_of(module: Any, shape: tuple[int, ...]) -> Conv:
    x, weight = leaf("x", shape, parameter=False), leaf("weight", module.weight.shape, parameter=True)
    return Conv(
        x,
        weight,
        module.stride,
        module.padding,
        module.dilation,
        module.groups,
        bool(module.transposed),
        tuple(module.output_padding),
    )


def median_us(call: Callable[[], Any], device: Device) -> float:
    clock = cuda_clock(device)
    for _ in range(3):
        call()
    return statistics.median(clock(call) for _ in range(9))


def timed(name: str, device: Device, precision: str, compiled: bool) -> dict[str, Any]:
    text, shape = TIMED[name]
    model = Model(text).cuda()
    conv = conv_of(model.conv, shape)
    kernel = kernel_of(conv, "conv_timed_kernel", precision, with_epilogue=True)
    choices = list(short_list(kernel, device))
    trials = rounds(choices, product_runs(kernel, choices, device, read_settings()), device)
    best = min(trials, key=lambda trial: trial.median_us) if trials else None
    x = torch.randn(shape, device="cuda")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    row: dict[str, Any] = {"phase": "times", "name": name, "precision": precision}
    with torch.no_grad():
        row["eager_us"] = median_us(lambda: model(x), device)
        if compiled:
            fast = torch.compile(model)
            row["compiled_us"] = median_us(lambda: fast(x), device)
    shape_ = shape_of(kernel)
    row |= {
        "ours_us": None if best is None else best.median_us,
        "template": None if best is None else source_of(kernel, best.choice).template,
        "config": None if best is None else str(best.choice),
        "model_us": priced_choices(kernel, device)[0][0],
        "every": [(str(t.choice), t.median_us) for t in trials],
        "memory_floor_us": shape_.bytes_moved / device.copy_gbps / 1e3,
    }
    return row


# --- every config of a shape


def every_choice(
    name: str, precision: str, templates: Sequence[str], most: int, device: Device
) -> list[tuple[str, Kernel, Any]]:
    """With its template; the same list in every process. The first `most` of each kind of config."""
    text, shape = TIMED[name]
    kernel = kernel_of(conv_of(module_of(text), shape), "conv_timed_kernel", precision, with_epilogue=True)
    found: list[tuple[str, Kernel, Any]] = []
    counts: Counter[str] = Counter()
    for template in templates:
        for config in TEMPLATES[template].configs(shape_of(kernel), device):
            counts[kind_of(template, config)] += 1
            if counts[kind_of(template, config)] <= most:
                found.append((template, kernel, config))
    return found


def kind_of(template: str, config: Any) -> str:
    """Who takes results to memory, and how many teams have the same tile."""
    if template != "kept":
        return template
    return f"{'sent' if config.sent else 'stored'}{', abreast' if config.abreast > 1 else ''}"


def precisions(name: str) -> tuple[str, ...]:
    return ("tf32", "ieee") if name == "few channels 8->64" else ("tf32",)


def library_text(kernel: Kernel, choice: Any) -> tuple[Launch, str]:
    launch = launch_of("run", [kernel], {kernel.name: choice})
    return launch, program_text([launch], "cuda")


def build_configs(names: Sequence[str], templates: Sequence[str], most: int, device: Device) -> list[str]:
    """All at once; what does not build, or spills, in words. Those who run them find the libraries."""
    settings = read_settings()
    every = [
        (f"{name} {precision} {template} {choice}", library_text(kernel, choice)[1])
        for name in names
        for precision in precisions(name)
        for template, kernel, choice in every_choice(name, precision, templates, most, device)
    ]
    jobs = [partial(build_cuda_library, text, device.arch, settings) for _, text in every]
    words = []
    for (label, _), library in zip(every, build_all(jobs, settings), strict=True):
        if isinstance(library, BuildError):
            words.append(f"{label}: {str(library)[:500]}")
        elif any(r.spills for r in library_resources(library)):
            words.append(f"{label}: spills")
    return [f"{len(every)} libraries", *words]


def configs(
    name: str, precision: str, templates: Sequence[str], most: int, device: Device, patience_s: float
) -> Iterator[dict[str, Any]]:
    """Built before; run elsewhere, one after the other."""
    every = every_choice(name, precision, templates, most, device)
    first = 0
    while first < len(every):
        command = [sys.executable, __file__, "--out", "/dev/null", "--only", "worker", "--names", name]
        command += ["--precision", precision, "--templates", *templates, "--first", str(first), "--most", str(most)]
        answers = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for row in answered(answers, patience_s):
            yield row
            first += 1
        if first < len(every):
            template, _, choice = every[first]
            row = {"phase": "config", "name": name, "precision": precision, "template": template, "good": False}
            row["kind"] = kind_of(template, choice)
            yield row | {"config": str(choice), "us": None, "detail": f"no answer, exit code {answers.returncode}"}
            first += 1


def answered(worker: subprocess.Popen[str], patience_s: float) -> Iterator[dict[str, Any]]:
    """Its lines, until it ends or has been silent for too long; the first one waits for CUDA to start."""
    assert worker.stdout is not None
    patience = patience_s + 60
    while True:
        watch = threading.Timer(patience, worker.kill)
        watch.start()
        line = worker.stdout.readline()
        watch.cancel()
        if not line:
            worker.wait()
            return
        patience = patience_s
        yield json.loads(line)


def peers(name: str, precision: str, best: Any, device: Device) -> dict[str, Any]:
    """Eager, torch.compile and the best config, in turn."""
    text, shape = TIMED[name]
    model, x = Model(text).cuda(), torch.randn(shape, device="cuda")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    fast = torch.compile(model)
    contestants: dict[str, Callable[[], Any]] = {"eager_us": lambda: model(x), "compiled_us": lambda: fast(x)}
    if best is not None:
        kernel = kernel_of(conv_of(model.conv, shape), "conv_timed_kernel", precision, with_epilogue=True)
        contestants["best_us"] = runner(model.conv, x, kernel, best, device)
    clock, times = cuda_clock(device), {who: [] for who in contestants}
    with torch.no_grad():
        for turn in range(3 + TURNS):
            for who, call in contestants.items():
                us = clock(call)
                if turn >= 3:
                    times[who].append(us)
    medians = {who: statistics.median(each) for who, each in times.items()}
    return {"phase": "peers", "name": name, "precision": precision, "config": str(best), **medians}


def runner(conv: Any, x: torch.Tensor, kernel: Kernel, choice: Any, device: Device) -> Callable[[], None]:
    launch, text = library_text(kernel, choice)
    library = ctypes.CDLL(str(build_cuda_library(text, device.arch, read_settings())))
    result = launch.allocations[-1]
    tensors = {"x": x, "weight": conv.weight.detach(), "bias": conv.bias.detach()}
    tensors[result.name] = torch.empty(result.shape, device="cuda")
    return lambda: run(library, launch, tensors)


def worker(name: str, precision: str, templates: Sequence[str], first: int, most: int, device: Device) -> None:
    """Checks and times the configs from the first on; a line for each."""
    torch.manual_seed(0)
    text, shape = TIMED[name]
    model, x = Model(text).cuda(), torch.randn(shape, device="cuda")
    exact, scale = expected(model.conv, x)
    for template, kernel, choice in every_choice(name, precision, templates, most, device)[first:]:
        row = {"phase": "config", "name": name, "precision": precision, "template": template, "config": str(choice)}
        row["kind"] = kind_of(template, choice)
        row |= judged(model.conv, x, exact, scale, kernel, choice, device)
        row["good"] = row["same_bits"] and row["error"] <= LIMITS[precision if template != "direct" else "ieee"]
        row["model_us"] = TEMPLATES[template].cost_us(choice, shape_of(kernel), device)
        print(json.dumps(row), flush=True)


def expected(conv: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the first and the last image, in float64: the result, and the same convolution of magnitudes."""
    of_each = [x[[0, -1]].double(), conv.weight.detach().double(), conv.bias.detach().double()]
    geometry: Any = (conv.stride, conv.padding, conv.dilation, conv.transposed, conv.output_padding, conv.groups)
    result = torch.nn.functional.leaky_relu(torch.convolution(*of_each, *geometry) / 2, 0.01)
    return result, torch.convolution(*(t.abs() for t in of_each), *geometry) / 2


def judged(
    conv: Any, x: torch.Tensor, exact: torch.Tensor, scale: torch.Tensor, kernel: Kernel, choice: Any, device: Device
) -> dict[str, Any]:
    launch, text = library_text(kernel, choice)
    library = ctypes.CDLL(str(build_cuda_library(text, device.arch, read_settings())))
    result = launch.allocations[-1]
    tensors = {"x": x, "weight": conv.weight.detach(), "bias": conv.bias.detach()}
    found = []
    for _ in range(2):
        tensors[result.name] = torch.full(result.shape, torch.nan, device="cuda")
        run(library, launch, tensors)
        found.append(tensors[result.name])
    error = ((found[0][[0, -1]].double() - exact).abs() / scale.clamp_min(1e-30)).max().item()
    same = bool(torch.equal(*found))  # NaN is not equal to itself: nor is what was not written
    return {"us": median_us(lambda: run(library, launch, tensors), device), "error": error, "same_bits": same}


def configs_table(rows: Sequence[dict[str, Any]], beside: Sequence[dict[str, Any]]) -> list[str]:
    """Of each shape the fastest configs that are right, and all that are wrong; at last the best of each kind."""
    lines, ends = [], []
    for name, precision in dict.fromkeys((row["name"], row["precision"]) for row in rows):
        mine = [row for row in rows if (row["name"], row["precision"]) == (name, precision)]
        good = sorted((row for row in mine if row["good"]), key=lambda row: row["us"])
        lines.append(f"{name} {precision}: {len(mine)} configs, {len(mine) - len(good)} wrong")
        lines += [f"  {r['us']:8.1f} us, model {r['model_us']:8.1f}  {r['template']:7}{r['config']}" for r in good[:12]]
        lines += [f"  WRONG {row}" for row in mine if not row["good"]]
        best: dict[str, float] = {}
        for row in good:
            best.setdefault(row["kind"], row["us"])
        chosen = min(good, key=lambda row: row["model_us"], default=None)
        times = [f"{kind} {us:.0f}" for kind, us in best.items()]
        times += [] if chosen is None else [f"the model's choice {chosen['us']:.0f} (said {chosen['model_us']:.0f})"]
        peer = next((p for p in beside if (p["name"], p["precision"]) == (name, precision)), None)
        if peer is not None:
            times.append(f"in turn with eager {peer['eager_us']:.0f} and compiled {peer['compiled_us']:.0f}")
            times += [f"{us:.0f}, {peer['compiled_us'] / us:.2f} x"] if (us := peer.get("best_us")) else []
        ends.append(f"{name:26}{precision:6}{'; '.join(times)}")
    return [*lines, *ends]


# --- the sanitizer


def sanitized(tool: str) -> dict[str, Any]:
    """A few cases under compute-sanitizer, in a process of its own."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        return {"phase": "sanitize", "tool": tool, "good": None, "detail": "compute-sanitizer is not here"}
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, __file__]
    command += ["--only", "check", "--count", "12", "--seed", "77", "--out", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    return {"phase": "sanitize", "tool": tool, "good": done.returncode == 0, "detail": done.stdout[-600:]}


# --- all of it


def table(rows: Sequence[dict[str, Any]]) -> str:
    checks = [row for row in rows if row["phase"] == "check"]
    lines = [f"check: {len(checks)} cases, {sum(not row['good'] for row in checks)} wrong"]
    lines += [f"  WRONG {row}" for row in checks if not row["good"]][:10]
    for precision in ("tf32", "ieee"):
        errors = [row["error"] for row in checks if row.get("precision") == precision and "config" in row]
        if errors:
            lines.append(f"  {precision}: error at most {max(errors):.1e}, median {statistics.median(errors):.1e}")
    lines += [f"sanitize {row['tool']}: {row['good']}" for row in rows if row["phase"] == "sanitize"]
    times = [row for row in rows if row["phase"] == "times"]
    if times:
        lines.append(f"{'':26}{'':6}{'ours':>9}{'model':>9}{'floor':>9}{'eager':>9}{'compiled':>9}  x eager  template")
    for row in times:
        ours = row["ours_us"]
        cells = [ours, row["model_us"], row["memory_floor_us"], row["eager_us"], row.get("compiled_us")]
        numbers = "".join(f"{'-' if n is None else f'{n:.0f}':>9}" for n in cells)
        ratio = "-" if ours is None else f"{row['eager_us'] / ours:.2f}"
        lines.append(f"{row['name']:26}{row['precision']:6}{numbers}  {ratio:>7}  {row['template']}")
    beside = [row for row in rows if row["phase"] == "peers"]
    lines += configs_table([row for row in rows if row["phase"] == "config"], beside)
    lines.append(
        "bars: few channels 3.5 x compiled (tf32), 5 x compiled (ieee); plain 2 x, transposed 3 x, depthwise 2 x"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", nargs="*", default=["check", "times", "sanitize"])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--names", nargs="*", default=list(TIMED))
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--templates", nargs="*", default=list(TEMPLATES))
    parser.add_argument("--most", type=int, default=1000, help="configs of each kind that `configs` runs")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which `configs` begins no other shape")
    parser.add_argument("--patience", type=float, default=PATIENCE_S)
    parser.add_argument("--precision", default="tf32", help="of the worker that `configs` starts")
    parser.add_argument("--first", type=int, default=0, help="config of the worker that `configs` starts")
    options = parser.parse_args()
    if {"build", "configs"} <= {*options.only}:
        print(*build_configs(options.names, options.templates, options.most, resolve("h200")), sep="\n")
        return
    if "build" in options.only:
        device = resolve("h200")
        bundles = bundles_of(random_cases(options.count, device, options.seed, options.templates))
        settings = read_settings()
        built = build_all([partial(build_cuda_library, text, device.arch, settings) for *_, text in bundles], settings)
        wrong = [str(b)[:500] for b in built if isinstance(b, BuildError)]
        print(f"{len(built)} libraries of {options.count} kernels, {len(wrong)} do not build", *wrong, sep="\n")
        return
    device = resolve("cuda")
    if "worker" in options.only:
        worker(options.names[0], options.precision, options.templates, options.first, options.most, device)
        return
    begin = time.monotonic()
    rows: list[dict[str, Any]] = []
    where = {"device": device.name, "torch": torch.__version__, "commit": commit()}

    def keep(row: dict[str, Any]) -> None:
        rows.append(row | where)
        with Path(options.out).open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")

    if "check" in options.only:
        for row in check(options.count, options.seed, options.templates, device):
            keep(row)
    if "times" in options.only:
        for name in options.names:
            for precision in precisions(name):
                keep(timed(name, device, precision, options.compiled))
    if "configs" in options.only:
        print(*build_configs(options.names, options.templates, options.most, device), sep="\n", flush=True)
        for name, precision in [(n, precision) for n in options.names for precision in precisions(n)]:
            if time.monotonic() - begin > options.limit:
                print(f"no time left for {name} {precision}")
                continue
            for row in configs(name, precision, options.templates, options.most, device, options.patience):
                keep(row)
            if options.compiled:
                good = [
                    r for r in rows if (r.get("name"), r.get("precision"), r.get("good")) == (name, precision, True)
                ]
                first = min(good, key=lambda row: float(row["us"]), default={"config": None})["config"]
                every = every_choice(name, precision, options.templates, options.most, device)
                best = next((choice for *_, choice in every if str(choice) == first), None)
                keep(peers(name, precision, best, device))
    if "sanitize" in options.only:
        for tool in ("memcheck", "racecheck"):
            keep(sanitized(tool))
    print(table(rows))
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
