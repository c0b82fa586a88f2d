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

__all__ = [
    "Rounds",
    "Way",
    "before_us",
    "called",
    "late_us",
    "share",
    "struct",
    "ways",
    "why_not",
    "why_not_aside",
]

LONGEST_K = K_OF_WARPGROUP
K_ASIDE = 512
MOST_PACKERS = 8
# What one packer packs while the others multiply, of rows that are a warp's, of which it has twelve, and of rows that
# are a warpgroup's; and what it needs to begin. On an H200 rows of 1024 and of 2048 took as long as 29 and 23.5 GB/s
# where tiles had to wait for them, and less where these take fewer clocks and the GPU so runs at fewer: tiles of 1024
# waited for 25. Here it is a tenth less, and as much less of the longer rows, of which that was not measured. Alone, a
# multiprocessor stores 62 at most, and copies 49.
PACKED_GBPS = (22.5, 19.0)
BEGIN_US = 12.0
# What two warps pack beside the tiles of their own block. On an H200 they kept up with tiles that wanted 1.65, and not
# with those that wanted 2.1.
ASIDE_GBPS = 1.95
# A product beside which others pack takes this much longer: packers (0.2 to 0.9% there, and some to spare), and warps
# of the same blocks (2 to 5%).
PACKERS_SHARE, ASIDE_SHARE = 1.02, 1.04


@dataclass(frozen=True, slots=True)
class Rounds:
    """Tiles of a product, rows by columns; how many of a column strip run together; what each takes."""

    tile_n: int
    tiles_m: int
    raster: int
    tile_us: float


@dataclass(frozen=True, slots=True)
class Way:
    """How many tiles' rows are packed before, and then by warps of blocks that have tiles; packers pack the others."""

    packers: int
    ahead: int
    aside: int


def why_not(gemm: Gemm) -> str | None:
    """The reason W cannot be packed beside its product."""
    if not w_is_packed_each_time(gemm) or not is_as_it_lies(gemm) or a_is_copied(gemm):
        return "W is packed beside the product where each call brings it as it lies, and A can be read."
    if not rows_are_readable(gemm.w) or gemm.k % 4:
        return "rows that are packed beside the product lie along k, at multiples of 16 bytes."
    if gemm.k > LONGEST_K:
        return f"k = {gemm.k}; rows of up to {LONGEST_K:,} are held while they are packed."
    return None


def why_not_aside(gemm: Gemm) -> str | None:
    """The reason warps of blocks that have tiles cannot pack some of it."""
    return f"k = {gemm.k}; what is packed aside is of multiples of {K_ASIDE}." if gemm.k % K_ASIDE else None


def ways(gemm: Gemm, device: Device, rounds: Rounds) -> Iterator[Way]:
    """As many packers as whole rounds of tiles leave idle, with as much packed before as they could not pack in time;
    the same with only what the first rounds want before, and the rest of it aside; and all aside, without packers."""
    if why_not(gemm):
        return
    packers = idle(gemm, device, rounds)
    of_packers = first_in_time(packers, gemm, device, rounds) if packers else units(gemm, rounds)
    if of_packers < units(gemm, rounds):
        yield Way(packers, of_packers, 0)
    if why_not_aside(gemm):
        return
    ends = {0: units(gemm, rounds)}
    if of_packers < ends[0]:
        ends[packers] = of_packers
    for count, end in ends.items():
        ahead = first_in_time_aside(end, gemm, device.multiprocessors - count, rounds)
        if ahead < end:
            yield Way(count, ahead, end - ahead)


def idle(gemm: Gemm, device: Device, rounds: Rounds) -> int:
    """Multiprocessors that whole rounds of tiles leave without one."""
    tiles = gemm.batches * rounds.tiles_m * math.ceil(gemm.n / rounds.tile_n)
    return min(device.multiprocessors - math.ceil(tiles / math.ceil(tiles / device.multiprocessors)), MOST_PACKERS)


