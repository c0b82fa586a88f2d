"""The float32-faithful template for Ampere and later (gemm_sm80.cuh): its configs, which fit, their cost, its entry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels.gemm_pairs import (
    made_in_passing,
    making_in_passing_us,
    operands,
    pack_entry,
    packed_bytes,
    packer,
    passed,
    preparation,
    preparation_us,
    prepared_bytes,
    then,
)
from kernelwright.kernels.gemm_rows import adding_us, end_of, finishing_us, launched
from kernelwright.kernels.gemm_shape import LAUNCH_US, Gemm, beside_us, constants, stream_us
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

HEADER = "gemm_sm80.cuh"
HEADERS = ("launch", "ptx90", "ptx80", "gemm_prologue", "split", "gemm_epilogue", "gemm_sm80")
OLDEST = (8, 0)  # cp.async and this shape of mma
PRODUCTS = 3  # lo*hi, hi*lo, hi*hi
CHUNK = 32  # of k between promotions
MOST_BATCHES = 65535
WARPS_ACROSS = 4  # of a tile, beside each other

# Below this the three products lose to float32's own sum, as in gemm_sm90.
SHORTEST_K = 32

# What the main loop of a tile is expected to reach of the device's float16 rate. 128 x 128: on an A100 its instructions
# fill 73% of the cycles that the products take, and its reads 75% of shared memory's.
REACHED = {(128, 128): 0.70, (64, 128): 0.60, (128, 64): 0.60, (64, 64): 0.45}
# What mma reaches of the rate of a GPU whose tensor cores want other instructions, by major capability.
SHARE_OF_MMA = {9: 0.62, 10: 0.3}
TILE_OVERHEAD_US = 4.0
# 3 stages of W, 2 of A, and A's scales.
SMEM_BYTES_OF_ROW = 128


@dataclass(frozen=True, slots=True)
class Config:
    """tile_m rows and tile_n columns of a tile; vector: neighbours of one store."""

    tile_m: int
    tile_n: int
    vector: int


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    if device.kind != "cuda" or device.capability < OLDEST:
        return f"mma of float16 into float32 needs sm_80 or later; {device.name} is {device.arch}."
    if (gemm.a.dtype, gemm.w.dtype) != ("float32", "float32"):
        return f"float16 pairs stand for float32; the operands are {gemm.a.dtype} and {gemm.w.dtype}."
    if gemm.k < SHORTEST_K:
        return f"k = {gemm.k}: under {SHORTEST_K} three products are less accurate than float32's own sum."
    if (config.tile_m, config.tile_n) not in REACHED:
        return f"there is no {config.tile_m} x {config.tile_n} tile."
    if smem_bytes(config) > device.smem_per_block_bytes:
        return f"it needs {smem_bytes(config):,} B of shared memory; {device.name} has {device.smem_per_block_bytes:,}."
    if gemm.vector % config.vector or gemm.n % config.vector:
        return f"the epilogue cannot store {config.vector} neighbours of {gemm.n} columns at once."
    if gemm.batches > MOST_BATCHES:
        return f"{gemm.batches} batches; a grid has at most {MOST_BATCHES:,} along an axis."
    if max(gemm.m, gemm.n, gemm.k) >= 2**31:
        return "a size needs more than 31 bits."
    return None


def smem_bytes(config: Config) -> int:
    return SMEM_BYTES_OF_ROW * (3 * config.tile_n + 2 * config.tile_m) + 4 * 2 * config.tile_m


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    vector = next(v for v in (4, 2, 1) if gemm.vector % v == 0 and gemm.n % v == 0)
    fitting = [c for c in (Config(m, n, vector) for m, n in REACHED) if why_not(c, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def floor_us(gemm: Gemm, device: Device) -> float:
    """Three float16 products at the device's rate, or the bytes."""
    return floor_at(gemm, device, device.peaks.float16 / PRODUCTS)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """Rounds of tiles at the expected rate beside the bytes, and the passes before and after."""
    reached = REACHED[config.tile_m, config.tile_n] * SHARE_OF_MMA.get(device.capability[0], 1.0)
    rate = device.peaks.float16 * 1e6 / device.multiprocessors * reached
    k = math.ceil(gemm.k / CHUNK) * CHUNK
    results = config.tile_m * config.tile_n
    beside_it_us = making_in_passing_us(gemm, config.tile_m * k, device) + adding_us(results, gemm, device)
    tile_us = PRODUCTS * 2 * results * k / rate + TILE_OVERHEAD_US + beside_it_us
    tiles = gemm.batches * math.ceil(gemm.m / config.tile_m) * math.ceil(gemm.n / config.tile_n)
    rounds = math.ceil(tiles / device.multiprocessors)
    beside = preparation_us(gemm, device) + finishing_us(row_parts(config, gemm), gemm, device)
    return LAUNCH_US + beside_us(rounds * tile_us, stream_us(gemm, device)) + beside


def row_parts(config: Config, gemm: Gemm) -> int:
    """Warps that have a part in a row."""
    return math.ceil(gemm.n / config.tile_n) * WARPS_ACROSS


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    """Scratch memory of a call: A's copy, and W's pairs if they are made each time; 256-byte aligned."""
    return prepared_bytes(gemm)


def arithmetic(config: Config, gemm: Gemm) -> str:
    """How it multiplies and adds, for whoever reads the result."""
    return f"float32 as pairs of float16, three tensor-core products, summed in float32 every {CHUNK} of k"


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config, a launcher `name`(a, w, workspace, epilogue arguments, stream) and, for constant W, `name`_pack."""
    members = constants({"tile_m": config.tile_m, "tile_n": config.tile_n, "vector": config.vector})
    parts = row_parts(config, gemm)
    made = made_in_passing(gemm)
    types = f"{name}_Config, {end_of(epilogue, parts, gemm)}{then(made)}"
    launch = f"kw::gemm_sm80::launch<{types}>(operands, *args, stream{passed(made)})"
    return f"""\
struct {name}_Config {{
{members}
}};
{pack_entry(name, gemm)}\
extern "C" int {name}(
    const float* a, const void* w, void* workspace, const {epilogue}::Args* args, cudaStream_t stream) {{
{preparation(gemm, packer(2, gemm))}\
    const kw::gemm_sm80::Operands operands = {{{operands(gemm)}}};
{launched(launch, epilogue, parts, gemm)}
}}
"""
