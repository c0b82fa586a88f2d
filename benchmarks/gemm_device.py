"""Every bar of matrix multiplication, through emitted files, on one H200 in under six minutes: bar, value, holds.

    python benchmarks/gemm_device.py --out bars.jsonl [--kernelbench KernelBench] [--only speed error ...]

1 many processes compile what the tuner will want, and what torch.compile makes of the public problems, 2 the tuner
measures, 3 many processes build the emitted files, 4 each bar is measured, 5 each template runs alone under
compute-sanitizer. A line of JSON for each bar; the table comes last. The templates by themselves, config by config, are
measured by gemm_templates.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.device import copy_gbps, environment, leaves, ratio, relative, timed
from kernelwright.build import build_cuda_library, library_resources
from kernelwright.build.cuda import nvcc_command
from kernelwright.capture import capture
from kernelwright.device import resolve
from kernelwright.emit import emit
from kernelwright.errors import BuildError
from kernelwright.generate import default_choices, generate
from kernelwright.generate.generate import launch_of, program_text
from kernelwright.ir.nodes import Graph
from kernelwright.judge.criterion import limits_for, score
from kernelwright.judge.oracle import Oracle
from kernelwright.judge.reference import open_reference
from kernelwright.kernels import (
    gemm_simt,
    gemm_skinny,
    gemm_sm80,
    gemm_sm90,
    gemm_sm90_bricks,
    gemm_sm90_f16x1,
    gemm_sm90_half,
    gemm_sm90_turned,
)
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.gemm_shape import Gemm, Operand
from kernelwright.load import at_home, instantiate, load
from kernelwright.pipeline import chosen
from kernelwright.plan import Kernel, Plan, plan
from kernelwright.settings import read_settings
from kernelwright.simplify import simplify
from kernelwright.tune.routes import choose_routes
from kernelwright.tune.tune import floor_of, short_list

HEADERS = Path(__file__).resolve().parents[1] / "kernelwright" / "kernels" / "cuda"
ROUNDS = 12
PROCESSES = 16
KEPT = 1500  # characters of what a program said that ended badly, at either end

# --- cases: each is a model file, optimized and emitted like any other

MODEL = """\
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True, slots=True)
class Case:
    """bars    (what is compared, at least this much): eager, compile, floor (1 / times over it), error (at most)
    tf32    PyTorch's flag for float32 products is "high", for eager and torch.compile too
    tuned   configs are measured; else the cost model's is taken
    """

    name: str
    body: str
    inputs: tuple[str, ...]
    layer: str = "None"
    bars: tuple[tuple[str, float], ...] = ()
    tf32: bool = False
    tuned: bool = True

    def text(self) -> str:
        names = ", ".join(f"x{i}" for i in range(len(self.inputs)))
        return MODEL.format(layer=self.layer, names=names, body=self.body, inputs=", ".join(self.inputs))


def rand(*shape: int, dtype: str = "float32") -> str:
    return f"torch.rand{shape}.to(torch.{dtype})"


def turned(name: str, left: str, right: str) -> Case:
    inputs = (rand(4096, 4096), rand(4096, 4096))
    return Case(f"4096^3 {name}", f"{left} @ {right}", inputs, bars=(("eager", 3.8),))


def rows(m: int) -> Case:
    """Few rows: the bar is 1.3 times the floor, or twice the speed of eager."""
    return Case(
        f"{m}x8192x8192", "self.layer(x0)", (rand(m, 8192),), "nn.Linear(8192, 8192)", (("floor or twice", 1.0),)
    )


def halves(dtype: str) -> list[Case]:
    def x(*shape: int) -> str:
        return rand(*shape, dtype=dtype)

    bare = [(8192, 8192, 8192), (4096, 4096, 4096), (1024, 8192, 8192)]
    plain = [
        Case(f"{dtype} {m}x{n}x{k}", "self.layer(x0)", (x(m, k),),
             f"nn.Linear({k}, {n}, bias=False).to(torch.{dtype})", (("eager", 0.95),))
        for m, n, k in bare
    ]  # fmt: skip
    fused = Case(f"{dtype} 4096^3 bias, gelu, residual", "F.gelu(self.layer(x0)) + x1", (x(4096, 4096), x(4096, 4096)),
                 f"nn.Linear(4096, 4096).to(torch.{dtype})", (("compile", 1.1),))  # fmt: skip
    return [*plain, fused]


