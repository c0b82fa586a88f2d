"""A matrix multiplication as data: sizes, operands and epilogue in; operations, bytes and the floor in time out."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.device import Device

__all__ = [
    "CACHE_OVER_MEMORY",
    "LAUNCH_US",
    "Gemm",
    "Operand",
    "beside_us",
    "bytes_moved",
    "constants",
    "copy_us",
    "floor_us",
    "is_as_it_lies",
    "lanes_us",
    "making_us",
    "rows_are_readable",
    "stream_us",
]

# A launch that does nothing, until the next kernel can start.
LAUNCH_US = 2.5

# The widest load of the copy engine and of a thread; rows that start off this alignment need a copy or narrow loads.
ROW_ALIGNMENT_BYTES = 16

# What the caches give, over what memory gives (measured on the H200, of rows that each warp reads for itself).
CACHE_OVER_MEMORY = 1.67

ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Operand:
    """A [batches, rows, k] as it lies in memory; pitches in elements, batch_pitch 0 if all batches share it.

    constant   its values change only when weights are loaded: it may be packed ahead
    aligned    its first element lies at a multiple of 16 bytes
    made_by    the C++ struct that computes the operand of what lies there (gemm_prologue.cuh); "": it is the operand
    made_flops instructions of that for one element, roughly
    made_bytes what it loads besides
    """

    dtype: str
    row_pitch: int
    k_pitch: int
    batch_pitch: int
    constant: bool
    aligned: bool = True
    made_by: str = ""
    made_flops: int = 0
    made_bytes: int = 0

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.dtype]


@dataclass(frozen=True, slots=True)
class Gemm:
    """C[b, m, n] = epilogue(sum over k of A[b, m, k] * W[b, n, k]).

    vector          the most neighbours along n that every operand of the epilogue can load or store at once: 4, 2 or 1
    epilogue_bytes  what the epilogue reads and writes in all
    epilogue_flops  its instructions for one element, roughly
    stored          whether it stores something of every element; where it reduces, that may be of rows alone
    row_state_bytes what is kept of a part of a row where the epilogue reduces along n; 0 if it does not
    row_flops       instructions that add one element to that, roughly
    settles         whether sums are rounded to 16 bits before the rest, with no operands but those of columns
    sendable        whether it stores one float32 tensor, whose rows the copy engine can write
    """

    m: int
    n: int
    k: int
    batches: int
    a: Operand
    w: Operand
    vector: int
    epilogue_bytes: int
    epilogue_flops: int = 0
    stored: bool = True
    row_state_bytes: int = 0
    row_flops: int = 0
    settles: bool = False
    sendable: bool = False

    @property
    def flops(self) -> int:
        return 2 * self.batches * self.m * self.n * self.k

    @property
    def w_batches(self) -> int:
        return 1 if self.w.batch_pitch == 0 else self.batches


def is_as_it_lies(gemm: Gemm) -> bool:
    """Whether both operands are what is in memory."""
    return not gemm.a.made_by and not gemm.w.made_by


def rows_are_readable(operand: Operand) -> bool:
    """Whether 16-byte loads and the copy engine can read its rows: k contiguous, every row 16-byte aligned."""
    step = ROW_ALIGNMENT_BYTES // operand.itemsize
    return (
        operand.k_pitch == 1 and operand.aligned and operand.row_pitch % step == 0 and operand.batch_pitch % step == 0
    )


def bytes_moved(gemm: Gemm) -> int:
    """The fewest bytes through device memory: each operand once, and what the epilogue reads and writes."""
    a_batches = 1 if gemm.a.batch_pitch == 0 else gemm.batches
    a = a_batches * gemm.m * gemm.k * gemm.a.itemsize
    w = gemm.w_batches * gemm.n * gemm.k * gemm.w.itemsize
    return a + w + gemm.a.made_bytes + gemm.w.made_bytes + gemm.epilogue_bytes


def floor_us(gemm: Gemm, device: Device, tflops: float) -> float:
    """No kernel that runs at `tflops` and moves these bytes is faster."""
    return max(gemm.flops / tflops / 1e6, bytes_moved(gemm) / device.copy_gbps / 1e3)


def stream_us(gemm: Gemm, device: Device) -> float:
    """Its bytes, as fast as a kernel that also multiplies moves them: measured on the H200."""
    return bytes_moved(gemm) / device.copy_gbps / 1e3 / 0.93


def beside_us(multiplying_us: float, moving_us: float) -> float:
    """Both at once. They get into each other's way where they are about equal: 19% over the longer one (measured)."""
    return float((multiplying_us**4 + moving_us**4) ** 0.25)


def copy_us(bytes_read: float, bytes_written: float, device: Device) -> float:
    """A kernel of its own that only moves data."""
    return LAUNCH_US + (bytes_read + bytes_written) / device.copy_gbps / 1e3


def lanes_us(device: Device) -> float:
    """Instructions of single lanes that a multiprocessor issues in a microsecond."""
    return device.peaks.float32 * 1e6 / 2 / device.multiprocessors


def making_us(operand: Operand, elements: int, whole: int, device: Device) -> float:
    """What a multiprocessor takes to compute so many elements, of `whole` that the operand has, on their way. What is
    loaded for that besides comes from the caches, which serve all multiprocessors."""
    bytes_of_device = operand.made_bytes * elements / whole * device.multiprocessors
    loading_us = bytes_of_device / (device.copy_gbps * CACHE_OVER_MEMORY) / 1e3
    return operand.made_flops * elements / lanes_us(device) + loading_us


def constants(values: dict[str, int | bool]) -> str:
    """The members of a C++ config struct, in order."""
    spelled = {True: "true", False: "false"}
    return "\n".join(
        f"    static constexpr {'bool' if isinstance(value, bool) else 'int'} {name} = "
        f"{spelled[value] if isinstance(value, bool) else value};"
        for name, value in values.items()
    )
