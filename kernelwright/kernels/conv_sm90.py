"""The Hopper convolution on wgmma (conv_sm90.cuh): which configs fit, what each should take, its entry."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from kernelwright.device import Device
from kernelwright.kernels import conv_mma
from kernelwright.kernels.conv_mma import arithmetic, floor_us, packed_bytes
from kernelwright.kernels.conv_shape import ConvShape

__all__ = ["HEADERS", "Config", "arithmetic", "configs", "cost_us", "entry", "floor_us", "packed_bytes", "why_not"]

HEADERS = (*conv_mma.HEADERS, "conv_sm90")

# tile_m, tile_n, warps, warps along m; by the number of products.
TILES = {
    1: ((128, 256, 8, 8), (128, 128, 8, 8), (64, 256, 8, 4), (64, 128, 8, 4), (64, 128, 4, 4), (128, 64, 8, 8)),
    3: ((128, 128, 8, 8), (64, 256, 8, 4), (64, 128, 8, 4), (64, 128, 4, 4), (128, 64, 8, 8)),
}

# What the loop should reach of the tensor cores' rate with two warpgroups that wait for their own products in turn. An
# estimate, not measured yet: a matrix product with tiles of 128 columns and warps that only copy reached 0.74.
WGMMA_SHARE = 0.6
# Clocks from the end of a warpgroup's products to the begin of the next ones.
WAIT_CLOCKS = 100


@dataclass(frozen=True, slots=True)
class Config(conv_mma.Config):
    """As for mma.sync; a tile is 8 columns wide, or rows of as many pixels as an instruction takes."""

    @property
    def wgmma_n(self) -> int:
        return min(128, self.tile_n * self.warps_m // self.warps)


def why_not(config: Config, shape: ConvShape, device: Device) -> str | None:
    """The reason a config cannot run this convolution, in words."""
    if device.arch != "sm_90a":
        return f"wgmma needs sm_90a; {device.name} is {device.arch}."
    rows = config.tile_h * 8 if config.tile_w == 8 else config.tile_w
    if rows % config.wgmma_n:
        return f"{config.wgmma_n} pixels of an instruction do not lie at one distance in tiles of {config.tile}."
    if config.octets % 2 and (config.octets > 1 or shape.stride(2) > 1):
        return "the second 8 of every 16 of k may lie before the first, which a descriptor cannot say."
    return conv_mma.why_not(config, shape, device)


@cache
def configs(shape: ConvShape, device: Device) -> tuple[Config, ...]:
    """The best tile of outputs for every kind of block, the most promising first."""
    products = 1 if shape.dtype != "float32" or shape.tf32 else 3
    best = []
    for block in TILES[products]:
        if block[0] >= 2 * shape.outputs and block[0] > 64:
            continue  # half of its rows would be empty
        space = conv_mma.with_both(candidates(products, block, shape, device), shape, device)
        fitting = [c for c in space if isinstance(c, Config) and why_not(c, shape, device) is None]
        best += conv_mma.best_of_each(fitting, lambda c: cost_us(c, shape, device))
    return tuple(sorted(best, key=lambda c: cost_us(c, shape, device)))


def candidates(products: int, block: tuple[int, int, int, int], shape: ConvShape, device: Device) -> list[Config]:
    """Tiles 8 columns wide, and rows; each with the most octets that fit."""
    tile_m, tile_n, warps, warps_m = block
    wgmma_n = min(128, tile_n * warps_m // warps)
    tiles = [(8, h) for h in (wgmma_n // 8, 2 * wgmma_n // 8, tile_n // 8) if h * 8 <= tile_n]
    tiles += [(w, h) for w in (64, 128, 256) if w % wgmma_n == 0 for h in (1, 2, 4) if w * h <= tile_n]
    found = []
    for tile_w, tile_h in dict.fromkeys(tiles):
        tile_d = tile_n // (tile_w * tile_h)
        if tile_d > max(1, shape.most(0)) or (tile_h > 1 and tile_w > 8 and shape.most(1) == 1):
            continue
        fold, tile = conv_mma.folding(shape), (1, tile_d, tile_h, tile_w)
        plain = Config(products, tile_m, tile_n, warps, warps_m, 1, fold, 1, *tile, 1, 1)
        for config in conv_mma.with_octets(plain, shape, octet_counts(shape)):
            grouped = with_group(config, shape)
            both = [grouped, *conv_mma.with_phases(grouped, shape)]
            found += [conv_mma.with_blocks(c, shape, device) for c in both]
    return [config for config in found if isinstance(config, Config)]


def octet_counts(shape: ConvShape) -> list[int]:
    """Even, so that the second 8 of k are the next octet under the same tap; or one."""
    whole = math.ceil(shape.channels / 8)
    even = [
        n for n in (8, 6, 4, 2) if n <= whole + whole % 2 and math.ceil(whole / n) * n - whole <= max(1, whole // 4)
    ]
    return even if whole > 1 and even else [1]


def with_group(config: conv_mma.Config, shape: ConvShape) -> conv_mma.Config:
    """The most steps at once that leave the fewest empty; of pairs two, whose sums then leave the tensor core."""
    if config.products == 3:
        return replace(config, group=2)
    choices = [replace(config, group=n) for n in (4, 3, 5, 2)]
    return min(choices, key=lambda c: sum(conv_mma.steps_of(c, conv_mma.taps_of(c, p)) for p in shape.phases))


@cache
def cost_us(config: Config, shape: ConvShape, device: Device) -> float:
    return conv_mma.block_cost_us(config, shape, device, loop_of(config, shape, device))


def loop_of(config: Config, shape: ConvShape, device: Device) -> conv_mma.Loop:
    """The tensor cores multiply for one warpgroup at a time. Each waits for its products, and for the weights that were
    asked for when they began."""
    warp_n = config.tile_n * config.warps_m // config.warps
    flops = 2 * 64 * warp_n * 16 * config.group * config.products
    busy = flops / conv_mma.half_flops_per_clock(device)
    period = max(busy + WAIT_CLOCKS, conv_mma.weights_clocks(config, shape, device))
    return conv_mma.Loop(
        share=WGMMA_SHARE * min(1.0, config.blocks * config.warps / 4 * busy / period),
        alone=WGMMA_SHARE * min(1.0, config.warps / 4 * busy / period),
        read_bytes=operand_bytes(config),
        instructions=config.products * (1 + warp_n // 128) + conv_mma.LOOP_INSTRUCTIONS,
    )


def operand_bytes(config: Config) -> float:
    """What 16 of k read: pixels once a warpgroup, weights once a warp, and with pairs each of them again."""
    warp_n = config.tile_n * config.warps_m // config.warps
    each = config.warps // 4 * warp_n * 32 * (3 if config.products == 3 else 1)
    return each + config.warps * 16 * 32 * conv_mma.halves(config)


def entry(name: str, config: Config, shape: ConvShape, epilogue: str) -> str:
    return conv_mma.entry(name, config, shape, epilogue, "conv_sm90")
