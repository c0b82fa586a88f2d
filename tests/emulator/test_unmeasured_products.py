"""Templates for products that nobody chooses yet, on the host: products, special values, and the same bits twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.device import resolve
from kernelwright.generate.gemm import unmeasured_choices
from kernelwright.kernels.choices import Choice
from kernelwright.load import Problem
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus, multiprocessors, order
from tests.emulator.run import Pick, agrees, emulated_problem, emulation_of, ran
from tests.emulator.test_product_surroundings import only
from tests.emulator.test_products import BATCHED, BFLOAT16

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")


def unmeasured(template: str, splits: int = 0, **wanted: Any) -> Pick:
    """The first config of a template that has these members, with other parts of k than the device would want."""

    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        if kernel.core is None:
            return choices[0]
        offered = unmeasured_choices(kernel, resolve("h200"))
        of_template = [c for c in offered if type(c).__module__.rpartition(".")[2] == template]
        found = [c for c in of_template if all(getattr(c, name) == value for name, value in wanted.items())]
        assert found, f"{template} with {wanted} is not among {offered}"
        return replace(found[0], splits=splits) if splits else found[0]  # type: ignore[arg-type]

    return pick


BATCHES = Problem("bricks", BATCHED, Path("bricks.py"))

# Sizes, and members of the config: k over a panel and over the ring, tails of rows, columns and k, batches, parts of k.
SIZES = {
    "narrow tiles": ({"M": 20, "N": 44, "K": 1100}, {"tile_n": 128, "splits": 0}),
    "tails everywhere": ({"M": 130, "N": 260, "K": 70}, {"tile_n": 256, "splits": 0}),
    "batches": ({"BATCH": 3, "M": 20, "N": 44, "K": 600}, {"tile_n": 128, "splits": 0}),
    "parts of k": ({"M": 20, "N": 36, "K": 1700}, {"tile_n": 128, "splits": 3}),
    "the first one turned": ({"M": 33, "N": 20, "K": 533, "A_TURNED": True}, {"tile_n": 256, "splits": 0}),
}


@pytest.mark.parametrize("beside", [False, True], ids=["before", "beside"])
@pytest.mark.parametrize("name", SIZES)
def test_a_product_of_bricks_is_right(name: str, beside: bool) -> None:
    """With two multiprocessors, so that blocks go from tile to tile and wait for each other's bricks."""
    sizes, config = SIZES[name]
    with multiprocessors(2):
        agrees(BATCHES, pick=unmeasured("gemm_sm90_bricks", beside=beside, **config), **sizes)


def test_the_order_of_blocks_and_threads_does_not_matter_to_bricks() -> None:
    sizes, config = SIZES["batches"]
    with multiprocessors(3), order(blocks_backwards=True, threads_backwards=True):
        agrees(BATCHES, pick=unmeasured("gemm_sm90_bricks", beside=True, **config), **sizes)


@pytest.mark.parametrize("beside", [False, True], ids=["before", "beside"])
def test_bricks_of_any_magnitude_are_summed_in_one_scale(beside: bool) -> None:
    """Panels of 512: of zeros, far smaller and far larger than others, and with special values."""
    torch.manual_seed(2)
    sizes = {"BATCH": 2, "M": 20, "N": 44, "K": 1100}
    a, b = torch.randn(2, 20, 1100), torch.randn(2, 1100, 44)
    a[:, :, 512:1024] *= 1e-12
    b[:, :512] *= 1e-3
    b[:, 512:1024] *= 1e12
    b[:, :512, 3] = 0
    b[:, 512:, 4] = 0
    b[:, :, 5] *= torch.where(torch.arange(1100) < 512, 1e25, 1e-30)
    pick = unmeasured("gemm_sm90_bricks", tile_n=128, beside=beside)
    with multiprocessors(2):
        agrees(BATCHES, [a * 1e-2, b], pick=pick, **sizes)
        b[0, 700, 7], b[0, 20, 8], b[1, 1025, 9] = float("inf"), float("nan"), -3e38
        a[0, 0, 1025], a[1, 3, 4] = 1e10, float("-inf")
        agrees(BATCHES, [a, b], pick=pick, **sizes)


@pytest.mark.slow
def test_bricks_give_the_same_bits_whoever_packs_them() -> None:
    """Before the product, by warps beside it, by blocks that run in another order, and twice."""
    sizes, config = SIZES["batches"]
    problem = emulated_problem(BATCHES, None, **sizes)
    results = []
    for beside, count in ((False, 2), (True, 2), (True, 2), (True, 132)):
        emulation = emulation_of(problem, pick=unmeasured("gemm_sm90_bricks", beside=beside, **config))
        with multiprocessors(count), order(blocks_backwards=count == 132):
            results.append(ran(problem, None, emulation)[0])
    assert all(torch.equal(result, results[0]) for result in results)


# --- gemm_sm90_apart: 16-bit products whose epilogues are run by warps of their own

HALVES = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(K, N, bias=BIAS, dtype=DTYPE)

    def forward(self, x, residual):
        return F.gelu(self.layer(x)) + residual


DTYPE, M, N, K, BIAS = torch.float16, 1, 1, 1, True


def get_inputs():
    return [torch.randn(M, K, dtype=DTYPE), torch.randn(M, N, dtype=DTYPE)]


def get_init_inputs():
    return []
"""
APART = Problem("apart", HALVES, Path("apart.py"))

# k longer than the ring of 192, tails, several tiles for each block; blocks alone and in pairs, with and without bias.
APART_SIZES = {
    "pairs": ({"M": 150, "N": 260, "K": 200}, {"cluster": 2}),
    "alone": ({"M": 70, "N": 600, "K": 40, "DTYPE": BFLOAT16}, {"cluster": 1}),
    "no bias": ({"M": 70, "N": 36, "K": 40, "BIAS": False}, {"cluster": 1}),
}


@pytest.mark.parametrize("name", APART_SIZES)
def test_a_product_with_its_epilogue_apart_is_right(name: str) -> None:
    sizes, config = APART_SIZES[name]
    with multiprocessors(2):
        agrees(APART, pick=unmeasured("gemm_sm90_apart", **config), **sizes)


@pytest.mark.slow
def test_an_epilogue_apart_gives_the_bits_of_one_in_place() -> None:
    sizes, config = APART_SIZES["pairs"]
    problem = emulated_problem(APART, None, **sizes)
    results = []
    for backwards, pick in (
        (False, only("gemm_sm90_half", tile_n=256, cluster=2)),
        (False, unmeasured("gemm_sm90_apart", **config)),
        (True, unmeasured("gemm_sm90_apart", **config)),
    ):
        with multiprocessors(2), order(blocks_backwards=backwards, threads_backwards=backwards):
            results.append(ran(problem, None, emulation_of(problem, pick=pick))[0])
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
