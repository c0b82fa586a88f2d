"""What templates that multiply float16 pairs make before they start (split.cuh): its bytes, its time and its C++."""

from __future__ import annotations

from kernelwright.device import Device
from kernelwright.kernels.gemm_shape import Gemm, Operand, copy_us, rows_are_readable

__all__ = [
    "a_is_copied",
    "operands",
    "pack_entry",
    "packed_bytes",
    "packer",
    "preparation",
    "preparation_us",
    "prepared_bytes",
    "round_up",
    "w_is_packed_each_time",
]

BUFFER_ALIGNMENT_BYTES = 256


def a_is_copied(gemm: Gemm) -> bool:
    """Rows of A cannot be read 16 bytes at a time as they lie: a padded copy is made first."""
    return not rows_are_readable(gemm.a)


def w_is_packed_each_time(gemm: Gemm) -> bool:
    return not gemm.w.constant


# --- memory: the copy of A, then packed W


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def packed_bytes(gemm: Gemm) -> int:
    """Packed W: 4 bytes an element of padded rows, a scale and a maximum for each padded row."""
    return gemm.w_batches * (4 * gemm.n * round_up(gemm.k, 64) + 8 * round_up(gemm.n, 768))


def copy_bytes(gemm: Gemm) -> int:
    """The padded copy of A, if one is made."""
    bytes_of_copy = 4 * gemm.batches * gemm.m * _padded_pitch(gemm) if a_is_copied(gemm) else 0
    return round_up(bytes_of_copy, BUFFER_ALIGNMENT_BYTES)


def prepared_bytes(gemm: Gemm) -> int:
    """Scratch memory of a call for what is made anew each time."""
    packed = packed_bytes(gemm) if w_is_packed_each_time(gemm) else 0
    return copy_bytes(gemm) + round_up(packed, BUFFER_ALIGNMENT_BYTES)


def _padded_pitch(gemm: Gemm) -> int:
    return round_up(gemm.k, 32)


# --- time


def preparation_us(gemm: Gemm, device: Device) -> float:
    """Copying A and packing W, where they are needed in each call."""
    a_bytes, w_bytes = 4 * gemm.batches * gemm.m * gemm.k, 4 * gemm.w_batches * gemm.n * gemm.k
    copying_us = copy_us(a_bytes, a_bytes, device) if a_is_copied(gemm) else 0.0
    return copying_us + (copy_us(2 * w_bytes, w_bytes, device) if w_is_packed_each_time(gemm) else 0.0)


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


def packer(halves: int, gemm: Gemm) -> str:
    """The function that packs W, for its sizes alone: the others are not compiled."""
    sizes = f"{gemm.w.k_pitch}, {gemm.n}, {gemm.k}, {gemm.w_batches}"
    return f"kw::split::pack_by<{halves}, kw::split::way_of({sizes})>"


def preparation(gemm: Gemm) -> str:
    """Statements that make `copied` of `a` and `pairs` of `w` at the start of `workspace`, where they are needed."""
    copying = f"""\
    float* copied = (float*)workspace;
    cudaError_t padded = kw::split::pad<{"true" if gemm.a.k_pitch == 1 else "false"}>(
        a, {_pitches_and_sizes(gemm.a, gemm.m, gemm.k, gemm.batches)}, copied, stream);
    if (padded != cudaSuccess) return padded;
"""
    packing = f"""\
    void* pairs = (char*)workspace + {copy_bytes(gemm)};
    cudaError_t packed = {packer(2, gemm)}(
        (const float*)w, {_pitches_and_sizes(gemm.w, gemm.n, gemm.k, gemm.w_batches)}, pairs, stream);
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
