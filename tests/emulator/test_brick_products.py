"""Products whose second operand is packed as bricks, run on the host: right, and gemm_sm90's own bits."""

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
from tests.emulator.run import agrees, emulated_problem, emulation_of, ran
from tests.emulator.test_fed_products import computed
from tests.emulator.test_fed_products import problem as fed_problem
from tests.emulator.test_product_surroundings import only
from tests.emulator.test_products import BATCHED, Case

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")


def case(sizes: dict[str, Any], template: str = "gemm_sm90_bricks", splits: int = 0, **config: int) -> Case:
    return Case(template, config, sizes, source=BATCHED, splits=splits)


# k over a panel and over the ring, tails of rows, columns and k, odd ones, batches, parts of k, an A that is copied.
CASES = {
    "narrow tiles": case({"M": 20, "N": 44, "K": 1100}, tile_n=128, tile_m=128),
    "tails everywhere": case({"M": 130, "N": 260, "K": 70}, tile_n=256),
    "odd columns": case({"M": 33, "N": 131, "K": 101}, tile_n=128),
    "64 rows": case({"M": 20, "N": 150, "K": 300}, tile_n=256, tile_m=64),
    "64 rows, slots of half a brick": case({"M": 20, "N": 44, "K": 300}, tile_n=128, tile_m=64),
    "batches": case({"BATCH": 3, "M": 20, "N": 44, "K": 600}, tile_n=128, tile_m=128),
    "parts of k": case({"M": 20, "N": 37, "K": 1700}, tile_n=128, splits=3),
    "the first one turned": case({"M": 33, "N": 20, "K": 533, "A_TURNED": True}, tile_n=256),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_product_of_bricks_is_right(name: str) -> None:
    """With two multiprocessors, so that blocks go from tile to tile."""
    with multiprocessors(2):
        agrees(CASES[name].problem, pick=CASES[name].pick, **CASES[name].sizes)


def test_the_order_of_blocks_and_threads_does_not_matter_to_bricks() -> None:
    batches = CASES["batches"]
    with multiprocessors(3), order(blocks_backwards=True, threads_backwards=True):
        agrees(batches.problem, pick=batches.pick, **batches.sizes)


@pytest.mark.parametrize("name", ["narrow tiles", "parts of k"])
def test_bricks_of_any_magnitude_are_summed_in_one_scale(name: str) -> None:
    """Panels of 512: of zeros, far smaller and far larger than others, and with special values."""
    bricks = CASES[name]
    torch.manual_seed(2)
    m, n, k = (bricks.sizes[size] for size in "MNK")
    a, b = torch.randn(1, m, k), torch.randn(1, k, n)
    a[:, :, 512:1024] *= 1e-12
    b[:, :512] *= 1e-3
    b[:, 512:1024] *= 1e12
    b[:, :512, 3] = 0
    b[:, 512:, 4] = 0
    b[:, :, 5] *= torch.where(torch.arange(k) < 512, 1e25, 1e-30)
    with multiprocessors(2):
        agrees(bricks.problem, [a * 1e-2, b], pick=bricks.pick, **bricks.sizes)
        b[0, 700, 7], b[0, 20, 8], b[0, 1025, n - 1] = float("inf"), float("nan"), -3e38
        a[0, 0, 1025], a[0, 3, 4], a[0, 3, 1025] = 1e10, float("-inf"), 0.5  # the last: only one infinity in a sum
        agrees(bricks.problem, [a, b], pick=bricks.pick, **bricks.sizes)


@pytest.mark.parametrize("name", ["batches", "parts of k"])
def test_bricks_give_the_bits_of_rows(name: str) -> None:
    bricks = CASES[name]
    rows = case(bricks.sizes, "gemm_sm90", bricks.splits, **bricks.config)
    problem = emulated_problem(bricks.problem, None, **bricks.sizes)
    results = []
    for way in (bricks, rows):
        with multiprocessors(2):
            results.append(ran(problem, None, emulation_of(problem, pick=way.pick))[0])
    assert torch.equal(*results)


def test_the_first_operand_of_bricks_is_computed_on_the_way() -> None:
    pick = only("gemm_sm90_bricks", tile_m=128)
    with multiprocessors(2):
        made = agrees(
            fed_problem("torch.tanh((F.silu(x * row + column) * tile) @ w)", 140, 76, 600), pick=pick, fed=True
        )
    assert computed(made) == "a"


def test_rows_of_a_product_of_bricks_are_reduced_where_they_are_made() -> None:
    pick = only("gemm_sm90_bricks", tile_m=128)
    source = fed_problem("F.silu(x @ w).sum(1)", 140, 300, 600)
    with multiprocessors(2):
        made = agrees(source, pick=pick, reducing=True)
    assert [kernel.kernel.region.axes for kernel in made.sources] == [(1,)]


TURNED = {"M": 20, "N": 44, "K": 600, "B_TURNED": True}
REFUSED = {
    "k lies along memory": emulated_problem(Problem("turned", BATCHED, Path("turned.py")), None, **TURNED),
    "a parameter": fed_problem("x @ self.layer.weight.t()", 20, 44, 600),
    "a computed one": fed_problem("x @ torch.tanh(w)", 20, 44, 600),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bricks_are_not_offered_for_other_operands(name: str) -> None:
    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        assert not [c for c in choices if type(c).__module__.endswith("bricks") and kernel.core is not None]
        return choices[0]

    emulation_of(REFUSED[name], pick=pick, fed=True)
