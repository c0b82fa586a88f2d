"""A W that gemm_sm90 packs beside the product (gemm_sm90_beside.cuh): who packs, how much before, its time, its C++."""

from __future__ import annotations

import math

from kernelwright.device import Device
from kernelwright.kernels.gemm_pairs import a_is_copied, w_is_packed_each_time
from kernelwright.kernels.gemm_shape import Gemm, constants, copy_us, is_as_it_lies, rows_are_readable

__all__ = ["before_us", "called", "fitting", "struct", "why_not"]

LONGEST_K = 4096  # of a row that a warpgroup holds in registers, eight vectors a thread
MOST_PACKERS = 16
# Of W, what one multiprocessor reads and packs: 330 instructions for 32 elements of each thread would be 80 at 1.64 GHz.
# An estimate.
PACKER_GBPS = 50.0
# Packing's share of a copy's rate in the launch before.
BEFORE_RATE = 0.93


def why_not(gemm: Gemm) -> str | None:
    """The reason W cannot be packed beside its product."""
    if not w_is_packed_each_time(gemm) or not is_as_it_lies(gemm) or a_is_copied(gemm):
        return "W is packed beside the product where each call brings it as it lies, and A can be read."
    if not rows_are_readable(gemm.w) or gemm.k % 4:
        return "rows that are packed beside the product lie along k, at multiples of 16 bytes."
    if gemm.k > LONGEST_K:
        return f"k = {gemm.k}; rows of up to {LONGEST_K:,} are held while they are packed."
    return None


def fitting(
    gemm: Gemm, device: Device, tile_n: int, tiles_m: int, raster: int, tile_us: float
) -> tuple[int, int] | None:
    """As many packers as whole rounds of tiles leave idle; the tiles whose rows they could not pack in time."""
    tiles_n = math.ceil(gemm.n / tile_n)
    tiles = gemm.batches * tiles_m * tiles_n
    rounds = math.ceil(tiles / device.multiprocessors)
    workers = math.ceil(tiles / rounds)
    packers = min(device.multiprocessors - workers, MOST_PACKERS)
    if packers == 0 or why_not(gemm):
        return None
    unit_us = 4 * tile_n * gemm.k / (packers * PACKER_GBPS * 1e3)
    ahead = 0
    for unit in range(gemm.w_batches * tiles_n):
        batch, column = divmod(unit, tiles_n)
        wanted_us = (batch * tiles_m * tiles_n + column * min(raster, tiles_m)) // workers * tile_us
        ahead = max(ahead, math.ceil(unit + 1 - wanted_us / unit_us))
    return (packers, ahead) if ahead < gemm.w_batches * tiles_n else None


def before_us(ahead: int, gemm: Gemm, tile_n: int, device: Device) -> float:
    """The launch before, which packs the rows of so many tiles."""
    moved = 4 * ahead * tile_n * gemm.k / BEFORE_RATE
    return copy_us(moved, moved, device)


# --- C++


def struct(name: str, packers: int, ahead: int, gemm: Gemm, order: str) -> str:
    """The packing of W, and its type `name`_W."""
    members = {"packers": packers, "ahead": ahead, "k": gemm.k}
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
