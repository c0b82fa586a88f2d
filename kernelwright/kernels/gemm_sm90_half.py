"""The float16 and bfloat16 Hopper template (gemm_sm90_half.cuh): its configs, which fit, their cost, its C++ entry."""

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
    copy_us,
    is_as_it_lies,
    rows_are_readable,
    stream_us,
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

HEADER = "gemm_sm90_half.cuh"
HEADERS = ("ptx90", "gemm_epilogue", "gemm_sm90_half")
TILE_M = 128
MOST_BATCHES = 65535
RASTER = 16

# What the main loop of a tile (columns, blocks that share W) reaches of the device's rate: narrow tiles copy more bytes
# for each product, and a block on its own copies W twice as often as a pair. Above 1 because that rate is a long run's,
# at the power limit. Measured on the H200, but for 192 alone and 64.
REACHED = {
    (256, 2): 1.08,
    (256, 1): 1.02,
    (192, 2): 1.03,
    (192, 1): 0.90,
    (128, 2): 0.985,
    (128, 1): 0.84,
    (64, 1): 0.50,
}
# Filling the ring and storing the results of a tile, from the same measurements.
TILE_US = {(256, 2): 6.8, (256, 1): 5.0, (192, 2): 4.0, (192, 1): 4.0, (128, 2): 1.5, (128, 1): 1.5, (64, 1): 1.5}
WAYS = ((False, False), (True, False), (False, True))  # own_tiles, late
# In pairs of blocks alone: where there are tiles enough to hide results behind, there are rows for pairs.
NARROWEST_LATE = 128
WIDEST_OWN = 128  # columns of a tile whose sums fit one warpgroup
# What results that leave late cost between two tiles, where the last products end, 128 sums of a thread are rounded and
# the first products begin, and while the next are multiplied. By columns, from 4096^3 with bias, gelu and residual on
# the H200: 202 us in float16 and 197 in bfloat16 with 256, 237 and 244 with fewer; tiles of their own took 210 and 204.
SETTLING_US = {256: 4.7, 192: 5.1, 128: 6.9}
# Of the same rate, where one warpgroup multiplies at a time; and how much longer it takes to end a tile alone, beside
# the other's products. From 8192x4096x1024 (152 us) and 8192x1024x4096 (115 us) with bias, gelu and residual.
OWN_REACHED, OWN_ENDING = 0.90, 3.0
# What runs the epilogue's instructions, one for each unit of `epilogue_flops`.
LANES_OF_MULTIPROCESSOR, CLOCK_MHZ = 128, 1700


@dataclass(frozen=True, slots=True)
class Config:
    """tile_n columns of a tile; cluster: blocks that share W; vector: neighbours of one store; own_tiles: each
    warpgroup has tiles of its own, and stores one while the other multiplies; late: both have a tile together, and
    store it while they multiply the next (gemm_sm90_late.cuh)."""

    tile_n: int
    cluster: int
    vector: int
    own_tiles: bool = False
    late: bool = False


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    if not is_as_it_lies(gemm):
        return "it multiplies what it reads: nothing is computed on the way."
    if device.arch != "sm_90a":
        return f"wgmma and the copy engine need sm_90a; {device.name} is {device.arch}."
    if gemm.a.dtype != gemm.w.dtype or gemm.a.dtype not in ("float16", "bfloat16"):
        return f"it multiplies two float16 or two bfloat16; the operands are {gemm.a.dtype} and {gemm.w.dtype}."
    if gemm.batches > MOST_BATCHES:
        return f"{gemm.batches} batches; a grid has at most {MOST_BATCHES:,} along an axis."
    if gemm.batches > 1 and gemm.a.batch_pitch == 0:
        return "every batch has the same A, which the copy engine cannot say; give it as W or as one product."
    if max(gemm.m, gemm.n, gemm.k) * gemm.batches >= 2**31:
        return "a row number of the flattened result needs more than 31 bits."
    if (config.tile_n, config.cluster) not in REACHED:
        return f"there is no {config.tile_n}-column tile shared by {config.cluster} blocks."
    if gemm.vector % config.vector or gemm.n % config.vector:
        return f"the epilogue cannot store {config.vector} neighbours of {gemm.n} columns at once."
    if config.own_tiles and config.tile_n > WIDEST_OWN:
        return f"the sums of {config.tile_n} columns do not fit the registers of one warpgroup."
    if config.late and not gemm.settles:
        return "results leave late where they are rounded to 16 bits before all else."
    if config.late and (config.own_tiles or config.cluster == 1 or config.tile_n < NARROWEST_LATE):
        return f"results leave late from {NARROWEST_LATE} columns of both warpgroups or more, in pairs of blocks."
    if config.cluster == 2 and gemm.m <= TILE_M:
        return f"{gemm.m} rows are one tile high; a pair of blocks needs two."
    return None


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    vector = next(v for v in (4, 2, 1) if gemm.vector % v == 0 and gemm.n % v == 0)
    space = [Config(tile_n, cluster, vector, *way) for tile_n, cluster in REACHED for way in WAYS]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def floor_us(gemm: Gemm, device: Device) -> float:
    return floor_at(gemm, device, device.peaks.float16)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """Rounds of tiles at the measured rate, beside the bytes."""
    lanes_us = LANES_OF_MULTIPROCESSOR * CLOCK_MHZ  # instructions of single lanes in a microsecond
    rate = device.peaks.float16 * 1e6 / device.multiprocessors * REACHED[config.tile_n, config.cluster]
    results = TILE_M * config.tile_n
    ending_us = gemm.epilogue_flops * results / lanes_us + adding_us(results, gemm, device)
    overhead_us = TILE_US[config.tile_n, config.cluster] + ending_us
    tile_us = 2 * results * gemm.k / rate + overhead_us
    high = math.ceil(gemm.m / (TILE_M * config.cluster)) * config.cluster
    rounds = math.ceil(gemm.batches * high * math.ceil(gemm.n / config.tile_n) / device.multiprocessors)
    copying_us = sum(2 * copy_us(size, size, device) for size in _copied_bytes(gemm))  # 2: of narrow loads
    rounds_us = rounds * tile_us
    if config.own_tiles:  # what one warpgroup spends on the results of its own tile, the other multiplies in
        multiplied_us = (tile_us - overhead_us) / OWN_REACHED
        rounds_us = rounds * max(multiplied_us, (multiplied_us + OWN_ENDING * overhead_us) / 2) + overhead_us
    if config.late:  # results leave in the next tile, but for those of the last
        rounds_us = rounds * (tile_us - overhead_us + SETTLING_US[config.tile_n]) + overhead_us
    passes_us = copying_us + finishing_us(row_parts(config, gemm), gemm, device)
    return LAUNCH_US + beside_us(rounds_us, stream_us(gemm, device)) + passes_us


