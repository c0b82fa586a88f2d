"""Rows through a ring, rows that registers hold, and rows that all threads store: what is offered fits, what is refused
is said in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelwright.kernels import reduce, reduce_held, reduce_ring, reduce_spread, reduce_woven
from kernelwright.kernels.reduce import RowWork
from tests.unit.kernels.test_woven_configs import A100, CPU, H200, SOFTMAX

SENT = replace(SOFTMAX, sent=True)
Ring = reduce_ring.Config
Held = reduce_held.Config


def rows_of(rows: int, columns: int, **more: object) -> RowWork:
    moved = {"bytes_moved": 8 * rows * columns, "written_bytes": 4 * rows * columns, "again_bytes": 4 * rows * columns}
    return replace(SENT, rows=rows, columns=columns, line=columns, alignments=(columns,), **moved | more)


INSTANCES = rows_of(7168, 262144)
GROUPS = replace(rows_of(896, 2097152), line=262144, alignments=(262144,))
LAYERS = rows_of(16, 1 << 22, repeated_bytes=2 << 24, late_bytes=8, late_shared=True, bytes_moved=34 << 24)
ONE = rows_of(1, 1879048192)


@pytest.mark.parametrize("rows", [1, 16, 7168])
@pytest.mark.parametrize("columns", [4096, 65535, 262144, 4194304])
def test_every_config_that_is_offered_fits(rows: int, columns: int) -> None:
    work = rows_of(rows, columns)
    for device in (H200, A100):
        for config in reduce_ring.configs(work, device):
            assert reduce_ring.why_not(config, work, device) is None
            assert reduce_ring.cost_us(config, work, device) > reduce.floor_us(work, device)
        weighted = replace(work, late_bytes=8, late_shared=True, repeated_bytes=8 * columns)
        for held in reduce_held.configs(weighted, device):
            assert reduce_held.why_not(held, weighted, device) is None
            assert reduce_held.cost_us(held, weighted, device) > reduce.floor_us(weighted, device)
        for spread in reduce_spread.configs(work, device):
            assert reduce_spread.why_not(spread, work, device) is None
            assert reduce_spread.cost_us(spread, work, device) > reduce.floor_us(work, device)
    assert reduce_ring.configs(work, CPU) == reduce_held.configs(work, CPU) == reduce_spread.configs(work, CPU) == ()


def test_the_model_prefers_what_an_h200_prefers() -> None:
    """Softmax, InstanceNorm and GroupNorm through a ring, the last with a clerk; LayerNorm in registers, with most of
    its weights in shared memory; a norm of all spread."""
    assert reduce_ring.configs(SENT, H200)[0] == Ring(512, 4, 28, 4, 4, 16, 8, 1, holds=2)
    assert reduce_ring.configs(INSTANCES, H200)[0] == Ring(512, 4, 24, 8, 4, 16, 8, 1, holds=2)
    assert reduce_ring.configs(GROUPS, H200)[0] == Ring(512, 4, 28, 4, 4, 128, 1, 1, holds=3, clerks=32)
    for work in (SENT, INSTANCES, GROUPS):
        assert ring_us(work) < min(woven_us(work), spread_us(work))
        assert reduce_held.configs(work, H200) == ()
    assert reduce_held.configs(LAYERS, H200)[0] == Held(512, 4, 16, 14, 2, 128)
    assert held_us(LAYERS) < spread_us(LAYERS) < min(ring_us(LAYERS), woven_us(LAYERS))
    assert reduce_spread.configs(LAYERS, H200)[0].beside == 8
    assert reduce_spread.configs(LAYERS, H200)[0].early
    assert not reduce_spread.configs(ONE, H200)[0].early


def ring_us(work: RowWork) -> float:
    return reduce_ring.cost_us(reduce_ring.configs(work, H200)[0], work, H200)


def woven_us(work: RowWork) -> float:
    return reduce_woven.cost_us(reduce_woven.configs(work, H200)[0], work, H200)


def held_us(work: RowWork) -> float:
    return reduce_held.cost_us(reduce_held.configs(work, H200)[0], work, H200)


def spread_us(work: RowWork) -> float:
    found = reduce_spread.configs(work, H200)
    return reduce_spread.cost_us(found[0], work, H200) if found else float("inf")


@pytest.mark.parametrize(
    ("config", "work", "reason"),
    [
        (Ring(512, 4, 28, 4, 4, 16, 8, 1, 2), SOFTMAX, "no vector"),
        (Ring(512, 4, 28, 4, 4, 16, 8, 1, 2), replace(SENT, across=True), "along a row"),
        (Ring(512, 4, 28, 4, 4, 16, 8, 1, 2), replace(SENT, in_place=True), "before every block has read"),
        (Ring(512, 4, 28, 4, 4, 16, 8, 1, 2), replace(SENT, state_bytes=(16, 8), phases=3), "one reduction"),
        (Ring(512, 4, 28, 4, 4, 16, 9, 1, 2), SENT, "do not run at once"),
        (Ring(512, 4, 27, 3, 4, 16, 8, 1, 2), SENT, "places ahead"),
        (Ring(512, 4, 28, 4, 4, 17, 7, 1, 2), replace(SENT, columns=8 * 393216), "places for"),
        (Ring(1024, 4, 14, 2, 2, 16, 8, 1, 2, 32), SENT, "1056 threads"),
        (Ring(512, 4, 28, 12, 4, 12, 11, 1, 1, 32), SENT, "clerks"),
    ],
)
def test_a_ring_that_does_not_fit_is_refused_in_words(config: Ring, work: RowWork, reason: str) -> None:
    assert reason in (reduce_ring.why_not(config, work, H200) or "")


@pytest.mark.parametrize(
    ("config", "work", "reason"),
    [
        (Held(512, 4, 16, 14, 2, 128), replace(LAYERS, late_shared=False), "differs from row to row"),
        (Held(512, 4, 16, 15, 1, 128), LAYERS, "B of shared memory"),
        (Held(512, 4, 16, 14, 3, 128), LAYERS, "early of 16"),
        (Held(512, 4, 15, 13, 2, 128), LAYERS, "held of 16"),
        (Held(512, 4, 16, 14, 2, 128), replace(LAYERS, line=65536), "take too many registers"),
        (Held(1024, 4, 8, 6, 2, 128), LAYERS, "registers; a thread has 64"),
        (Held(512, 4, 16, 14, 2, 128, 2), LAYERS, "do not run at once"),
    ],
)
def test_a_row_that_registers_do_not_hold_is_refused_in_words(config: Held, work: RowWork, reason: str) -> None:
    assert reason in (reduce_held.why_not(config, work, H200) or "")


def test_a_row_of_one_block_is_not_spread() -> None:
    config = reduce_spread.configs(LAYERS, H200)[0]
    assert "closed by it" in (reduce_spread.why_not(replace(config, blocks=1), LAYERS, H200) or "")
    assert "side by side" in (reduce_spread.why_not(replace(config, beside=32), LAYERS, H200) or "")