def first_in_time(packers: int, gemm: Gemm, device: Device, rounds: Rounds) -> int:
    """From which tile on packers pack the rows before they are wanted."""
    each, wanted = unit_us(packers, gemm, rounds), wanted_us(gemm, rounds, device.multiprocessors - packers)
    return max(math.ceil(unit + 1 - max(0.0, when - BEGIN_US) / each) for unit, when in enumerate(wanted))


def first_in_time_aside(end: int, gemm: Gemm, workers: int, rounds: Rounds) -> int:
    """The same of warps of so many blocks, up to tile `end`: what a round wants is packed before as a whole or not at
    all, since all of these warps begin together, and so end with their first rows."""
    each, wanted = aside_us(workers, gemm, rounds), list(wanted_us(gemm, rounds, workers))[:end]
    for ahead in range(1, end):
        begins_a_round = wanted[ahead] > wanted[ahead - 1]
        if begins_a_round and all((unit - ahead + 1) * each <= wanted[unit] for unit in range(ahead, end)):
            return ahead
    return end


def units(gemm: Gemm, rounds: Rounds) -> int:
    """The rows of W that a tile wants, of all batches."""
    return gemm.w_batches * math.ceil(gemm.n / rounds.tile_n)


def unit_us(packers: int, gemm: Gemm, rounds: Rounds) -> float:
    """Of packers, for the rows of a tile."""
    return 4 * rounds.tile_n * gemm.k / (packers * PACKED_GBPS[gemm.k > K_OF_WARP] * 1e3)


def aside_us(workers: int, gemm: Gemm, rounds: Rounds) -> float:
    """Of so many blocks that have tiles, for the rows of a tile."""
    return 4 * rounds.tile_n * gemm.k / (workers * ASIDE_GBPS * 1e3)


def wanted_us(gemm: Gemm, rounds: Rounds, workers: int) -> Iterator[float]:
    """When the first tile begins that wants them, for the rows of each."""
    columns = math.ceil(gemm.n / rounds.tile_n)
    for unit in range(units(gemm, rounds)):
        batch, column = divmod(unit, columns)
        tile = batch * rounds.tiles_m * columns + column * min(rounds.raster, rounds.tiles_m)
        yield tile // workers * rounds.tile_us


def late_us(way: Way, gemm: Gemm, device: Device, rounds: Rounds) -> float:
    """How long tiles wait for who packs."""
    workers, aside_end = device.multiprocessors - way.packers, way.ahead + way.aside
    late = 0.0
    for unit, when in enumerate(wanted_us(gemm, rounds, workers)):
        if unit >= aside_end:
            ready = BEGIN_US + (unit - aside_end + 1) * unit_us(way.packers, gemm, rounds) if way.packers else 0.0
        else:
            ready = (unit - way.ahead + 1) * aside_us(workers, gemm, rounds) if unit >= way.ahead else 0.0
        late = max(late, ready - when)
    return late


def share(aside: int) -> float:
    """Of a product's own time, what it takes beside others who pack."""
    return ASIDE_SHARE if aside else PACKERS_SHARE


def before_us(ahead: int, gemm: Gemm, tile_n: int, device: Device) -> float:
    """The launch before, which packs the rows of so many tiles."""
    moved = 4 * ahead * tile_n * gemm.k / HELD_RATE
    return copy_us(moved, moved, device)


# --- C++


def struct(name: str, way: Way, gemm: Gemm, order: str) -> str:
    """The packing of W, and its type `name`_W."""
    members = {
        "packers": way.packers,
        "ahead": way.ahead,
        "aside": way.aside,
        "batches": gemm.w_batches,
        "rows": gemm.n,
        "k": gemm.k,
    }
    return f"""\
struct {name}_Packing {{
{constants(members)}
}};
using {name}_W = kw::gemm_sm90_beside::Beside<{order}, {name}_Packing>;
"""


def called(name: str) -> str:
    """Statements that pack what is packed before, of `operands`."""
    return f"""\
    const cudaError_t packed = kw::gemm_sm90_beside::pack_before<{name}_Config, {name}_W>(operands, stream);
    if (packed != cudaSuccess) return packed;
"""
