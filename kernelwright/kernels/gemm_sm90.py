"""The float32-faithful Hopper template (gemm_sm90.cuh): its configs, which fit, what each should take, its entry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels.gemm_shape import LAUNCH_US, Gemm, Operand, bytes_moved, constants, copy_us, rows_are_readable
from kernelwright.kernels.gemm_shape import floor_us as floor_at

__all__ = [
    "Config",
    "a_is_copied",
    "configs",
    "cost_us",
    "entry",
    "floor_us",
    "packed_bytes",
    "why_not",
    "workspace_bytes",
]

HEADER = "gemm_sm90.cuh"
TILE_M = 128
MOST_SPLITS = 128
RASTER = 16
PRODUCTS = 3  # lo*hi, hi*lo, hi*hi

# Below this the three products lose to float32's own sum (simulated with the tensor core's rounding, docs/gemm.md).
SHORTEST_K = 32
# From here on 64 of k between promotions is as accurate as 32, and 8% faster (measured).
LONG_K = 256

# What a tile's main loop reaches of the device's float16 rate. 256 wide: measured on the H200; the others estimated
# from a 128-wide prototype (0.86 with 128 of k between promotions).
REACHED = {(256, 64): 0.93, (256, 32): 0.86, (192, 64): 0.90, (192, 32): 0.83, (128, 64): 0.82, (128, 32): 0.75}
# Filling the ring at the start of a block and storing a tile at its end: about 6,000 cycles.
TILE_OVERHEAD_US = 3.5


@dataclass(frozen=True, slots=True)
class Config:
    """tile_n columns of a tile; promote: k between promotions; splits: parts of k; vector: neighbours of one store."""

    tile_n: int
    promote: int
    splits: int
    vector: int


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    if device.arch != "sm_90a":
        return f"wgmma and the copy engine need sm_90a; {device.name} is {device.arch}."
    if (gemm.a.dtype, gemm.w.dtype) != ("float32", "float32"):
        return f"float16 pairs stand for float32; the operands are {gemm.a.dtype} and {gemm.w.dtype}."
    if gemm.k < SHORTEST_K:
        return f"k = {gemm.k}: under {SHORTEST_K} three products are less accurate than float32's own sum."
    if (config.tile_n, config.promote) not in REACHED:
        return f"there is no {config.tile_n}-column tile that promotes every {config.promote}."
    if gemm.vector % config.vector or gemm.n % config.vector:
        return f"the epilogue cannot store {config.vector} neighbours of {gemm.n} columns at once."
    if gemm.batches > 1 and gemm.a.batch_pitch == 0:
        return "every batch has the same A, which the copy engine cannot say; give it as W or as one product."
    if config.splits > chunks(config, gemm):
        return f"{config.splits} parts of k = {gemm.k}, which has {chunks(config, gemm)} chunks of {config.promote}."
    if max(gemm.m, gemm.n, gemm.k) * max(gemm.batches, 1) >= 2**31:
        return "a row number of the flattened result needs more than 31 bits."
    return None


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits and is accurate at this k, the most promising first."""
    promote = 32 if gemm.k < LONG_K else 64
    vector = next(v for v in (4, 2, 1) if gemm.vector % v == 0 and gemm.n % v == 0)
    space = [Config(t, promote, s, vector) for t in (256, 192, 128) for s in split_counts(gemm, device, t)]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def split_counts(gemm: Gemm, device: Device, tile_n: int) -> tuple[int, ...]:
    """One part, and the numbers of parts that fill the multiprocessors once or twice."""
    tiles = tile_count(gemm, tile_n)
    wanted = {1, *(waves * device.multiprocessors // tiles for waves in (1, 2))}
    return tuple(sorted(count for count in wanted if 1 <= count <= MOST_SPLITS))


def tile_count(gemm: Gemm, tile_n: int) -> int:
    return gemm.batches * math.ceil(gemm.m / TILE_M) * math.ceil(gemm.n / tile_n)


def chunks(config: Config, gemm: Gemm) -> int:
    return math.ceil(gemm.k / config.promote)


def a_is_copied(gemm: Gemm) -> bool:
    """The copy engine cannot read A as it lies: a padded copy is made first."""
    return not rows_are_readable(gemm.a)


def w_is_packed_each_time(gemm: Gemm) -> bool:
    return not gemm.w.constant


def floor_us(gemm: Gemm, device: Device) -> float:
    """Three float16 products at the device's rate, or the bytes."""
    return floor_at(gemm, device, device.peaks.float16 / PRODUCTS)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """Rounds of tiles at the measured rate or the bytes, then the passes before and after."""
    rate = device.peaks.float16 * 1e6 / device.multiprocessors * REACHED[config.tile_n, config.promote]
    k = math.ceil(chunks(config, gemm) / config.splits) * config.promote
    tile_us = PRODUCTS * 2 * TILE_M * config.tile_n * k / rate + TILE_OVERHEAD_US
    rounds = math.ceil(tile_count(gemm, config.tile_n) * config.splits / device.multiprocessors)
    product_us = LAUNCH_US + max(rounds * tile_us, bytes_moved(gemm) / device.copy_gbps / 1e3)
    return product_us + _passes_us(config, gemm, device)


def _passes_us(config: Config, gemm: Gemm, device: Device) -> float:
    """Copying A, packing W and adding up the parts of k, where they are needed."""
    a_bytes = 4 * gemm.batches * gemm.m * gemm.k
    w_bytes = 4 * gemm.w_batches * gemm.n * gemm.k
    part_bytes = 4 * config.splits * gemm.batches * gemm.m * gemm.n
    total = copy_us(a_bytes, a_bytes, device) if a_is_copied(gemm) else 0.0
    total += copy_us(2 * w_bytes, w_bytes, device) if w_is_packed_each_time(gemm) else 0.0
    return total + (copy_us(part_bytes, part_bytes, device) if config.splits > 1 else 0.0)


# --- memory, as the headers lay it out (split.cuh, gemm_sm90.cuh)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def packed_bytes(gemm: Gemm) -> int:
    """Packed W: 4 bytes an element of padded rows, a scale and a maximum for each padded row."""
    return gemm.w_batches * (4 * gemm.n * _round_up(gemm.k, 64) + 8 * _round_up(gemm.n, 768))


def copy_bytes(gemm: Gemm) -> int:
    """The padded copy of A, if one is made."""
    return 4 * gemm.batches * gemm.m * _round_up(gemm.k, 32) if a_is_copied(gemm) else 0


def part_bytes(config: Config, gemm: Gemm) -> int:
    return 4 * config.splits * gemm.batches * gemm.m * _round_up(gemm.n, 4) if config.splits > 1 else 0


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    """Scratch memory of a call: A's copy, W's pairs if they are made each time, the parts of k; 256-byte aligned."""
    packed = packed_bytes(gemm) if w_is_packed_each_time(gemm) else 0
    return sum(_round_up(size, 256) for size in (copy_bytes(gemm), packed, part_bytes(config, gemm)))


# --- C++


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config, a launcher `name`(a, w, workspace, epilogue arguments, stream) and, for constant W, `name`_pack."""
    return f"""\
struct {name}_Config {{
{_config_members(config)}
}};
{_pack_entry(name, gemm) if gemm.w.constant else ""}\
extern "C" int {name}(
    const float* a, const void* w, void* workspace, const {epilogue}::Args* args, cudaStream_t stream) {{
{_copy_of_a(gemm) if a_is_copied(gemm) else ""}{_packing_of_w(gemm) if w_is_packed_each_time(gemm) else ""}\
    const kw::gemm_sm90::Operands operands = {{{_operands(gemm)}}};
    return kw::gemm_sm90::launch<{name}_Config, {epilogue}>(operands, {_parts(gemm)}, *args, stream);
}}
"""


def _config_members(config: Config) -> str:
    return constants(
        {
            "tile_n": config.tile_n,
            "promote": config.promote,
            "splits": config.splits,
            "vector": config.vector,
            "raster": RASTER,
            "undo_truncation": True,
        }
    )


def _pack_entry(name: str, gemm: Gemm) -> str:
    return f"""\
extern "C" int {name}_pack(const float* w, void* packed, cudaStream_t stream) {{
    return kw::split::pack(w, {_pitches_and_sizes(gemm.w, gemm.n, gemm.k, gemm.w_batches)}, packed, stream);
}}
"""


def _copy_of_a(gemm: Gemm) -> str:
    return f"""\
    float* copied = (float*)workspace;
    cudaError_t padded = kw::split::pad(
        a, {_pitches_and_sizes(gemm.a, gemm.m, gemm.k, gemm.batches)}, copied, stream);
    if (padded != cudaSuccess) return padded;
"""


def _packing_of_w(gemm: Gemm) -> str:
    return f"""\
    void* pairs = (char*)workspace + {_round_up(copy_bytes(gemm), 256)};
    cudaError_t packed = kw::split::pack(
        (const float*)w, {_pitches_and_sizes(gemm.w, gemm.n, gemm.k, gemm.w_batches)}, pairs, stream);
    if (packed != cudaSuccess) return packed;
"""


def _pitches_and_sizes(operand: Operand, rows: int, k: int, batches: int) -> str:
    return f"{operand.row_pitch}, {operand.k_pitch}, {operand.batch_pitch}, {rows}, {k}, {batches}"


def _operands(gemm: Gemm) -> str:
    """The initialiser of Operands: A and its pitches, W, sizes."""
    copied, pitch = a_is_copied(gemm), _round_up(gemm.k, 32)
    row_pitch, batch_pitch = (pitch, pitch * gemm.m) if copied else (gemm.a.row_pitch, gemm.a.batch_pitch)
    a_name, w_name = "copied" if copied else "a", "pairs" if w_is_packed_each_time(gemm) else "w"
    sizes = f"{gemm.m}, {gemm.n}, {gemm.k}, {gemm.batches}, {gemm.w_batches}"
    return f"{a_name}, {row_pitch}, {batch_pitch}, {w_name}, {sizes}"


def _parts(gemm: Gemm) -> str:
    packed = packed_bytes(gemm) if w_is_packed_each_time(gemm) else 0
    return f"(char*)workspace + {_round_up(copy_bytes(gemm), 256) + _round_up(packed, 256)}"
