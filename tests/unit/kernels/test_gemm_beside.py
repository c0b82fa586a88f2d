"""W packed beside the product: by whom, how much of it before, where it is offered and where not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelwright.device import resolve
from kernelwright.kernels import gemm_sm90, gemm_sm90_beside, gemm_sm90_bricks, gemm_sm90_turned
from kernelwright.kernels.gemm_shape import Gemm, Operand
from kernelwright.tune.tune import short_list
from tests.unit.kernels.test_gemm_bricks import BATCHES, kernel_of

H200 = resolve("h200")


def product(m: int, n: int, k: int, batches: int = 1) -> Gemm:
    """a @ b.t(): both lie along k."""
    a = Operand("float32", k, 1, m * k if batches > 1 else 0, constant=False)
    w = Operand("float32", k, 1, n * k if batches > 1 else 0, constant=False)
    return Gemm(m, n, k, batches, a, w, 4, 4 * batches * m * n, sendable=True)


SQUARES = product(1024, 1024, 1024, 16)
BESIDE = gemm_sm90.Config(256, 64, 1, 4, sent=True, packers=4, ahead=20)


def test_multiprocessors_without_a_tile_pack() -> None:
    """512 tiles are four rounds of 128."""
    widest = [c for c in gemm_sm90.configs(SQUARES, H200) if c.packers and c.tile_n == 256]
    assert {c.packers for c in widest} == {H200.multiprocessors - 128}
    assert len(widest) == 1
    assert all(0 < c.ahead < 16 * 4 for c in widest)


@pytest.mark.parametrize("rows", [8448, 16896])
def test_nobody_packs_where_every_multiprocessor_has_a_tile(rows: int) -> None:
    """32 rows of tiles by 33 or 66 columns: 8 and 16 rounds."""
    assert not any(c.packers for c in gemm_sm90.configs(product(4096, rows, 1024), H200) if c.tile_n == 256)


@pytest.mark.parametrize(
    "gemm",
    [
        SQUARES,
        product(1024, 1024, 64, 32),
        product(1024, 1024, 256, 16),
        product(2048, 2048, 1100, 8),
        product(1536, 3072, 1024),
        product(1024, 2560, 1024, 2),
    ],
    ids=lambda gemm: f"{gemm.batches} x {gemm.m} x {gemm.n} x {gemm.k}",
)
def test_no_tile_waits_for_packers_that_are_as_fast_as_the_model_has_them(gemm: Gemm) -> None:
    found = [c for c in gemm_sm90.configs(gemm, H200) if c.packers]
    for tile_n in {c.tile_n for c in found}:
        most = max((c for c in found if c.tile_n == tile_n), key=lambda c: c.ahead)
        rounds = gemm_sm90.rounds_of(most, gemm, H200)
        assert gemm_sm90_beside.late_us(most.packers, most.ahead, gemm, H200, rounds) == pytest.approx(0.0, abs=1e-6)


def test_tiles_wait_for_packers_that_have_too_much_to_do() -> None:
    config = next(c for c in gemm_sm90.configs(SQUARES, H200) if c.packers and c.tile_n == 256)
    rounds = gemm_sm90.rounds_of(config, SQUARES, H200)
    packers, ahead = config.packers, config.ahead
    late = [gemm_sm90_beside.late_us(packers, ahead - less, SQUARES, H200, rounds) for less in (2, 12, 22)]
    assert 0.0 < late[0] < late[1] < late[2]
    assert late[2] - late[1] == pytest.approx(10 * gemm_sm90_beside.unit_us(packers, SQUARES, rounds))


@pytest.mark.parametrize("sizes", [(512, 2048, 1024, 128), (2048, 2048, 2048, 8)])
def test_packers_are_the_first_choice_where_there_are_many_rounds(sizes: tuple[int, int, int, int]) -> None:
    """As measured on an H200: 1,391 us instead of 1,452, and 659 instead of 691."""
    m, n, k, batches = sizes
    kernel = kernel_of(BATCHES, (batches, m, k), (batches, k, n))
    assert short_list(kernel, H200)[0].packers == H200.multiprocessors - 128


def test_the_tuner_tries_it_with_packers_and_without() -> None:
    kernel = kernel_of(BATCHES, (16, 1024, 1024), (16, 1024, 1024))
    tried = [c for c in short_list(kernel, H200) if isinstance(c, gemm_sm90_turned.Config) and c.sent]
    assert sorted(bool(c.packers) for c in tried) == [False, True]


REFUSED = {
    "a weight": (BESIDE, replace(SQUARES, w=replace(SQUARES.w, constant=True)), "each call brings it"),
    "rows side by side": (BESIDE, replace(SQUARES, w=Operand("float32", 1, 1024, 2**20, False)), "along k"),
    "odd k": (
        BESIDE,
        replace(product(1024, 1024, 1022, 16), w=replace(SQUARES.w, row_pitch=1024)),
        "each call brings it",
    ),
    "long rows": (BESIDE, product(1024, 1024, 8192, 16), "up to 4,096"),
    "results that are stored": (replace(BESIDE, sent=False), SQUARES, "the copy engine takes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused_in_words(name: str) -> None:
    config, gemm, reason = REFUSED[name]
    assert reason in str(gemm_sm90.why_not(config, gemm, H200))


def test_bricks_are_packed_before() -> None:
    b = Operand("float32", 1, 1024, 2**20, constant=False)
    config = gemm_sm90_bricks.Config(256, 64, 1, 4, sent=True, packers=4, ahead=20)
    assert "before" in str(gemm_sm90_bricks.why_not(config, replace(SQUARES, w=b), H200))


def test_the_first_operand_may_be_the_one_that_is_packed_beside() -> None:
    turned = replace(SQUARES, w=Operand("float32", 1, 1024, 2**20, constant=False))
    config = gemm_sm90_turned.Config(256, 64, 1, 4, sent=True, packers=4, ahead=20)
    assert gemm_sm90_turned.why_not(config, turned, H200) is None
    assert "Beside<kw::gemm_sm90_turned::Turned" in gemm_sm90_turned.entry("gemm", config, turned, "Epilogue")
