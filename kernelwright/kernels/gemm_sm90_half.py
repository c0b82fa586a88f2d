"""The float16 and bfloat16 Hopper template (gemm_sm90_half.cuh): its configs, which fit, their cost, its C++ entry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels.gemm_shape import LAUNCH_US, Gemm, beside_us, constants, rows_are_readable, stream_us
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
    "why_not",
    "workspace_bytes",
]

HEADER = "gemm_sm90_half.cuh"
HEADERS = ("ptx90", "gemm_epilogue", "gemm_sm90_half")
TILE_M = 128
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


# A block of two has half the ring, and both share the copies' way from L2: an estimate.
TWO_BLOCKS = 0.92
WIDEST_OF_TWO = 128
LONGEST_EPILOGUE_OF_TWO = 45  # instructions an element; longer ones spill (seen by compiling)
# What runs the epilogue's instructions, one for each unit of `epilogue_flops`.
LANES_OF_MULTIPROCESSOR, CLOCK_MHZ = 128, 1700


@dataclass(frozen=True, slots=True)
class Config:
    """tile_n columns of a tile; cluster: blocks that share W; vector: neighbours of one store; blocks on a
    multiprocessor at once."""

    tile_n: int
    cluster: int
    vector: int
    blocks: int = 1


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    if device.arch != "sm_90a":
        return f"wgmma and the copy engine need sm_90a; {device.name} is {device.arch}."
    if gemm.a.dtype != gemm.w.dtype or gemm.a.dtype not in ("float16", "bfloat16"):
        return f"it multiplies two float16 or two bfloat16; the operands are {gemm.a.dtype} and {gemm.w.dtype}."
    if not (rows_are_readable(gemm.a) and rows_are_readable(gemm.w)):
        return "the copy engine reads rows along k that start at multiples of 16 bytes; an operand has others."
    if gemm.batches > 1 and gemm.a.batch_pitch == 0:
        return "every batch has the same A, which the copy engine cannot say; give it as W or as one product."
    if max(gemm.m, gemm.n, gemm.k) * gemm.batches >= 2**31:
        return "a row number of the flattened result needs more than 31 bits."
    if (config.tile_n, config.cluster) not in REACHED:
        return f"there is no {config.tile_n}-column tile shared by {config.cluster} blocks."
    if gemm.vector % config.vector or gemm.n % config.vector:
        return f"the epilogue cannot store {config.vector} neighbours of {gemm.n} columns at once."
    if config.blocks > 1 and config.tile_n > WIDEST_OF_TWO:
        return f"two blocks of {config.tile_n} columns do not fit the registers of a multiprocessor."
    if config.blocks > 1 and gemm.epilogue_flops > LONGEST_EPILOGUE_OF_TWO:
        return f"an epilogue of {gemm.epilogue_flops} instructions does not fit the registers of two blocks."
    if config.cluster == 2 and gemm.m <= TILE_M:
        return f"{gemm.m} rows are one tile high; a pair of blocks needs two."
    return None


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    vector = next(v for v in (4, 2, 1) if gemm.vector % v == 0 and gemm.n % v == 0)
    space = [Config(tile_n, cluster, vector, blocks) for tile_n, cluster in REACHED for blocks in (1, 2)]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def floor_us(gemm: Gemm, device: Device) -> float:
    return floor_at(gemm, device, device.peaks.float16)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """Rounds of tiles at the measured rate, beside the bytes."""
    lanes_us = LANES_OF_MULTIPROCESSOR * CLOCK_MHZ  # instructions of single lanes in a microsecond
    rate = device.peaks.float16 * 1e6 / device.multiprocessors * REACHED[config.tile_n, config.cluster]
    overhead_us = TILE_US[config.tile_n, config.cluster] + gemm.epilogue_flops * TILE_M * config.tile_n / lanes_us
    tile_us = 2 * TILE_M * config.tile_n * gemm.k / rate + overhead_us
    high = math.ceil(gemm.m / (TILE_M * config.cluster)) * config.cluster
    rounds = math.ceil(gemm.batches * high * math.ceil(gemm.n / config.tile_n) / device.multiprocessors)
    if config.blocks == 2:  # what one block spends outside its main loop, the other multiplies in; but for the last
        rounds_us = rounds * (tile_us - overhead_us) + overhead_us
        return LAUNCH_US + beside_us(rounds_us / TWO_BLOCKS, stream_us(gemm, device))
    return LAUNCH_US + beside_us(rounds * tile_us, stream_us(gemm, device))


def arithmetic(config: Config, gemm: Gemm) -> str:
    """How it multiplies and adds, for whoever reads the result."""
    return f"{gemm.a.dtype} products on the tensor cores, summed in float32"


def packed_bytes(gemm: Gemm) -> int:
    """It reads W as it lies."""
    return 0


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    return 0


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config and a launcher `name`(a, w, workspace, epilogue arguments, stream); it needs no workspace."""
    members = constants(
        {
            "tile_n": config.tile_n,
            "cluster": config.cluster,
            "blocks": config.blocks,
            "vector": config.vector,
            "raster": RASTER,
        }
    )
    a, w = gemm.a, gemm.w
    pitches = f"{a.row_pitch}, {a.batch_pitch}, {w.row_pitch}, {w.batch_pitch}"
    sizes = f"{gemm.m}, {gemm.n}, {gemm.k}, {gemm.batches}, {gemm.w_batches}"
    return f"""\
struct {name}_Config {{
    using Type = {CPP_TYPE[a.dtype]};
{members}
}};
extern "C" int {name}(const void* a, const void* w, void*, const {epilogue}::Args* args, cudaStream_t stream) {{
    const kw::gemm_sm90_half::Operands operands = {{a, w, {pitches}, {sizes}}};
    return kw::gemm_sm90_half::launch<{name}_Config, {epilogue}>(operands, *args, stream);
}}
"""
