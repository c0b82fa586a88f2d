"""The Hopper convolution with warps that only carry (conv_sm90_ring.cuh): configs that fit, what they cost, entries."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cache

from kernelwright.device import Device
from kernelwright.kernels import conv_mma, conv_sm90
from kernelwright.kernels.conv_mma import arithmetic, floor_us, packed_bytes
from kernelwright.kernels.conv_shape import ConvShape, integers

__all__ = ["HEADERS", "Config", "arithmetic", "configs", "cost_us", "entry", "floor_us", "packed_bytes", "why_not"]

HEADERS = (*conv_sm90.HEADERS, "conv_sm90_ring")

# tile_m, tile_n, warps that multiply, those along m; by the number of products.
TILES = {
    1: ((128, 256, 8, 8), (128, 128, 8, 8), (64, 256, 8, 4)),
    3: ((128, 128, 8, 8), (64, 256, 8, 4), (64, 128, 8, 4)),
}
CARRIERS = 128  # threads
# Of two chunks on their way, registers of a thread that carries, of 120 in all: one octet of rounded values, several
# octets, whose places are found one by one, and pairs, which take more to make (seen by compiling).
MOST_HELD_OF_ONE, MOST_HELD = 80, 48
# Of a thread that multiplies, 192 in all: its sums, those of a group with three products, weights now and next; fewer
# where it has several phases.
MOST_SUMS, MOST_SUMS_OF_PHASES = 152, 112
MOST_STAGES = 4

# Clocks of a chunk that those who multiply do not: to see that it is there, and to say that it is used.
STAGE_CLOCKS = 80
# From the last product of a tile to the first of the next, beside the instructions that store; an estimate.
LEAVING_CLOCKS = 1000
# What they reach of the tensor cores' rate: with it, two convolutions that are bound by products come out within 12% of
# what was measured. Two that are bound by their results come out 5 to 35% too long.
SHARE = 0.35


@dataclass(frozen=True, slots=True)
class Config(conv_sm90.Config):
    """As where all warps do both; stages: of the ring."""

    stages: int = 2


def stage_bytes(config: Config, shape: ConvShape) -> int:
    return config.octets * conv_mma.pixels(config, shape) * 16 * conv_mma.halves(config)


def table_bytes(config: Config, shape: ConvShape) -> int:
    """Where pixels lie, where taps do, scales, barriers, and what leaves."""
    steps = max(1, conv_mma.steps_of(config, conv_mma.most_taps(config, shape)))
    words = config.fold * conv_mma.pixels(config, shape) + 2 * len(shape.phases) * steps + 8 + config.stages
    return 4 * words + 16 * config.stages + 48 + config.warps * conv_mma.slab_bytes(config)


def held(config: Config, shape: ConvShape) -> int:
    """Registers of one who carries, for two chunks."""
    return 2 * 8 * math.ceil(config.octets * conv_mma.pixels(config, shape) / CARRIERS)


def most_held(config: Config) -> int:
    return MOST_HELD_OF_ONE if config.octets == 1 and config.products == 1 else MOST_HELD


def why_not(config: Config, shape: ConvShape, device: Device) -> str | None:
    """The reason a config cannot run this convolution, in words."""
    if shape.rows is not None:
        return "what its epilogue reduces needs all warps of a block at once."
    if held(config, shape) > most_held(config):
        return f"{held(config, shape)} registers for two chunks on their way are more than those who carry have."
    needed, most = table_bytes(config, shape) + config.stages * stage_bytes(config, shape), device.smem_per_block_bytes
    if needed > most:
        return f"its stages need {needed:,} B of shared memory; {device.arch} allows {most:,} B."
    if config.products == 3 and len(shape.phases) > 1:
        return "pairs, and where the inputs of several phases lie, are more than those who carry can hold."
    if registers(config) > (MOST_SUMS if config.w_phases == 1 else MOST_SUMS_OF_PHASES):
        return "its sums leave those who multiply too few registers."
    return conv_sm90.why_not(config, shape, device)


def registers(config: Config) -> int:
    """Sums, of a group too where there are three products, and weights."""
    sums = config.tile_m * config.tile_n // (config.warps * 32) * config.w_phases
    return sums * conv_mma.halves(config) + 8 * config.group * conv_mma.halves(config)


@cache
def configs(shape: ConvShape, device: Device) -> tuple[Config, ...]:
    """The best tile of outputs for every kind of block, the most promising first."""
    products = 1 if shape.dtype != "float32" or shape.tf32 else 3
    best: list[Config] = []
    for block in TILES[products]:
        if block[0] >= 2 * shape.outputs and block[0] > 64:
            continue  # half of its rows would be empty
        fitting = [c for c in candidates(products, block, shape, device) if why_not(c, shape, device) is None]
        best += sorted(fitting, key=lambda c: cost_us(c, shape, device))[:1]
    return tuple(sorted(best, key=lambda c: cost_us(c, shape, device)))


def candidates(products: int, block: tuple[int, int, int, int], shape: ConvShape, device: Device) -> list[Config]:
    """Tiles as where all warps do both; with as many octets as can be carried, and as many stages as fit."""
    found = []
    for plain in conv_sm90.candidates(products, block, shape, device):
        for octets in (n for n in (8, 6, 4, 2, 1) if n <= plain.octets):
            config = Config(**asdict(plain) | {"octets": octets, "blocks": 1, "ahead": True})
            if held(config, shape) <= most_held(config):
                grouped = replace(config, group=conv_sm90.with_group(config, shape).group)
                found.append(replace(grouped, stages=stages(grouped, shape, device)))
                break
    return found


def stages(config: Config, shape: ConvShape, device: Device) -> int:
    room = device.smem_per_block_bytes - table_bytes(replace(config, stages=MOST_STAGES), shape)
    return max(2, min(MOST_STAGES, room // stage_bytes(config, shape)))


@cache
def cost_us(config: Config, shape: ConvShape, device: Device) -> float:
    """Tile after tile: the products, or what carries their inputs if that takes longer, and then the results leave."""
    clocks = conv_mma.clocks_per_us(device)
    k, chunks = conv_mma.k_of(config, shape), conv_mma.chunks(config, shape)
    flops = config.products * 2 * config.tile_m * config.tile_n * config.w_phases * k
    products = flops / conv_mma.half_flops_per_clock(device) / SHARE + STAGE_CLOCKS * chunks
    elements = conv_mma.elements_of(config, shape)
    carrying = (
        elements * conv_mma.ELEMENT_INSTRUCTIONS + conv_mma.pixels(config, shape) * conv_mma.PIXEL_INSTRUCTIONS
    ) / conv_mma.ISSUED
    leaving = conv_mma.result_instructions(config, shape) / conv_mma.ISSUED + LEAVING_CLOCKS
    waves = math.ceil(conv_mma.grid(config, shape) / device.multiprocessors)
    computing = waves * max(products + leaving, carrying) / clocks
    return conv_mma.beside_memory_us(config, shape, device, computing)


def entry(name: str, config: Config, shape: ConvShape, epilogue: str) -> str:
    return conv_mma.entry(name, config, shape, epilogue, "conv_sm90_ring", [integers(stages=config.stages)])
