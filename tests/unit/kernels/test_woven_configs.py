"""Rows that are woven, and windows that slide: what is offered fits, what is refused is said in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelwright.device import resolve
from kernelwright.generate.generate import template_of
from kernelwright.ir.nodes import Reduce
from kernelwright.kernels import reduce, reduce_sliding, reduce_woven
from kernelwright.kernels.reduce import Operand, RowWork
from kernelwright.kernels.reduce_sliding import Sliding
from kernelwright.tune.tune import short_list
from tests.unit.generate.test_reduce import kernel_of, leaf, softmax

H200, A100, CPU = resolve("h200"), resolve("a100"), resolve("cpu")
ROW = 393216

SOFTMAX = RowWork(
    across=False,
    rows=4096,
    columns=ROW,
    line=ROW,
    itemsizes=(4, 4),
    alignments=(ROW,),
    bytes_moved=8 * 4096 * ROW,
    written_bytes=4 * 4096 * ROW,
    again_bytes=4 * 4096 * ROW,
    repeated_bytes=0,
    operands=(Operand(4),),
    state_bytes=(16,),
    phases=2,
    flops=30,
    in_place=False,
)
COLUMNS = replace(SOFTMAX, across=True, rows=128 * 4096, columns=4096, line=4096, alignments=(4096,), phases=1)
POOL = Sliding(1 << 20, 1021, 1, 8, 3, 1, 0, 4, 8, 8 << 20)


@pytest.mark.parametrize("rows", [1, 16, 7168])
@pytest.mark.parametrize("columns", [4096, 65535, 262144, 4194304, 16777216])
def test_every_woven_config_that_is_offered_fits(rows: int, columns: int) -> None:
    work = replace(SOFTMAX, rows=rows, columns=columns, line=columns, alignments=(columns,))
    for device in (H200, A100):
        for config in reduce_woven.configs(work, device):
            assert reduce_woven.why_not(config, work, device) is None
            assert reduce_woven.cost_us(config, work, device) > reduce.floor_us(work, device)
            assert config.together * config.blocks <= config.each * device.multiprocessors
    assert reduce_woven.configs(work, CPU) == ()


def test_the_rows_of_the_bars_have_places() -> None:
    """Softmax of 393,216 columns, 16 rows at a time; LayerNorm over 4,194,304, two at a time; BatchNorm with a rest."""
    assert reduce_woven.Config(512, 4, 12, 0, 16, 16, 2, ahead=2) in reduce_woven.configs(SOFTMAX, H200)
    layer = replace(SOFTMAX, rows=16, columns=1 << 22, line=1 << 22, alignments=(1 << 22,))
    assert reduce_woven.Config(512, 4, 28, 4, 64, 2, ahead=4) in reduce_woven.configs(layer, H200)
    batch = replace(SOFTMAX, rows=64, columns=1 << 24, line=1 << 18, alignments=(1 << 18,))
    assert {reduce_woven.left(config, batch) for config in reduce_woven.configs(batch, H200)} == {35, 36}


@pytest.mark.parametrize(
    ("config", "work", "reason"),
    [
        (reduce_woven.Config(512, 4, 24, 0, 8), COLUMNS, "along a row"),
        (reduce_woven.Config(512, 4, 24, 0, 8), replace(SOFTMAX, phases=1), "no phase stores"),
        (reduce_woven.Config(512, 4, 24, 0, 8), replace(SOFTMAX, late_bytes=4, line=ROW // 8), "no one line"),
        (reduce_woven.Config(512, 4, 24, 0, 8), replace(SOFTMAX, in_place=True), "would be written"),
        (reduce_woven.Config(512, 4, 28, 1, 7, ahead=4), SOFTMAX, "do not divide"),
        (reduce_woven.Config(512, 4, 12, 0, 8, 2), SOFTMAX, "L2 cache"),
        (reduce_woven.Config(512, 4, 48, 0, 4), SOFTMAX, "shared memory"),
        (reduce_woven.Config(512, 4, 8, 16, 8, ahead=8), SOFTMAX, "registers"),
        (reduce_woven.Config(512, 4, 11, 0, 18, 8), SOFTMAX, "do not run at once"),
    ],
)
def test_a_woven_config_that_does_not_fit_is_refused_in_words(
    config: reduce_woven.Config, work: RowWork, reason: str
) -> None:
    assert reason in str(reduce_woven.why_not(config, work, H200))


def test_rows_that_many_blocks_hold_are_woven_and_others_are_not() -> None:
    """As measured on an H200: 393,216 and 262,144 columns woven; 4,194,304 with weights of that length read twice."""
    instances, layers = replace(rows_of(7168, 1 << 18), flops=8), replace(rows_of(16, 1 << 22), flops=10)
    assert woven_us(SOFTMAX) < plain_us(SOFTMAX)
    assert woven_us(instances) < plain_us(instances)
    with_weights = replace(layers, repeated_bytes=2 << 24, late_bytes=8)
    assert plain_us(with_weights) < woven_us(with_weights)
    short = rows_of(4096, 4096)
    assert not reduce_woven.configs(short, H200) or plain_us(short) < woven_us(short)


def rows_of(rows: int, columns: int) -> RowWork:
    moved = {"bytes_moved": 8 * rows * columns, "written_bytes": 4 * rows * columns, "again_bytes": 4 * rows * columns}
    return replace(SOFTMAX, rows=rows, columns=columns, line=columns, alignments=(columns,), **moved)


def woven_us(work: RowWork) -> float:
    return reduce_woven.cost_us(reduce_woven.configs(work, H200)[0], work, H200)


def plain_us(work: RowWork) -> float:
    return min(reduce.cost_us(config, work, H200) for config in reduce.configs(work, H200))


def test_the_tuner_sees_wide_blocks_across() -> None:
    kernel = kernel_of(Reduce("sum", leaf(0, (128, 4096, 4095)), (1,)))
    assert reduce.Config(1024, 1, 4, 8, "again", 4, False) in short_list(kernel, H200)


def test_the_tuner_sees_the_best_of_each_template() -> None:
    kernel = kernel_of(softmax(leaf(0, (4096, ROW)), (1,)))
    assert {template_of(choice).name for choice in short_list(kernel, H200)} == {
        "reduce",
        "reduce_woven",
        "reduce_ring",
    }


def test_windows_must_overlap_and_their_runs_start_at_words() -> None:
    assert reduce_sliding.configs(POOL, H200)[0].lanes == 4
    assert POOL.run(4) == 28
    apart = replace(POOL, step=32)
    assert "nothing in common" in str(reduce_sliding.why_not(reduce_sliding.Config(128, 4, 1), apart, H200))
    assert "do not start at words" in str(reduce_sliding.why_not(reduce_sliding.Config(128, 2, 1), POOL, H200))
    assert "too many" in str(reduce_sliding.why_not(reduce_sliding.Config(128, 4, 4), replace(POOL, lines=9), H200))
    assert reduce_sliding.configs(POOL, CPU) == ()
    assert "unrolled" in str(reduce_sliding.why_not(reduce_sliding.Config(128, 4, 1), replace(POOL, lines=64), H200))
