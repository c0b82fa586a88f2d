"""What a product does that reduces its own rows (gemm_rows.cuh): the bytes its tiles leave, their time, its C++."""

from __future__ import annotations

from kernelwright.device import Device
from kernelwright.kernels.gemm_shape import Gemm, copy_us, lanes_us

__all__ = ["adding_us", "end_of", "finishing_us", "launched", "states_bytes"]

# Of the instructions that a multiprocessor could issue, those that the end of a tile does: eight warps, whose next sum
# waits for the last one.
ISSUED = 0.5


def states_bytes(parts: int, gemm: Gemm) -> int:
    """What is left of rows for the launch that finishes them, by `parts` warps of each; nothing if none are reduced."""
    return gemm.batches * gemm.m * parts * gemm.row_state_bytes


def adding_us(results: int, gemm: Gemm, device: Device) -> float:
    """What it takes a multiprocessor to add so many results to the states of their rows."""
    return gemm.row_flops * results / (lanes_us(device) * ISSUED)


def finishing_us(parts: int, gemm: Gemm, device: Device) -> float:
    """The launch that finishes rows, after states have been written."""
    states = states_bytes(parts, gemm)
    return copy_us(states, states, device) if states else 0.0


def end_of(epilogue: str, parts: int, gemm: Gemm) -> str:
    """The C++ type that a template hands its sums to."""
    return f"kw::gemm_rows::Kept<{epilogue}, {parts}>" if gemm.row_state_bytes else epilogue


def launched(call: str, epilogue: str, parts: int, gemm: Gemm) -> str:
    """The last statements of an entry: the product and, if it reduces, the launch that finishes its rows."""
    if not gemm.row_state_bytes:
        return f"    return {call};"
    sizes = f"{gemm.batches * gemm.m}, {parts}, {states_bytes(parts, gemm)}"
    return f"""\
    const cudaError_t multiplied =
        {call};
    if (multiplied != cudaSuccess) return multiplied;
    return kw::row_pieces::finish<{epilogue}, {sizes}>(*args, stream);"""
