"""The template for 1 to 16 rows or columns (gemm_skinny.cuh): its configs, which fit, their cost, its C++ entry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels.gemm_shape import (
    CACHE_OVER_MEMORY,
    LAUNCH_US,
    Gemm,
    Operand,
    beside_us,
    bytes_moved,
    constants,
    is_as_it_lies,
    rows_are_readable,
)
from kernelwright.kernels.gemm_shape import floor_us as floor_at
from kernelwright.kernels.gemm_simt import CPP_TYPE

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

HEADER = "gemm_skinny.cuh"
HEADERS = ("ptx90", "ptx80", "gemm_epilogue", "gemm_skinny")
WARPS = 8
MOST_FEW = 16
# Of a copy's bandwidth, by warps that share a row: the more, the longer the pieces of memory that are read at a time.
# Measured on the H200 with one row, but for 4.
REACHED = {1: 0.815, 2: 0.86, 4: 0.89, 8: 0.915}


@dataclass(frozen=True, slots=True)
class Config:
    """few: rows of the short operand, rounded up; rows of the long one a warp takes; k_warps that share a row."""

    few: int
    few_is_a: bool
    rows: int
    k_warps: int
    load_bytes: int


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    if not is_as_it_lies(gemm):
        return "it multiplies what it reads: nothing is computed on the way."
    few = gemm.m if config.few_is_a else gemm.n
    if gemm.row_state_bytes:
        return "a row of its results lies in many blocks, a few in each: nothing is gained by reducing it there."
    if device.kind != "cuda":
        return f"it is a CUDA kernel; {device.name} is not a GPU."
    if gemm.a.dtype != gemm.w.dtype or gemm.a.dtype not in CPP_TYPE:
        return f"it reads two operands of one type; these are {gemm.a.dtype} and {gemm.w.dtype}."
    if few > config.few:
        return f"{few} rows are more than the {config.few} it keeps sums for."
    if gemm.a.k_pitch != 1 or gemm.w.k_pitch != 1:
        return "it reads both operands along k, and k is not contiguous."
    if config.load_bytes > gemm.a.itemsize and not _wide_loads(gemm):
        return f"rows do not start and end at multiples of {config.load_bytes} bytes."
    if gemm.batches > 65535:
        return f"{gemm.batches} batches; a grid has at most 65,535."
    if config.rows > 4 and config.few > 2:
        return f"{config.rows} rows and {config.few} do not fit the registers."
    return None


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    short = min(gemm.m, gemm.n)
    few = next((f for f in (1, 2, 4, 8, 16) if f >= short), MOST_FEW)
    load_bytes = 16 if _wide_loads(gemm) else gemm.a.itemsize
    space = [Config(few, gemm.m <= gemm.n, rows, warps, load_bytes) for rows in (4, 2, 8) for warps in REACHED]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def floor_us(gemm: Gemm, device: Device) -> float:
    return floor_at(gemm, device, device.peaks.float32)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """Bytes over bandwidth, if there are warps enough to keep them coming, beside what comes from cache."""
    many = gemm.n if config.few_is_a else gemm.m
    warps = gemm.batches * math.ceil(many / config.rows) * config.k_warps
    # 8 warps of a multiprocessor, each with 2 x 16 bytes a lane for every row, cover the latency of memory.
    wanted = device.multiprocessors * WARPS * 4 / config.rows
    shortage = max(1.0, wanted / warps)
    bytes_us = bytes_moved(gemm) / device.copy_gbps / 1e3
    memory_us = bytes_us / REACHED[config.k_warps] * shortage * (4 if config.load_bytes < 16 else 1)
    cached_us = 0.0 if is_staged(config) else bytes_us * (1 + config.few / config.rows) / CACHE_OVER_MEMORY
    compute_us = gemm.flops / device.peaks.float32 / 1e6 / 0.6
    return LAUNCH_US + beside_us(memory_us, max(cached_us, compute_us))


def is_staged(config: Config) -> bool:
    """Whether a block copies the few rows to shared memory for all its warps (gemm_skinny.cuh has the same rule)."""
    most = 16 if config.k_warps == 1 else 8
    return config.few >= 4 and config.load_bytes >= 4 and config.few * config.k_warps <= most


def arithmetic(config: Config, gemm: Gemm) -> str:
    """How it multiplies and adds, for whoever reads the result."""
    return f"{gemm.a.dtype} products and sums in IEEE float32"


def packed_bytes(gemm: Gemm) -> int:
    """It reads W as it lies."""
    return 0


def row_parts(config: Config, gemm: Gemm) -> int:
    """It reduces no rows."""
    return 0


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    return 0


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config and a launcher `name`(a, w, workspace, epilogue arguments, stream); it needs no workspace."""
    members = constants(
        {
            "few": config.few,
            "few_is_a": config.few_is_a,
            "rows": config.rows,
            "k_warps": config.k_warps,
            "load_bytes": config.load_bytes,
        }
    )
    few, many = _operand("a", gemm.a), _operand("w", gemm.w)
    few_rows, many_rows = gemm.m, gemm.n
    if not config.few_is_a:
        few, many, few_rows, many_rows = many, few, many_rows, few_rows
    sizes = f"{few_rows}, {many_rows}, {gemm.k}, {gemm.batches}, {gemm.m}"
    return f"""\
struct {name}_Config {{
    using Type = {CPP_TYPE[gemm.a.dtype]};
{members}
}};
extern "C" int {name}(const void* a, const void* w, void*, const {epilogue}::Args* args, cudaStream_t stream) {{
    const kw::gemm_skinny::Problem problem = {{{few}, {many}, {sizes}}};
    return kw::gemm_skinny::launch<{name}_Config, {epilogue}>(problem, *args, stream);
}}
"""


def _wide_loads(gemm: Gemm) -> bool:
    width = 16 // gemm.a.itemsize
    return gemm.k % width == 0 and rows_are_readable(gemm.a) and rows_are_readable(gemm.w)


def _operand(name: str, operand: Operand) -> str:
    return f"{{{name}, {operand.row_pitch}, {operand.batch_pitch}}}"
