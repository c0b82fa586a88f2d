"""Rows that are scanned with the next tile on its way: the configs of kernels/cuda/scan_ahead.cuh."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kernelwright.device import Device
from kernelwright.kernels import scan
from kernelwright.kernels.pointwise import LAUNCH_US
from kernelwright.kernels.scan import AlongConfig, ScanWork

# Memory moves so much of what a copy would: expected, not measured.
EXPECTED_SHARE = 0.94

# A tile that has none to follow has nothing on its way.
FEWEST_TILES = 4


@dataclass(frozen=True, slots=True)
class Config:
    """CUDA, neighbours in one row: threads of a row, rows of a block, neighbours in a vector, vectors of a thread."""

    threads: int
    rows: int
    lanes: int
    vectors: int


def as_along(config: Config) -> AlongConfig:
    """The same, tile after tile."""
    return AlongConfig(config.threads, config.rows, config.lanes, config.vectors, 1)


def why_not(config: Config, work: ScanWork, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    if device.kind != "cuda":
        return "a config for a GPU."
    tile = config.threads * config.vectors * config.lanes
    if work.length < FEWEST_TILES * tile:
        return f"rows of {work.length} elements are fewer than {FEWEST_TILES} tiles of {tile}."
    held = scan.registers(config.lanes, 2 * config.vectors, work)
    if held > scan.MOST_REGISTERS:
        return f"{held} registers for two tiles leave too few to compute with."
    return scan.why_not(as_along(config), work, device)


@cache
def configs(work: ScanWork, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    if device.kind != "cuda" or work.across or not work.rows:
        return ()
    candidates = [
        Config(threads, 1, lanes, vectors)
        for lanes in (4, 2, 1)
        for vectors in (2, 4, 1)
        for threads in (64, 128, 256, 512)
    ]
    fitting = [c for c in candidates if why_not(c, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def cost_us(config: Config, work: ScanWork, device: Device) -> float:
    """What memory takes, as far as loads are wide and enough of them are on their way."""
    along = as_along(config)
    _, waste = scan.along_rounds(along, work, device)
    each = scan.resident(config.threads * config.rows, along, work, device) * config.threads * config.rows
    in_flight = each * config.vectors * config.lanes * max(work.itemsizes)
    short = max(1.0, 24_000 / in_flight)
    return LAUNCH_US + scan.floor_us(work, device) / EXPECTED_SHARE * waste * short
