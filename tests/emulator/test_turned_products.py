"""Products whose first operand is packed and whose second is split on the way, run on the host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.kernels.choices import Choice
from kernelwright.load import Problem
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus, multiprocessors, order
from tests.emulator.run import agrees, emulated_problem, emulation_of
from tests.emulator.test_fed_products import problem as fed_problem
from tests.emulator.test_product_surroundings import only
from tests.emulator.test_products import BATCHED, Case

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")


def case(sizes: dict[str, Any], splits: int = 0, **config: int) -> Case:
    return Case("gemm_sm90_turned", config, sizes, source=BATCHED, splits=splits)


# k over the ring, tails of rows, columns and k, batches, parts of k; a first operand across k, packed by panels.
CASES = {
    "narrow tiles": case({"M": 44, "N": 20, "K": 1100}, tile_n=128, tile_m=128),
    "tails everywhere": case({"M": 260, "N": 132, "K": 70}, tile_n=256),
    "192 rows": case({"M": 131, "N": 36, "K": 101}, tile_n=192),
    "64 columns": case({"M": 150, "N": 20, "K": 300}, tile_n=256, tile_m=64),
    "64 columns, narrow": case({"M": 44, "N": 20, "K": 300}, tile_n=128, tile_m=64),
    "64 rows": case({"M": 33, "N": 140, "K": 200}, tile_n=64),
    "batches": case({"BATCH": 3, "M": 44, "N": 20, "K": 600}, tile_n=128, tile_m=128),
    "parts of k": case({"M": 37, "N": 20, "K": 1700}, tile_n=128, splits=3),
    "long rows": case({"M": 5, "N": 12, "K": 1301}, tile_n=128, tile_m=128),
    "both across k": case({"BATCH": 2, "M": 44, "N": 20, "K": 1100, "A_TURNED": True}, tile_n=128, tile_m=128),
    "both across k, in parts": case({"M": 44, "N": 20, "K": 1700, "A_TURNED": True}, tile_n=128, splits=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_turned_product_is_right(name: str) -> None:
    """With two multiprocessors, so that blocks go from tile to tile."""
    with multiprocessors(2):
        agrees(CASES[name].problem, pick=CASES[name].pick, **CASES[name].sizes)


def test_the_order_of_blocks_and_threads_does_not_matter_to_turned_products() -> None:
    batches = CASES["batches"]
    with multiprocessors(3), order(blocks_backwards=True, threads_backwards=True):
        agrees(batches.problem, pick=batches.pick, **batches.sizes)


@pytest.mark.parametrize("name", ["narrow tiles", "parts of k", "both across k"])
def test_special_values_of_turned_products_are_computed_again(name: str) -> None:
    turned = CASES[name]
    torch.manual_seed(2)
    batch, m, n, k = (turned.sizes.get(size, 1) for size in ("BATCH", "M", "N", "K"))
    a, b = torch.randn(batch, m, k), torch.randn(batch, k, n)
    b[0, 700, 7], b[0, 20, 8], b[0, 1025, n - 1] = float("inf"), float("nan"), -3e38
    a[0, 0, 1025], a[0, 3, 4], a[0, 3, 1025], a[0, 3, 700] = 1e10, float("-inf"), 0.5, 0.0
    b[0, 4] = torch.rand(n) + 0.5  # no second infinity, and no zero times one, beside these
    a[0, :, 700] = torch.where(torch.arange(m) == 3, 1.0, 0.5)
    b[0, 4, 7] = -1.0
    a = a.transpose(-1, -2).contiguous() if turned.sizes.get("A_TURNED") else a
    with multiprocessors(2):
        agrees(turned.problem, [a, b], pick=turned.pick, **turned.sizes)


def test_rows_of_any_magnitude_are_summed_in_one_scale_by_turned_products() -> None:
    turned = CASES["both across k"]
    torch.manual_seed(2)
    m, n, k = (turned.sizes[size] for size in "MNK")
    a, b = torch.randn(2, k, m), torch.randn(2, k, n)
    a[:, :512] *= 1e-3
    a[:, 512:1024] *= 1e12
    b[:, 512:1024] *= 1e-12
    a[:, :512, 3] = 0
    a[:, 512:, 4] = 0
    with multiprocessors(2):
        agrees(turned.problem, [a * 1e-2, b], pick=turned.pick, **turned.sizes)


def test_an_epilogue_of_a_turned_product_finds_its_operands() -> None:
    source = fed_problem("torch.relu(x @ w) * 2 + (x @ w).mean()", 70, 36, 100)
    with multiprocessors(2):
        agrees(source, pick=only("gemm_sm90_turned", tile_m=128))


TURNED = {"M": 20, "N": 44, "K": 600, "B_TURNED": True}
REFUSED = {
    "k lies along memory": emulated_problem(Problem("turned", BATCHED, Path("turned.py")), None, **TURNED),
    "a parameter": fed_problem("x @ self.layer.weight.t()", 20, 44, 600),
    "lines off 16 bytes": fed_problem("x @ w", 20, 45, 600),
}


@pytest.mark.parametrize("name", REFUSED)
def test_turned_products_are_not_offered_for_other_operands(name: str) -> None:
    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        assert not [c for c in choices if type(c).__module__.endswith("turned") and kernel.core is not None]
        return choices[0]

    emulation_of(REFUSED[name], pick=pick, fed=True)
