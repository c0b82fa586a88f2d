"""What templates that multiply float16 pairs make before they start (split.cuh): its bytes, its time and its C++."""

from __future__ import annotations

import math

from kernelwright.device import Device
from kernelwright.kernels.gemm_shape import Gemm, Operand, copy_us, making_us, rows_are_readable

__all__ = [
    "a_is_copied",
    "can_be_packed_by_panels",
    "copy_bytes",
    "copying_us",
    "made_in_passing",
    "making_in_passing_us",
    "operands",
    "pack_entry",
    "packed_bytes",
    "packer",
    "passed",
    "preparation",
    "preparation_us",
    "prepared_bytes",
    "rate_of_rows",
    "round_up",
    "then",
    "w_is_packed_each_time",
    "way_of",
]

BUFFER_ALIGNMENT_BYTES = 256
# As split.cuh has it: k of a panel, of a row that a warp, four of them or a block hold, and of a part of a longer one.
K_OF_PANEL, K_OF_WARP, K_OF_WARPGROUP, K_OF_BLOCK, K_OF_PART = 512, 1024, 4096, 8192, 16384

# Packing's share of a copy's rate on an H200 where rows lie along k and are held in registers: 35 us of 128 MB.
HELD_RATE = 0.93
# Packing by panels on an H200: 0.6 to 1.0 of a copy's rate at k = 1024 to 4096, 0.55 of it for 1 GB at k = 524288. It
# is taken to be 1 up to here, and to fall in a straight line over the logarithm of k: nobody has measured between.
NEAR_K, FARTHEST_RATE = 8192, 0.55
LOST_BY_DOUBLING = (1 - FARTHEST_RATE) / math.log2(524288 / NEAR_K)


def a_is_copied(gemm: Gemm) -> bool:
    """Rows of A cannot be read 16 bytes at a time as they lie: a padded copy is made first."""
    return not rows_are_readable(gemm.a)


def w_is_packed_each_time(gemm: Gemm) -> bool:
    return not gemm.w.constant


def can_be_packed_by_panels(gemm: Gemm) -> bool:
    """W's rows lie side by side and are packed in each call as they lie: by panels they are read once, else twice."""
    each_time = w_is_packed_each_time(gemm) and not gemm.w.made_by
    return each_time and gemm.w.k_pitch != 1 and gemm.w.row_pitch == 1


def made_in_passing(gemm: Gemm) -> str:
    """The struct that computes A where the product reads it; "" if A is as it lies, or computed where it is copied."""
    return "" if a_is_copied(gemm) else gemm.a.made_by


def passed(prologue: str) -> str:
    """The arguments of a prologue, which are among those of the epilogue, at the end of others."""
    return ", *args" if prologue else ""


