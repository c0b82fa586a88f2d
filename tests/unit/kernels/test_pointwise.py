"""The pointwise templates' configs: each that is offered fits, each that is not says why, and the text is minimal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.device import resolve
from kernelwright.generate.grid import MOST_TURNED
from kernelwright.kernels.pointwise import (
    Config,
    CpuConfig,
    TileConfig,
    Work,
    best_config,
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


@given(works)
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
        (CpuConfig(64, 16384), {}, "a config for a CPU."),
    ],
)
def test_a_config_that_does_not_fit_says_why(config: Config, changed: dict[str, object], reason: str) -> None:
    assert why_not(config, work(**changed), H200) == reason


def test_large_float_work_takes_sixteen_bytes_or_more_a_load() -> None:
    best = best_config(work(), H200)
    assert isinstance(best, Config)
    assert best.lanes >= 4


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
