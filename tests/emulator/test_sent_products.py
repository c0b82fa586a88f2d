"""Products whose results leave by the copy engine, through slots of the ring, run on the host: gemm_sm90's own bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernelwright.generate.gemm import gemm_of
from kernelwright.kernels import gemm_sm90
from kernelwright.kernels.choices import Choice
from kernelwright.load import Problem
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus, multiprocessors, order
from tests.emulator.run import Pick, agrees, emulated_problem, emulation_of, program_of, ran
from tests.emulator.test_fed_products import problem as fed_problem
from tests.emulator.test_product_surroundings import only
from tests.emulator.test_product_surroundings import problem as surrounded
from tests.emulator.test_products import BATCHED, LINEAR, Case

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")


def sent(template: str, is_sent: bool = True, **members: object) -> Pick:
    """With such a config, whether or not it is among those that are offered."""
    pick = only(template, splits=1, vector=4, **members)

    def picked(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        choice = pick(kernel, choices)
        return replace(choice, sent=is_sent) if isinstance(choice, gemm_sm90.Config) else choice

    return picked


def case(template: str, source: str, sizes: dict[str, Any], tile_m: int = 128, tile_n: int = 256) -> Case:
    return Case(template, {"tile_m": tile_m, "tile_n": tile_n}, sizes, source=source)


SM90, BRICKS, TURNED = "gemm_sm90", "gemm_sm90_bricks", "gemm_sm90_turned"

# Blocks go from tile to tile, and results through the whole ring. k of one chunk, of two and of many; tails of rows,
# columns and k; every size of a tile; batches, panels.
CASES = {
    "widest tile": case(SM90, LINEAR, {"M": 300, "N": 520, "K": 260}),
    "one chunk": case(SM90, LINEAR, {"M": 300, "N": 516, "K": 32}),
    "two chunks": case(SM90, LINEAR, {"M": 20, "N": 1300, "K": 60}),
    "many chunks": case(SM90, LINEAR, {"M": 20, "N": 772, "K": 1100}),
    "192 columns": case(SM90, LINEAR, {"M": 260, "N": 588, "K": 300}, tile_n=192),
    "128 columns": case(SM90, LINEAR, {"M": 260, "N": 300, "K": 300}, tile_n=128),
    "64 columns": case(SM90, LINEAR, {"M": 900, "N": 36, "K": 100}, tile_n=64),
    "64 rows": case(SM90, LINEAR, {"M": 37, "N": 1100, "K": 300}, tile_m=64),
    "64 rows, narrow": case(SM90, LINEAR, {"M": 37, "N": 700, "K": 40}, tile_m=64, tile_n=128),
    "batches": case(SM90, BATCHED, {"BATCH": 3, "M": 140, "N": 260, "K": 530}),
    "one row": case(SM90, BATCHED, {"BATCH": 5, "M": 1, "N": 4, "K": 600}),
    "bricks": case(BRICKS, BATCHED, {"BATCH": 3, "M": 140, "N": 260, "K": 530}),
    "bricks, 128 columns": case(BRICKS, BATCHED, {"BATCH": 3, "M": 33, "N": 300, "K": 101}, tile_n=128),
    "turned": case(TURNED, BATCHED, {"BATCH": 3, "M": 260, "N": 76, "K": 530}),
    "turned, odd rows": case(TURNED, BATCHED, {"BATCH": 5, "M": 131, "N": 36, "K": 101}),
    "turned, one chunk": case(TURNED, BATCHED, {"BATCH": 3, "M": 300, "N": 260, "K": 32}),
    "turned, 192 rows": case(TURNED, BATCHED, {"BATCH": 5, "M": 200, "N": 36, "K": 300}, tile_n=192),
    "turned, 128 rows": case(TURNED, BATCHED, {"BATCH": 5, "M": 200, "N": 36, "K": 300}, tile_n=128),
    "turned, 64 rows": case(TURNED, BATCHED, {"BATCH": 7, "M": 33, "N": 140, "K": 200}, tile_n=64),
    "turned, 64 columns": case(TURNED, BATCHED, {"BATCH": 5, "M": 300, "N": 20, "K": 300}, tile_m=64),
    "turned, both across k": case(TURNED, BATCHED, {"BATCH": 3, "M": 140, "N": 132, "K": 1100, "A_TURNED": True}),
}


def bits_of(name: str, inputs: Sequence[Any] | None, is_sent: bool) -> torch.Tensor:
    made = CASES[name]
    problem = emulated_problem(made.problem, None, **made.sizes)
    pick = sent(made.template, is_sent, **made.config)
    return ran(problem, inputs, emulation_of(problem, pick=pick))[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results_that_are_sent_are_right(name: str) -> None:
    made = CASES[name]
    with multiprocessors(2):
        program = agrees(made.problem, pick=sent(made.template, **made.config), **made.sizes)
    assert "gemm_sm90_sent::launch" in program.text


@pytest.mark.parametrize("name", ["many chunks", "turned"])
def test_results_that_are_sent_have_the_bits_of_those_that_are_stored(name: str) -> None:
    with multiprocessors(1):
        assert torch.equal(bits_of(name, None, True), bits_of(name, None, False))


@pytest.mark.parametrize("name", ["batches", "turned, one chunk"])
def test_the_order_of_blocks_and_threads_does_not_matter_to_results_that_are_sent(name: str) -> None:
    made = CASES[name]
    with multiprocessors(3), order(blocks_backwards=True, threads_backwards=True):
        agrees(made.problem, pick=sent(made.template, **made.config), **made.sizes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["batches", "bricks", "turned"])
def test_special_values_are_computed_again_before_they_are_sent(name: str) -> None:
    """In the first and in the last tile, in one slot and in several of a warp, in none of its neighbours."""
    made = CASES[name]
    torch.manual_seed(2)
    batch, m, n, k = (made.sizes[size] for size in ("BATCH", "M", "N", "K"))
    a, b = torch.randn(batch, m, k), torch.randn(batch, k, n)
    a[0, 3, 5], a[1, m - 1, 7] = float("nan"), float("inf")
    b[1, 500, 70], b[batch - 1, 20, n - 1], b[2, 40, 9] = float("nan"), float("-inf"), 3e38
    a[2, 8, 40] = 1e10
    with multiprocessors(2):
        agrees(made.problem, [a, b], pick=sent(made.template, **made.config), **made.sizes)


AROUND: dict[str, tuple[Problem, str]] = {
    "bias, relu": (surrounded("torch.relu(y)", 150, 300, 100), SM90),
    "operands of every kind": (surrounded("torch.sigmoid(y) * row + column - tile", 150, 300, 100), SM90),
    "gelu and a residual": (surrounded("F.gelu(y) + tile", 150, 300, 300), SM90),
    "a part of a concatenation": (surrounded("torch.cat([torch.relu(y), tile[:, :8]], -1)", 150, 300, 40), SM90),
    "the second part": (surrounded("torch.cat([tile[:, :8], torch.relu(y)], -1)", 150, 300, 40), SM90),
    "a turned product": (fed_problem("torch.relu(x @ w) * row + 1", 150, 140, 100), TURNED),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AROUND)
def test_what_stands_around_a_product_is_sent_with_it(name: str) -> None:
    source, template = AROUND[name]
    with multiprocessors(2):
        program = agrees(source, pick=sent(template, tile_n=256, tile_m=128))
    assert "gemm_sm90_sent::launch" in program.text


REFUSED = {
    "float16": surrounded("torch.relu(y).half()", 150, 300, 100),
    "two results": surrounded("(torch.relu(y), y + 1)", 150, 300, 100),
    "odd columns": surrounded("torch.relu(y)", 150, 301, 100),
    "rows off 16 bytes": surrounded("torch.cat([torch.relu(y), tile[:, :7]], -1)", 150, 300, 40),
    "results between others": surrounded("torch.stack([torch.relu(y), tile], -1)", 150, 300, 40),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_results_are_not_sent(name: str) -> None:
    products = [k for k in program_of(REFUSED[name]).plan.kernels if k.core is not None]
    assert [gemm_of(kernel).sendable for kernel in products] == [False]
