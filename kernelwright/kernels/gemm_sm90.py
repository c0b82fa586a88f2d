"""The float32-faithful Hopper template (gemm_sm90.cuh): its configs, which fit, what each should take, its entry."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

from kernelwright.device import Device
from kernelwright.kernels import gemm_sm90_beside as beside
from kernelwright.kernels.gemm_pairs import (
    a_is_copied,
    can_be_packed_by_panels,
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
    round_up,
    then,
    w_is_packed_each_time,
)
from kernelwright.kernels.gemm_rows import adding_us, end_of, finishing_us, launched
from kernelwright.kernels.gemm_shape import LAUNCH_US, Gemm, beside_us, constants, copy_us, stream_us
from kernelwright.kernels.gemm_shape import floor_us as floor_at

__all__ = [
    "HEADERS",
    "Config",
    "a_is_copied",
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

HEADER = "gemm_sm90.cuh"
HEADERS = ("launch", "ptx90", "gemm_prologue", "split", "gemm_epilogue", "gemm_sm90")
MOST_SPLITS = 128
WIDEST = (128, 256)
MOST_BATCHES = 65535
RASTER = 16
PRODUCTS = 3  # lo*hi, hi*lo, hi*hi

# Below this the three products lose to float32's own sum (simulated with the tensor core's rounding, docs/gemm.md).
SHORTEST_K = 32
# From here on 64 of k between promotions is as accurate as 32, and 8% faster (measured).
LONG_K = 256

# What the main loop of a tile (rows, columns, k between promotions) reaches of the device's float16 rate. Measured on
# the H200: 128 rows by 256, 192 and 128 with 64 of k, 256 with 32. The others are estimates.
REACHED = {
    (128, 256, 64): 0.966,
    (128, 256, 32): 0.923,
    (128, 192, 64): 0.88,
    (128, 192, 32): 0.83,
    (128, 128, 64): 0.81,
    (128, 128, 32): 0.76,
    (128, 64, 64): 0.70,
    (128, 64, 32): 0.66,
    (64, 256, 64): 0.87,
    (64, 256, 32): 0.82,
    (64, 128, 64): 0.78,
    (64, 128, 32): 0.73,
}
# The same where two parts of a chunk are under way. Of other tiles it has not been measured.
REACHED_BY_TWO = {(128, 256, 64): 1.02}
# Instructions of what is computed of A on the way beside which two parts have registers.
FEW_INSTRUCTIONS = 4
# Filling the ring and storing a result, by neighbours of one store: 6.5 us for 128 x 256 in fours, 20 one by one.
STORE_US = {4: 6.5 / 2**15, 2: 11.0 / 2**15, 1: 20.0 / 2**15}
# The same where results leave by the copy engine, but for the last tile, behind which there is none to hide: 5.4 us for
# 128 x 256, of tiles that take 38 in all (1024 of k) on an H200.
SENT_US = 5.4 / 2**15
# Neighbours of one store, and rows and columns of tiles whose results may leave so: the widest, and the widest where an
# epilogue divides.
VECTOR_SENT = 4
SENT_TILES = ((128, 256), (128, 192))
# Of the time in which A is computed, what the other warpgroup does not multiply in: an estimate.
MAKING_SHOWN = 0.5
FILL_US = 2.5 / 2**15  # the same where nothing is stored: an estimate


@dataclass(frozen=True, slots=True)
class Config:
    """tile_m rows and tile_n columns of a tile; promote: k between promotions; splits: parts of k; vector: neighbours
    of one store; sent: results leave by the copy engine (gemm_sm90_sent.cuh); packers: blocks that pack W beside the
    product, but for the rows of `ahead` tiles, which are packed before, and of `aside` after these, which are packed by
    idle warps of the other blocks (gemm_sm90_beside.cuh)."""

    tile_n: int
    promote: int
    splits: int
    vector: int
    tile_m: int = 128
    sent: bool = False
    packers: int = 0
    ahead: int = 0
    aside: int = 0

    @property
    def is_beside(self) -> bool:
        """Whether W is packed beside the product."""
        return self.packers > 0 or self.aside > 0

    @property
    def way(self) -> beside.Way:
        return beside.Way(self.packers, self.ahead, self.aside)


SomeConfig = TypeVar("SomeConfig", bound=Config)


def packed_before(config: SomeConfig) -> SomeConfig:
    """The same where nothing is packed beside the product."""
    return replace(config, packers=0, ahead=0, aside=0)


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    if device.arch != "sm_90a":
        return f"wgmma and the copy engine need sm_90a; {device.name} is {device.arch}."
    if (gemm.a.dtype, gemm.w.dtype) != ("float32", "float32"):
        return f"float16 pairs stand for float32; the operands are {gemm.a.dtype} and {gemm.w.dtype}."
    if gemm.k < SHORTEST_K:
        return f"k = {gemm.k}: under {SHORTEST_K} three products are less accurate than float32's own sum."
    if (config.tile_m, config.tile_n, config.promote) not in REACHED:
        return f"there is no {config.tile_m} x {config.tile_n} tile that promotes every {config.promote}."
    if (config.tile_m, config.tile_n) == WIDEST and made_in_passing(gemm) and gemm.a.made_bytes:
        return "the widest tile has no registers left for what A is computed of besides."
    if gemm.vector % config.vector or gemm.n % config.vector:
        return f"the epilogue cannot store {config.vector} neighbours of {gemm.n} columns at once."
    if gemm.batches > 1 and gemm.a.batch_pitch == 0:
        return "every batch has the same A, which the copy engine cannot say; give it as W or as one product."
    if gemm.batches > MOST_BATCHES:
        return f"{gemm.batches} batches; a grid has at most {MOST_BATCHES:,} along an axis."
    if gemm.row_state_bytes and config.splits > 1:
        return "parts of k are summed where the neighbours of a result are not: its row cannot be reduced there."
    if config.sent and (reason := why_not_sent(config, gemm)):
        return reason
    if config.is_beside and (reason := why_not_beside(config, gemm)):
        return reason
    if config.splits > chunks(config, gemm):
        return f"{config.splits} parts of k = {gemm.k}, which has {chunks(config, gemm)} chunks of {config.promote}."
    if max(gemm.m, gemm.n, gemm.k) * max(gemm.batches, 1) >= 2**31:
        return "a row number of the flattened result needs more than 31 bits."
    return None


def why_not_sent(config: Config, gemm: Gemm) -> str | None:
    """The reason results cannot leave by the copy engine."""
    if not gemm.sendable or gemm.row_state_bytes:
        return "the copy engine takes results to one float32 tensor, whose rows lie at multiples of 16 bytes."
    if config.splits > 1 or config.vector != VECTOR_SENT:
        return f"the copy engine takes whole sums, {VECTOR_SENT} at a time."
    return None


def why_not_beside(config: Config, gemm: Gemm) -> str | None:
    """The reason W cannot be packed beside the product."""
    if not config.sent:
        return "W is packed beside products whose results the copy engine takes."
    if config.aside and (config.tile_m, config.tile_n) != WIDEST:
        return "what is packed aside is wanted by the widest tiles."
    return beside.why_not(gemm) or (beside.why_not_aside(gemm) if config.aside else None)


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits and is accurate at this k, the most promising first."""
    promote = 32 if gemm.k < LONG_K else 64
    vector = next(v for v in (4, 2, 1) if gemm.vector % v == 0 and gemm.n % v == 0)
    space = [
        Config(tile_n, promote, splits, vector, tile_m, sent)
        for tile_m, tile_n in tiles(gemm)
        for splits in split_counts(gemm, device, tile_m, tile_n)
        for sent in ways_out(gemm, device, tile_m, tile_n)
    ]
    space += [beside_it for config in space for beside_it in with_packers(config, gemm, device)]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def tiles(gemm: Gemm) -> tuple[tuple[int, int], ...]:
    """Rows and columns; half-high or narrow tiles only where a whole one would be mostly padding."""
    high = ((128, 256), (128, 192), (128, 128))
    flat = ((64, 256), (64, 128)) if gemm.m <= 64 else ()
    narrow = ((128, 64),) if gemm.n <= 64 else ()
    return (*high, *flat, *narrow)


