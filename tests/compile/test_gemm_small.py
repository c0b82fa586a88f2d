"""The CPU template for few rows or columns: every walk at odd sizes, with batches and an epilogue, against float64."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

from kernelwright.build import build_cpu_library
from kernelwright.build.cpu import load_cpu_library
from kernelwright.device import resolve
from kernelwright.generate import generate
from kernelwright.generate.generate import ranked_choices
from kernelwright.ir.nodes import Contract, Input
from kernelwright.kernels.gemm_small import Config
from kernelwright.plan import Routes, plan, prepared
from kernelwright.settings import read_settings
from tests.products import graph_of

# body, inputs, along k, rows at once
CASES = {
    "one row": ("torch.relu(x0 @ x1.t()) + x2", ("1, 70", "37, 70", "37"), True, 4),
    "three rows": ("torch.relu(x0 @ x1.t()) + x2", ("3, 33", "41, 33", "3, 41"), True, 2),
    "eight rows": ("x0 @ x1.t() * 2", ("8, 100", "19, 100"), True, 1),
    "one row times a matrix": ("torch.tanh(x0 @ x1)", ("1, 33", "33, 700"), False, 512),
    "seven rows times a matrix": ("x0 @ x1 + x2", ("7, 14", "14, 131", "131"), False, 128),
    "two columns": ("torch.relu(x0 @ x1) * x2", ("50, 37", "37, 2", "50, 1"), True, 4),
    "few columns, many turned": ("x0.t() @ x1.t() + 1", ("20, 130", "5, 20"), False, 128),
    "batches": ("torch.relu(x0 @ x1.transpose(1, 2))", ("3, 2, 20", "3, 9, 20"), True, 8),
    "batches of one matrix": ("x0 @ x1 - 1", ("4, 2, 20", "20, 30"), False, 128),
}


@pytest.mark.parametrize("name", CASES)
def test_a_product_with_its_epilogue_is_right(tmp_path: Path, name: str) -> None:
    body, shapes, along_k, rows = CASES[name]
    graph = graph_of(tmp_path, body, tuple(f"torch.randn({shape})" for shape in shapes), "None")
    own = frozenset(n for n in prepared(graph).nodes() if isinstance(n, Contract))
    planned, cpu = plan(graph, Routes(own)), resolve("cpu")
    (kernel,) = planned.kernels
    choices = [
        c for c in ranked_choices(kernel, cpu) if isinstance(c, Config) and (c.along_k, c.rows) == (along_k, rows)
    ]
    (launch,) = generate(planned, {kernel.name: choices[0]}, cpu).launches
    inputs = [torch.randn(tuple(map(int, shape.split(", ")))) for shape in shapes]
    tensors = {b.name: torch.full(b.shape, torch.nan) for b in launch.allocations}
    tensors |= {b.name: inputs[b.source.position] for b in launch.pointers if isinstance(b.source, Input)}
    library = load_cpu_library(
        build_cpu_library(generate(planned, {kernel.name: choices[0]}, cpu).text, read_settings())
    )
    library.run0(*(ctypes.c_void_p(tensors[b.name].data_ptr()) for b in launch.pointers))
    exact = eval(body, {"torch": torch}, {f"x{i}": x.double() for i, x in enumerate(inputs)})  # the text of forward()
    result = tensors[launch.allocations[0].name].reshape(exact.shape)
    torch.testing.assert_close(result.double(), exact, rtol=1e-5, atol=1e-5)  # sums of up to 100 numbers


def test_infinities_go_through_as_they_do_in_float32(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "x0 @ x1.t()", ("torch.randn(2, 40)", "torch.randn(9, 40)"), "None")
    own = frozenset(n for n in prepared(graph).nodes() if isinstance(n, Contract))
    planned, cpu = plan(graph, Routes(own)), resolve("cpu")
    program = generate(planned, {planned.kernels[0].name: ranked_choices(planned.kernels[0], cpu)[0]}, cpu)
    a, w, c = torch.randn(2, 40), torch.randn(9, 40), torch.empty(2, 9)
    a[0, 3], a[1, 39], w[4, 1] = float("inf"), float("nan"), float("-inf")
    tensors = {"x0": a, "x1": w}
    library = load_cpu_library(build_cpu_library(program.text, read_settings()))
    library.run0(*(ctypes.c_void_p(tensors.get(b.name, c).data_ptr()) for b in program.launches[0].pointers))
    torch.testing.assert_close(c, a @ w.t(), equal_nan=True)
