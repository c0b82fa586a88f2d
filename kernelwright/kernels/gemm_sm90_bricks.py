"""gemm_sm90 with a W that each call packs as bricks (gemm_sm90_bricks.cuh): its configs, their cost, its C++ entry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels import gemm_sm90
from kernelwright.kernels.gemm_pairs import (
    BUFFER_ALIGNMENT_BYTES,
    K_OF_PANEL,
    can_be_packed_by_panels,
    copied_a,
    copy_bytes,
    copying,
    round_up,
)
from kernelwright.kernels.gemm_shape import LAUNCH_US, Gemm, constants, copy_us, is_as_it_lies

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

# All of these are predictions. Where W is packed beside the product: bytes of W that the three warps of a
# multiprocessor pack in a microsecond, what the first tiles wait for, and how much they hold the product up.
PACKED_BYTES_US = 7_200.0
MARKS_US = 2.0
HELD_UP = 1.02


@dataclass(frozen=True, slots=True)
class Config:
    """tile_n columns of a tile; promote: k between promotions; splits: parts of k; vector: neighbours of one store;
    beside: W is packed by the launch that multiplies, else by one before."""

    tile_n: int
    promote: int
    splits: int
    vector: int
    beside: bool


def plain(config: Config) -> gemm_sm90.Config:
    """The same product with W packed as rows."""
    return gemm_sm90.Config(config.tile_n, config.promote, config.splits, config.vector)


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    if not can_be_packed_by_panels(gemm):
        return "bricks are packed in each call, of rows that lie side by side."
    if not is_as_it_lies(gemm):
        return "nothing is computed on the way."
    if config.tile_n not in WHOLE_BRICKS:
        return f"a slot of a {config.tile_n}-column tile does not lie inside a brick."
    if gemm.row_state_bytes:
        return "its rows are not reduced."
    pitches = (gemm.n, gemm.w.k_pitch, gemm.w.batch_pitch)
    if not gemm.w.aligned or any(pitch % 4 for pitch in pitches):
        return "four rows of W are not read with one load."
    return gemm_sm90.why_not(plain(config), gemm, device)


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    space = [
        Config(of_rows.tile_n, promote, of_rows.splits, of_rows.vector, beside)
        for of_rows in gemm_sm90.configs(gemm, device)
        if of_rows.tile_m == 128
        for beside in (True, False)
        for promote in ((of_rows.promote, 32) if beside and of_rows.promote != 32 else (of_rows.promote,))
    ]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def floor_us(gemm: Gemm, device: Device) -> float:
    return gemm_sm90.floor_us(gemm, device)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """The product by itself, and W's packing before it at the rate of a copy, or beside it but for the first tiles."""
    w_bytes = 4 * gemm.w_batches * gemm.n * gemm.k
    packing_us = copy_us(w_bytes, w_bytes, device)
    before_us = gemm_sm90.cost_us(plain(config), gemm, device)  # with W packed by a launch of its own
    product_us = before_us - packing_us
    if not config.beside:
        return before_us
    tiles = gemm_sm90.tile_count(gemm, 128, config.tile_n) * config.splits
    first = min(1.0, device.multiprocessors / tiles)
    per_multiprocessor = w_bytes * (1 - first) / device.multiprocessors
    packing_beside_us = per_multiprocessor / PACKED_BYTES_US
    return MARKS_US + first * (packing_us - LAUNCH_US) + max(product_us * HELD_UP, packing_beside_us)


def arithmetic(config: Config, gemm: Gemm) -> str:
    """How it multiplies and adds, for whoever reads the result."""
    return gemm_sm90.arithmetic(plain(config), gemm)


# --- memory, as gemm_sm90_bricks.cuh lays it out: the copy of A, the bricks, the parts of k


def packed_bytes(gemm: Gemm) -> int:
    """Nothing is packed ahead."""
    return 0


def brick_bytes(gemm: Gemm) -> int:
    """Pairs of padded rows, a scale for each row and panel, marks of what is packed."""
    rows, panels = round_up(gemm.n, 256), math.ceil(gemm.k / K_OF_PANEL)
    marks = gemm.w_batches * (rows // 128) * panels + 1
    each = rows * round_up(gemm.k, 64) + panels * rows
    return round_up(4 * (gemm.w_batches * each + marks), BUFFER_ALIGNMENT_BYTES)


def row_parts(config: Config, gemm: Gemm) -> int:
    return gemm_sm90.row_parts(plain(config), gemm)


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    parts = round_up(gemm_sm90.part_bytes(plain(config), gemm), BUFFER_ALIGNMENT_BYTES)
    return copy_bytes(gemm) + brick_bytes(gemm) + parts


# --- C++


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config and a launcher `name`(a, w, workspace, epilogue arguments, stream)."""
    sizes = f"{gemm.m}, {gemm.n}, {gemm.k}, {gemm.batches}, {gemm.w_batches}"
    bricks, parts = copy_bytes(gemm), copy_bytes(gemm) + brick_bytes(gemm)
    return f"""\
struct {name}_Config {{
{_config_members(config)}
}};
extern "C" int {name}(
    const float* a, const void* w, void* workspace, const {epilogue}::Args* args, cudaStream_t stream) {{
{copying(gemm)}\
    const kw::gemm_sm90_bricks::Operands operands = {{
        {copied_a(gemm)}, (const float*)w, {gemm.w.k_pitch}, {gemm.w.batch_pitch}, {sizes}}};
    char* bricks = (char*)workspace + {bricks};
    return kw::gemm_sm90_bricks::launch<{name}_Config, {epilogue}>(
        operands, bricks, (char*)workspace + {parts}, *args, stream);
}}
"""


def _config_members(config: Config) -> str:
    return constants(
        {
            "tile_m": 128,
            "tile_n": config.tile_n,
            "promote": config.promote,
            "splits": config.splits,
            "vector": config.vector,
            "raster": gemm_sm90.RASTER,
            "panels": True,
            "undo_truncation": True,
            "beside": config.beside,
        }
    )
