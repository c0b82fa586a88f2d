"""Products whose W is packed beside them, by blocks that have no tiles and by idle warps, run on the host: gemm_sm90's
own bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernelwright.kernels import gemm_sm90
from kernelwright.kernels.choices import Choice
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus, multiprocessors, order
from tests.emulator.run import Pick, agrees, emulated_problem, emulation_of, ran
from tests.emulator.test_fed_products import problem as fed_problem
from tests.emulator.test_product_surroundings import only
from tests.emulator.test_products import BATCHED, Case

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")


def beside(template: str, packers: int, ahead: int, aside: int = 0, **members: object) -> Pick:
    """With so many packers and so much packed before and aside, whether or not that is offered; with neither packers
    nor aside, all before."""
    pick = only(template, splits=1, vector=4, **members)

    def picked(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        choice = pick(kernel, choices)
        return (
            replace(choice, sent=True, packers=packers, ahead=ahead, aside=aside)
            if isinstance(choice, gemm_sm90.Config)
            else choice
        )

    return picked


def case(template: str, sizes: dict[str, Any], tile_n: int = 256) -> Case:
    turned = {} if template == TURNED else {"B_TURNED": True}  # rows that are packed lie along k
    return Case(template, {"tile_m": 128, "tile_n": tile_n}, sizes | turned, source=BATCHED)


SM90, TURNED = "gemm_sm90", "gemm_sm90_turned"

# Rows of a warp and of a warpgroup, whole vectors and tails of k, tails of rows and columns, both orders of pairs.
CASES = {
    "rows of a warp": case(TURNED, {"BATCH": 3, "M": 260, "N": 36, "K": 140}),
    "whole vectors": case(TURNED, {"BATCH": 2, "M": 260, "N": 36, "K": 128}),
    "rows of a warpgroup": case(TURNED, {"BATCH": 2, "M": 20, "N": 36, "K": 1060}),
    "192 rows": case(TURNED, {"BATCH": 4, "M": 200, "N": 36, "K": 68}, tile_n=192),
    "pairs out of order": case(SM90, {"BATCH": 3, "M": 20, "N": 260, "K": 100}),
    "pairs out of order, of a warpgroup": case(SM90, {"BATCH": 2, "M": 20, "N": 36, "K": 1028}),
    "few rows": case(SM90, {"BATCH": 5, "M": 20, "N": 12, "K": 68}),
}  # fmt: skip

# What idle warps pack has whole lines: groups of rows and what is left of them, a row in one step and in several.
ASIDE = {
    "aside": case(TURNED, {"BATCH": 3, "M": 260, "N": 36, "K": 512}),
    "aside, out of order": case(SM90, {"BATCH": 3, "M": 20, "N": 260, "K": 512}),
    "aside, of a warpgroup": case(TURNED, {"BATCH": 2, "M": 20, "N": 12, "K": 1536}),
    "aside, long rows": case(SM90, {"BATCH": 2, "M": 20, "N": 12, "K": 2048}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_products_of_what_is_packed_beside_them_are_right(name: str) -> None:
    made = CASES[name]
    with multiprocessors(4), order(blocks_at_once=True):
        program = agrees(made.problem, pick=beside(made.template, 2, 1, **made.config), **made.sizes)
    assert "gemm_sm90_beside::pack_before" in program.text


def bits_of(name: str, packers: int, ahead: int, inputs: Sequence[Any] | None = None, aside: int = 0) -> torch.Tensor:
    made = (CASES | ASIDE)[name]
    problem = emulated_problem(made.problem, None, **made.sizes)
    pick = beside(made.template, packers, ahead, aside, **made.config)
    return ran(problem, inputs, emulation_of(problem, pick=pick))[0]


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [0, 3, 99])
def test_nothing_something_or_all_may_be_packed_before(ahead: int) -> None:
    with multiprocessors(3), order(blocks_at_once=True):
        assert torch.equal(bits_of("rows of a warp", 1, ahead), bits_of("rows of a warp", 0, 0))


@pytest.mark.parametrize("name", ["whole vectors", "pairs out of order"])
def test_whoever_is_first_waits(name: str) -> None:
    """Tiles before packers, and the last threads before the first."""
    with multiprocessors(3), order(blocks_at_once=True, blocks_backwards=True, threads_backwards=True):
        assert torch.equal(bits_of(name, 1, 0), bits_of(name, 0, 0))


@pytest.mark.slow
@pytest.mark.parametrize(("packers", "ahead", "aside"), [(1, 0, 2), (1, 1, 99), (0, 1, 99), (0, 2, 99)])
@pytest.mark.parametrize("name", ASIDE)
def test_idle_warps_pack_some_or_all_of_it(name: str, packers: int, ahead: int, aside: int) -> None:
    with multiprocessors(4), order(blocks_at_once=True, blocks_backwards=True):
        assert torch.equal(bits_of(name, packers, ahead, aside=aside), bits_of(name, 0, 0))


@pytest.mark.parametrize("threads_backwards", [False, True])
def test_idle_warps_pack_whoever_is_first(threads_backwards: bool) -> None:
    with multiprocessors(3), order(blocks_at_once=True, threads_backwards=threads_backwards):
        assert torch.equal(bits_of("aside", 0, 0, aside=99), bits_of("aside", 0, 0))


def test_what_one_block_finds_to_pack_it_packs() -> None:
    """Where blocks run one after the other, nobody waits for a block that has no place."""
    with multiprocessors(2):
        assert torch.equal(bits_of("aside", 0, 0, aside=99), bits_of("aside", 0, 0))


def test_packers_wait_for_nobody() -> None:
    """They have the lowest numbers: where blocks run one after the other, all is packed when the first tile begins."""
    with multiprocessors(2):
        assert torch.equal(bits_of("few rows", 1, 0), bits_of("few rows", 0, 0))


@pytest.mark.parametrize(
    ("name", "aside"), [("rows of a warp", 0), ("pairs out of order", 0), ("aside", 99), ("aside, out of order", 99)]
)
def test_special_values_are_packed_as_they_are(name: str, aside: int) -> None:
    made = (CASES | ASIDE)[name]
    torch.manual_seed(3)
    batch, m, n, k = (made.sizes[size] for size in ("BATCH", "M", "N", "K"))
    a, b = torch.randn(batch, m, k), torch.randn(batch, *((n, k) if made.template == SM90 else (k, n)))
    for packed in (a if made.template == TURNED else b,):
        packed[0, 3, 5], packed[1, 2, k - 1], packed[2, 9] = float("nan"), float("-inf"), 0.0
        packed[2, 11], packed[0, 7] = packed[2, 11] * 1e30, packed[0, 7] * 1e-38
    with multiprocessors(3), order(blocks_at_once=True):
        agrees(made.problem, [a, b], pick=beside(made.template, 1, 1, aside, **made.config), **made.sizes)


def test_what_follows_is_computed_beside_packers_too() -> None:
    source = fed_problem("torch.relu(x @ w) * row + 1", 260, 36, 68)
    with multiprocessors(3), order(blocks_at_once=True):
        agrees(source, pick=beside(TURNED, 1, 0, tile_n=256, tile_m=128))
