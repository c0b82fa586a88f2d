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
    widest = [c for c in gemm_sm90.configs(SQUARES, H200) if c.is_beside and c.tile_n == 256]
    packers = H200.multiprocessors - 128
    assert sorted((c.packers, c.aside > 0) for c in widest) == [(0, True), (packers, False), (packers, True)]
    assert all(0 < c.ahead < c.ahead + c.aside <= 16 * 4 for c in widest if c.aside)


@pytest.mark.parametrize("rows", [8448, 16896])
def test_no_block_only_packs_where_every_multiprocessor_has_a_tile(rows: int) -> None:
    """32 rows of tiles by 33 or 66 columns: 8 and 16 rounds."""
    widest = [c for c in gemm_sm90.configs(product(4096, rows, 1024), H200) if c.is_beside and c.tile_n == 256]
    assert [(c.packers, c.aside > 0) for c in widest] == [(0, True)]


def test_what_a_round_wants_is_packed_before_as_a_whole_or_aside() -> None:
    """On an H200, 16 x 1024^3 took 180 us with what two of four rounds want packed before, 200 to 216 with less."""
    both = next(c for c in gemm_sm90.configs(SQUARES, H200) if c.packers and c.aside and c.tile_n == 256)
    assert both.ahead == 2 * 128 // 8
    assert gemm_sm90.configs(SQUARES, H200)[0] == both


def test_rows_that_are_no_whole_lines_are_not_packed_aside() -> None:
    gemm = product(1024, 1024, 1060, 16)
    assert not any(c.aside for c in gemm_sm90.configs(gemm, H200))
    config = gemm_sm90.Config(256, 64, 1, 4, sent=True, ahead=20, aside=44)
    assert "multiples of 512" in str(gemm_sm90.why_not(config, gemm, H200))


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
def test_no_tile_waits_for_those_who_pack_as_fast_as_the_model_has_it(gemm: Gemm) -> None:
    found = [c for c in gemm_sm90.configs(gemm, H200) if c.is_beside]
    assert found
    for config in found:
        rounds = gemm_sm90.rounds_of(config, gemm, H200)
        assert gemm_sm90_beside.late_us(config.way, gemm, H200, rounds) == pytest.approx(0.0, abs=1e-6)


def test_tiles_wait_for_packers_that_have_too_much_to_do() -> None:
    config = next(c for c in gemm_sm90.configs(SQUARES, H200) if c.packers and not c.aside and c.tile_n == 256)
    rounds = gemm_sm90.rounds_of(config, SQUARES, H200)
    ways = [gemm_sm90_beside.Way(config.packers, config.ahead - less, 0) for less in (2, 12, 22)]
    late = [gemm_sm90_beside.late_us(way, SQUARES, H200, rounds) for way in ways]
    assert 0.0 < late[0] < late[1] < late[2]
    assert late[2] - late[1] == pytest.approx(10 * gemm_sm90_beside.unit_us(config.packers, SQUARES, rounds))


def test_tiles_wait_for_warps_that_have_too_much_to_do() -> None:
    rounds = gemm_sm90.rounds_of(BESIDE, SQUARES, H200)
    late = [
        gemm_sm90_beside.late_us(gemm_sm90_beside.Way(0, ahead, 64 - ahead), SQUARES, H200, rounds)
        for ahead in (48, 17, 1)
    ]
    assert late[0] == 0.0 < late[1] < late[2]


@pytest.mark.parametrize("sizes", [(512, 2048, 1024, 128), (2048, 2048, 2048, 8)])
def test_packing_aside_is_the_first_choice_where_there_are_many_rounds(sizes: tuple[int, int, int, int]) -> None:
    """As on an H200: 1,289 us instead of 1,386 and, with packers alone, 1,324; and 607 instead of 655 and 618."""
    m, n, k, batches = sizes
    kernel = kernel_of(BATCHES, (batches, m, k), (batches, k, n))
    assert short_list(kernel, H200)[0].aside


def test_the_tuner_tries_each_who_may_pack_and_nobody() -> None:
    kernel = kernel_of(BATCHES, (16, 1024, 1024), (16, 1024, 1024))
    tried = [c for c in short_list(kernel, H200) if isinstance(c, gemm_sm90_turned.Config) and c.sent]
    assert {(c.packers > 0, c.aside > 0) for c in tried} == {(False, False), (False, True), (True, False), (True, True)}


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
