"""The 16-bit Hopper template with epilogues apart (gemm_sm90_apart.cuh): its configs, their cost, its C++ entry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels import gemm_sm90_half
from kernelwright.kernels.gemm_shape import LAUNCH_US, Gemm, beside_us, constants, rows_are_readable, stream_us
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

HEADER = "gemm_sm90_apart.cuh"
HEADERS = (*gemm_sm90_half.HEADERS, "gemm_sm90_apart")
TILE_N = 256

# Predictions: what the main loop reaches of gemm_sm90_half's with the same tile, which has a deeper ring; what it takes
# to leave a tile; of the instructions that could be issued, those that finish the last one.
REACHED = 0.97
LEAVING_US = 1.2
ISSUED = 0.8


@dataclass(frozen=True, slots=True)
class Config:
    """cluster: blocks that share W. Tiles are 128 x 256, and their results are stored four at once."""

    cluster: int


def plain(config: Config) -> gemm_sm90_half.Config:
    """The same tiles where those who multiply run the epilogue."""
    return gemm_sm90_half.Config(TILE_N, config.cluster, 4)


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    if gemm.row_state_bytes:
        return "its rows are not reduced."
    if not rows_are_readable(gemm.a) or not rows_are_readable(gemm.w):
        return "an operand would have to be copied, which this template does not do."
    return gemm_sm90_half.why_not(plain(config), gemm, device)


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    fitting = [config for config in (Config(2), Config(1)) if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def floor_us(gemm: Gemm, device: Device) -> float:
    return gemm_sm90_half.floor_us(gemm, device)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """Rounds of tiles without their epilogues, and one epilogue."""
    reached = gemm_sm90_half.REACHED[TILE_N, config.cluster] * REACHED
    rate = device.peaks.float16 * 1e6 / device.multiprocessors * reached
    results = gemm_sm90_half.TILE_M * TILE_N
    lanes_us = gemm_sm90_half.LANES_OF_MULTIPROCESSOR * gemm_sm90_half.CLOCK_MHZ
    last_us = (gemm.epilogue_flops + 15) * results / lanes_us / ISSUED  # 15: loads, conversions, addresses
    high = math.ceil(gemm.m / (gemm_sm90_half.TILE_M * config.cluster)) * config.cluster
    rounds = math.ceil(gemm.batches * high * math.ceil(gemm.n / TILE_N) / device.multiprocessors)
    rounds_us = rounds * (2 * results * gemm.k / rate + LEAVING_US) + last_us
    return LAUNCH_US + beside_us(rounds_us, stream_us(gemm, device))


def arithmetic(config: Config, gemm: Gemm) -> str:
    """How it multiplies and adds, for whoever reads the result."""
    return gemm_sm90_half.arithmetic(plain(config), gemm)


def packed_bytes(gemm: Gemm) -> int:
    """Nothing is copied, ahead or in a call."""
    return 0


def row_parts(config: Config, gemm: Gemm) -> int:
    return gemm_sm90_half.row_parts(plain(config), gemm)


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    return 0


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config and a launcher `name`(a, w, workspace, epilogue arguments, stream). Beside the epilogue there is a
    struct that makes of sums what they are rounded to, `epilogue`Rounded."""
    members = constants({"cluster": config.cluster, "raster": gemm_sm90_half.RASTER, "tile_n": TILE_N, "vector": 4})
    pitches = f"{gemm.a.row_pitch}, {gemm.a.batch_pitch}, {gemm.w.row_pitch}, {gemm.w.batch_pitch}"
    sizes = f"{gemm.m}, {gemm.n}, {gemm.k}, {gemm.batches}, {gemm.w_batches}"
    return f"""\
struct {name}_Config {{
    using Type = {CPP_TYPE[gemm.a.dtype]};
{members}
}};
extern "C" int {name}(
    const void* a, const void* w, void* workspace, const {epilogue}::Args* args, cudaStream_t stream) {{
    const kw::gemm_sm90_apart::Operands operands = {{a, w, {pitches}, {sizes}}};
    return kw::gemm_sm90_apart::launch<{name}_Config, {epilogue}Rounded, {epilogue}>(operands, *args, stream);
}}
"""
