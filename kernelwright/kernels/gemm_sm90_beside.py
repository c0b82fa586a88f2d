"""A W that gemm_sm90 packs beside the product (gemm_sm90_beside.cuh): who packs, how much before, its time, its C++."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels.gemm_pairs import a_is_copied, w_is_packed_each_time
from kernelwright.kernels.gemm_shape import Gemm, constants, copy_us, is_as_it_lies, rows_are_readable

__all__ = ["Rounds", "before_us", "called", "late_us", "struct", "ways", "why_not"]

K_OF_WARP, LONGEST_K = 1024, 4096  # of a row that a warp or a warpgroup holds in registers, eight vectors a thread
MOST_PACKERS = 16
# Of W, what one multiprocessor reads and packs, where rows are a warp's and where they are a warpgroup's: a little less
# than was measured on an H200 while each row was told of by itself. Told of once for a tile, it should be more; the
# tuner tries that too.
PACKER_GBPS, HOPED_GBPS = (20.0, 14.0), 50.0
# Packing's share of a copy's rate in the launch before.
BEFORE_RATE = 0.93


@dataclass(frozen=True, slots=True)
class Rounds:
    """Tiles of a product, rows by columns; how many of a column strip run together; what each takes."""

    tile_n: int
    tiles_m: int
    raster: int
    tile_us: float


def why_not(gemm: Gemm) -> str | None:
    """The reason W cannot be packed beside its product."""
    if not w_is_packed_each_time(gemm) or not is_as_it_lies(gemm) or a_is_copied(gemm):
        return "W is packed beside the product where each call brings it as it lies, and A can be read."
    if not rows_are_readable(gemm.w) or gemm.k % 4:
        return "rows that are packed beside the product lie along k, at multiples of 16 bytes."
    if gemm.k > LONGEST_K:
        return f"k = {gemm.k}; rows of up to {LONGEST_K:,} are held while they are packed."
    return None


def ways(gemm: Gemm, device: Device, rounds: Rounds) -> Iterator[tuple[int, int]]:
    """As many packers as whole rounds of tiles leave idle, and the tiles whose rows are packed before, since they could
    not pack these in time: as fast as was measured, and as hoped."""
    tiles = gemm.batches * rounds.tiles_m * math.ceil(gemm.n / rounds.tile_n)
    workers = math.ceil(tiles / math.ceil(tiles / device.multiprocessors))
    packers = min(device.multiprocessors - workers, MOST_PACKERS)
    if packers == 0 or why_not(gemm):
        return
    for gbps in (gbps_of(gemm), HOPED_GBPS):
        unit_us = packing_us(gemm, rounds, packers, gbps)
        ahead = max(
            math.ceil(unit + 1 - wanted / unit_us) for unit, wanted in enumerate(wanted_us(gemm, rounds, workers))
        )
        if 0 <= ahead < units(gemm, rounds):
            yield packers, ahead


def units(gemm: Gemm, rounds: Rounds) -> int:
    """The rows of W that a tile wants, of all batches."""
    return gemm.w_batches * math.ceil(gemm.n / rounds.tile_n)


def gbps_of(gemm: Gemm) -> float:
    return PACKER_GBPS[gemm.k > K_OF_WARP]


def packing_us(gemm: Gemm, rounds: Rounds, packers: int, gbps: float) -> float:
    """All packers, for the rows of a tile."""
    return 4 * rounds.tile_n * gemm.k / (packers * gbps * 1e3)


def wanted_us(gemm: Gemm, rounds: Rounds, workers: int) -> Iterator[float]:
    """When the first tile begins that wants them, for the rows of each."""
    columns = math.ceil(gemm.n / rounds.tile_n)
    for unit in range(units(gemm, rounds)):
        batch, column = divmod(unit, columns)
        tile = batch * rounds.tiles_m * columns + column * min(rounds.raster, rounds.tiles_m)
        yield tile // workers * rounds.tile_us


def late_us(packers: int, ahead: int, gemm: Gemm, device: Device, rounds: Rounds) -> float:
    """How long tiles wait for packers."""
    unit_us = packing_us(gemm, rounds, packers, gbps_of(gemm))
    wanted = enumerate(wanted_us(gemm, rounds, device.multiprocessors - packers))
    return max(0.0, *((unit - ahead + 1) * unit_us - when for unit, when in wanted))


def before_us(ahead: int, gemm: Gemm, tile_n: int, device: Device) -> float:
    """The launch before, which packs the rows of so many tiles."""
    moved = 4 * ahead * tile_n * gemm.k / BEFORE_RATE
    return copy_us(moved, moved, device)


# --- C++


def struct(name: str, packers: int, ahead: int, gemm: Gemm, order: str) -> str:
    """The packing of W, and its type `name`_W."""
    return f"""\
struct {name}_Packing {{
{constants({"packers": packers, "ahead": ahead, "k": gemm.k})}
}};
using {name}_W = kw::gemm_sm90_beside::Beside<{order}, {name}_Packing>;
"""


def called(name: str) -> str:
    """Statements that pack what is packed before, of `operands`."""
    return f"""\
    const cudaError_t packed = kw::gemm_sm90_beside::pack_before<{name}_Config, {name}_W>(operands, stream);
    if (packed != cudaSuccess) return packed;
"""
