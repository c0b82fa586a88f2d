"""Products that reduce their own rows, run on the host: what their tiles leave, finished, is what PyTorch computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.generate import Program
from kernelwright.load import Problem
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus, multiprocessors, order
from tests.emulator.run import Pick, agrees, emulation_of, ran
from tests.emulator.test_product_surroundings import only, problem

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")


def joined(made: Program) -> list[Kernel]:
    return [s.kernel for s in made.sources if s.kernel.core is not None and s.kernel.region.axes]


def reduced(
    body: str, pick: Pick, m: int, n: int, k: int, dtype: str = "float32", precision: str = "reference"
) -> Program:
    with multiprocessors(2):
        made = agrees(problem(body, m, n, k, dtype), pick=pick, precision=precision, reducing=True)
    assert len(joined(made)) == 1
    assert not [source for source in made.sources if source.template == "reduce"]
    return made


SUM, LOGSUMEXP = "F.silu(y).sum(1)", "torch.logsumexp(torch.sigmoid(y), 1)"
# All at once, so that every kind of state is in one program.
EVERYTHING = (
    "(lambda z: (z.sum(1), z.amax(1), z.amin(1), torch.argmax(z, 1), torch.argmin(z, 1), torch.logsumexp(z, 1), "
    "z.var(1), z.norm(dim=1)))(torch.tanh(y) * row + column)"
)

CASES: dict[str, tuple[str, Pick, int, int, int]] = {
    "many tiles, ragged ones at both edges": (EVERYTHING, only("gemm_sm90", tile_n=128, tile_m=128), 150, 300, 40),
    "one tile that has few columns": (SUM, only("gemm_sm90", tile_n=256, tile_m=128), 9, 12, 64),
    "columns of 192": (LOGSUMEXP, only("gemm_sm90", tile_n=192), 130, 390, 33),
    "half a tile that has no columns": (SUM, only("gemm_sm90", tile_m=64, tile_n=256), 20, 260, 64),
    "an odd number of columns": (EVERYTHING, only("gemm_sm90", tile_n=128, tile_m=128), 7, 131, 37),
    "a residual": ("(F.gelu(y) + tile).amax(1, keepdim=True) * 2", only("gemm_sm90"), 40, 72, 64),
    "Ampere": (EVERYTHING, only("gemm_sm80", tile_m=64, tile_n=64), 70, 204, 40),
    "CUDA cores": (EVERYTHING, only("gemm_simt"), 70, 150, 20),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_reduced_where_the_product_leaves_them(name: str) -> None:
    made = reduced(*CASES[name])
    (kernel,) = joined(made)
    assert {len(layout.buffer.shape) for _, layout in kernel.region.stores} <= {1, 2}
    assert not [layout for _, layout in kernel.region.stores if layout.buffer.shape == kernel.region.shape]


def test_half_precision_products_reduce_what_would_have_been_rounded() -> None:
    reduced(EVERYTHING, only("gemm_sm90_half"), 150, 300, 40, "float16")
    reduced("y.float().softmax(1)", only("gemm_sm90_half"), 20, 24, 40, "bfloat16")


def test_scaled_float16_products_reduce_what_they_unscale() -> None:
    reduced("F.silu(y * 1e-4).sum(1)", only("gemm_sm90_f16x1"), 150, 300, 40, precision="tf32")


@pytest.mark.parametrize(
    "body", ["torch.softmax(y * 3, 1)", "F.layer_norm(y, y.shape[1:])", "(y.amax(1), torch.relu(y))"]
)
def test_what_others_read_is_stored_on_the_way(body: str) -> None:
    made = reduced(body, only("gemm_sm90"), 140, 76, 64)
    (kernel,) = joined(made)
    assert [layout.buffer.shape for _, layout in kernel.region.stores].count((140, 76)) == 1


def test_rows_of_every_batch_are_told_apart() -> None:
    text = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b.transpose(1, 2)).sum(-1)

def get_inputs():
    return [torch.randn(3, 20, 40), torch.randn(3, 150, 40)]
"""
    with multiprocessors(2):
        made = agrees(Problem("batches", text, Path("batches.py")), pick=only("gemm_sm90"), reducing=True)
    assert len(joined(made)) == 1


SPECIAL = (torch.inf, -torch.inf, torch.nan, 3e38)


@pytest.mark.parametrize("template", ["gemm_sm90", "gemm_sm80", "gemm_simt"])
def test_infinities_and_nan_reach_the_rows_that_have_them(template: str) -> None:
    k = 40 if template != "gemm_simt" else 20
    m, n = 70, 140
    body = "(y.amax(1), torch.sigmoid(y).sum(1), torch.relu(y).amin(1), torch.argmax(y, 1), torch.logsumexp(y, 1))"
    x = torch.randn(m, k)
    for row, value in zip((1, 9, 33, 69), SPECIAL, strict=True):
        x[row, row % k] = value
    inputs = [x, torch.randn(m, 1), torch.randn(n), torch.randn(m, n)]
    with multiprocessors(2):
        made = agrees(problem(body, m, n, k), inputs, pick=only(template), reducing=True)
    assert len(joined(made)) == 1


def test_every_order_of_blocks_and_threads_gives_the_same_bits() -> None:
    source = problem(SUM, 140, 300, 40)
    emulation = emulation_of(source, pick=only("gemm_sm90", tile_n=128), reducing=True)
    with multiprocessors(3):
        first = ran(source, None, emulation)[0]
        for backwards in ({"blocks_backwards": True}, {"threads_backwards": True}):
            with order(**backwards):
                assert torch.equal(ran(source, None, emulation)[0], first)
