"""The reduction templates' configs: each that is offered fits, each that is not says why."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.device import resolve
from kernelwright.kernels.reduce import (
    Config,
    CpuConfig,
    Operand,
    RowWork,
    best_config,
    configs,
    cost_us,
    floor_us,
    shared_bytes,
    why_not,
    workspace_bytes,
)

H200, A100, CPU = resolve("h200"), resolve("a100"), resolve("cpu")

# Softmax of 4096 rows of 4096 floats.
SOFTMAX = RowWork(
    across=False,
    rows=4096,
    columns=4096,
    line=4096,
    itemsizes=(4, 4),
    alignments=(4096,),
    bytes_moved=2 << 26,
    written_bytes=1 << 26,
    again_bytes=1 << 26,
    repeated_bytes=0,
    operands=(Operand(4),),
    state_bytes=(16,),
    phases=2,
    flops=30,
    in_place=False,
)


OPERANDS = st.builds(Operand, st.sampled_from([1, 2, 4, 8]), st.booleans(), st.booleans(), st.sampled_from([0, 1, 64]))


MOVED = ("bytes_moved", "written_bytes", "again_bytes")


@st.composite
def works(draw: st.DrawFn) -> RowWork:
    counts = st.one_of(st.integers(2, 20), st.integers(2, 200_000))
    rows, columns = draw(st.integers(1, 20_000)), draw(counts)
    across = draw(st.booleans())
    line = draw(st.sampled_from([n for n in range(1, 65) if (rows if across else columns) % n == 0]))
    size = rows * columns
    phases = draw(st.integers(1, 3))
    return RowWork(
        across=across,
        rows=rows,
        columns=columns,
        line=draw(st.sampled_from([line, rows if across else columns])),
        itemsizes=tuple(draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3))),
        alignments=tuple(draw(st.lists(st.integers(1, 4096), max_size=2))),
        bytes_moved=size * draw(st.sampled_from([4, 8, 12])),
        written_bytes=draw(st.sampled_from([4, size * 4])),
        again_bytes=size * 4,
        repeated_bytes=draw(st.sampled_from([0, columns * 4])),
        operands=tuple(draw(st.lists(OPERANDS, max_size=4))),
        state_bytes=tuple(draw(st.lists(st.sampled_from([8, 16, 40]), min_size=1, max_size=phases))),
        phases=phases,
        flops=draw(st.integers(1, 60)),
        in_place=draw(st.booleans()),
    )


@given(works())
def test_every_work_has_a_config_and_every_config_offered_fits(work: RowWork) -> None:
    for device in (H200, A100):
        offered = configs(work, device)
        assert offered
        assert all(why_not(config, work, device) is None for config in offered)
        costs = [cost_us(config, work, device) for config in offered]
        assert costs == sorted(costs)
        assert costs[0] >= floor_us(work, device)


@given(works())
def test_no_config_asks_for_more_than_a_launch_may_have(work: RowWork) -> None:
    for device in (H200, A100):
        for config in configs(work, device):
            assert isinstance(config, Config)
            blocks = math.ceil(work.units(config.lanes) / (config.threads // config.team)) * config.blocks
            assert 0 < blocks < 2**31
            assert config.threads <= device.max_threads_per_block
            assert not config.cluster or (config.blocks <= 8 and device is H200)
            shared = shared_bytes(config, work)
            if config.keep == "shared":
                assert shared >= config.threads * config.vectors * config.lanes * max(o.itemsize for o in work.operands)
            # The compiler may add 1 KB of its own; a state takes no more than one lane of each thread, or warp.
            states = max(work.state_bytes) * config.threads // (1 if work.across else 32)
            assert shared + (states if config.team > (1 if work.across else 32) else 0) <= device.smem_per_block_bytes


def test_sizes_of_structs_have_their_gaps() -> None:
    # struct { float4 x; float bias; } and struct { half h[2]; double d; }
    assert replace(SOFTMAX, operands=(Operand(4), Operand(4, same=True))).kept_bytes(4) == 32
    assert replace(SOFTMAX, operands=(Operand(2), Operand(8, same=True))).kept_bytes(2) == 16
    assert replace(SOFTMAX, operands=()).kept_bytes(4) == 1
    beside = replace(SOFTMAX, operands=(Operand(4), *[Operand(4, same=True)] * 3), columns=65536, line=65536)
    config = Config(1024, 4, 1024, 8, "shared", 2, True)
    assert why_not(config, replace(beside, operands=(Operand(4),)), H200) is None
    assert why_not(config, beside, H200) == "a row of 262,144 B is more than the shared memory of a block."


@given(works())
def test_a_cpu_has_a_config_for_every_work(work: RowWork) -> None:
    offered = configs(work, CPU)
    assert offered
    assert all(isinstance(config, CpuConfig) and config.lanes <= work.line for config in offered)


@pytest.mark.parametrize(
    ("config", "changed", "reason"),
    [
        (Config(256, 16, 32, 1, "again", 1, False), {}, "16 lanes of 4 B are more than two 16 B loads."),
        (Config(256, 4, 32, 1, "again", 1, False), {"line": 30}, "lines of 30 neighbours are no multiple of 4 lanes."),
        (
            Config(256, 4, 32, 1, "again", 1, False),
            {"alignments": (4095,)},
            "an operand's lines do not start at multiples of 4 elements.",
        ),
        (Config(256, 4, 64, 1, "again", 1, False), {}, "a team of 64 is more than a warp and less than a block."),
        (Config(256, 4, 32, 1, "again", 4, True), {}, "blocks share a row, but a block has several."),
        (
            Config(256, 4, 256, 4, "again", 4, False),
            {"in_place": True},
            "a row's result would be written before every block has read what it replaces.",
        ),
        (Config(256, 4, 256, 2, "registers", 1, False), {}, "a row of 4096 columns does not fit 2 vectors a thread."),
        (
            Config(64, 4, 64, 64, "registers", 1, False),
            {"columns": 16384, "line": 16384},
            "256 registers for a row leave too few of 218 to compute with.",
        ),
        (
            Config(256, 4, 256, 64, "shared", 1, False),
            {"columns": 65536, "line": 65536},
            "a row of 262,144 B is more than the shared memory of a block.",
        ),
        (Config(256, 4, 256, 4, "registers", 1, False), {"phases": 1}, "nothing is read again, so nothing is kept."),
        (
            Config(1024, 4, 1024, 1, "again", 1, False),
            {"columns": 1024, "line": 1024},
            "1024 threads share 256 vectors: half of them or more have nothing to do.",
        ),
    ],
)
def test_a_config_that_does_not_fit_says_why(config: Config, changed: dict[str, object], reason: str) -> None:
    assert why_not(config, replace(SOFTMAX, **changed), H200) == reason  # type: ignore[arg-type]


def test_clusters_need_a_hopper() -> None:
    config = Config(512, 4, 512, 2, "registers", 1, False)
    cluster = replace(config, blocks=2, cluster=True, vectors=1)
    assert why_not(config, SOFTMAX, A100) is None
    assert why_not(cluster, SOFTMAX, H200) is None
    assert why_not(cluster, SOFTMAX, A100) == "clusters of 2 blocks; sm_80 has none of that size."


def test_a_row_that_fits_is_held() -> None:
    short = best_config(SOFTMAX, H200)
    assert isinstance(short, Config)
    assert (short.keep != "again", short.blocks) == (True, 1)


def test_few_rows_of_many_megabytes_are_shared_by_blocks_that_meet_between_launches() -> None:
    """Weights as large as a row leave the cache before the next row comes: rows that run at once share them."""
    moved = {"bytes_moved": 2 << 28, "written_bytes": 1 << 28, "again_bytes": 1 << 28}
    layer_norm = replace(SOFTMAX, rows=16, columns=1 << 22, line=1 << 22, repeated_bytes=2 << 24, **moved)
    config = best_config(layer_norm, H200)
    assert isinstance(config, Config)
    assert config.is_split
    assert why_not(config, replace(layer_norm, in_place=True), H200) is not None


def test_lanes_that_are_no_neighbours_are_spread_over_threads() -> None:
    """Every other element: 27 loads of a window, each of which meets as few lines of the cache as it can."""
    pool = replace(SOFTMAX, across=True, rows=1 << 28, columns=27, line=128, phases=1, flops=1, state_bytes=(8,))
    pool = replace(pool, bytes_moved=9 << 30, written_bytes=1 << 30, again_bytes=0, itemsizes=(4,), alignments=(128,))
    apart = best_config(replace(pool, operands=(Operand(4, again=False, step=2),)), H200)
    beside = best_config(replace(pool, operands=(Operand(4, again=False),)), H200)
    assert isinstance(apart, Config)
    assert isinstance(beside, Config)
    assert (apart.lanes, beside.lanes) == (1, 4)


def test_no_last_wave_of_few_blocks_is_left() -> None:
    """A thread for each of 524,160 rows of 4096: two waves and a bit would be three."""
    rows = replace(SOFTMAX, across=True, rows=524160, columns=4096, line=4095, phases=1, flops=5, alignments=(4095,))
    rows = replace(rows, bytes_moved=1 << 33, written_bytes=1 << 22, again_bytes=0, operands=(Operand(4, again=False),))
    few = Config(128, 1, 1, 8, "again", 1, False)
    assert cost_us(best_config(rows, H200), rows, H200) < 0.97 * cost_us(few, rows, H200)


def test_the_sum_of_everything_is_split_over_the_whole_device() -> None:
    everything = replace(SOFTMAX, rows=1, columns=1 << 26, line=1 << 26, phases=1, alignments=(), flops=1)
    config = best_config(replace(everything, bytes_moved=1 << 28), H200)
    assert isinstance(config, Config)
    assert config.is_split
    assert config.blocks >= H200.multiprocessors
    assert workspace_bytes(config, everything) >= 8 * config.blocks


def test_few_rows_are_shared_by_the_threads_of_a_cpu() -> None:
    few = best_config(replace(SOFTMAX, rows=1, columns=1 << 24, line=1 << 24), CPU)
    many = best_config(SOFTMAX, CPU)
    assert isinstance(few, CpuConfig)
    assert isinstance(many, CpuConfig)
    assert few.grain > 0
    assert many.grain == 0


def test_no_config_of_a_single_long_row_leaves_it_to_one_thread() -> None:
    device = replace(CPU, multiprocessors=2)
    offered = configs(replace(SOFTMAX, rows=1, columns=1 << 24, line=1 << 24), device)
    assert all(isinstance(config, CpuConfig) and config.grain > 0 for config in offered)


def test_a_cpu_may_walk_over_several_long_rows_at_once_or_over_parts_of_one() -> None:
    long, one = replace(SOFTMAX, columns=16384, line=16384), replace(SOFTMAX, rows=1, columns=1 << 24, line=1 << 24)
    assert CpuConfig(16, 2048, 0, 4) in configs(long, CPU)
    assert CpuConfig(16, 2048, 131072, 4) in configs(one, CPU)
    assert all(config.together == 1 for config in configs(SOFTMAX, CPU) if isinstance(config, CpuConfig))
    reason = why_not(CpuConfig(16, 2048, 0, 4), replace(long, columns=16390, line=16390), CPU)
    assert reason == "lines of 16390 neighbours are no whole number of 16 lanes."
