"""Generated scans through nvcc: no spills on Hopper and Ampere, wide loads and stores."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.build import build_cuda_library, find_cuda, library_resources
from kernelwright.build.cuda import nvcc_command
from kernelwright.device import resolve
from kernelwright.errors import EnvironmentProblem
from kernelwright.generate import Launch, generate
from kernelwright.generate.generate import program_text
from kernelwright.generate.scan import work_of_scan
from kernelwright.ir.dtypes import DTYPES, DType, bool_, float16, float32, float64, int64
from kernelwright.ir.nodes import Const, Graph, Input, Map, Node, Scan, Shape
from kernelwright.kernels.scan import AcrossConfig, AlongConfig, ScanConfig, configs, why_not
from kernelwright.plan import Kernel, plan
from kernelwright.plan.steps import contiguous
from kernelwright.settings import read_settings

H200 = resolve("h200")
COMPUTED = tuple(dtype for dtype in DTYPES.values() if dtype.kind != "complex")


@pytest.fixture(scope="session")
def cuda() -> str:
    try:
        return str(find_cuda(read_settings()).home)
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))


def leaf(shape: Shape, dtype: DType, position: int = 0) -> Input:
    return Input("ab"[position], position, shape, dtype, contiguous(shape))


def masked_sum(shape: Shape, axis: int, reverse: bool = False) -> Node:
    """relu(cumsum(x * mask) - 1)"""
    product = Map("mul", (leaf(shape, float32), Map("cast", (leaf(shape, bool_, 1),), float32)))
    return Map("relu", (Map("sub", (Scan("sum", product, axis, reverse), Const(1.0, float32))),))


def two_stages(shape: Shape, axis: int) -> Node:
    total = Scan("sum", Map("exp", (leaf(shape, float32),)), axis)
    return Scan("prod", Map("sigmoid", (total,)), axis, exclusive=True)


def launches_of(output: Node, choices: Sequence[ScanConfig], label: str) -> Iterable[Launch]:
    """One launch for each config, under names of their own, so that many can share a source."""
    inputs = sorted({n for n in Graph((), (output,), (), 0).nodes() if isinstance(n, Input)}, key=lambda n: n.position)
    made = plan(Graph(tuple(inputs), (output,), (), 0))
    for number, choice in enumerate(choices):
        steps = [replace(s, name=f"{label}{number}_{s.name}") if isinstance(s, Kernel) else s for s in made.steps]
        renamed = replace(made, steps=tuple(steps))
        assert all(why_not(choice, work_of_scan(k.region), H200) is None for k in renamed.kernels), choice
        program = generate(renamed, {kernel.name: choice for kernel in renamed.kernels}, H200)
        yield from (replace(launch, entry=f"{label}{number}_{launch.entry}") for launch in program.launches)


def promising(output: Node, count: int = 2) -> Sequence[ScanConfig]:
    inputs = tuple(n for n in Graph((), (output,), (), 0).nodes() if isinstance(n, Input))
    (kernel,) = plan(Graph(inputs, (output,), (), 0)).kernels
    return configs(work_of_scan(kernel.region), H200)[:count]


CASES: dict[str, Node] = {
    "long": masked_sum((4096, 32768), 1),
    "back": masked_sum((4096, 32768), 1, reverse=True),
    "short": masked_sum((100_000, 48), 1),
    "ragged": masked_sum((512, 1001), 1),
    "cut": masked_sum((2, 1 << 22), 1),
    "across": masked_sum((64, 128, 512), 1),
    "few": masked_sum((1 << 16, 64), 0),
    "stages": two_stages((2, 1 << 22), 1),
    "wide": masked_sum((3, 1 << 30), 1),
}


def test_the_most_promising_configs_do_not_spill(cuda: str) -> None:
    require_no_spills("sm_90a")


@pytest.mark.usefixtures("thorough")
def test_nor_do_they_on_an_ampere(cuda: str) -> None:
    require_no_spills("sm_80")


def require_no_spills(arch: str) -> None:
    launches = [launch for name, node in CASES.items() for launch in launches_of(node, promising(node), name)]
    found = library_resources(build_cuda_library(program_text(launches, "cuda"), arch))
    assert len(found) >= len(launches)
    assert [r.name for r in found if r.spills or r.stack_bytes] == []


def test_the_largest_and_smallest_configs_do_not_spill(cuda: str) -> None:
    along = (AlongConfig(512, 1, 4, 4, 1), AlongConfig(1, 256, 1, 1, 1), AlongConfig(256, 1, 4, 4, 1))
    across = (AcrossConfig(256, 4, 4, 1), AcrossConfig(64, 1, 16, 1), AcrossConfig(64, 1, 2, 4))
    launches = [
        *launches_of(masked_sum((64, 8192), 1), along, "along"),
        *launches_of(masked_sum((8192, 64), 0), across, "across"),
    ]
    found = library_resources(build_cuda_library(program_text(launches, "cuda"), "sm_90a"))
    assert [r.name for r in found if r.spills or r.stack_bytes] == []


def test_every_dtype_compiles(cuda: str, pytestconfig: pytest.Config) -> None:
    """Each dtype with each function, or with one after the other where there is less time."""
    every = pytestconfig.getoption("--thorough")
    launches: list[Launch] = []
    for number, dtype in enumerate(COMPUTED):
        fns = ("max", "min") if dtype is bool_ else ("sum", "prod", "max", "min")
        for fn in fns if every else (fns[number % len(fns)],):
            for shape, axis in (((64, 256), 1), ((64, 256), 0)):
                node = Scan(fn, leaf(shape, dtype), axis)
                launches += launches_of(node, promising(node, 1), f"{dtype.name}_{fn}{axis}_")
    found = library_resources(build_cuda_library(program_text(launches, "cuda"), "sm_90a"))
    assert [r.name for r in found if r.spills or r.stack_bytes] == []


@pytest.mark.parametrize("dtype", [float32, float64, float16, int64], ids=str)
def test_a_long_row_is_read_and_written_in_whole_vectors(cuda: str, tmp_path: Path, dtype: DType) -> None:
    x = leaf((1024, 32768), dtype)
    wide = Map("cast", (x,), float32) if dtype is float16 else x
    total: Node = Scan("sum", wide, 1)
    output = Map("cast", (total,), float16) if dtype is float16 else total
    (config,) = promising(output, 1)
    assert isinstance(config, AlongConfig)
    text = ptx_of(launches_of(output, [config], "long"), tmp_path)
    # Two kernels: in whole vectors, and element by element for operands that are not aligned.
    (entry,) = [e for e in text.split(".entry")[1:] if re.search(r"ld\.global\S*\.v[24]", e)]
    assert len(re.findall(r"ld\.global\S*\.v(?:4\.\w*32|2\.\w*64)", entry)) == config.vectors
    assert len(re.findall(r"st\.global\S*\.v(?:4\.\w*32|2\.\w*64)", entry)) == config.vectors
    assert re.findall(r"\b(ld|st)\.global", entry) == ["ld"] * config.vectors + ["st"] * config.vectors


def ptx_of(launches: Iterable[Launch], folder: Path) -> str:
    source = folder / "kernel.cu"
    source.write_text(program_text(list(launches), "cuda"))
    command = [part for part in nvcc_command("sm_90a", read_settings()) if "gencode" not in part]
    made = [*command, "-arch=compute_90a", "-ptx", str(source), "-o", str(folder / "kernel.ptx")]
    subprocess.run(made, check=True, capture_output=True, timeout=120, cwd=folder)
    return (folder / "kernel.ptx").read_text()