def split_counts(gemm: Gemm, device: Device, tile_m: int, tile_n: int) -> tuple[int, ...]:
    """One part, and the numbers of parts that fill the multiprocessors once or twice."""
    count = tile_count(gemm, tile_m, tile_n)
    wanted = {1, *(waves * device.multiprocessors // count for waves in (1, 2))}
    return tuple(sorted(splits for splits in wanted if 1 <= splits <= MOST_SPLITS))


def ways_out(gemm: Gemm, device: Device, tile_m: int, tile_n: int) -> tuple[bool, ...]:
    """Whether results are sent: both ways where a multiprocessor has a tile to multiply meanwhile."""
    several = tile_count(gemm, tile_m, tile_n) > device.multiprocessors
    return (False, True) if several and (tile_m, tile_n) in SENT_TILES else (False,)


def with_packers(config: SomeConfig, gemm: Gemm, device: Device) -> list[SomeConfig]:
    """The same with W packed beside the product, if there is somebody to do it."""
    if not config.sent:
        return []
    ways = beside.ways(gemm, device, rounds_of(config, gemm, device))
    return [replace(config, packers=way.packers, ahead=way.ahead, aside=way.aside) for way in ways]


def rounds_of(config: Config, gemm: Gemm, device: Device) -> beside.Rounds:
    tiles_m = math.ceil(gemm.m / config.tile_m)
    return beside.Rounds(config.tile_n, tiles_m, RASTER, tile_us(config, gemm, device))


def packing_beside_us(config: Config, gemm: Gemm, device: Device) -> float:
    """What is packed before, and what tiles wait for packers."""
    late = beside.late_us(config.way, gemm, device, rounds_of(config, gemm, device))
    return late + beside.before_us(config.ahead, gemm, config.tile_n, device)


def tile_count(gemm: Gemm, tile_m: int, tile_n: int) -> int:
    return gemm.batches * math.ceil(gemm.m / tile_m) * math.ceil(gemm.n / tile_n)


def chunks(config: Config, gemm: Gemm) -> int:
    return math.ceil(gemm.k / config.promote)


def floor_us(gemm: Gemm, device: Device) -> float:
    """Three float16 products at the device's rate, or the bytes."""
    return floor_at(gemm, device, device.peaks.float16 / PRODUCTS)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    if config.is_beside:
        multiplied = beside.share(config.aside) * multiplying_us(config, gemm, device)
        return multiplied + packing_beside_us(config, gemm, device)
    return multiplying_us(config, gemm, device) + preparation_us(gemm, device, can_be_packed_by_panels(gemm))


def tile_us(config: Config, gemm: Gemm, device: Device) -> float:
    """A tile at the measured rate, to its end."""
    tile = config.tile_m, config.tile_n, config.promote
    reached = REACHED_BY_TWO.get(tile, REACHED[tile]) if parts_under_way(gemm) == 2 else REACHED[tile]
    rate = device.peaks.float16 * 1e6 / device.multiprocessors * reached
    k = math.ceil(chunks(config, gemm) / config.splits) * config.promote
    results = config.tile_m * config.tile_n
    ending_us = results * (storing_us(config) if gemm.stored else FILL_US) + adding_us(results, gemm, device)
    making_us = MAKING_SHOWN * making_in_passing_us(gemm, config.tile_m * k, device)
    return PRODUCTS * 2 * results * k / rate + making_us + ending_us


def parts_under_way(gemm: Gemm) -> int:
    """Of a chunk. Panels and what is computed of A take registers."""
    if can_be_packed_by_panels(gemm):
        return 1
    few = gemm.a.made_flops <= FEW_INSTRUCTIONS and not gemm.a.made_bytes
    return 2 if few or not made_in_passing(gemm) else 1


def storing_us(config: Config, sent: bool = True) -> float:
    """A result; where such results are sent, as it is or as it would be stored."""
    return SENT_US if config.sent and sent else STORE_US[config.vector if config.splits == 1 else 4]


def multiplying_us(config: Config, gemm: Gemm, device: Device) -> float:
    """Rounds of tiles beside the bytes, then the passes after."""
    results = config.tile_m * config.tile_n
    last_us = results * (storing_us(config, sent=False) - storing_us(config)) if gemm.stored else 0.0
    workers = device.multiprocessors - config.packers
    rounds = math.ceil(tile_count(gemm, config.tile_m, config.tile_n) * config.splits / workers)
    product_us = LAUNCH_US + beside_us(rounds * tile_us(config, gemm, device) + last_us, stream_us(gemm, device))
    parts = part_bytes(config, gemm)
    after_us = finishing_us(row_parts(config, gemm), gemm, device) + (copy_us(parts, parts, device) if parts else 0.0)
    return product_us + after_us


# --- memory, as gemm_sm90.cuh lays it out


def part_bytes(config: Config, gemm: Gemm) -> int:
    return 4 * config.splits * gemm.batches * gemm.m * round_up(gemm.n, 4) if config.splits > 1 else 0


def row_parts(config: Config, gemm: Gemm) -> int:
    """Warps that have a part in a row: one a tile, or two that have half of its columns each."""
    return math.ceil(gemm.n / config.tile_n) * (2 if config.tile_m == 64 else 1)


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    """Scratch memory of a call: A's copy, W's pairs if they are made each time, the parts of k; 256-byte aligned."""
    return prepared_bytes(gemm, can_be_packed_by_panels(gemm)) + round_up(part_bytes(config, gemm), 256)


# --- C++


def arithmetic(config: Config, gemm: Gemm) -> str:
    """How it multiplies and adds, for whoever reads the result."""
    return f"float32 as pairs of float16, three tensor-core products, summed in float32 every {config.promote} of k"


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config, a launcher `name`(a, w, workspace, epilogue arguments, stream) and, for constant W, `name`_pack."""
    panels = can_be_packed_by_panels(gemm)
    return launcher(name, config, gemm, epilogue, packer(2, gemm, panels), prepared_bytes(gemm, panels))


def launcher(name: str, config: Config, gemm: Gemm, epilogue: str, pack: str, parts_at: int, order: str = "") -> str:
    """The same with the function that packs W, where in the workspace the parts of k are, and W's order if another."""
    if config.is_beside:
        return launcher_beside(name, config, gemm, epilogue)
    parts = row_parts(config, gemm)
    made = made_in_passing(gemm)
    prologue = then(made) or (then("kw::gemm::AsItLies") if order else "")
    types = f"{name}_Config, {end_of(epilogue, parts, gemm)}{prologue}{then(order)}"
    launch = launched_as(config, types, passed(made))
    return f"""\
struct {name}_Config {{
{config_members(config, gemm, can_be_packed_by_panels(gemm), w_is_packed_each_time(gemm))}
}};
{pack_entry(name, gemm)}\
extern "C" int {name}(
    const float* a, const void* w, void* workspace, const {epilogue}::Args* args, cudaStream_t stream) {{
{preparation(gemm, pack)}\
    const kw::gemm_sm90::Operands operands = {{{operands(gemm)}}};
{parts_line(config, parts_at)}\
{launched(launch, epilogue, parts, gemm)}
}}
"""


def launcher_beside(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The same where W is packed beside the product."""
    types = f"{name}_Config, {epilogue}, kw::gemm::AsItLies, {name}_W"
    return f"""\
struct {name}_Config {{
{config_members(config, gemm, panels=False, packed_before=True)}
}};
{beside.struct(name, config.way, gemm, "kw::split::Packed")}\
extern "C" int {name}(
    const float* a, const void* w, void* workspace, const {epilogue}::Args* args, cudaStream_t stream) {{
    void* pairs = workspace;
    const kw::gemm_sm90::Operands operands = {{
        {operands(gemm)}, (const float*)w, {gemm.w.row_pitch}, {gemm.w.batch_pitch}}};
{beside.called(name)}\
    return {launched_as(config, types)};
}}
"""


def launched_as(config: Config, types: str, made: str = "") -> str:
    """The call that multiplies, of `operands`, `parts`, `args` and `stream`."""
    if config.sent:
        return f"kw::gemm_sm90_sent::launch<{types}>(operands, *args, stream{made})"
    return f"kw::gemm_sm90::launch<{types}>(operands, parts, *args, stream{made})"


def parts_line(config: Config, parts_at: int) -> str:
    """Where the parts of k are, for those that may have some."""
    return "" if config.sent else f"    void* parts = (char*)workspace + {parts_at};\n"


def config_members(config: Config, gemm: Gemm, panels: bool, packed_before: bool) -> str:
    return constants(
        {
            "tile_m": config.tile_m,
            "tile_n": config.tile_n,
            "promote": config.promote,
            "splits": config.splits,
            "vector": config.vector,
            "raster": RASTER,
            "under_way": 1 if panels else parts_under_way(gemm),
            "one_chunk": chunks(config, gemm) == 1,
            "panels": panels,
            "packed_before": packed_before,
            "undo_truncation": True,
        }
    )
