"""Results that leave by the copy engine: offered beside those that are stored, where it can be done and may pay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelwright.device import resolve
from kernelwright.generate.epilogue import pitch_of_rows
from kernelwright.generate.generate import template_of
from kernelwright.ir.dtypes import float32
from kernelwright.kernels import gemm_sm90, gemm_sm90_bricks, gemm_sm90_turned
from kernelwright.kernels.gemm_shape import Gemm, Operand
from kernelwright.plan import Buffer, Layout
from kernelwright.tune.tune import short_list
from tests.unit.kernels.test_gemm_bricks import BATCHES, kernel_of

H200 = resolve("h200")


def product(m: int, n: int, k: int, batches: int = 1) -> Gemm:
    a = Operand("float32", k, 1, m * k if batches > 1 else 0, constant=False)
    w = Operand("float32", 1, n, n * k if batches > 1 else 0, constant=False)
    return Gemm(m, n, k, batches, a, w, 4, 4 * batches * m * n, sendable=True)


SQUARES = product(1024, 1024, 1024, 16)


@pytest.mark.parametrize("template", [gemm_sm90, gemm_sm90_bricks, gemm_sm90_turned])
def test_the_widest_tiles_come_both_ways(template: object) -> None:
    configs = template.configs(SQUARES, H200)  # type: ignore[attr-defined]
    widest = [config for config in configs if (config.tile_m, config.tile_n, config.splits) == (128, 256, 1)]
    assert [config.sent for config in widest if not config.is_beside] == [True, False]
    assert all(config.sent is False for config in configs if config.tile_n < 192)


def test_the_tuner_tries_both_ways() -> None:
    kernel = kernel_of(BATCHES, (16, 1024, 1024), (16, 1024, 1024))
    tried = [c for c in short_list(kernel, H200) if template_of(c).name.startswith("gemm_sm90")]
    assert {c.sent for c in tried if isinstance(c, gemm_sm90.Config)} == {False, True}


def test_one_tile_for_each_multiprocessor_is_stored() -> None:
    """Nothing is multiplied behind which its results could leave."""
    assert not any(config.sent for config in gemm_sm90.configs(product(1024, 2048, 4096), H200))
    sent = gemm_sm90.Config(256, 64, 1, 4, sent=True)
    one_round = [
        gemm_sm90.cost_us(config, product(1024, 2048, 4096), H200) for config in (sent, replace(sent, sent=False))
    ]
    assert one_round[0] == pytest.approx(one_round[1])


SENT = gemm_sm90.Config(256, 64, 1, 4, sent=True)
REFUSED = {
    "results of other kinds": (SENT, replace(SQUARES, sendable=False), "one float32 tensor"),
    "rows that are reduced": (SENT, replace(SQUARES, row_state_bytes=8), "one float32 tensor"),
    "parts of k": (replace(SENT, splits=2), SQUARES, "whole sums"),
    "pairs": (replace(SENT, vector=2), SQUARES, "4 at a time"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_results_are_refused_in_words(name: str) -> None:
    config, gemm, reason = REFUSED[name]
    assert reason in str(gemm_sm90.why_not(config, gemm, H200))


def test_rows_have_a_pitch_where_all_are_the_same_distance_apart() -> None:
    def pitch(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
        return pitch_of_rows(Layout(Buffer("y", shape, float32, strides), shape, strides, 0))

    assert pitch((3, 5, 8), (40, 8, 1)) == 8
    assert pitch((3, 5, 8), (60, 12, 1)) == 12  # a part of a concatenation
    assert pitch((3, 1, 8), (12, 999, 1)) == 12  # nobody steps along an axis of one
    assert pitch((1, 8), (999, 1)) == 8
    assert pitch((3, 5, 8), (64, 8, 1)) == 0
    assert pitch((3, 5, 8), (8, 24, 1)) == 0
    assert pitch((3, 8), (0, 1)) == 0
