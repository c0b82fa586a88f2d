"""The IEEE float32 template for any sizes and strides (gemm_simt.cuh): configs, which fit, their cost, its entry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels.gemm_rows import adding_us, end_of, finishing_us, launched
from kernelwright.kernels.gemm_shape import (
    LAUNCH_US,
    Gemm,
    Operand,
    beside_us,
    constants,
    is_as_it_lies,
    making_us,
    stream_us,
)
from kernelwright.kernels.gemm_shape import floor_us as floor_at

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

HEADER = "gemm_simt.cuh"
HEADERS = ("gemm_prologue", "gemm_epilogue", "gemm_simt")
CPP_TYPE = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}

# k up to which every 8 products are added up by themselves: an order with less rounding error than cuBLAS's, for an
# eighth more additions that hide behind memory traffic at such k.
BLOCKED_K = 128

# Tiles, and what the main loop is expected to reach of the device's float32 rate: of its instructions, 84% and 73%
# multiply.
TILES = {(128, 128, 8): 0.88, (64, 64, 16): 0.65}
# Starting and storing a tile, beside the other tiles of its multiprocessor.
TILE_OVERHEAD_US = {(128, 128, 8): 1.0, (64, 64, 16): 0.3}
# A block has one step of k on its way, so that each takes at least as long as a load; two blocks wait together.
STEP_US = 0.6
BLOCKS_AT_ONCE = 2
WARPS_ACROSS = 2  # of a tile, beside each other


@dataclass(frozen=True, slots=True)
class Config:
    """tile_m x tile_n results of a block of 256 threads; blocked: 8 products at a time added up by themselves."""

    tile_m: int
    tile_n: int
    tile_k: int
    blocked: bool
    vector: int


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    if device.kind != "cuda":
        return f"it is a CUDA kernel; {device.name} is not a GPU."
    if gemm.a.dtype not in CPP_TYPE or gemm.w.dtype not in CPP_TYPE:
        return f"it reads float32, float16 and bfloat16; the operands are {gemm.a.dtype} and {gemm.w.dtype}."
    if (config.tile_m, config.tile_n, config.tile_k) not in TILES:
        return f"there is no {config.tile_m} x {config.tile_n} tile of {config.tile_k} of k."
    if config.blocked and config.tile_m > 64:
        return "short sums take as many registers again, which only the 64 x 64 tile has left."
    if (gemm.row_state_bytes or not is_as_it_lies(gemm)) and config.tile_m > 64:
        return "rows to reduce or operands to compute take registers, which only the 64 x 64 tile has left."
    if gemm.vector % config.vector or gemm.n % config.vector:
        return f"the epilogue cannot store {config.vector} neighbours of {gemm.n} columns at once."
    if max(gemm.m, gemm.n, gemm.k) >= 2**31:
        return "a size needs more than 31 bits."
    return None


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    vector = next(v for v in (4, 2, 1) if gemm.vector % v == 0 and gemm.n % v == 0)
    blocked = gemm.k <= BLOCKED_K
    space = [Config(*tile, blocked, vector) for tile in TILES]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def floor_us(gemm: Gemm, device: Device) -> float:
    return floor_at(gemm, device, device.peaks.float32)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """Rounds of tiles at the expected rate, beside the bytes."""
    tile = (config.tile_m, config.tile_n, config.tile_k)
    tiles = gemm.batches * math.ceil(gemm.m / config.tile_m) * math.ceil(gemm.n / config.tile_n)
    rate = device.peaks.float32 * 1e6 / device.multiprocessors * TILES[tile]
    additions = 9 / 8 if config.blocked else 1.0
    results = config.tile_m * config.tile_n
    making = making_us(gemm.a, config.tile_m * gemm.k, gemm.batches * gemm.m * gemm.k, device)
    making += making_us(gemm.w, config.tile_n * gemm.k, gemm.w_batches * gemm.n * gemm.k, device)
    multiplying_us = 2 * results * gemm.k * additions / rate
    tile_us = multiplying_us + TILE_OVERHEAD_US[tile] + making + adding_us(results, gemm, device)
    rounds = math.ceil(tiles / device.multiprocessors)
    waits_us = math.ceil(tiles / (BLOCKS_AT_ONCE * device.multiprocessors)) * gemm.k / config.tile_k * STEP_US
    after_us = finishing_us(row_parts(config, gemm), gemm, device)
    return LAUNCH_US + beside_us(max(rounds * tile_us, waits_us), stream_us(gemm, device)) + after_us


def arithmetic(config: Config, gemm: Gemm) -> str:
    """How it multiplies and adds, for whoever reads the result."""
    return f"{gemm.a.dtype} products and sums in IEEE float32"


def packed_bytes(gemm: Gemm) -> int:
    """It reads W as it lies."""
    return 0


def row_parts(config: Config, gemm: Gemm) -> int:
    """Warps that have a part in a row."""
    return math.ceil(gemm.n / config.tile_n) * WARPS_ACROSS


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    return 0


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config and a launcher `name`(a, w, workspace, epilogue arguments, stream); it needs no workspace."""
    members = constants(
        {
            "tile_m": config.tile_m,
            "tile_n": config.tile_n,
            "tile_k": config.tile_k,
            "a_along_k": _along_k(gemm.a),
            "w_along_k": _along_k(gemm.w),
            "a_width": _width(gemm.a, gemm.m, gemm.k),
            "w_width": _width(gemm.w, gemm.n, gemm.k),
            "blocked": config.blocked,
            "vector": config.vector,
        }
    )
    sizes = f"{gemm.m}, {gemm.n}, {gemm.k}, {gemm.batches}"
    parts = row_parts(config, gemm)
    made = [operand.made_by or "kw::gemm::AsItLies" for operand in (gemm.a, gemm.w)]
    given = ["*args" if operand.made_by else "{}" for operand in (gemm.a, gemm.w)]
    types = [f"{name}_Config", end_of(epilogue, parts, gemm), *([] if is_as_it_lies(gemm) else made)]
    arguments = ["problem", "*args", "stream", *([] if is_as_it_lies(gemm) else given)]
    launch = f"kw::gemm_simt::launch<{', '.join(types)}>({', '.join(arguments)})"
    return f"""\
struct {name}_Config {{
    using AType = {CPP_TYPE[gemm.a.dtype]};
    using WType = {CPP_TYPE[gemm.w.dtype]};
{members}
}};
extern "C" int {name}(const void* a, const void* w, void*, const {epilogue}::Args* args, cudaStream_t stream) {{
    const kw::gemm_simt::Problem problem = {{{_operand("a", gemm.a)}, {_operand("w", gemm.w)}, {sizes}}};
{launched(launch, epilogue, parts, gemm)}
}}
"""


def _along_k(operand: Operand) -> bool:
    return operand.k_pitch == 1 or operand.k_pitch <= operand.row_pitch


def _width(operand: Operand, rows: int, k: int) -> int:
    """Elements of one load: 4 if every line of the operand starts and ends at a multiple of 4, else 1."""
    along, across, length = (
        (operand.k_pitch, operand.row_pitch, k) if _along_k(operand) else (operand.row_pitch, operand.k_pitch, rows)
    )
    whole = all(pitch % 4 == 0 for pitch in (across, operand.batch_pitch, length))
    return 4 if along == 1 and whole and operand.aligned else 1


def _operand(name: str, operand: Operand) -> str:
    return f"{{{name}, {operand.row_pitch}, {operand.k_pitch}, {operand.batch_pitch}}}"