# --- memory: the copy of A, then packed W. `panels`: W is packed by panels of k, each with scales of its own


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def packed_bytes(gemm: Gemm, panels: bool = False) -> int:
    """Packed W: 4 bytes an element of padded rows, a scale (for each panel) and a maximum for each padded row."""
    scales = -(-gemm.k // K_OF_PANEL) if panels else 1
    return gemm.w_batches * (4 * gemm.n * round_up(gemm.k, 64) + 4 * (scales + 1) * round_up(gemm.n, 768))


def copy_bytes(gemm: Gemm) -> int:
    """The padded copy of A, if one is made."""
    bytes_of_copy = 4 * gemm.batches * gemm.m * _padded_pitch(gemm) if a_is_copied(gemm) else 0
    return round_up(bytes_of_copy, BUFFER_ALIGNMENT_BYTES)


def prepared_bytes(gemm: Gemm, panels: bool = False) -> int:
    """Scratch memory of a call for what is made anew each time."""
    packed = packed_bytes(gemm, panels) if w_is_packed_each_time(gemm) else 0
    return copy_bytes(gemm) + round_up(packed, BUFFER_ALIGNMENT_BYTES)


def _padded_pitch(gemm: Gemm) -> int:
    return round_up(gemm.k, 32)


# --- time


def preparation_us(gemm: Gemm, device: Device, panels: bool = False) -> float:
    """Copying A and packing W, where they are needed in each call."""
    w_bytes = 4 * gemm.w_batches * gemm.n * gemm.k
    if panels:
        rate = rate_of_rows(gemm.k)
        return copying_us(gemm, device) + copy_us(w_bytes / rate, w_bytes / rate, device)
    if not w_is_packed_each_time(gemm):
        return copying_us(gemm, device)
    if gemm.w.k_pitch == 1 and gemm.k <= K_OF_BLOCK:  # held in registers: read once
        return copying_us(gemm, device) + copy_us(w_bytes / HELD_RATE, w_bytes / HELD_RATE, device)
    return copying_us(gemm, device) + copy_us(2 * w_bytes, w_bytes, device)


def copying_us(gemm: Gemm, device: Device) -> float:
    a_bytes = 4 * gemm.batches * gemm.m * gemm.k
    return copy_us(a_bytes, a_bytes, device) if a_is_copied(gemm) else 0.0


def rate_of_rows(k: int) -> float:
    """What packing by panels reaches of a copy's rate where packed rows are 4 k bytes apart."""
    doublings = max(0.0, math.log2(k / NEAR_K))
    return max(FARTHEST_RATE, 1 - doublings * LOST_BY_DOUBLING)


def making_in_passing_us(gemm: Gemm, elements: int, device: Device) -> float:
    """What a tile takes to compute so many elements of A where it reads them."""
    return making_us(gemm.a, elements, gemm.batches * gemm.m * gemm.k, device) if made_in_passing(gemm) else 0.0


# --- C++


def pack_entry(name: str, gemm: Gemm) -> str:
    """The function that packs W ahead, if it is constant."""
    if not gemm.w.constant:
        return ""
    return f"""\
extern "C" int {name}_pack(const float* w, void* packed, cudaStream_t stream) {{
    return {packer(2, gemm)}(
        w, {_pitches_and_sizes(gemm.w, gemm.n, gemm.k, gemm.w_batches)}, packed, stream);
}}
"""


def packer(halves: int, gemm: Gemm, panels: bool = False) -> str:
    """The function that packs W, in the way for its sizes alone: a file has no other."""
    if panels:
        return f"kw::split::pack_by<{halves}, kw::split::ByPanels>"
    way = way_of(gemm.w.k_pitch, gemm.n, gemm.k, gemm.w_batches)
    return f"kw::split::pack_by<{halves}, {way}{then(gemm.w.made_by)}>"


def way_of(k_pitch: int, rows: int, k: int, batches: int) -> str:
    """How rows are packed, but by panels, which only some kernels can read; split::pack does it the same way."""
    if k_pitch != 1:
        return "kw::split::ByColumns"
    for most, way in ((K_OF_WARP, "ByWarps"), (K_OF_WARPGROUP, "ByWarpgroups"), (K_OF_BLOCK, "ByBlocks")):
        if k <= most:
            return f"kw::split::{way}"
    # 1024 blocks, about eight for each multiprocessor, keep the memory busy; rows have to be worth a second kernel.
    return "kw::split::ByParts" if rows * batches < 1024 and k >= 2 * K_OF_PART else "kw::split::ByRows"


def then(argument: str) -> str:
    """One more template argument, if there is one."""
    return f", {argument}" if argument else ""


def preparation(gemm: Gemm, pack: str) -> str:
    """Statements that make `copied` of `a` and, by `pack`, `pairs` of `w` at the start of `workspace`, if needed."""
    pad = ("pad_rows" if gemm.a.k_pitch == 1 else "pad_columns") + (f"<{gemm.a.made_by}>" if gemm.a.made_by else "")
    copying = f"""\
    float* copied = (float*)workspace;
    cudaError_t padded = kw::split::{pad}(
        a, {_pitches_and_sizes(gemm.a, gemm.m, gemm.k, gemm.batches)}, copied, stream{passed(gemm.a.made_by)});
    if (padded != cudaSuccess) return padded;
"""
    made = passed(gemm.w.made_by)
    packing = f"""\
    void* pairs = (char*)workspace + {copy_bytes(gemm)};
    cudaError_t packed = {pack}(
        (const float*)w, {_pitches_and_sizes(gemm.w, gemm.n, gemm.k, gemm.w_batches)}, pairs, stream{made});
    if (packed != cudaSuccess) return packed;
"""
    return (copying if a_is_copied(gemm) else "") + (packing if w_is_packed_each_time(gemm) else "")


def operands(gemm: Gemm) -> str:
    """The initialiser of Operands: A and its pitches, W, sizes."""
    copied, pitch = a_is_copied(gemm), _padded_pitch(gemm)
    row_pitch, batch_pitch = (pitch, pitch * gemm.m) if copied else (gemm.a.row_pitch, gemm.a.batch_pitch)
    a_name, w_name = "copied" if copied else "a", "pairs" if w_is_packed_each_time(gemm) else "w"
    sizes = f"{gemm.m}, {gemm.n}, {gemm.k}, {gemm.batches}, {gemm.w_batches}"
    return f"{a_name}, {row_pitch}, {batch_pitch}, {w_name}, {sizes}"


def _pitches_and_sizes(operand: Operand, rows: int, k: int, batches: int) -> str:
    return f"{operand.row_pitch}, {operand.k_pitch}, {operand.batch_pitch}, {rows}, {k}, {batches}"
