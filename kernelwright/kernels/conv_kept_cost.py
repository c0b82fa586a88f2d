"""What a config of conv_sm90_kept.cuh should take, in microseconds: its instructions, clocks and bytes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

from kernelwright.device import Device
from kernelwright.kernels import conv_mma
from kernelwright.kernels.conv_kept_sizes import (
    PIECE,
    Config,
    row_vector,
    run_vector,
    shelves,
    slab_vector,
    stage_bytes,
    steps_of_sets,
)
from kernelwright.kernels.conv_shape import ConvShape
from kernelwright.kernels.gemm_shape import LAUNCH_US, beside_us

# Constants of the cost model, fitted to 51 configs of seven convolutions that an H200 ran
# (benchmarks/results/2026-11-16-conv-kept-h200.jsonl), which come out within 10% (the standard deviation), and 18 of
# them that it ran once more within 11%; instructions within what the PTX has, there was no disassembler to count them
# in SASS. Those of teams abreast and of the copy engine are fitted to a later run (2026-11-16-conv-sent-h200.jsonl): 12
# configs abreast, and 35 as before, come out within 11%, 47 whose results are sent 13% too low and within 12% of that;
# all with several phases of h or d some 20% too low.
# Instructions of a warp: of one who carries, for an element of each lane, beside them for an octet, and for a chunk, on
# whose scale all agree; of one who multiplies, for a sum of each lane (is it finite? scaled, put into shared memory),
# for a store, and for each result that a lane has in it. They are those of the runs above. Since then a profile counted
# 36 instructions for each result of a strided transposed convolution, 13 of them to carry, 10 to multiply and 12 to end
# a tile, and the kernel has fewer: by the opcodes of its code 3.9 for an element and a half for its part of an octet,
# 100 for a chunk; and for a result 7, of which 4 are the epilogue's. That has not been measured: what is priced here is
# too high by as much, and the same for all configs.
ELEMENT_INSTRUCTIONS = {1: 6, 3: 9}
OCTET_INSTRUCTIONS, CHUNK_INSTRUCTIONS = 8, 120
SUM_INSTRUCTIONS, STORE_INSTRUCTIONS, RESULT_INSTRUCTIONS = 5, 8, 4
# Of a lap beyond the first, and of each chunk in it: phases looked up, stages waited for, the end of a tile begun
# (counted by opcodes, not measured).
LAP_INSTRUCTIONS, CHUNK_OF_LAP_INSTRUCTIONS = 130, 60
# Three estimates, neither counted nor measured. For a window that is pooled, beside its sums: its place, its result.
WINDOW_INSTRUCTIONS = 40
# For a sum that is added to what is known of its channel, beside what that computes.
PIECE_INSTRUCTIONS = 3
# For a pixel whose channels are reduced, of who finishes it: where it lies, and the states of all warps.
PIXEL_INSTRUCTIONS = 100
# Where inputs are carried in pieces: for an octet, where it lies, which no register keeps (an estimate, not measured).
SPOT_INSTRUCTIONS = 24
# Where every channel is stored again after that, as the source of a softmax and a sigmoid has them: for a sum of each
# walk, scaled, with what is known of its pixel; for 8 bytes of a state that lanes merge; of a sum through a slab; of a
# store, however wide; and what is left of the instructions of functions after one product. Counted in the source,
# neither measured nor counted in SASS.
WALK_INSTRUCTIONS, MERGE_INSTRUCTIONS, PUT_INSTRUCTIONS, MOVE_INSTRUCTIONS, NEAR_SHARE = 2, 4.5, 0.5, 3, 0.28
# For eight rows that are reduced along w, in which lanes merge twice: what is merged and finished, and where they lie.
LINE_INSTRUCTIONS = 150
# Merges of the states of several pixels that eight lanes have, by the pixels that a walk sees at once.
MERGES = {4: 4, 2: 3, 1: 3}
# What a warp issues of its own in a clock; and how much longer stores beyond the first take. Why is not known: their
# code is unrolled and may have to be fetched for every tile. Loops were tried with 32 stores only, and were slower.
OWN_ISSUE = 0.215
NEAR_STORES, FAR_CODE = 32, 1.5
# Clocks: of a chunk beside the instructions of those who carry, and until it comes from memory; from the end of a
# tile's products to the begin of the next ones, beside what stores; of a chunk that is waited for.
CARRYING_CLOCKS, MEMORY_CLOCKS, LEAVING_CLOCKS, STAGE_CLOCKS = 300, 1100, 400, 100
# What warps of all kinds reach together of the tensor cores, of shared memory's 128 B a clock and of four instructions
# a clock. The first has not been reached.
TENSOR_SHARE, SHARED_SHARE, ISSUE_SHARE = 0.85, 0.54, 0.475
# The second, where weights stream: tiles are large, and what shared memory does is next to all for the tensor cores,
# which read in order. An estimate, not measured.
STREAMED_SHARED_SHARE = 0.75
# Where the copy engine takes results: instructions for a result and for a slab of 8 channels, what a warp issues of
# them in a clock, for it waits for its slab, and clocks that the engine takes for a run, however short.
SENT_INSTRUCTIONS, SLAB_INSTRUCTIONS, SENT_ISSUE, SENT_RUN_CLOCKS = 7, 80, 0.15, 25
# Of memory's time, as bytes, for every run that is written; by the warpgroups that carry. Why two cost more is not
# known: that they drift apart is not all of it, for 16 -> 128 channels pays it abreast too, where they work together.
# In 1-d teams abreast seem not to pay it, and are priced 13% too high.
RUN_BYTES = {1: 52, 2: 200}


@cache
def cost_us(config: Config, shape: ConvShape, device: Device) -> float:
    """Tile after tile: what the busiest of the multiprocessor's units needs, and no less than a team, or who carries
    for it, takes for its tiles one after the other."""
    clocks = conv_mma.clocks_per_us(device)
    products = config.abreast * products_clocks(config, shape)
    busiest = max(products, shared_clocks(config, shape), issue_clocks(config, shape), engine_clocks(config))
    carrying = carrying_clocks(config, shape) / config.crews
    leaving = leaving_clocks(config, shape)
    team = (products + (idle_clocks(config, leaving) if config.streamed else leaving)) / config.rings
    tiles = conv_mma.grid(config, shape) // (shelves(config, shape) * config.abreast)
    blocks = max(1, device.multiprocessors // shelves(config, shape))
    waves = math.ceil(shelves(config, shape) / device.multiprocessors) * math.ceil(tiles / blocks)
    computing = waves * max(busiest, carrying, team) / clocks
    return moved_us(config, shape, device, computing)


def steps_per_tile(config: Config, shape: ConvShape) -> float:
    """Of an average phase, or of all that are together; of sets, of the one that has most: its blocks end last."""
    if config.sets > 1:
        return max(steps_of_sets(config, shape)) * conv_mma.chunks(config, shape)
    return config.phases_of_tile * conv_mma.k_of(config, shape) / 16


def products_clocks(config: Config, shape: ConvShape) -> float:
    each = config.rows // config.rows_at_once * config.columns / 2
    waiting = STAGE_CLOCKS * conv_mma.chunks(config, shape) * config.laps
    return config.products * steps_per_tile(config, shape) * each / TENSOR_SHARE + waiting


def shared_clocks(config: Config, shape: ConvShape) -> float:
    """Weights and pixels of every product, results in and out, inputs, weights that stream."""
    rows = 1 if config.seamless else config.rows_at_once  # that have an instruction of their own
    laps = config.rows // config.rows_at_once
    operands = config.products * steps_per_tile(config, shape) * laps * (rows * 2048 + 32 * config.columns)
    operands += 2048 * laps * steps_per_tile(config, shape) if config.streamed else 0
    results = 2 * 4 * config.tile_m * config.tile_n * config.phases_of_tile
    inputs = stage_bytes(config, shape) * conv_mma.chunks(config, shape)
    share = STREAMED_SHARED_SHARE if config.streamed else SHARED_SHARE
    return (config.abreast * (operands + results) + inputs) / 128 / share


def issue_clocks(config: Config, shape: ConvShape) -> float:
    leaving = 4 * config.abreast * leaving_instructions(config, shape)
    return (leaving + carrying_instructions(config, shape)) / 4 / ISSUE_SHARE


def stores(config: Config, shape: ConvShape) -> int:
    """Of each warp of a team, for a lap: 16 channels; lanes beyond the end of a row do nothing."""
    run, rows = run_vector(config, shape), config.rows_at_once
    results = rows * shape.y_space[2] if run else config.tile_w * config.w_phases
    return 16 * (1 if run else rows) * math.ceil(results / stored_vector(config, shape) / 32)


def stored_vector(config: Config, shape: ConvShape) -> int:
    return run_vector(config, shape) or conv_mma.vector(config, shape)


def store_instructions(config: Config, shape: ConvShape) -> int:
    return STORE_INSTRUCTIONS + stored_vector(config, shape) * RESULT_INSTRUCTIONS


def leaving_instructions(config: Config, shape: ConvShape) -> float:
    """Of the same warp, for a tile."""
    sums = config.columns * config.w_phases // 2
    if shape.rows is not None and shape.rows.window:
        size = math.prod(shape.rows.window)
        windows = math.ceil(16 * config.rows_at_once * config.tile_w / size / 32)
        each: float = windows * (WINDOW_INSTRUCTIONS + size * (2 + shape.rows.flops)) + sums * SUM_INSTRUCTIONS
    elif shape.rows is not None and shape.rows.pieces is not None:
        store = STORE_INSTRUCTIONS + slab_vector(config, shape) * RESULT_INSTRUCTIONS
        runs = 16 * config.rows_at_once * math.ceil(config.tile_w * config.w_phases / slab_vector(config, shape) / 32)
        each = sums * (shape.rows.flops + PIECE_INSTRUCTIONS + SUM_INSTRUCTIONS) + runs * store
    elif conv_mma.leaves_by_rows(config, shape):
        each = sums * channel_instructions(config, shape) + stores(config, shape) * MOVE_INSTRUCTIONS
        if shape.rows is not None and shape.rows.line:
            each += 2 * config.rows_at_once * LINE_INSTRUCTIONS
        else:
            each += PIXEL_INSTRUCTIONS * math.ceil(config.rows_at_once * config.tile_w * config.w_phases / 128)
    elif shape.rows is not None:
        stored = conv_mma.RESULT_INSTRUCTIONS if shape.rows.phases > len(shape.rows.state_bytes) else 0
        each = sums * (conv_mma.row_instructions(config, shape) + stored + SUM_INSTRUCTIONS)
        each += PIXEL_INSTRUCTIONS * math.ceil(config.rows_at_once * config.tile_w * config.w_phases / 128)
    elif config.sent:
        each = sums * SENT_INSTRUCTIONS + 2 * config.rows_at_once * SLAB_INSTRUCTIONS
    else:
        each = stores(config, shape) * store_instructions(config, shape) + sums * SUM_INSTRUCTIONS
    again = LAP_INSTRUCTIONS + CHUNK_OF_LAP_INSTRUCTIONS * conv_mma.chunks(config, shape)
    return config.laps * each + (config.laps - 1) * again


def channel_instructions(config: Config, shape: ConvShape) -> float:
    """Of a sum whose channels are reduced and stored again."""
    assert shape.rows is not None
    computed = shape.rows.flops * (NEAR_SHARE if config.products == 1 else 1.0)
    vector, states = row_vector(config, shape), sum(shape.rows.state_bytes) / 8
    merged = 0.0 if shape.rows.line else MERGES[vector] * states * MERGE_INSTRUCTIONS / (2 * vector)
    return computed + merged + WALK_INSTRUCTIONS * shape.rows.phases + PUT_INSTRUCTIONS


def carrying_instructions(config: Config, shape: ConvShape) -> float:
    """Of all warps that carry, for a tile."""
    elements = conv_mma.elements_of(config, shape)
    chunks = config.crew_warps * CHUNK_INSTRUCTIONS * conv_mma.chunks(config, shape)
    of_octet = OCTET_INSTRUCTIONS + (SPOT_INSTRUCTIONS if config.streamed else 0)
    return chunks + elements * (ELEMENT_INSTRUCTIONS[config.products] + of_octet / 8) / 32


def engine_clocks(config: Config) -> float:
    """Of the copy engine: a run of every row and channel."""
    return config.abreast * config.tile_m * config.rows * config.turns * SENT_RUN_CLOCKS if config.sent else 0.0


def leaving_clocks(config: Config, shape: ConvShape) -> float:
    """Of one team. Of two abreast one may be ahead by a stage, and begin while the other one ends (a fit)."""
    ending = config.laps * (LEAVING_CLOCKS if config.abreast == 1 else 0)
    if config.sent:
        return leaving_instructions(config, shape) / SENT_ISSUE + ending
    if shape.rows is not None:
        return leaving_instructions(config, shape) / OWN_ISSUE + ending
    fetched = config.laps * max(0, stores(config, shape) - NEAR_STORES) * store_instructions(config, shape)
    return (leaving_instructions(config, shape) + FAR_CODE * fetched) / OWN_ISSUE + ending


def idle_clocks(config: Config, leaving: float) -> float:
    """Where weights stream: of the tensor cores, while teams end the laps of a tile. One may be ahead by all places of
    the ring, and multiply alone while the other ends (arithmetic, not measured)."""
    ahead = config.laps * config.streamed * config.place_steps * config.columns / 2 / TENSOR_SHARE
    return min(leaving, max(0.0, 2 * (leaving - ahead)))


def carrying_clocks(config: Config, shape: ConvShape) -> float:
    """Of a crew. Where it has one chunk on its way it waits for it; with two, for half of it at most; and for teams
    abreast always for half (a fit): both teams must be done with a stage before it is filled again."""
    chunks = conv_mma.chunks(config, shape)
    working = carrying_instructions(config, shape) / config.crew_warps / OWN_ISSUE + CARRYING_CLOCKS * chunks
    if config.streamed:
        units = config.octets * conv_mma.pixels(config, shape)
        pieces = math.ceil(units / (32 * config.crew_warps * PIECE))
        return max(working, (working + MEMORY_CLOCKS * pieces * chunks) / 2)
    waited = working + MEMORY_CLOCKS * chunks
    if config.abreast > 1:
        return (working + waited) / 2
    return waited if config.crews == 2 else max(working, waited / 2)


def moved_us(config: Config, shape: ConvShape, device: Device, computing: float) -> float:
    """As conv_mma's; but weights are read once, or stream from L2, and rows that make up one run end once."""
    runs = conv_mma.run_bytes(replace(config, ahead=False), shape) / (config.tile_h if run_vector(config, shape) else 1)
    runs *= RUN_BYTES[config.carriers] / conv_mma.RUN_BYTES[False]
    whole = shape.y_step(2) == config.w_phases  # else lines are written by several phases in turn
    written = shape.epilogue_bytes * (1 if whole else conv_mma.SPREAD[False]) + runs
    moving = (shape.bytes_moved - shape.epilogue_bytes + written) / (device.copy_gbps * conv_mma.STREAM_SHARE) / 1e3
    streaming = steps_per_tile(config, shape) * 2048 * config.abreast if config.streamed else 0.0
    fetched = conv_mma.grid(config, shape) // config.abreast * (conv_mma.fetched_bytes(config, shape) + streaming)
    l2 = fetched / conv_mma.L2_BYTES_PER_US
    packing = 0.0 if shape.constant else LAUNCH_US
    return LAUNCH_US + packing + beside_us(computing, max(moving, l2))
