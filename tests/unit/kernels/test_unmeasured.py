"""Templates that no GPU has timed: what they offer fits, what they refuse they say, and nothing chooses them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelwright.device import resolve
from kernelwright.generate.generate import TEMPLATES, ranked_choices, unmeasured_choices
from kernelwright.ir.nodes import Broadcast, Map, Node, Reduce
from kernelwright.kernels import reduce, reduce_sliding, reduce_turns, reduce_woven
from kernelwright.kernels.reduce import Operand, RowWork
from kernelwright.kernels.reduce_sliding import Sliding
from kernelwright.kernels.unmeasured import UNMEASURED
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


def norm_of(shape: tuple[int, ...]) -> Node:
    x = leaf(0, shape)
    length = Map("sqrt", (Reduce("sum", Map("mul", (x, x)), (1,)),))
    return Map("div", (x, Broadcast(length, shape)))


def test_every_name_is_a_row_of_the_table() -> None:
    assert {template.name for template in TEMPLATES} >= UNMEASURED


def test_nothing_chooses_and_the_tuner_does_not_try_what_has_not_been_measured() -> None:
    for output in (
        softmax(leaf(0, (4096, ROW)), (1,)),
        norm_of((4, 1 << 24)),
        Reduce("sum", leaf(0, (128, 4096, 4095)), (1,)),
    ):
        kernel = kernel_of(output)
        unmeasured = unmeasured_choices(kernel, H200)
        assert unmeasured
        assert not {*unmeasured} & {*ranked_choices(kernel, H200), *short_list(kernel, H200)}


@pytest.mark.parametrize("rows", [1, 16, 7168])
@pytest.mark.parametrize("columns", [4096, 65535, 262144, 4194304, 16777216])
def test_every_woven_config_that_is_offered_fits(rows: int, columns: int) -> None:
    work = replace(SOFTMAX, rows=rows, columns=columns, line=columns, alignments=(columns,))
    for config in reduce_woven.configs(work, H200):
        assert reduce_woven.why_not(config, work, H200) is None
        assert reduce_woven.cost_us(config, work, H200) > reduce.floor_us(work, H200)
    assert reduce_woven.configs(work, A100) == reduce_woven.configs(work, CPU) == ()


def test_the_rows_of_the_bars_have_places() -> None:
    """Softmax of 393,216 columns, 16 rows at a time; LayerNorm over 4,194,304, two at a time; BatchNorm with a rest."""
    assert reduce_woven.Config(512, 4, 12, 0, 16, 16, 2, ahead=2) in reduce_woven.configs(SOFTMAX, H200)
    layer = replace(SOFTMAX, rows=16, columns=1 << 22, line=1 << 22, alignments=(1 << 22,))
    assert reduce_woven.Config(512, 4, 28, 4, 64, 2, ahead=4) in reduce_woven.configs(layer, H200)
    batch = replace(SOFTMAX, rows=64, columns=1 << 24, line=1 << 18, alignments=(1 << 18,))
    assert {reduce_woven.left(config, batch) for config in reduce_woven.configs(batch, H200)} == {31, 32}


@pytest.mark.parametrize(
    ("config", "work", "reason"),
    [
        (reduce_woven.Config(512, 4, 24, 0, 8), COLUMNS, "along a row"),
        (reduce_woven.Config(512, 4, 24, 0, 8), replace(SOFTMAX, phases=1), "no phase stores"),
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


def test_turns_are_for_rows_along_that_give_every_block_one() -> None:
    long = replace(SOFTMAX, rows=1, columns=1 << 30, line=1 << 30, alignments=())
    assert reduce_turns.configs(long, H200)
    assert all(reduce_turns.why_not(config, long, H200) is None for config in reduce_turns.configs(long, H200))
    assert "less than a turn" in str(reduce_turns.why_not(reduce_turns.Config(512, 4, 4, 132), SOFTMAX, H200))
    assert "along a row" in str(reduce_turns.why_not(reduce_turns.Config(512, 4, 4, 132), COLUMNS, H200))
    assert "nobody" in str(reduce_turns.why_not(reduce_turns.Config(512, 4, 4, 1), long, H200))
    assert reduce_turns.configs(long, CPU) == ()


def test_wide_blocks_are_for_rows_across() -> None:
    wide = reduce.wide_configs(COLUMNS, H200)
    assert wide
    assert all(config.threads == 1024 and reduce.why_not(config, COLUMNS, H200) is None for config in wide)
    assert reduce.wide_configs(SOFTMAX, H200) == reduce.wide_configs(COLUMNS, CPU) == ()


def test_windows_must_overlap_and_their_runs_start_at_words() -> None:
    assert reduce_sliding.configs(POOL, H200)[0].lanes == 4
    assert POOL.run(4) == 28
    apart = replace(POOL, step=32)
    assert "nothing in common" in str(reduce_sliding.why_not(reduce_sliding.Config(128, 4, 1), apart, H200))
    assert "do not start at words" in str(reduce_sliding.why_not(reduce_sliding.Config(128, 2, 1), POOL, H200))
    assert "too many" in str(reduce_sliding.why_not(reduce_sliding.Config(128, 4, 4), replace(POOL, lines=9), H200))
    assert reduce_sliding.configs(POOL, CPU) == ()
