"""The pointwise templates' configs: each that is offered fits, each that is not says why, and the text is minimal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.device import resolve
from kernelwright.generate.grid import MOST_HELD, MOST_TURNED, TILE_EXTENT
from kernelwright.kernels.pointwise import (
    BrickConfig,
    Config,
    CpuConfig,
    TileConfig,
    Work,
    best_config,
    brick_bytes,
    bricks_at_once,
    configs,
    cost_us,
    floor_us,
    why_not,
)
from kernelwright.kernels.template import inline_with_templates

H200, CPU = resolve("h200"), resolve("cpu")


def work(**changed: object) -> Work:
    usual: dict[str, object] = {
        "walk": "rows",
        "rows": 1,
        "depth": 1,
        "columns": 1 << 24,
        "itemsizes": (4, 4),
        "alignments": (),
        "bytes_moved": 1 << 27,
        "operands": 1,
    }
    return Work(**{**usual, **changed})  # type: ignore[arg-type]


BRICKS: dict[str, object] = {
    "walk": "bricks",
    "rows": 32,
    "height": 64,
    "depth": 64,
    "columns": 64,
    "along_depth": (4,),
    "along_height": (4,),
    "operands": 3,
}


def as_planned(any_work: Work) -> Work:
    """With as many operands to turn as a plan may have."""
    return replace(any_work, operands=min(any_work.operands, MOST_TURNED)) if any_work.walk == "tiles" else any_work


works = st.builds(
    Work,
    walk=st.sampled_from(["rows", "flat", "tiles"]),
    rows=st.integers(1, 5000),
    depth=st.integers(1, 700),
    columns=st.integers(1, 100_000),
    itemsizes=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4).map(tuple),
    alignments=st.lists(st.integers(1, 4096), max_size=3).map(tuple),
    bytes_moved=st.integers(1, 1 << 34),
    operands=st.integers(1, 40),
).map(as_planned)


widths = st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=MOST_TURNED - 1).map(tuple)

bricks = st.builds(
    Work,
    walk=st.just("bricks"),
    rows=st.integers(1, 5000),
    height=st.integers(TILE_EXTENT, 700),
    depth=st.integers(TILE_EXTENT, 700),
    columns=st.integers(TILE_EXTENT, 10_000),
    itemsizes=widths,
    along_depth=widths,
    along_height=widths.map(lambda w: w[:1]),
    alignments=st.lists(st.integers(1, 4096), max_size=3).map(tuple),
    bytes_moved=st.integers(1, 1 << 34),
    operands=st.integers(2, MOST_HELD),
)


@given(works | bricks)
def test_every_work_has_a_config_and_every_config_offered_fits(any_work: Work) -> None:
    offered = configs(any_work, H200)
    assert offered
    assert all(why_not(config, any_work, H200) is None for config in offered)
    costs = [cost_us(config, any_work, H200) for config in offered]
    assert costs == sorted(costs)
    assert costs[0] >= floor_us(any_work, H200)


@pytest.mark.parametrize(
    ("config", "changed", "reason"),
    [
        (Config(256, 16, 1), {"itemsizes": (4,)}, "16 lanes of 4 B are more than two 16 B loads."),
        (Config(256, 4, 1), {"rows": 7, "columns": 30}, "30 columns are no multiple of 4 lanes."),
        (Config(256, 4, 1), {"alignments": (6,)}, "an operand's rows do not start at multiples of 4 elements."),
        (Config(256, 8, 8), {"operands": 4}, "256 registers for operands in flight leave too few to compute with."),
        (Config(2048, 4, 1), {}, "2048 threads; a block has at most 1024."),
        (Config(256, 4, 1), {"walk": "tiles"}, "an operand needs to be turned around in a tile."),
        (TileConfig(256, 4, 32, 128), {}, "no operand needs to be turned around."),
        (Config(256, 4, 1), {"walk": "bricks"}, "an operand needs to be turned around in a tile."),
        (TileConfig(256, 4, 32, 128), {"walk": "bricks"}, "no operand needs to be turned around."),
        (BrickConfig(256, 4, 8, 8, 32), {}, "no operands lie along two axes that are not the results'."),
        (BrickConfig(1024, 4, 8, 8, 32), BRICKS, "1024 threads do not share 8 by 8 by 32 evenly."),
        (BrickConfig(256, 8, 8, 8, 32), BRICKS, "8 lanes of 4 B are more than one 16 B load."),
        (BrickConfig(256, 4, 8, 8, 32), {**BRICKS, "height": 30}, "30 by 64 by 64 is no whole number of 4 lanes."),
        (
            BrickConfig(256, 4, 32, 32, 64),
            {**BRICKS, "along_depth": (4, 4)},
            "bricks of 32 by 32 by 64 need 811,416 B of shared memory; a block has 232,448 B.",
        ),
        (
            BrickConfig(256, 4, 16, 16, 32),
            {**BRICKS, "operands": 5},
            "160 registers for operands in flight leave too few to compute with.",
        ),
        (CpuConfig(64, 16384), {}, "a config for a CPU."),
    ],
)
def test_a_config_that_does_not_fit_says_why(config: Config, changed: dict[str, object], reason: str) -> None:
    assert why_not(config, work(**changed), H200) == reason


def test_large_float_work_takes_sixteen_bytes_or_more_a_load() -> None:
    best = best_config(work(), H200)
    assert isinstance(best, Config)
    assert best.lanes >= 4


def test_large_bricks_read_whole_sectors_along_every_edge() -> None:
    for item, lanes in ((8, 2), (4, 4), (2, 8), (1, 16)):
        sizes = {"itemsizes": (item, item), "along_depth": (item,), "along_height": (item,)}
        best = best_config(work(**{**BRICKS, **sizes, "columns": 4096}), H200)
        assert isinstance(best, BrickConfig)
        assert best.lanes == lanes
        assert min(best.layers, best.levels, best.columns) * item >= 32


def test_several_bricks_lie_on_a_multiprocessor() -> None:
    bricked = work(**{**BRICKS, "columns": 4096})
    best = best_config(bricked, H200)
    assert isinstance(best, BrickConfig)
    assert 2 <= bricks_at_once(best, bricked, H200) <= H200.smem_per_multiprocessor_bytes // brick_bytes(best, bricked)


def test_a_cpu_takes_whole_vectors_and_grains_that_they_divide() -> None:
    for config in configs(work(), CPU):
        assert isinstance(config, CpuConfig)
        assert config.grain % config.lanes == 0


def test_a_template_brings_what_it_needs_and_no_more() -> None:
    text = inline_with_templates({"pointwise", "relu", "int64_t"}, ("pointwise",), "cpu")
    assert "pointwise_run" in text
    assert "struct Vec" not in text or "load" in text
    assert "gather" not in text
    assert "kw:" not in text
    assert not re.search(r"#\s*include \"", text)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_parts_that_are_not_named_stay_out(target: str) -> None:
    names = {"pointwise", "gather"}
    text = inline_with_templates(names, ("pointwise",), target)  # type: ignore[arg-type]
    assert "gather" in text
    assert "scatter" not in text
