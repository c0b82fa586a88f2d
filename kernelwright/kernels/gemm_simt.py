"""The IEEE float32 template for any sizes and strides (gemm_simt.cuh): configs, which fit, their cost, its entry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels.gemm_shape import LAUNCH_US, Gemm, Operand, bytes_moved, constants
from kernelwright.kernels.gemm_shape import floor_us as floor_at

__all__ = ["Config", "configs", "cost_us", "entry", "floor_us", "why_not"]

HEADER = "gemm_simt.cuh"
CPP_TYPE = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}

# k up to which sums of tile_k products are added up by themselves: an order with less rounding error than cuBLAS's, for
# an eighth more additions that hide behind memory traffic at such k.
BLOCKED_K = 128

# What the main loop reaches of the device's float32 rate: the share of multiply-adds among its instructions.
REACHED = {(128, 128): 0.80, (64, 64): 0.60}
TILE_OVERHEAD_US = 2.0


@dataclass(frozen=True, slots=True)
class Config:
    """tile_m x tile_n results of a block of 256 threads; blocked: short sums added up by themselves."""

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
    if (config.tile_m, config.tile_n) not in REACHED:
        return f"there is no {config.tile_m} x {config.tile_n} tile."
    if gemm.vector % config.vector or gemm.n % config.vector:
        return f"the epilogue cannot store {config.vector} neighbours of {gemm.n} columns at once."
    if max(gemm.m, gemm.n, gemm.k) >= 2**31:
        return "a size needs more than 31 bits."
    return None


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    vector = next(v for v in (4, 2, 1) if gemm.vector % v == 0 and gemm.n % v == 0)
    blocked = gemm.k <= BLOCKED_K
    space = [Config(128, 128, 8, blocked, vector), Config(64, 64, 16, blocked, vector)]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def floor_us(gemm: Gemm, device: Device) -> float:
    return floor_at(gemm, device, device.peaks.float32)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """Rounds of tiles at the expected rate, or the bytes."""
    tiles = gemm.batches * math.ceil(gemm.m / config.tile_m) * math.ceil(gemm.n / config.tile_n)
    rate = device.peaks.float32 * 1e6 / device.multiprocessors * REACHED[config.tile_m, config.tile_n]
    extra = 1 + 1 / config.tile_k if config.blocked else 1.0
    tile_us = 2 * config.tile_m * config.tile_n * gemm.k * extra / rate + TILE_OVERHEAD_US
    blocks_at_once = device.multiprocessors * (1 if config.tile_m == 128 else 2)
    rounds = math.ceil(tiles / blocks_at_once) * blocks_at_once / device.multiprocessors
    return LAUNCH_US + max(rounds * tile_us, bytes_moved(gemm) / device.copy_gbps / 1e3)


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config and a launcher `name`(a, w, workspace, epilogue arguments, stream); it needs no workspace."""
    thread = 8 if config.tile_m == 128 else 4
    members = constants(
        {
            "tile_m": config.tile_m,
            "tile_n": config.tile_n,
            "tile_k": config.tile_k,
            "thread_m": thread,
            "thread_n": thread,
            "a_along_k": _along_k(gemm.a),
            "w_along_k": _along_k(gemm.w),
            "blocked": config.blocked,
            "vector": config.vector,
        }
    )
    sizes = f"{gemm.m}, {gemm.n}, {gemm.k}, {gemm.batches}"
    return f"""\
struct {name}_Config {{
    using AType = {CPP_TYPE[gemm.a.dtype]};
    using WType = {CPP_TYPE[gemm.w.dtype]};
{members}
}};
extern "C" int {name}(const void* a, const void* w, void*, const {epilogue}::Args* args, cudaStream_t stream) {{
    const kw::gemm_simt::Problem problem = {{{_operand("a", gemm.a)}, {_operand("w", gemm.w)}, {sizes}}};
    return kw::gemm_simt::launch<{name}_Config, {epilogue}>(problem, *args, stream);
}}
"""


def _along_k(operand: Operand) -> bool:
    return operand.k_pitch <= operand.row_pitch


def _operand(name: str, operand: Operand) -> str:
    return f"{{{name}, {operand.row_pitch}, {operand.k_pitch}, {operand.batch_pitch}}}"