def arithmetic(config: Config, gemm: Gemm) -> str:
    """How it multiplies and adds, for whoever reads the result."""
    return f"{gemm.a.dtype} products on the tensor cores, summed in float32"


# --- memory: operands that the copy engine cannot read are copied, a constant W ahead


def _pitch(gemm: Gemm) -> int:
    """Elements of a row of a copy: its 16 bytes are 8 elements."""
    return -(-gemm.k // 8) * 8


def packed_bytes(gemm: Gemm) -> int:
    """What a constant W takes that is copied ahead; one that can be read as it lies is not."""
    return 0 if rows_are_readable(gemm.w) else _rounded(2 * gemm.w_batches * gemm.n * _pitch(gemm))


def _a_bytes(gemm: Gemm) -> int:
    return 0 if rows_are_readable(gemm.a) else _rounded(2 * gemm.batches * gemm.m * _pitch(gemm))


def _copied_bytes(gemm: Gemm) -> list[int]:
    """The copies that each call makes."""
    return [size for size in (_a_bytes(gemm), 0 if gemm.w.constant else packed_bytes(gemm)) if size]


def row_parts(config: Config, gemm: Gemm) -> int:
    """Warps that have a part in a row: one a tile."""
    return math.ceil(gemm.n / config.tile_n)


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    """Scratch memory of a call for its copies, A's first; 256-byte aligned."""
    return sum(_copied_bytes(gemm))


def _rounded(size: int) -> int:
    return -(-size // 256) * 256


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config, a launcher `name`(a, w, workspace, epilogue arguments, stream) and, for a W that is copied ahead,
    `name`_pack."""
    members = config_members(config)
    pitch = _pitch(gemm)
    copied = [not rows_are_readable(operand) for operand in (gemm.a, gemm.w)]
    laid = [
        (pitch, pitch * rows) if is_copied else (operand.row_pitch, operand.batch_pitch)
        for operand, rows, is_copied in zip((gemm.a, gemm.w), (gemm.m, gemm.n), copied, strict=True)
    ]
    pitches = ", ".join(str(value) for pair in laid for value in pair)
    sizes = f"{gemm.m}, {gemm.n}, {gemm.k}, {gemm.batches}, {gemm.w_batches}"
    cpp, packs = CPP_TYPE[gemm.a.dtype], gemm.w.constant and copied[1]
    copy_a = _copy(cpp, "a", gemm.a, gemm.m, gemm.k, gemm.batches, pitch, "workspace")
    second = f"(char*)workspace + {_a_bytes(gemm)}"
    copy_w = _copy(cpp, "w", gemm.w, gemm.n, gemm.k, gemm.w_batches, pitch, second)
    ahead = _copy(cpp, "w", gemm.w, gemm.n, gemm.k, gemm.w_batches, pitch, "packed")
    pack_ahead = f"""\
extern "C" int {name}_pack(const void* w, void* packed, cudaStream_t stream) {{
    return {ahead};
}}
"""
    steps = [(copied[0], copy_a, "a = workspace"), (copied[1] and not packs, copy_w, f"w = {second}")]
    made = "".join(
        f"    if (const int error = {copy}) return error;\n    {now};\n" for wanted, copy, now in steps if wanted
    )
    parts = row_parts(config, gemm)
    end = f"kw::gemm_sm90_late::Late<{epilogue}>" if config.late else end_of(epilogue, parts, gemm)
    launch = f"kw::gemm_sm90_half::launch<{name}_Config, {end}>(operands, *args, stream)"
    return f"""\
struct {name}_Config {{
    using Type = {cpp};
{members}
}};
{pack_ahead if packs else ""}\
extern "C" int {name}(
    const void* a, const void* w, void* workspace, const {epilogue}::Args* args, cudaStream_t stream) {{
{made}\
    const kw::gemm_sm90_half::Operands operands = {{a, w, {pitches}, {sizes}}};
{launched(launch, epilogue, parts, gemm)}
}}
"""


def config_members(config: Config) -> str:
    return constants(
        {
            "tile_n": config.tile_n,
            "cluster": config.cluster,
            "own_tiles": config.own_tiles,
            "vector": config.vector,
            "raster": RASTER,
        }
    )


def _copy(cpp: str, name: str, operand: Operand, rows: int, k: int, batches: int, pitch: int, to: str) -> str:
    places = f"{operand.row_pitch}, {operand.k_pitch}, {operand.batch_pitch}, {rows}, {k}, {batches}"
    return f"kw::gemm_sm90_half::copy_rows<{cpp}>({name}, {places}, {pitch}, {to}, stream)"
