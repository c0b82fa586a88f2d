"""The Hopper convolution whose weights stay or stream (conv_sm90_kept.cuh): configs that fit, entries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TypeAlias

from kernelwright.device import Device
from kernelwright.kernels import conv_mma, conv_sm90
from kernelwright.kernels.conv_kept_cost import cost_us
from kernelwright.kernels.conv_kept_sizes import (
    BLOCKS,
    MOST_HELD_OF_RAGGED,
    PIECE,
    Block,
    Config,
    behind,
    fixed_bytes,
    held,
    is_ragged,
    is_sent,
    kept_steps,
    most_held,
    most_stages,
    most_sums,
    of_a_lap,
    place_bytes,
    row_vector,
    run_vector,
    seamless_width,
    shared_bytes,
    slab_vector,
    stage_bytes,
    sums,
    sums_once,
    ways_through_phases,
)
from kernelwright.kernels.conv_mma import floor_us, packed_bytes
from kernelwright.kernels.conv_shape import ConvShape, by_axis, integers

__all__ = ["HEADERS", "Config", "arithmetic", "configs", "cost_us", "entry", "floor_us", "packed_bytes", "why_not"]

HEADERS = (*conv_sm90.HEADERS, "conv_kept_ends", "conv_kept_carry", "conv_kept_stream", "wgmma_rows", "conv_sm90_kept")

ROWS = (1, 2, 4)  # of a tile
NARROWEST, WIDEST, WIDEST_ROW = 32, 128, 256  # of a row; the last where it is alone
MOST_COLUMNS = 256  # of an instruction
# Of weights that stream: places of their ring, of which fewer than three have teams wait for each other (not measured).
FEWEST_PLACES, MOST_PLACES = 3, 64
# Weights that could stay stream only where that is so much cheaper: prices of the one were fitted, of the other not.
WORTH_STREAMING = 1.25
# Three products instead of one may take so many times as long by the model, which prices them too high: 8 -> 64 with
# bias, division and leaky_relu at 1.13, where they took 1.00 and 1.06 times as long in two runs on an H200. Only where
# little becomes of a sum: with hardswish it was 1.12, with mish 1.12, with a division 1.17.
NEARLY_FREE = 1.15
FEW_FLOPS = 6
MOST_GROUP = 5  # steps of 16 of k that pairs may be summed in the tensor core: with 5, few channels need no further sum


# --- which configs fit


def why_not(config: Config, shape: ConvShape, device: Device) -> str | None:
    """The reason a config cannot run this convolution, in words."""
    if device.arch != "sm_90a":
        return f"wgmma needs sm_90a; {device.name} is {device.arch}."
    in_pieces = shape.rows is not None and shape.rows.pieces is not None
    if in_pieces and (config.rows_at_once != config.rows or config.w_phases != shape.y_step(2)):
        return "what a warp knows of rows in pieces is of whole tiles and of whole rows."
    if config.sent and not is_sent(config, shape):
        return "the copy engine takes rows of one result that is the same function of a row's sums, odd or of phases."
    if math.ceil(shape.outputs / config.tile_m) % config.abreast:
        return f"{shape.outputs} outputs are not {config.tile_m} for each of {config.abreast} teams."
    if config.octets % 2 and (config.octets > 1 or shape.stride(2) > 1):
        return "the second 8 of every 16 of k may lie before the first, which a descriptor cannot say."
    paired = conv_mma.leaves_by_rows(config, shape) or config.tile_n % 16 == 0  # others have not been measured
    whole = config.tile_w % 8 == 0 and paired and config.tile_n == math.prod(config.tile)
    if not config.seamless and not whole:
        return f"tiles of {config.tile} are not rows of whole products."
    ways = ways_through_phases(len(shape.phases) // config.w_phases, shape)
    if config.rows % config.rows_at_once or (config.turns, config.sets) not in ways:
        return f"laps of {config.rows_at_once} of {config.rows} rows and {config.turns} phases do not make up a tile."
    if (reason := conv_mma.why_not_reduced(of_a_lap(config), shape)) is not None:
        return reason
    if config.laps > 1 and config.stages < conv_mma.chunks(config, shape):
        return f"{config.stages} stages do not hold the inputs of a tile until its last lap."
    if (reason := why_not_streamed(config, shape)) is not None:
        return reason
    if (needed := sums(config, shape)) > most_sums(config, shape):
        return f"{needed} registers for sums leave those who multiply too few."
    if (needed := held(config, shape)) > most_held(config):
        return f"{needed} registers for inputs on their way are more than those who carry have."
    if is_ragged(config, shape) and needed > MOST_HELD_OF_RAGGED:
        return f"{needed} registers for inputs leave those who carry too few to see which channels are there."
    if max(conv_mma.region(config, shape)) >= 2**16:
        return "a place among the inputs of a tile has 16 bits along each axis."
    needed, most = shared_bytes(config, shape), device.smem_per_block_bytes
    if needed > most:
        kept = "its ring of weights" if config.streamed else "weights that stay"
        return f"{kept}, and the stages, need {needed:,} B of shared memory; {device.arch} allows {most:,} B."
    return conv_mma.why_not_convolved(config, shape, device)


def why_not_streamed(config: Config, shape: ConvShape) -> str | None:
    """The reason weights cannot stream, or rows follow each other, in words."""
    if config.streamed and config.sets > 1:
        return "weights of a set stay."
    if config.streamed and config.products != 1:
        return "pairs would stream twice the weights for half the tile."
    if config.streamed and (config.abreast, config.carriers) != (config.teams, 1):
        return "weights stream for teams that have the same tile, and beside one warpgroup that carries."
    if not config.seamless:
        return None
    if not config.streamed or config.tile_d > 1 or shape.stride(1) > 1 or shape.stride(2) > 1:
        return "rows of inputs follow each other where weights stream, and rows along h have no strides."
    if seamless_width(config, shape) > config.tile_w:
        return f"{shape.most(2)} places of a row read more than {config.tile_w} inputs, and so some of the next row."
    if config.tile_n != math.ceil(math.prod(config.tile) / 16) * 16:
        return f"{config.tile_n} columns are not those of tiles of {config.tile}."
    if config.tile_w % 8 and (config.tile_w % 2 or shape.rows is not None or not run_vector(config, shape)):
        return "a row begins at a multiple of 8 columns, unless all of a tile is stored as one run."
    if config.rows_at_once * config.tile_w > MOST_COLUMNS:
        return f"{config.rows_at_once} rows of {config.tile_w} are more columns than an instruction has."
    return None


@cache
def configs(shape: ConvShape, device: Device) -> tuple[Config, ...]:
    """As accurate as is asked for; or as IEEE float32 where that is nearly free. Results that memory waits for anyway
    leave the tensor cores idle, and the library multiplies few channels in IEEE float32 even where TF32 is allowed."""
    asked = configs_as_asked(shape, device)
    plain = shape.rows is None and shape.epilogue_flops <= FEW_FLOPS
    few = shape.channels * shape.taps <= 16 * MOST_GROUP
    if not asked or not plain or not few or not shape.tf32 or shape.dtype != "float32":
        return asked
    exact = [c for c in configs_as_asked(replace(shape, tf32=False), device) if sums_once(c, shape)]
    most = NEARLY_FREE * cost_us(asked[0], shape, device)
    return tuple(exact) if exact and cost_us(exact[0], shape, device) <= most else asked


@cache
def configs_as_asked(shape: ConvShape, device: Device) -> tuple[Config, ...]:
    """The best width for every kind of block, number of rows and of octets, way out, and with or without laps; where
    weights stream the best number of rows too; the most promising first."""
    kept, streamed = best_of_each(candidates(shape, device), shape, device), []
    all_kept = [config for config in kept if config.sets == 1]  # those of one set stay because others have no room
    if not all_kept or cost_us(all_kept[0], shape, device) > WORTH_STREAMING * floor_us(shape, device):
        streamed = best_of_each(streams(shape, device), shape, device)
    most = cost_us(all_kept[0], shape, device) / WORTH_STREAMING if all_kept else math.inf
    worth_it = [config for config in streamed if cost_us(config, shape, device) < most]
    return tuple(sorted([*kept, *worth_it], key=lambda config: cost_us(config, shape, device)))


def best_of_each(space: Iterable[Config], shape: ConvShape, device: Device) -> list[Config]:
    """Of each kind that fits the cheapest, of all kinds the cheapest first."""
    best: dict[tuple[Block, int, int, bool, int, bool, int], Config] = {}
    for config in space:
        rows = 0 if config.streamed else config.rows
        key = (config.block, rows, config.octets, config.sent > 0, config.abreast, config.laps > 1, config.sets)
        if why_not(config, shape, device) is None and (
            key not in best or cost_us(config, shape, device) < cost_us(best[key], shape, device)
        ):
            best[key] = config
    return sorted(best.values(), key=lambda config: cost_us(config, shape, device))


def candidates(shape: ConvShape, device: Device) -> Iterator[Config]:
    """Rows of a tile along h, or along d where there is one row; each with the most octets that can be carried.

    One warpgroup carries for teams abreast only where all channels are one chunk. With several it took 12 and 28% more
    than two, in the two cases that were measured, which differ in width or octets as well; where channels are stored
    again after they were reduced, teams take so long that it may carry several too. Phases of d and h are taken
    in turns, row by row where registers are few. Rows of other convolutions could be too, but then all channels must be
    there at once: with 64 of them a tile of so many rows leaves no room for the next one, or for teams abreast.
    """
    joined = shape.y_step(2) if shape.y_space[2] >= shape.y_step(2) else 1
    space = product(BLOCKS, widths(shape.most(2)), ROWS, ROWS, sorted({1, joined}))
    for (block, width, rows, at_once, phases), (turns, sets) in with_ways(space, shape):
        in_turns = turns > 1
        if width * at_once * phases // 2 > block.most_sums or (width > WIDEST and at_once > 1):
            continue
        if rows > shape.most(0) * shape.most(1) or rows % at_once or (at_once < rows and not in_turns):
            continue
        if (in_turns or sets > 1) and phases != joined:
            continue
        plain = plain_config(block, width, rows, phases, shape)
        plain = replace(plain, lap_rows=0 if at_once == rows else at_once, turns=turns, sets=sets)
        again = conv_mma.leaves_by_rows(plain, shape)
        halves = math.ceil(shape.outputs / plain.tile_m) % 2 == 0
        for abreast in (1, 2) if block.teams == 2 and halves else (1,):
            for octets in conv_sm90.octet_counts(shape):
                config = with_group(replace(plain, octets=octets, abreast=abreast), shape)
                if held(config, shape) <= most_held(config):
                    carried = abreast == 1 or block.carriers == 2 or conv_mma.chunks(config, shape) == 1 or again
                    if carried and (sets == 1 or not has_room(replace(config, sets=1), shape, device)):
                        yield from with_stages(config, shape, device)
                    break


def streams(shape: ConvShape, device: Device) -> Iterator[Config]:
    """Weights that stream: tiles with as many sums as registers hold, for all of which a tap's weights come once; with
    any number of octets, for pieces of them are carried. Phases of d and h as where weights stay, all in turns or none.
    """
    block = next(b for b in BLOCKS if (b.teams, b.carriers) == (2, 1))
    if math.ceil(shape.outputs / 64) % block.teams or (shape.dtype == "float32" and not shape.tf32):
        return
    joined = shape.y_step(2) if shape.y_space[2] >= shape.y_step(2) else 1
    tall = shape.most(1) if shape.most(1) > 1 else shape.most(0)
    for phases, in_turns, octets in product(sorted({1, joined}), (False, True), conv_sm90.octet_counts(shape)):
        turns = len(shape.phases) // phases if in_turns else 1
        if in_turns and (turns == 1 or phases != joined):
            continue
        plain = replace(plain_config(block, NARROWEST, 1, phases, shape), octets=octets, abreast=2, turns=turns)
        needed = max(NARROWEST, seamless_width(plain, shape))
        together = sorted({math.ceil(needed / n) * n for n in (2, 8)})
        for seamless, width in [(0, w) for w in widths(shape.most(2))] + [(1, w) for w in together]:
            for rows in range(1 + seamless, min(tall, 2 * block.most_sums // (width * phases)) + 1):
                d, h = (1, rows) if shape.most(1) > 1 else (rows, 1)
                sized = replace(plain, tile_d=d, tile_h=h, tile_w=width, tile_n=math.ceil(rows * width / 16) * 16)
                yield from with_places(replace(sized, seamless=seamless), shape, device)


def with_places(config: Config, shape: ConvShape, device: Device) -> Iterator[Config]:
    """Two tiles' worth of stages where inputs stay for several laps, else two or three; the ring has the rest."""
    chunks = conv_mma.chunks(config, shape)
    for stages in sorted({chunks, 2 * chunks}) if config.laps > 1 else (2, 3):
        for sent in (0, 1, 2) if is_sent(config, shape) else (0,):
            way = replace(config, stages=stages, sent=sent, streamed=1)
            room = device.smem_per_block_bytes - shared_bytes(way, shape) + place_bytes(way)
            if room // place_bytes(way) >= FEWEST_PLACES:
                yield replace(way, streamed=min(MOST_PLACES, room // place_bytes(way)))


Point: TypeAlias = tuple[Block, int, int, int, int]


def with_ways(points: Iterable[Point], shape: ConvShape) -> Iterator[tuple[Point, tuple[int, int]]]:
    """Each with all turns and sets that the phases of d and h allow."""
    for point in points:
        for way in ways_through_phases(len(shape.phases) // point[-1], shape):
            yield point, way


def has_room(config: Config, shape: ConvShape, device: Device) -> bool:
    """Whether weights of all phases leave room for a stage: then no block has others than the rest."""
    return staged(config, shape, device).stages >= 1


def plain_config(block: Block, width: int, rows: int, phases: int, shape: ConvShape) -> Config:
    products = 1 if shape.dtype != "float32" or shape.tf32 else 3
    tile = (1, 1, rows, width) if shape.most(1) > 1 else (1, rows, 1, width)
    warps, fold, ahead = (4, 4), conv_mma.folding(shape), True
    who = {"teams": block.teams, "carriers": block.carriers}
    return Config(products, 64, width * rows, *warps, 1, fold, 1, *tile, phases, 1, ahead, **who)


def widths(width: int) -> list[int]:
    """Multiples of 8 that cut a row into equal parts, and the widest row of all."""
    counts = range(math.ceil(width / WIDEST), math.ceil(width / NARROWEST) + 1)
    parts = {max(NARROWEST, math.ceil(width / count / 8) * 8) for count in counts}
    return sorted({*parts, *({WIDEST, WIDEST_ROW} if width > WIDEST else ())})


def with_group(config: Config, shape: ConvShape) -> Config:
    """Of pairs: all steps at once if they are few, else those from 2 to 4 that leave the fewest empty."""
    if config.products == 1:
        return config
    single = replace(config, group=1)
    steps = conv_mma.steps_of(single, conv_mma.most_taps(single, shape))
    if steps <= MOST_GROUP and conv_mma.chunks(config, shape) == 1 and len(shape.phases) == 1:
        return replace(config, group=max(1, steps))
    choices = [replace(config, group=n) for n in (4, 3, 2)]
    return min(choices, key=lambda c: kept_steps(c, shape))


def with_stages(config: Config, shape: ConvShape, device: Device) -> list[Config]:
    """With as many as there is room for, once for each way out that the results have."""
    found = []
    for sent in (0, 2) if is_sent(config, shape) else (0,):
        ways = [staged(replace(config, sent=n), shape, device) for n in ((2, 1) if sent else (0,))]
        fitting = [way for way in ways if way.stages >= 1]
        # Two slabs of a warp rather than many stages, but not with one stage where there could be two.
        found += fitting[1:] if len(fitting) > 1 and fitting[0].stages == 1 else fitting[:1]
    return found


def staged(config: Config, shape: ConvShape, device: Device) -> Config:
    room = device.smem_per_block_bytes - fixed_bytes(config, shape)
    return replace(config, stages=min(most_stages(config, shape), room // (config.rings * stage_bytes(config, shape))))


# --- C++


def arithmetic(config: Config, shape: ConvShape) -> str:
    if config.products == 3:
        k = 16 * config.group
        return f"float32 as pairs of float16, three tensor-core products, summed in float32 every {k} of k"
    return conv_mma.arithmetic(config, shape)


def entry(name: str, config: Config, shape: ConvShape, epilogue: str) -> str:
    more = integers(
        teams=config.teams,
        carriers=config.carriers,
        stages=config.stages,
        kept=max(1, kept_steps(config, shape)),
        sent=config.sent,
        abreast=config.abreast,
        lap_rows=config.rows_at_once,
        streamed=config.streamed,
        piece=PIECE,
        seamless=config.seamless,
        behind=behind(config, shape),
        sets=config.sets,
        least_taps=min(conv_mma.taps_of(config, phase) for phase in shape.phases),
        run_vector=run_vector(config, shape),
        slab_vector=slab_vector(config, shape) if shape.rows is not None and shape.rows.pieces is not None else 0,
        row_vector=row_vector(config, shape),
    )
    d, h, w = shape.phases[0].axes
    taps = (d.taps, h.taps, math.ceil(w.taps / config.fold))
    steps = integers(**by_axis("taps", taps), **by_axis("x_step", (d.x_step, h.x_step, w.x_step)))  # of the first phase
    # What becomes of sums is computed where they are; not where their phases are apart, which leaves too few registers.
    said = {
        "valued": shape.sendable and config.w_phases == shape.y_step(2),
        "by_rows": conv_mma.leaves_by_rows(config, shape),
        "alike": shape.rows is not None and shape.rows.alike,
    }
    flags = ", ".join(f"{name} = {str(value).lower()}" for name, value in said.items())
    more += f"\n{steps}\n    static constexpr bool {flags};"
    packer = "conv_sm90_kept" if config.streamed else "conv_mma"
    return conv_mma.entry(name, config, shape, epilogue, "conv_sm90_kept", [more], packer)
