"""A W that gemm_sm90 packs beside the product (gemm_sm90_beside.cuh): who packs, how much before, its time, its C++."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels.gemm_pairs import (
    HELD_RATE,
    K_OF_WARP,
    K_OF_WARPGROUP,
    a_is_copied,
    w_is_packed_each_time,
)
from kernelwright.kernels.gemm_shape import Gemm, constants, copy_us, is_as_it_lies, rows_are_readable

__all__ = ["BESIDE_SHARE", "Rounds", "before_us", "called", "late_us", "struct", "ways", "why_not"]

LONGEST_K = K_OF_WARPGROUP
MOST_PACKERS = 8
# What one packer packs while the others multiply, of rows that are a warp's, of which it has twelve, and of rows that
# are a warpgroup's; and what it needs to begin. On an H200 rows of 1024 and of 2048 took as long as 29 and 23.5 GB/s
# where tiles had to wait for them; here it is a tenth less. Alone, a multiprocessor stores 62 at most, and copies 49.
PACKED_GBPS = (26.5, 21.5)
BEGIN_US = 12.0
# A product beside which others pack takes this much longer (0.2 to 0.9% there, and some to spare).
BESIDE_SHARE = 1.02


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
    not pack these in time."""
    tiles = gemm.batches * rounds.tiles_m * math.ceil(gemm.n / rounds.tile_n)
    idle = device.multiprocessors - math.ceil(tiles / math.ceil(tiles / device.multiprocessors))
    packers = min(idle, MOST_PACKERS)
    if packers == 0 or why_not(gemm):
        return
    each, wanted = unit_us(packers, gemm, rounds), wanted_us(gemm, rounds, device.multiprocessors - packers)
    ahead = max(math.ceil(unit + 1 - max(0.0, when - BEGIN_US) / each) for unit, when in enumerate(wanted))
    if ahead < units(gemm, rounds):
        yield packers, ahead


def units(gemm: Gemm, rounds: Rounds) -> int:
    """The rows of W that a tile wants, of all batches."""
    return gemm.w_batches * math.ceil(gemm.n / rounds.tile_n)


def unit_us(packers: int, gemm: Gemm, rounds: Rounds) -> float:
    """Of packers, for the rows of a tile."""
    return 4 * rounds.tile_n * gemm.k / (packers * PACKED_GBPS[gemm.k > K_OF_WARP] * 1e3)


def wanted_us(gemm: Gemm, rounds: Rounds, workers: int) -> Iterator[float]:
    """When the first tile begins that wants them, for the rows of each."""
    columns = math.ceil(gemm.n / rounds.tile_n)
    for unit in range(units(gemm, rounds)):
        batch, column = divmod(unit, columns)
        tile = batch * rounds.tiles_m * columns + column * min(rounds.raster, rounds.tiles_m)
        yield tile // workers * rounds.tile_us


def late_us(packers: int, ahead: int, gemm: Gemm, device: Device, rounds: Rounds) -> float:
    """How long tiles wait for packers."""
    each = unit_us(packers, gemm, rounds)
    wanted = enumerate(wanted_us(gemm, rounds, device.multiprocessors - packers))
    return max(0.0, *(BEGIN_US + (unit - ahead + 1) * each - when for unit, when in wanted if unit >= ahead))


def before_us(ahead: int, gemm: Gemm, tile_n: int, device: Device) -> float:
    """The launch before, which packs the rows of so many tiles."""
    moved = 4 * ahead * tile_n * gemm.k / HELD_RATE
    return copy_us(moved, moved, device)


# --- C++


def struct(name: str, packers: int, ahead: int, aside: int, gemm: Gemm, order: str) -> str:
    """The packing of W, and its type `name`_W."""
    return f"""\
struct {name}_Packing {{
{constants({"packers": packers, "ahead": ahead, "aside": aside, "k": gemm.k})}
}};
using {name}_W = kw::gemm_sm90_beside::Beside<{order}, {name}_Packing>;
"""


def called(name: str) -> str:
    """Statements that pack what is packed before, of `operands`."""
    return f"""\
    const cudaError_t packed = kw::gemm_sm90_beside::pack_before<{name}_Config, {name}_W>(operands, stream);
    if (packed != cudaSuccess) return packed;
"""
