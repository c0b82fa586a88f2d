"""Generated reductions through the compilers: no spills and no stack on a GPU, packed arithmetic on a CPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.build import build_cpu_library, build_cuda_library, library_resources
from kernelwright.build.toolchain import has_cuda
from kernelwright.capture import capture
from kernelwright.device import resolve
from kernelwright.generate.generate import launch_of, program_text, ranked_choices
from kernelwright.generate.reduce import work_of_rows
from kernelwright.ir.dtypes import float16, float32, int32
from kernelwright.ir.nodes import Broadcast, Const, Input, Map, Node, Reduce, Shape
from kernelwright.kernels import reduce_held, reduce_ring, reduce_sliding, reduce_spread, reduce_woven
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.reduce import Config, CpuConfig, best_config, why_not
from kernelwright.load import Problem
from kernelwright.plan import Kernel, Routes, plan
from kernelwright.settings import read_settings
from kernelwright.simplify import simplify
from tests.pools import POOLED
from tests.unit.generate.test_reduce import kernel_of, leaf, softmax

H200, A100 = resolve("h200"), resolve("a100")
needs_cuda = pytest.mark.skipif(not has_cuda(read_settings()), reason="no CUDA toolkit here")


def normalised(x: Node, axes: Shape, count: float) -> Node:
    """LayerNorm without its weights."""
    mean = Map("div", (Reduce("sum", x, axes), Const(count, float32)))
    variance = Map("div", (Reduce("deviations", x, axes), Const(count, float32)))
    scale = Map("rsqrt", (Map("add", (variance, Const(1e-5, float32))),))
    return Map("mul", (Map("sub", (x, Broadcast(mean, x.shape))), Broadcast(scale, x.shape)))


def wide(x: Input) -> Node:
    return Map("cast", (x,), float32)


LONG = softmax(leaf(0, (4096, 393216)), (1,))
WIDE = softmax(leaf(0, (4096, 262144)), (1,))
SHORT = softmax(leaf(0, (4096, 1024)), (1,))
CHANNELS = normalised(leaf(0, (16, 64, 256, 256)), (0, 2, 3), 16.0 * 65536)
BESIDE = leaf(0, (128, 8, 4, 64516))
GROUPS = normalised(Map("add", (BESIDE, Broadcast(leaf(1, (8, 4, 1)), BESIDE.shape))), (2, 3), 258064.0)
HALVES = Map("cast", (softmax(wide(leaf(0, (512, 8192), float16)), (1,)),), float16)

# Each template at its largest: what it holds fills the registers or the shared memory it has.
KERNELS: dict[str, tuple[Node, Config]] = {
    "a row held by a cluster": (WIDE, Config(512, 4, 512, 16, "registers", 8, True)),
    "a row in the shared memory of a cluster": (LONG, Config(1024, 4, 1024, 12, "shared", 8, True)),
    "a row in shared memory beside values of its channels": (GROUPS, Config(1024, 4, 1024, 8, "shared", 8, True)),
    "a row read again by a cluster": (LONG, Config(1024, 4, 1024, 4, "again", 4, True)),
    "a row in a warp": (SHORT, Config(256, 4, 32, 8, "registers", 1, False)),
    "a row in a block": (SHORT, Config(256, 4, 256, 1, "registers", 1, False)),
    "halves in a block": (HALVES, Config(256, 8, 256, 4, "registers", 1, False)),
    "channels, split": (CHANNELS, Config(256, 4, 256, 4, "again", 16, False)),
    "rows side by side": (softmax(leaf(0, (112, 64, 4096)), (1,)), Config(256, 4, 8, 8, "registers", 1, False)),
    "sums of columns": (Reduce("sum", leaf(0, (4096, 4096)), (0,)), Config(256, 4, 8, 8, "again", 16, False)),
    "rows of few columns, side by side": (
        Reduce("max", leaf(0, (4096, 8, 4095)), (1,)),
        Config(128, 1, 1, 8, "again", 1, False, beside=4),
    ),
    "places": (Reduce("argmax", leaf(0, (128, 4096, 100), int32), (1,)), Config(256, 4, 16, 4, "again", 1, False)),
}


LAYERS = leaf(0, (16, 64, 256, 256))
SCALED = Map("mul", (normalised(LAYERS, (1, 2, 3), 4194304.0), Broadcast(leaf(1, (64, 256, 256)), LAYERS.shape)))
INSTANCES = normalised(leaf(0, (112, 64, 512, 512)), (2, 3), 262144.0)
BATCHES = normalised(leaf(0, (64, 64, 512, 512)), (0, 2, 3), 64 * 262144.0)
ODD = leaf(0, (4096, 65535))
LENGTHS = Map("sqrt", (Reduce("sum", Map("mul", (ODD, ODD)), (1,)),))

# Each way of rows that are woven, at its largest, and the widest blocks.
WOVEN: dict[str, tuple[Node, Choice]] = {
    "two blocks each": (LONG, reduce_woven.Config(512, 4, 12, 0, 16, 16, 2, 2)),
    "in registers too": (LONG, reduce_woven.Config(512, 4, 28, 4, 6, 22, 1, 4)),
    "two blocks each, in registers too": (INSTANCES, reduce_woven.Config(512, 4, 14, 2, 8, 33, 2, 2)),
    "two rows at once, with weights": (
        Map("add", (SCALED, Broadcast(leaf(2, (64, 256, 256)), LAYERS.shape))),
        reduce_woven.Config(512, 4, 28, 4, 64, 2, 1, 4),
    ),
    "a row of which some is read again": (BATCHES, reduce_woven.Config(512, 4, 28, 4, 128, 1, 1, 4)),
    "elements in one block": (
        Map("div", (ODD, Broadcast(LENGTHS, ODD.shape))),
        reduce_woven.Config(512, 1, 112, 16, 1, 132, 1, 8),
    ),
    "through a ring": (LONG, reduce_ring.Config(512, 4, 28, 4, 4, 16, 8, 1, 2)),
    "through a ring, one row": (LONG, reduce_ring.Config(1024, 4, 14, 6, 2, 12, 11, 1)),
    "through a ring, with a clerk": (INSTANCES, reduce_ring.Config(512, 4, 28, 4, 4, 16, 8, 1, 3, 32)),
    "through a ring, elements": (
        Map("div", (ODD, Broadcast(LENGTHS, ODD.shape))),
        reduce_ring.Config(512, 1, 112, 24, 4, 3, 44, 1, 2),
    ),
    "held, with weights that stay": (
        Map("add", (SCALED, Broadcast(leaf(2, (64, 256, 256)), LAYERS.shape))),
        reduce_held.Config(512, 4, 16, 14, 2, 128),
    ),
    "held, with weights": (
        Map("add", (SCALED, Broadcast(leaf(2, (64, 256, 256)), LAYERS.shape))),
        reduce_held.Config(512, 4, 16, 0, 3, 128),
    ),
    "held, few threads": (
        Map("add", (SCALED, Broadcast(leaf(2, (64, 256, 256)), LAYERS.shape))),
        reduce_held.Config(256, 4, 32, 26, 6, 128),
    ),
    "spread, with weights": (
        Map("add", (SCALED, Broadcast(leaf(2, (64, 256, 256)), LAYERS.shape))),
        reduce_spread.Config(256, 4, 4, 32, 128, 8, True),
    ),
    "wide, across": (Reduce("argmax", leaf(0, (128, 4096, 4095)), (1,)), Config(1024, 1, 4, 8, "again", 4, False)),
}


# Those of KernelBench that overlap, with fewer channels.
POOLS = {
    "MaxPool1d(8, stride=1, padding=4, dilation=3)": (2, 3, 65536),
    "AvgPool1d(8, stride=1, padding=4)": (2, 3, 65536),
    "MaxPool2d(4, stride=1, padding=1)": (2, 3, 512, 512),
    "MaxPool3d(3, stride=2, padding=1, dilation=3)": (1, 1, 128, 128, 128),
    "AvgPool3d(3, stride=2, padding=1)": (1, 1, 128, 128, 256),
}


def named(kernel: Kernel, number: int) -> Kernel:
    return replace(kernel, name=f"k{number}_{kernel.name}")


def program(choices: list[tuple[Kernel, Choice]], target: str) -> str:
    kernels = [(named(kernel, number), choice) for number, (kernel, choice) in enumerate(choices)]
    return program_text([launch_of(f"run{i}", [k], {k.name: choice}) for i, (k, choice) in enumerate(kernels)], target)


@needs_cuda
@pytest.mark.slow
def test_every_template_compiles_for_a_hopper_without_spills() -> None:
    kernels = [(kernel_of(output), config) for output, config in KERNELS.values()]
    for kernel, config in kernels:
        assert why_not(config, work_of_rows(kernel), H200) is None
    library = build_cuda_library(program([*kernels], "cuda"), "sm_90a")
    offenders = [r for r in library_resources(library) if r.spills or r.stack_bytes]
    assert not offenders


@needs_cuda
@pytest.mark.slow
def test_rows_that_are_woven_compile_without_spills() -> None:
    kernels = [(kernel_of(output), choice) for output, choice in WOVEN.values()]
    library = build_cuda_library(program(kernels, "cuda"), "sm_90a")
    assert not [r for r in library_resources(library) if r.spills or r.stack_bytes]


@needs_cuda
@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_windows_that_slide_compile_without_spills(pool: str) -> None:
    shape = POOLS[pool]
    text = POOLED.format(pool=pool, shape=shape, special="1.0, 2.0, 3.0")
    planned = plan(simplify(capture(Problem("pooled", text, Path("pooled.py")))), Routes())
    (kernel,) = planned.kernels
    choices = [choice for choice in ranked_choices(kernel, H200) if isinstance(choice, reduce_sliding.Config)]
    assert choices
    library = build_cuda_library(program([(kernel, choice) for choice in choices], "cuda"), "sm_90a")
    assert not [r for r in library_resources(library) if r.spills or r.stack_bytes]


@needs_cuda
@pytest.mark.slow
def test_an_ampere_has_a_config_without_clusters_for_each_that_does_not_spill() -> None:
    kernels: list[tuple[Kernel, Choice]] = []
    for output, _ in KERNELS.values():
        kernel = kernel_of(output)
        config = best_config(work_of_rows(kernel), A100)
        assert isinstance(config, Config)
        assert not config.cluster
        kernels.append((kernel, config))
    long, few = kernel_of(LONG), kernel_of(softmax(leaf(0, (4, 4194304)), (1,)))
    layers = kernel_of(Map("mul", (softmax(leaf(0, (8, 1 << 20)), (1,)), Broadcast(leaf(1, (1 << 20,)), (8, 1 << 20)))))
    kernels.append((long, reduce_woven.configs(work_of_rows(long), A100)[0]))
    kernels.append((long, reduce_ring.configs(work_of_rows(long), A100)[0]))
    kernels.append((few, reduce_spread.configs(work_of_rows(few), A100)[0]))
    kernels.append((layers, reduce_held.configs(work_of_rows(layers), A100)[0]))
    library = build_cuda_library(program(kernels, "cuda"), "sm_80")
    assert not [r for r in library_resources(library) if r.spills or r.stack_bytes]


@pytest.mark.parametrize(
    ("output", "instruction"),
    [
        (Reduce("sum", leaf(0, (512, 4096)), (1,)), r"vaddps|fadd\s+v|addps"),
        (normalised(leaf(0, (512, 4096)), (1,), 4096.0), r"vfn?m(add|sub)\d+ps|fml[as]\s+v|mulps"),
        (SHORT, r"vfn?m(add|sub)\d+ps|fml[as]\s+v|mulps"),
    ],
    ids=["sum", "layer norm", "softmax"],
)
def test_a_cpu_computes_in_vectors(output: Node, instruction: str) -> None:
    objdump = shutil.which("objdump")
    if objdump is None:
        pytest.skip("no objdump here")
    library = build_cpu_library(program([(kernel_of(output), CpuConfig(32, 4096, 0, 1))], "cpu"))
    code = subprocess.run([objdump, "-d", str(library)], capture_output=True, text=True, check=True, timeout=60).stdout
    assert len(re.findall(instruction, code)) >= 4
    assert not re.findall(r"call.*\b(expf|exp)@plt", code)