BIG = "nn.Linear(8192, 8192)"
LINEARS = (
    Case("1024x8192x8192 relu, /2", "torch.relu(self.layer(x0)) / 2", (rand(1024, 8192),), BIG,
         (("eager", 4.4), ("compile", 4.4), ("error", 0.5))),
    Case("1024x8192x8192 bias, relu", "torch.relu(self.layer(x0) + x1)", (rand(1024, 8192), rand(8192)),
         "nn.Linear(8192, 8192, bias=False)", (("eager", 4.4), ("compile", 4.4), ("error", 0.5))),
)  # fmt: skip
SPEED = (
    *LINEARS,
    turned("as it is", "x0", "x1"),
    turned("first turned", "x0.t()", "x1"),
    turned("second turned", "x0", "x1.t()"),
    turned("both turned", "x0.t()", "x1.t()"),
    Case("8192^3", "self.layer(x0)", (rand(8192, 8192),), "nn.Linear(8192, 8192, bias=False)", (("eager", 3.8),)),
    Case("4 x 4096^3", "torch.bmm(x0, x1)", (rand(4, 4096, 4096), rand(4, 4096, 4096)), bars=(("eager", 3.8),)),
    Case("16 x 1024^3", "torch.bmm(x0, x1)", (rand(16, 1024, 1024), rand(16, 1024, 1024)), bars=(("eager", 3.8),)),
    Case("8 x 2048^3", "torch.bmm(x0, x1)", (rand(8, 2048, 2048), rand(8, 2048, 2048)), bars=(("eager", 3.8),)),
    Case(
        "128 x 512x2048x1024",
        "torch.bmm(x0, x1)",
        (rand(128, 512, 1024), rand(128, 1024, 2048)),
        bars=(("eager", 3.8),),
    ),
    Case("2949^3", "x0 @ x1", (rand(2949, 2949), rand(2949, 2949)), bars=(("eager", 3.0),)),
    Case("256x256x524288", "x0 @ x1", (rand(256, 524288), rand(524288, 256)), bars=(("floor or twice", 1.0),)),
    Case("matrix times vector", "x0 @ x1", (rand(2048, 131072), rand(131072, 1)), bars=(("floor or twice", 1.0),)),
    Case("8192x8x8192", "x0 @ x1", (rand(8192, 8192), "torch.rand(8, 8192).t()"), bars=(("floor or twice", 1.0),)),
    *(rows(m) for m in (1, 2, 4, 8, 16, 64)),
)
TF32 = tuple(replace(case, name=f"TF32 {case.name}", bars=(("compile", 1.1),), tf32=True) for case in LINEARS)
HALF = (*halves("float16"), *halves("bfloat16"))
LENGTHS = (16, 24, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
ERROR = tuple(
    Case(f"error at k = {k}", "x0 @ x1.t()", (rand(1024, k), rand(1024, k)), bars=(("error", 1.0),), tuned=False)
    for k in LENGTHS
)
GROUPS: dict[str, tuple[Case, ...]] = {"speed": SPEED, "tf32": TF32, "half": HALF, "error": ERROR}

FAMILIES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "rand x kaiming": lambda a, w: (a.uniform_(), w.uniform_(-1, 1).div_(math.sqrt(w.shape[-1]))),
    "rand x rand": lambda a, w: (a.uniform_(), w.uniform_()),
    "randn x randn": lambda a, w: (a.normal_(), w.normal_()),
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of the table: what was asked, what came out, whether it holds; None: it could not be measured."""

    name: str
    value: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Made:
    """An emitted file and what is known of it."""

    file: Path
    templates: tuple[str, ...]
    floor_us: float
    spills: bool


# --- 1 to 3: from a model file to an emitted file whose library is built


def graph_and_plan(path: Path, precision: str) -> tuple[Graph, Plan]:
    graph = simplify(capture(load(path)))
    return graph, plan(graph, choose_routes(graph, resolve("cuda"), 0.0, read_settings(), precision))


def precompile(job: tuple[Path, str]) -> None:
    """What the tuner will build, in the cache."""
    path, precision = job
    device, settings = resolve("cuda"), read_settings()
    for kernel in graph_and_plan(path, precision)[1].kernels:
        for choice in short_list(kernel, device) if kernel.core is not None else ():
            try:
                build_cuda_library(
                    program_text([launch_of("run", [kernel], {kernel.name: choice})], "cuda"), device.arch, settings
                )
            except BuildError as error:
                print(f"{path.stem}: {error}", file=sys.stderr)


def made(path: Path, folder: Path, precision: str, tuned: bool) -> Made:
    """Tuned in this process, or as the cost model has it."""
    device, settings = resolve("cuda"), read_settings()
    problem = load(path)
    graph = simplify(capture(problem))
    if tuned:
        planned, choices, _ = chosen(graph, device, 30.0, settings, precision)
    else:
        planned = plan(graph, choose_routes(graph, replace(device, present=False), 0.0, settings, precision))
        choices = default_choices(planned, device)
    program = generate(planned, choices, device)
    file = folder / f"{path.stem}_new.py"
    file.write_text(emit(program, problem))
    floors = sum(floor_of(kernel, device) for kernel in planned.kernels)
    spills = tuned and any(library_spills(choices, kernel) for kernel in planned.kernels)
    return Made(file, tuple(source.template for source in program.sources), floors, spills)


def library_spills(choices: Mapping[str, Choice], kernel: Kernel) -> bool:
    """Whether the product that was chosen spills; the tuner has built it already."""
    if kernel.core is None:
        return False
    text = program_text([launch_of("run", [kernel], choices)], "cuda")
    return any(r.spills for r in library_resources(build_cuda_library(text, resolve("cuda").arch, read_settings())))


def untuned(job: tuple[Path, Path]) -> Made | str:
    """In a process of its own: emitted and built; and what torch.compile makes of it is in its cache."""
    path, folder = job
    try:
        found = made(path, folder, "reference", tuned=False)
        imported(found.file)
        torch.set_float32_matmul_precision("highest")
        instance = instantiate(load(path), 0, "cuda")
        with torch.no_grad():
            torch.compile(instance.model)(*instance.inputs)
    except Exception as error:  # noqa: BLE001  one failing problem is a row, not the end of the run
        return f"{type(error).__name__}: {str(error)[:200]}"
    return found


def imported(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def built(file: Path) -> None:
    imported(file)


# --- 4: bars


def models(path: Path, file: Path) -> tuple[Any, Any]:
    """The original with its inputs, and ModelNew with its weights."""
    problem, module = load(path), imported(file)
    instance = instantiate(problem, 0, "cuda")
    with at_home(problem, "cuda"):
        new = module.ModelNew(*module.get_init_inputs()).cuda()
    new.load_state_dict(instance.model.state_dict())
    return instance, new


def measure(case: Case, path: Path, found: Made) -> list[Bar]:
    torch.set_float32_matmul_precision("high" if case.tf32 else "highest")
    instance, new = models(path, found.file)
    bars: list[Bar] = []
    with torch.no_grad():
        wanted = [what for what, _ in case.bars]
        if wanted != ["error"]:
            contestants = {"eager": instance.model, "ours": new}
            if "compile" in wanted:
                contestants["compile"] = torch.compile(instance.model)
            times = timed(contestants, instance.inputs, ROUNDS)
            median = {name: statistics.median(t) for name, t in times.items()}
            speed = {name: ratio(times[name], times["ours"]) for name in times}
            share = found.floor_us / median["ours"]
            says = f"{median['ours']:.1f} us, {share:.0%} of its floor, {'+'.join(found.templates)}"
            bars += [speed_bar(case, what, bound, speed, share, says) for what, bound in case.bars if what != "error"]
        bars += [error_bar(case, instance, new, bound) for what, bound in case.bars if what == "error"]
    torch._dynamo.reset()
    return bars


def speed_bar(case: Case, what: str, bound: float, speed: dict[str, float], share: float, says: str) -> Bar:
    if what == "floor or twice":
        value = f"{1 / share:.3f} x floor, {speed['eager']:.3f} x eager; {says}"
        return Bar(f"{case.name}: 1.3 x floor or 2 x eager", value, 1 / share <= 1.3 or speed["eager"] >= 2)
    return Bar(f"{case.name}: >= {bound} x {what}", f"{speed[what]:.3f}; {says}", speed[what] >= bound)


def error_bar(case: Case, instance: Any, new: Any, bound: float) -> Bar:
    """Ours over eager's, rms and at the worst element, against float64; the worst of the families."""
    worst: dict[str, float] = {"rms": 0.0, "largest": 0.0}
    of_layer = instance.model.layer is not None
    for fill in FAMILIES.values():
        x = [t.clone() for t in instance.inputs]
        fill(x[0], instance.model.layer.weight.data if of_layer else x[1])
        if of_layer:
            new.load_state_dict(instance.model.state_dict())
        exact = float64(instance.model, x)
        ours, eager = ((model(*x).double() - exact) for model in (new, instance.model))
        worst["rms"] = max(worst["rms"], float(ours.norm() / eager.norm()))
        worst["largest"] = max(worst["largest"], float(ours.abs().max() / eager.abs().max()))
    holds = worst["rms"] <= bound and (bound > 0.5 or worst["largest"] <= 1.0)
    return Bar(
        f"{case.name}: error <= {bound} x eager", f"rms {worst['rms']:.2f}, worst element {worst['largest']:.2f}", holds
    )


def float64(model: Any, inputs: Iterable[Tensor]) -> Tensor:
    wide = model.double()
    exact: Tensor = wide(*[t.double() for t in inputs])
    model.float()
    return exact


SPECIAL: dict[str, Callable[[Tensor, Tensor], object]] = {
    **{f"times {s:g}": lambda a, w, s=s: a.mul_(s) for s in (1e-6, 1e-3, 1e4, 1e6)},  # type: ignore[misc]
    "both times 1e-30": lambda a, w: (a.mul_(1e-30), w.mul_(1e-8)),
    "one huge element": lambda a, w: a[3, 5].fill_(1e30),
    "Inf in a row": lambda a, w: a[3, 5].fill_(math.inf),
    "NaN in a row": lambda a, w: a[3, 5].fill_(math.nan),
    "Inf in the weight": lambda a, w: w[7, 2].fill_(-math.inf),
    "denormals": lambda a, w: a.mul_(1e-40),
    "overflow": lambda a, w: (a.abs_().mul_(1e20), w.abs_().mul_(1e20)),  # of one sign: in any order
}


def special_bars(path: Path, found: Made) -> list[Bar]:
    """By the judge's criterion, whose yardstick is eager's error and what rounding the inputs would do: Inf and NaN
    where eager has them, and no error out of line. Beside it, errors in units of that yardstick."""
    torch.set_float32_matmul_precision("highest")
    instance, new = models(path, found.file)
    reference = open_reference(load(path), torch.device("cuda"))
    oracle = Oracle(reference, reference.construct(0), "reference", draws=4)
    bars = []
    for name, change in SPECIAL.items():
        torch.manual_seed(5)
        a, w = (torch.randn_like(t) for t in instance.inputs)
        change(a, w)
        (yard,) = oracle.truth({}, [(a, w)], 0).calls[0]
        with torch.no_grad():
            ours, eager = (score(model(a, w), yard) for model in (new, instance.model))
        value = f"rms {ours.rms:.2f} (eager {eager.rms:.2f}), worst {ours.worst:.2f} (eager {eager.worst:.2f})"
        bars.append(Bar(f"inputs: {name}", value, ours.within(limits_for(torch.float32))))
    return bars


def spill_bars(found: list[Made]) -> list[Bar]:
    bad = [made.file.stem for made in found if made.spills]
    said = f"{len(bad)} of {len(found)} {' '.join(bad)}"
    return [Bar("no chosen kernel spills", said, not bad)] if found else []


def repeated(case: Case, path: Path, found: Made) -> list[Bar]:
    torch.set_float32_matmul_precision("high" if case.tf32 else "highest")
    instance, new = models(path, found.file)
    with torch.no_grad():
        first = new(*instance.inputs)
        equal = all(torch.equal(new(*instance.inputs), first) for _ in range(100))
    return [Bar(f"{case.name}: 100 runs bit-equal", "equal" if equal else "DIFFERENT", equal)]


def public_bars(problems: list[tuple[Path, Made | str]], deadline: float) -> list[Bar]:
    """The public problems with products: right, and how they compare with torch.compile."""
    torch.set_float32_matmul_precision("highest")
    bars, ratios = [], []
    for path, found in problems:
        if time.monotonic() > deadline:
            bars.append(Bar(f"{path.stem}", "no time left", holds=None))
            continue
        try:
            if isinstance(found, str):
                raise RuntimeError(found)
            bar, speed = public_bar(path, found)
            ratios.append(speed)
        except Exception as error:  # noqa: BLE001  one failing problem is a row, not the end of the run
            bar = Bar(f"{path.stem}", f"{type(error).__name__}: {str(error)[:120]}", holds=False)
        bars.append(bar)
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        bars.append(Bar(f"{len(ratios)} public problems: geomean >= 3.5 x compile", f"{mean:.2f}", mean >= 3.5))
    return bars


def public_bar(path: Path, found: Made) -> tuple[Bar, float]:
    instance, new = models(path, found.file)
    compiled = torch.compile(instance.model)
    with torch.no_grad():
        times = timed({"eager": instance.model, "ours": new, "compile": compiled}, instance.inputs, 6)
        torch.manual_seed(1)
        eager = leaves(instance.model(*instance.inputs))
        torch.manual_seed(1)
        ours = leaves(new(*instance.inputs))
    apart = max(relative(y, x.double()) for x, y in zip(eager, ours, strict=True))
    speed = {name: ratio(times[name], times["ours"]) for name in ("eager", "compile")}
    says = f"{speed['compile']:.2f} x compile, {speed['eager']:.2f} x eager, {apart:.1e} from eager"
    return Bar(path.stem[:44], says, speed["compile"] >= 1.0 and apart <= 1e-4), speed["compile"]


# --- 5: each template alone, under compute-sanitizer

HARNESS = r"""
#include "@header@"
@more@
#include <cstdio>
#include <cstdlib>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector>
struct Epilogue {  // relu(x + bias)
    struct Args { float* c; const float* bias; int64_t pitch; };
    template <int N> KW_DEVICE static void store(const Args& args, const float (&x)[N], int64_t m, int64_t n) {
        for (int i = 0; i < N; i++) args.c[m * args.pitch + n + i] = fmaxf(x[i] + __ldg(args.bias + n + i), 0.f);
    }
@late@@sent@
};
@entry@
template <class T> T* on_device(const std::vector<T>& values) {
    T* memory;
    cudaMalloc(&memory, values.size() * sizeof(T));
    cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    return memory;
}
int main() {
    constexpr int m = @m@, n = @n@, k = @k@, batches = @batches@, w_batches = @w_batches@;
    std::vector<@type@> a((size_t)batches * m * @pitch@), w((size_t)w_batches * n * @pitch@);
    std::vector<float> bias(n), c((size_t)batches * m * n, -1.f);
    for (auto& x : a) x = @type@(float(rand() % 17 - 8));
    for (auto& x : w) x = @type@(float(rand() % 17 - 8));
    for (auto& x : bias) x = float(rand() % 9);
    void *workspace, *packed;
    cudaMalloc(&workspace, @workspace@ + 256);
    cudaMalloc(&packed, @packed@ + 256);
    auto *da = on_device(a), *dw = on_device(w);
    const Epilogue::Args args = {on_device(c), on_device(bias), n};
    int status = 0;
    const void* weight = dw;
    @pack@
    if (!status) status = gemm(da, weight, workspace, &args, nullptr);
    if (!status) status = cudaDeviceSynchronize();
    cudaMemcpy(c.data(), args.c, c.size() * 4, cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int b = 0; b < batches; b++)
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                double exact = bias[j];
                for (int p = 0; p < k; p++)
                    exact += (double)(float)a[((size_t)b * m + i) * @pitch@ + p] *
                             (float)w[(size_t)(w_batches == 1 ? 0 : b) * n * @pitch@ + (size_t)j * @w_row_pitch@ +
                                      (size_t)p * @w_k_pitch@];
                wrong += c[((size_t)b * m + i) * n + j] != (float)(exact > 0 ? exact : 0);
            }
    std::printf("status %d, %d wrong\n", status, wrong);
    return status || wrong;
}
"""

# The same for results that leave late (gemm_sm90_late.cuh): twice the bias before the rounding, one less after it.
LATE = r"""
    template <int N> struct alignas(2 * N) Settled { @type@ v[N]; };
    template <int N> struct Early { float bias[N]; };
    template <int N> struct Operands { float bias[N]; };
    template <int N> struct Results { float y[N]; };
    using Index = int64_t;
    template <int N> KW_DEVICE static Early<N> load_early(const Args& args, int64_t n) {
        Early<N> early;
        for (int i = 0; i < N; i++) early.bias[i] = __ldg(args.bias + n + i);
        return early;
    }
    template <int N> KW_DEVICE static void settle(const Early<N>& early, float (&x)[N]) {
        for (int i = 0; i < N; i++) x[i] += 2.f * early.bias[i];
    }
    template <int N> KW_DEVICE static Operands<N> load(const Args& args, int64_t m, int64_t n) {
        Operands<N> operands;
        for (int i = 0; i < N; i++) operands.bias[i] = __ldg(args.bias + n + i);
        return operands;
    }
    template <int N>
    KW_DEVICE static Results<N> finish(const Args&, const Operands<N>& x, const Settled<N>& settled, int64_t, int64_t) {
        Results<N> results;
        for (int i = 0; i < N; i++) results.y[i] = fmaxf((float)settled.v[i] - x.bias[i], 0.f);
        return results;
    }
    template <int N> KW_DEVICE static void store(const Args& args, const Results<N>& results, int64_t m, int64_t n) {
        for (int i = 0; i < N; i++) args.c[m * args.pitch + n + i] = results.y[i];
    }
"""

# For results that the copy engine takes (gemm_sm90_sent.cuh).
SENT = r"""
    static constexpr int64_t rows = @m@ * @batches@, columns = @n@, pitch = @n@;
    static float* result(const Args& args) { return args.c; }
    template <int N> struct alignas(4 * N) Values {
        float v[N];
        KW_DEVICE float operator[](int i) const { return v[i]; }
    };
    template <int N> KW_DEVICE static Values<N> values(const Args& args, const float (&x)[N], int64_t, int64_t n) {
        Values<N> y;
        for (int i = 0; i < N; i++) y.v[i] = fmaxf(x[i] + __ldg(args.bias + n + i), 0.f);
        return y;
    }
"""


@dataclass(frozen=True, slots=True)
class Alone:
    """A template with a config and a product of odd sizes."""

    name: str
    template: Any
    config: Any
    gemm: Gemm


def odd(
    m: int, n: int, k: int, dtype: str = "float32", batches: int = 1, constant: bool = True, vector: int = 1
) -> Gemm:
    pitch = -(-k // 8) * 8 if dtype != "float32" else k
    a = Operand(dtype, pitch, 1, m * pitch if batches > 1 else 0, constant=False)
    w = Operand(dtype, pitch, 1, n * pitch if batches > 1 else 0, constant=constant)
    return Gemm(m, n, k, batches, a, w, vector, 4 * batches * m * n)


def settled(gemm: Gemm) -> Gemm:
    """Its epilogue begins with a rounding to 16 bits, which sums of so few products survive."""
    return replace(gemm, settles=True)


def sendable(gemm: Gemm) -> Gemm:
    return replace(gemm, sendable=True)


def side_by_side(m: int, n: int, k: int, batches: int = 1, vector: int = 1) -> Gemm:
    """W as the second operand of a @ b lies, packed in the call."""
    gemm = odd(m, n, k, batches=batches, vector=vector)
    return replace(gemm, w=Operand("float32", 1, n, gemm.w.batch_pitch, constant=False))


# More of the name, k of a chunk, rows, k: so many chunks in a tile, and one tile a block and more.
SENT = (
    ("", 64, 2052, 200),
    (", three tiles a block", 64, 4100, 264),
    (", one chunk", 32, 2052, 32),
    (", one chunk, four tiles a block", 32, 6148, 32),
    (", two chunks", 64, 4100, 128),
    (", two chunks of 32", 32, 4100, 64),
    (", three chunks of 32", 32, 6148, 96),
    (", four chunks of 32", 32, 4100, 128),
)
ALONE = (
    Alone("sm90, odd", gemm_sm90, gemm_sm90.Config(192, 32, 1, 1), odd(131, 197, 101)),
    Alone("sm90, widest, packed in the call", gemm_sm90, gemm_sm90.Config(256, 64, 1, 4),
          odd(150, 260, 300, constant=False, vector=4)),
    Alone("sm90, parts of k", gemm_sm90, gemm_sm90.Config(128, 64, 4, 1), odd(70, 131, 1001)),
    Alone("sm90, 64 rows, batches", gemm_sm90, gemm_sm90.Config(128, 32, 1, 1, tile_m=64),
          odd(37, 131, 100, batches=2)),
    Alone("sm90, panels", gemm_sm90, gemm_sm90.Config(128, 64, 1, 1), side_by_side(131, 197, 1101)),
    Alone("bricks, odd", gemm_sm90_bricks, gemm_sm90_bricks.Config(128, 32, 1, 1), side_by_side(131, 197, 101)),
    Alone("bricks, widest", gemm_sm90_bricks, gemm_sm90_bricks.Config(256, 64, 1, 4),
          side_by_side(150, 260, 1100, vector=4)),
    Alone("bricks, parts of k, batches", gemm_sm90_bricks, gemm_sm90_bricks.Config(128, 64, 4, 1),
          side_by_side(70, 131, 1701, batches=2)),
    Alone("bricks, 64 rows", gemm_sm90_bricks, gemm_sm90_bricks.Config(128, 64, 1, 4, tile_m=64),
          side_by_side(37, 132, 600, vector=4)),
    Alone("turned, odd", gemm_sm90_turned, gemm_sm90_turned.Config(192, 32, 1, 4),
          side_by_side(197, 132, 101, vector=4)),
    Alone("turned, widest, batches", gemm_sm90_turned, gemm_sm90_turned.Config(256, 64, 1, 4),
          side_by_side(260, 148, 1100, batches=2, vector=4)),
    Alone("turned, parts of k", gemm_sm90_turned, gemm_sm90_turned.Config(128, 64, 4, 4),
          side_by_side(131, 68, 1701, vector=4)),
    *(Alone(f"sm90, sent{more}", gemm_sm90, gemm_sm90.Config(256, chunk, 1, 4, sent=True),
            sendable(odd(m, 2060, k, vector=4))) for more, chunk, m, k in SENT),
    Alone("bricks, sent, batches", gemm_sm90_bricks, gemm_sm90_bricks.Config(256, 64, 1, 4, sent=True),
          sendable(side_by_side(260, 516, 600, batches=24, vector=4))),
    Alone("turned, sent, batches", gemm_sm90_turned, gemm_sm90_turned.Config(256, 64, 1, 4, sent=True),
          sendable(side_by_side(516, 260, 600, batches=24, vector=4))),
    Alone("turned, packed beside", gemm_sm90_turned,
          gemm_sm90_turned.Config(256, 64, 1, 4, sent=True, packers=4, ahead=8),
          sendable(side_by_side(516, 260, 600, batches=24, vector=4))),
    Alone("turned, packed aside", gemm_sm90_turned,
          gemm_sm90_turned.Config(256, 64, 1, 4, sent=True, packers=2, ahead=8, aside=24),
          sendable(side_by_side(516, 260, 512, batches=16, vector=4))),
    Alone("sm90, packed aside", gemm_sm90, gemm_sm90.Config(256, 64, 1, 4, sent=True, ahead=2, aside=46),
          sendable(odd(260, 516, 512, batches=16, constant=False, vector=4))),
    Alone("sm90, packed beside by warpgroups", gemm_sm90,
          gemm_sm90.Config(256, 64, 1, 4, sent=True, packers=3, ahead=0),
          sendable(odd(260, 516, 1028, batches=8, constant=False, vector=4))),
    Alone("sm90, 192 columns, sent", gemm_sm90, gemm_sm90.Config(192, 32, 1, 4, sent=True),
          sendable(odd(2052, 1900, 96, vector=4))),
    Alone("sm90, 192 columns, sent, chunks of 64", gemm_sm90, gemm_sm90.Config(192, 64, 1, 4, sent=True),
          sendable(odd(2052, 1900, 328, vector=4))),
    Alone("sm90, several tiles a block", gemm_sm90, gemm_sm90.Config(128, 32, 1, 1), odd(2052, 1297, 100)),
    Alone("float16, own tiles", gemm_sm90_half, gemm_sm90_half.Config(128, 2, 1, own_tiles=True),
          odd(2000, 1301, 104, "float16")),
    Alone("float16, late, odd", gemm_sm90_half, gemm_sm90_half.Config(256, 2, 1, late=True),
          settled(odd(4100, 1301, 104, "float16"))),
    Alone("float16, late", gemm_sm90_half, gemm_sm90_half.Config(256, 2, 4, late=True),
          settled(odd(2050, 2060, 136, "float16", vector=4))),
    Alone("float16, late, batches", gemm_sm90_half, gemm_sm90_half.Config(128, 2, 2, late=True),
          settled(odd(259, 390, 136, "float16", batches=24, vector=2))),
    Alone("sm80, odd", gemm_sm80, gemm_sm80.Config(64, 64, 1), odd(131, 197, 101)),
    Alone("sm80, largest", gemm_sm80, gemm_sm80.Config(128, 128, 4), odd(150, 260, 300, vector=4)),
    Alone("scaled float16", gemm_sm90_f16x1, gemm_sm90_f16x1.Config(128, 2, 1), odd(259, 131, 101)),
    Alone("float16", gemm_sm90_half, gemm_sm90_half.Config(256, 2, 1), odd(259, 261, 104, "float16")),
    Alone("bfloat16, batches", gemm_sm90_half, gemm_sm90_half.Config(64, 1, 1), odd(37, 71, 72, "bfloat16", batches=2)),
    Alone("one row", gemm_skinny, gemm_skinny.Config(1, True, 4, 8, 4), odd(1, 131, 1001)),
    Alone("8 columns", gemm_skinny, gemm_skinny.Config(8, False, 4, 1, 16), odd(131, 7, 1000)),
    Alone("IEEE", gemm_simt, gemm_simt.Config(64, 64, 16, True, 1), odd(131, 97, 101, batches=2)),
    Alone("IEEE, large tile", gemm_simt, gemm_simt.Config(128, 128, 8, False, 4), odd(131, 260, 300, vector=4)),
)  # fmt: skip
CPP_TYPE = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}


def harness(alone: Alone) -> str:
    gemm, template = alone.gemm, alone.template
    packed = template.packed_bytes(gemm) if gemm.w.constant else 0
    late, sent = getattr(alone.config, "late", False), getattr(alone.config, "sent", False)
    sizes = {name: getattr(gemm, name) for name in ("m", "n", "k", "batches", "w_batches")}
    values = {
        "header": "gemm_sm90_late.cuh" if late else template.HEADER,
        "late": LATE.replace("@type@", CPP_TYPE[gemm.a.dtype]) if late else "",
        "more": '#include "gemm_sm90_beside.cuh"' if sent else "",
        "sent": re.sub(r"@(\w+)@", lambda match: str(sizes[match[1]]), SENT) if sent else "",
        "entry": template.entry("gemm", alone.config, gemm, "Epilogue"),
        "type": CPP_TYPE[gemm.a.dtype],
        "pitch": gemm.a.row_pitch,
        "w_row_pitch": gemm.w.row_pitch,
        "w_k_pitch": gemm.w.k_pitch,
        "workspace": template.workspace_bytes(alone.config, gemm),
        "packed": packed,
        "pack": "status = gemm_pack(dw, packed, nullptr), weight = packed;" if packed else "",
        **sizes,
    }
    return re.sub(r"@(\w+)@", lambda match: str(values[match[1]]), HARNESS)


def sanitized(alone: Alone, folder: Path) -> list[Bar]:
    stem = re.sub(r"\W+", "_", alone.name)
    (folder / f"{stem}.cu").write_text(harness(alone))
    command = [*nvcc_command("sm_90a", read_settings()), f"-I{HEADERS}", f"{stem}.cu", "-o", stem]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        return [Bar(f"alone: {alone.name}", done.stderr[-200:], holds=False)]
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    runs = {"by itself": [str(folder / stem)]}
    if Path(tool).exists():
        runs |= {
            kind: [tool, "--tool", kind, "--error-exitcode", "9", str(folder / stem)]
            for kind in ("memcheck", "racecheck")
        }
    said = {kind: attempt(run) for kind, run in runs.items()}
    missing = "" if len(runs) > 1 else ", no compute-sanitizer here"
    clean = all(text == "" for text in said.values())
    value = "; ".join(f"{kind}: {text or 'clean'}" for kind, text in said.items()) + missing
    return [Bar(f"alone: {alone.name}", value, clean if len(runs) > 1 or not clean else None)]


def attempt(command: list[str]) -> str:
    """Nothing if it ended well, else what it said: of the sanitizer's reports the first and the last."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    said = re.sub(r"\s+", " ", done.stdout + done.stderr)
    return "" if done.returncode == 0 else said if len(said) <= 2 * KEPT else f"{said[:KEPT]} ... {said[-KEPT:]}"


# --- the run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kernelbench", type=Path, help="a checkout whose level2 problems with products are measured")
    parser.add_argument("--only", nargs="*", choices=[*GROUPS, "special", "repeat", "public", "alone"])
    parser.add_argument(
        "--matching", default="", help="only cases, and templates alone, whose names it finds something in"
    )
    parser.add_argument("--limit", type=float, default=340.0, help="seconds after which nothing new is begun")
    options = parser.parse_args()
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", tempfile.mkdtemp())
    wanted = options.only or [*GROUPS, "special", "repeat", "alone", *(["public"] if options.kernelbench else [])]
    Run(options.out, time.monotonic() + options.limit).all(wanted, options.kernelbench, options.matching)


class Run:
    """Takes notes while it goes, so that a run that is cut short has said what it found."""

    def __init__(self, out: Path, deadline: float) -> None:
        self.out = out
        self.deadline = deadline
        self.folder = Path(tempfile.mkdtemp())
        self.bars: list[Bar] = []
        self.environment = environment(copy_gbps())

    def all(self, wanted: list[str], kernelbench: Path | None, matching: str) -> None:
        cases = [case for group, members in GROUPS.items() if group in wanted for case in members]
        cases = [case for case in cases if re.search(matching, case.name)]
        cases += [c for c in (ERROR[LENGTHS.index(1024)],) if "special" in wanted and c not in cases]
        public = products_of(kernelbench) if kernelbench is not None and "public" in wanted else []
        paths = {case: self.written(case, number) for number, case in enumerate(cases)}
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
            list(pool.map(precompile, [(paths[c], precision(c)) for c in cases if c.tuned]))
            self.say("compiled")
            results = list(pool.map(untuned, [(path, self.folder) for path in public]))
            self.say("public problems built")
            found = {c: made(paths[c], self.folder, precision(c), c.tuned) for c in cases}
            self.say("tuned")
            list(pool.map(built, [made.file for made in found.values()]))
        self.say("built")
        for case in cases:
            self.note(measure, case, paths[case], found[case])
        if "special" in wanted:
            case = ERROR[LENGTHS.index(1024)]
            self.note(special_bars, paths[case], found[case])
        if "repeat" in wanted:
            for case in [c for c in cases if c.tuned][::3]:
                self.note(repeated, case, paths[case], found[case])
        self.note(spill_bars, list(found.values()))
        if "alone" in wanted:
            with ThreadPoolExecutor(12) as threads:
                chosen_few = [alone for alone in ALONE if re.search(matching, alone.name)]
                for bars in threads.map(lambda alone: sanitized(alone, self.folder), chosen_few):
                    self.note(list, bars)
        self.note(public_bars, list(zip(public, results, strict=True)), self.deadline)
        self.table()

    def written(self, case: Case, number: int) -> Path:
        path = self.folder / f"case{number}_{re.sub(r'[^0-9a-z]+', '_', case.name.lower())}.py"
        path.write_text(case.text())
        return path

    def note(self, work: Callable[..., list[Bar]], *arguments: Any) -> None:
        """Does it and keeps what it gives; a failure is a row, not the end of the run."""
        if time.monotonic() > self.deadline:
            return
        try:
            bars = work(*arguments)
        except Exception as error:  # noqa: BLE001
            bars = [Bar("failed", f"{type(error).__name__}: {str(error)[:200]}", holds=False)]
        self.bars += bars
        with self.out.open("a") as file:
            for bar in bars:
                row = {"bar": bar.name, "value": bar.value, "holds": bar.holds, "environment": self.environment}
                file.write(json.dumps(row) + "\n")
        torch.cuda.empty_cache()

    def say(self, what: str) -> None:
        print(f"{what}, {self.deadline - time.monotonic():.0f} s left", flush=True)

    def table(self) -> None:
        for bar in self.bars:
            mark = {True: "holds", False: "MISSED", None: "-"}[bar.holds]
            print(f"{mark:<7}{bar.name:<58} {bar.value}")
        missed = sum(bar.holds is False for bar in self.bars)
        print(f"{len(self.bars)} bars, {missed} missed, {self.deadline - time.monotonic():.0f} s left")


def precision(case: Case) -> str:
    return "tf32" if case.tf32 else "reference"


def products_of(kernelbench: Path) -> list[Path]:
    """The problems of level 2 whose heavy part is a matrix product."""
    found = list((kernelbench / "level2").glob("*.py")) or list((kernelbench / "KernelBench" / "level2").glob("*.py"))
    chosen = [p for p in found if re.search(r"nn\.Linear\(|torch\.(mat|b)mm?(ul)?\(", p.read_text())]
    return sorted(chosen, key=lambda path: int(path.stem.partition("_")[0]))


if __name__ == "__main__":
    main()
