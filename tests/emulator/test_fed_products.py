"""Products that compute their operands on the way, run on the host: the same as with a kernel before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelwright.generate import Program
from kernelwright.kernels import gemm_sm90
from kernelwright.kernels.choices import Choice
from kernelwright.load import Problem
from kernelwright.plan import Kernel, Product
from tests.emulator.build import g_plus_plus, multiprocessors
from tests.emulator.run import Pick, agrees
from tests.emulator.test_product_surroundings import only

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear({k}, {n})

    def forward(self, x, w, row, column, tile):
        return {body}


def get_inputs():
    sizes = ({m}, {k}), ({k}, {n}), ({m}, 1), ({k},), ({m}, {k})
    return [torch.randn(size) for size in sizes]


def get_init_inputs():
    return []
"""


def problem(body: str, m: int, n: int, k: int) -> Problem:
    return Problem("fed", MODEL.format(body=body, m=m, n=n, k=k), Path("fed.py"))


def computed(made: Program) -> str:
    """Which operands of the one product are computed on the way: "", "a", "w" or "aw"."""
    (core,) = [source.kernel.core for source in made.sources if isinstance(source.kernel.core, Product)]
    return ("a" if core.of_a is not None else "") + ("w" if core.of_w is not None else "")


def fed(body: str, pick: Pick, m: int, n: int, k: int, precision: str = "reference", device: str = "h200") -> Program:
    with multiprocessors(2):
        made = agrees(problem(body, m, n, k), pick=pick, precision=precision, device=device, fed=True)
    assert [source.kernel.core is not None for source in made.sources] == [True]
    return made


def in_two_parts(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
    return replace(next(choice for choice in choices if isinstance(choice, gemm_sm90.Config)), splits=2)


# 1 + x: what lies beyond the end of k must stay zero.
SHIFTED, CHAIN = "self.layer(torch.relu(x) + 1)", "torch.tanh(self.layer(F.silu(x * row + column) * tile))"

CASES: dict[str, tuple[str, Pick, int, int, int, str]] = {
    "an activation": (SHIFTED, only("gemm_sm90", tile_m=128), 140, 76, 72, "a"),
    "rows, columns and a second operand": (CHAIN, only("gemm_sm90", tile_m=128), 140, 76, 72, "a"),
    "tiles of 64 rows": (CHAIN, only("gemm_sm90", tile_m=64), 20, 140, 100, "a"),
    "parts of k": (CHAIN, in_two_parts, 20, 36, 100, "a"),
    "rows that are copied": (CHAIN, only("gemm_sm90"), 33, 36, 37, "a"),
    "a transposed operand": ("torch.relu(torch.exp(tile.t()) @ x)", only("gemm_sm90"), 40, 1, 36, "a"),
    "the second operand": ("torch.relu(x @ torch.sigmoid(w))", only("gemm_sm90"), 33, 150, 72, "w"),
    "both": ("torch.relu((x + 2) @ (w.abs() + 1))", only("gemm_sm90"), 33, 37, 41, "aw"),
    "a weight": ("x @ torch.tanh(self.layer.weight).t()", only("gemm_sm90"), 33, 36, 1040, "w"),
    "Ampere": (CHAIN, only("gemm_sm80"), 70, 76, 72, "a"),
    "Ampere, both": ("torch.relu((x + 2) @ (w.abs() + 1))", only("gemm_sm80"), 70, 37, 41, "aw"),
    "CUDA cores": (CHAIN, only("gemm_simt"), 70, 76, 20, "a"),
    "CUDA cores, both": ("torch.relu((x + 2) @ (w.abs() + 1))", only("gemm_simt"), 70, 37, 19, "aw"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_operand_is_computed_where_it_is_read(name: str) -> None:
    *case, operands = CASES[name]
    assert computed(fed(*case)) == operands


def test_scaled_float16_computes_operands_where_it_packs_them() -> None:
    assert computed(fed(CHAIN, only("gemm_sm90_f16x1"), 130, 44, 61, "tf32")) == "a"
    assert computed(fed("(x + 2) @ (w.abs() + 1)", only("gemm_sm90_f16x1"), 33, 140, 64, "tf32")) == "aw"


@pytest.mark.parametrize("template", ["gemm_sm90", "gemm_sm80"])
def test_infinities_that_are_computed_on_the_way_are_computed_again(template: str) -> None:
    m, n, k = 40, 36, 72
    x = torch.randn(m, k)
    x[3, 5], x[9, 70], x[30, 1] = 300.0, torch.nan, -torch.inf  # exp(300) is infinite
    inputs = [x, torch.randn(k, n), torch.randn(m, 1), torch.randn(k), torch.randn(m, k)]
    with multiprocessors(2):
        made = agrees(problem("self.layer(torch.exp(x) - row)", m, n, k), inputs, pick=only(template), fed=True)
    assert computed(made) == "a"


def test_batches_have_rows_of_their_own() -> None:
    text = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, a, b, scale):
        return torch.relu((a * scale) @ torch.tanh(b * scale[0, :, 0]))

def get_inputs():
    return [torch.randn(3, 20, 40), torch.randn(3, 40, 20), torch.rand(3, 20, 1)]
"""
    for template in ("gemm_sm90", "gemm_simt"):
        made = agrees(Problem("batches", text, Path("batches.py")), pick=only(template), fed=True)
        assert computed(made) == "aw"
        shared = text.replace("torch.randn(3, 40, 20)", "torch.randn(40, 20)")
        made = agrees(Problem("shared", shared, Path("shared.py")), pick=only(template), fed=True)
        assert computed(made) == "aw"


def test_state_that_an_operand_is_computed_of_is_not_written_while_others_read_it() -> None:
    text = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.randn(140, 140))

    def forward(self, x):
        y = torch.tanh(torch.relu(self.state) @ x)
        self.state.copy_(y)
        return y.sum()

def get_inputs():
    return [torch.randn(140, 140)]
"""
    with multiprocessors(2):
        made = agrees(Problem("state", text, Path("state.py")), pick=only("gemm_sm90"), fed=True)
    assert computed(made) == "a"


def test_operands_are_computed_and_rows_reduced_in_one_kernel() -> None:
    with multiprocessors(2):
        made = agrees(problem("F.silu(self.layer(x * 2 + 1)).sum(1)", 140, 300, 72), reducing=True, fed=True)
    assert computed(made) == "a"
    assert [source.kernel.region.axes for source in made.sources] == [(1,)]
