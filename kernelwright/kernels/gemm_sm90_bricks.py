"""gemm_sm90 with a W that each call packs as bricks (gemm_sm90_bricks.cuh): its configs, their cost, its C++ entry."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from kernelwright.device import Device
from kernelwright.kernels import gemm_sm90
from kernelwright.kernels.gemm_pairs import (
    BUFFER_ALIGNMENT_BYTES,
    K_OF_PANEL,
    can_be_packed_by_panels,
    copy_bytes,
    copying_us,
    round_up,
)
from kernelwright.kernels.gemm_shape import Gemm, copy_us
from kernelwright.kernels.gemm_sm90 import arithmetic, floor_us, row_parts

__all__ = [
    "HEADERS",
    "Config",
    "arithmetic",
    "configs",
    "cost_us",
    "entry",
    "floor_us",
    "packed_bytes",
    "row_parts",
    "why_not",
    "workspace_bytes",
]

HEADER = "gemm_sm90_bricks.cuh"
HEADERS = (*gemm_sm90.HEADERS, "gemm_sm90_bricks")
WHOLE_BRICKS = (256, 128)  # columns of tiles whose slots lie inside of bricks
PADDING = 256  # of W's rows, as gemm_sm90_bricks.cuh has it

# Packing's share of a copy's rate on an H200: 43 us of 128 MB, about 265 of 1 GB.
PACKING_RATE = 0.94


@dataclass(frozen=True, slots=True)
class Config(gemm_sm90.Config):
    """As gemm_sm90 has it."""


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    if not can_be_packed_by_panels(gemm):
        return "bricks are packed in each call, as they lie, of rows that lie side by side."
    if config.is_beside:
        return "bricks are packed before the product."
    if config.tile_n not in WHOLE_BRICKS:
        return f"a slot of a {config.tile_n}-column tile does not lie inside a brick."
    return gemm_sm90.why_not(config, gemm, device)


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    space = [Config(*astuple(config)) for config in gemm_sm90.configs(gemm, device)]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """The product as gemm_sm90 multiplies it, after W was packed at nearly the rate of a copy."""
    read, written = (4 * gemm.w_batches * rows * gemm.k for rows in (gemm.n, round_up(gemm.n, PADDING)))
    packing_us = copy_us(read / PACKING_RATE, written / PACKING_RATE, device)
    return gemm_sm90.multiplying_us(config, gemm, device) + copying_us(gemm, device) + packing_us


# --- memory, as gemm_sm90_bricks.cuh lays it out: the copy of A, the bricks, the parts of k


def packed_bytes(gemm: Gemm) -> int:
    """Pairs of padded rows, and a scale for each of them and each panel."""
    panels = math.ceil(gemm.k / K_OF_PANEL)
    return 4 * gemm.w_batches * round_up(gemm.n, PADDING) * (round_up(gemm.k, 64) + panels)


def prepared_bytes(gemm: Gemm) -> int:
    return copy_bytes(gemm) + round_up(packed_bytes(gemm), BUFFER_ALIGNMENT_BYTES)


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    return prepared_bytes(gemm) + round_up(gemm_sm90.part_bytes(config, gemm), BUFFER_ALIGNMENT_BYTES)


# --- C++


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config and a launcher `name`(a, w, workspace, epilogue arguments, stream)."""
    pack, order = "kw::gemm_sm90_bricks::pack<2>", "kw::gemm_sm90_bricks::Bricks"
    return gemm_sm90.launcher(name, config, gemm, epilogue, pack, prepared_bytes(gemm), order)
