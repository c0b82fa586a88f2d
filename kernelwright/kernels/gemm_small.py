"""The CPU template for 1 to 8 rows or columns (cpu/gemm_small.hpp): its configs, which fit, their cost, its entry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels.gemm_shape import Gemm, Operand, bytes_moved, constants
from kernelwright.kernels.gemm_shape import floor_us as floor_at

__all__ = ["HEADERS", "Config", "arithmetic", "configs", "cost_us", "entry", "floor_us", "why_not"]

HEADERS = ("gemm_small",)
MOST_FEW = 8
# Sums in registers: 32 vectors of AVX-512, or 16 of half the width.
MOST_SUMS = 16
CALL_US = 2.0
# Of a copy's bandwidth and of the peak, as expected; what is here is measured.
BANDWIDTH_SHARE, PEAK_SHARE = 0.8, 0.4


@dataclass(frozen=True, slots=True)
class Config:
    """few rows of one operand, all at once; along_k, or across neighbouring rows; rows of the many at once."""

    few: int
    few_is_a: bool
    along_k: bool
    rows: int


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    _, many = _sides(config, gemm)
    if device.kind != "cpu":
        return f"it is a CPU kernel; {device.name} is a GPU."
    if (gemm.a.dtype, gemm.w.dtype) != ("float32", "float32"):
        return f"it multiplies float32; the operands are {gemm.a.dtype} and {gemm.w.dtype}."
    if config.few != (gemm.m if config.few_is_a else gemm.n) or config.few > MOST_FEW:
        return f"it is for exactly {config.few} rows of one operand, and at most {MOST_FEW}."
    if config.along_k and many.k_pitch != 1:
        return "it reads the many rows along k, and k is not contiguous."
    if not config.along_k and many.row_pitch != 1:
        return "it reads neighbouring rows at once, and they are not neighbours in memory."
    if config.along_k and config.rows * config.few > MOST_SUMS:
        return f"{config.rows} x {config.few} sums do not fit the registers."
    return None


def _sides(config: Config, gemm: Gemm) -> tuple[Operand, Operand]:
    return (gemm.a, gemm.w) if config.few_is_a else (gemm.w, gemm.a)


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    few_is_a = gemm.m <= gemm.n
    few = gemm.m if few_is_a else gemm.n
    along = [Config(few, few_is_a, True, rows) for rows in (4, 2, 8, 1)]
    space = [*along, *(Config(few, few_is_a, False, rows) for rows in (512, 128))]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def floor_us(gemm: Gemm, device: Device) -> float:
    return floor_at(gemm, device, device.peaks.float32)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """Bytes or products, by as many cores as there are blocks; more rows at once take less of the few."""
    many = gemm.n if config.few_is_a else gemm.m
    blocks = gemm.batches * math.ceil(many / config.rows)
    idle = max(1.0, device.multiprocessors / blocks)
    moving_us = bytes_moved(gemm) / device.copy_gbps / 1e3 / BANDWIDTH_SHARE
    loads = (1 + config.few / config.rows) / (1 + config.few)  # of each step of k, beside its products
    multiplying_us = gemm.flops / device.peaks.float32 / 1e6 / PEAK_SHARE * (1 + loads)
    return CALL_US + max(moving_us, multiplying_us) * idle


def arithmetic(config: Config, gemm: Gemm) -> str:
    """How it multiplies and adds, for whoever reads the result."""
    return "float32 products and sums, in 16 sums side by side" if config.along_k else "float32 products and sums"


def entry(name: str, config: Config, gemm: Gemm) -> str:
    """The config of the product as a C++ struct."""
    few, many = _sides(config, gemm)
    flags = constants({"few": config.few, "few_is_a": config.few_is_a, "along_k": config.along_k, "rows": config.rows})
    sizes = {"many": gemm.n if config.few_is_a else gemm.m, "k": gemm.k, "batches": gemm.batches}
    pitches = {
        f"{side}_{which}": getattr(operand, which)
        for side, operand in (("few", few), ("many", many))
        for which in ("row_pitch", "k_pitch", "batch_pitch")
    }
    longs = "\n".join(f"    static constexpr int64_t {key} = {value};" for key, value in {**sizes, **pitches}.items())
    return f"struct {name}_Config {{\n{flags}\n{longs}\n}};"
