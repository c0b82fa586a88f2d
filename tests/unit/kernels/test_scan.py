"""Configs of scans: there is always one, the model prefers sensible ones, and a rejected one is told why."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.device import Device, resolve
from kernelwright.kernels.scan import (
    AcrossConfig,
    AlongConfig,
    CpuConfig,
    ScanWork,
    chunk_of,
    configs,
    cost_us,
    floor_us,
    is_cut,
    why_not,
    workspace_bytes,
)

H200, A100, CPU = resolve("h200"), resolve("a100"), resolve("cpu")


def work(rows: int, length: int, columns: int = 0, itemsize: int = 4, scans: int = 1, operands: int = 1) -> ScanWork:
    """With columns, across."""
    size = rows * length * max(columns, 1)
    return ScanWork(
        across=columns > 0,
        rows=rows,
        length=length,
        columns=max(columns, 1),
        itemsizes=(itemsize,),
        alignments=(columns or length,),
        bytes_moved=2 * size * itemsize,
        read_bytes=size * itemsize,
        operands=operands,
        scans=scans,
        stages=1,
    )


WORKS = st.builds(
    work,
    rows=st.integers(1, 1 << 20),
    length=st.integers(1, 1 << 24),
    columns=st.one_of(st.just(0), st.integers(1, 1 << 12)),
    itemsize=st.sampled_from((1, 2, 4, 8)),
    scans=st.integers(1, 6),
    operands=st.integers(0, 6),
)


@given(WORKS, st.sampled_from((H200, A100, CPU)))
def test_every_work_has_configs_and_all_of_them_fit(scanned: ScanWork, device: object) -> None:
    target = next(d for d in (H200, A100, CPU) if d is device)
    found = configs(scanned, target)
    assert found
    for config in found:
        assert why_not(config, scanned, target) is None
        assert cost_us(config, scanned, target) >= floor_us(scanned, target)


@given(WORKS)
def test_a_chunk_is_whole_tiles_and_there_are_as_many_as_the_config_says(scanned: ScanWork) -> None:
    for config in configs(scanned, H200):
        assert not isinstance(config, CpuConfig)
        whole = config.places if isinstance(config, AcrossConfig) else config.threads * config.vectors * config.lanes
        chunk = chunk_of(scanned.length, config.chunks, whole)
        assert chunk % whole == 0
        assert math.ceil(scanned.length / chunk) == config.chunks
        assert (workspace_bytes(config, scanned) > 0) == (config.chunks > 1) == is_cut(config, scanned)


def test_a_long_row_gets_a_block_and_a_short_one_part_of_a_warp() -> None:
    long, short = configs(work(32768, 32768), H200)[0], configs(work(100_000, 64), H200)[0]
    assert isinstance(long, AlongConfig)
    assert isinstance(short, AlongConfig)
    assert long.threads > 32
    assert long.lanes == 4
    assert long.chunks == 1
    assert short.threads <= 16
    assert short.rows > 1


@pytest.mark.parametrize("scanned", [work(1, 1 << 24), work(4, 1 << 22), work(1, 1 << 20, 16)], ids=str)
def test_few_long_rows_are_cut(scanned: ScanWork) -> None:
    assert is_cut(configs(scanned, H200)[0], scanned)


def test_rows_that_fill_the_device_are_read_once() -> None:
    for scanned in (work(4096, 4096), work(64, 4096, 4096)):
        best = configs(scanned, H200)[0]
        assert not is_cut(best, scanned)
        assert cost_us(best, scanned, H200) < 1.3 * floor_us(scanned, H200)


def test_chunks_of_a_cpu_do_not_depend_on_its_cores_once_they_are_needed() -> None:
    best = configs(work(1, 1 << 24), CPU)[0]
    assert isinstance(best, CpuConfig)
    assert best.chunk == 65536


@pytest.mark.parametrize(
    ("config", "scanned", "reason"),
    [
        (AlongConfig(64, 1, 4, 1, 1), work(8, 1001), "no multiple of 4 lanes"),
        (AlongConfig(64, 2, 4, 1, 1), work(8, 1000), "do not share a block"),
        (AlongConfig(2048, 1, 1, 1, 1), work(8, 1000), "at most 1024"),
        (AlongConfig(64, 1, 8, 1, 1), work(8, 1000), "more than one 16 B load"),
        (AlongConfig(64, 1, 4, 8, 1), work(8, 1000, scans=4), "leave too few to compute with"),
        (AlongConfig(64, 1, 1, 1, 1), work(8, 1000, 16), "in different rows"),
        (AcrossConfig(64, 1, 1, 1), work(8, 1000), "in one row"),
        (AcrossConfig(64, 4, 1, 1), work(8, 1000, 18), "no multiple of 4 lanes"),
    ],
)
def test_the_reason_is_told(config: AlongConfig | AcrossConfig, scanned: ScanWork, reason: str) -> None:
    assert reason in (why_not(config, scanned, H200) or "")


@pytest.mark.parametrize("scanned", [work(0, 7), work(7, 0), work(0, 7, 3), work(7, 0, 3)], ids=str)
@pytest.mark.parametrize("device", [H200, A100, CPU], ids=lambda d: d.name)
def test_rows_without_elements_have_configs_too(scanned: ScanWork, device: Device) -> None:
    assert configs(scanned, device)
