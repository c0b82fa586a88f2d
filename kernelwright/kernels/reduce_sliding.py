"""Windows that overlap: the configs of kernels/cuda/reduce_sliding.cuh, which fit, and what each should take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.kernels.pointwise import LAUNCH_US
from kernelwright.kernels.reduce import CLOCK_MHZ, FEW_ELEMENTS, LINE_BYTES, STATIC_SMEM_BYTES, WARP

WORD_BYTES = 16

# Elements of a line's run that a thread has in registers at a time, of all lines together.
MOST_ELEMENTS = 96

# Memory moves so much of what a copy would: expected, not measured.
EXPECTED_SHARE = 0.92

# Of the first cache's lines a clock, what stores by way of shared memory take for each result: expected, not measured.
LINES_A_RESULT = 16 / 128


@dataclass(frozen=True, slots=True)
class Config:
    """CUDA.

    threads   of a block
    lanes     neighbouring results of a thread
    vectors   lines of windows in flight
    """

    threads: int
    lanes: int
    vectors: int


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows over lines of memory: what N neighbouring ones see of a line is a run of N - 1 steps and a window.

    results      in all
    line         of them before memory jumps
    lines        of memory that a window sees
    places       of a window in each of them
    apart        elements from one place to the next
    step         elements from one window to the next
    lead         elements between the start of a word and the first place of a run
    itemsize     bytes of an element
    state_bytes  of one result
    bytes_moved  by the kernel
    """

    results: int
    line: int
    lines: int
    places: int
    apart: int
    step: int
    lead: int
    itemsize: int
    state_bytes: int
    bytes_moved: int

    @property
    def word(self) -> int:
        return WORD_BYTES // self.itemsize

    def run(self, lanes: int) -> int:
        """Elements that are loaded of a line, in whole words."""
        needed = self.lead + (lanes - 1) * self.step + (self.places - 1) * self.apart + 1
        return math.ceil(needed / self.word) * self.word


def why_not(config: Config, work: Sliding, device: Device) -> str | None:
    """The reason a config cannot run this work, in words."""
    if device.kind != "cuda":
        return "a config for a GPU."
    if config.lanes * work.step % work.word:
        return f"runs {config.lanes * work.step} elements apart do not start at words of {work.word}."
    if work.step >= (work.places - 1) * work.apart + 1:
        return "windows that do not overlap have nothing in common."
    if work.lines * work.places > FEW_ELEMENTS:
        return f"a window of {work.lines * work.places} elements is more than is unrolled."
    if config.threads % WARP or config.threads > device.max_threads_per_block:
        return f"{config.threads} threads."
    if config.threads * config.lanes * work.state_bytes > STATIC_SMEM_BYTES:
        return f"the states of {config.threads * config.lanes} results do not fit a block."
    if config.vectors > work.lines or (config.vectors > 1 and config.vectors * work.run(config.lanes) > MOST_ELEMENTS):
        return f"{config.vectors} runs of {work.run(config.lanes)} elements are too many for a thread."
    if work.run(config.lanes) > 2 * MOST_ELEMENTS:
        return f"a run of {work.run(config.lanes)} elements is too long for a thread."
    return None


def configs(work: Sliding, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    candidates = [
        Config(threads, lanes, vectors)
        for threads in (128, 256)
        for lanes in (4, 8)
        for vectors in sorted({1, 2, 4, work.lines})
    ]
    fitting = [c for c in candidates if why_not(c, work, device) is None]
    return tuple(sorted(fitting, key=lambda c: cost_us(c, work, device)))


def cost_us(config: Config, work: Sliding, device: Device) -> float:
    """The longer of what memory and what the first cache takes: a warp's word of a run lies in so many lines."""
    moving = work.bytes_moved / device.copy_gbps / 1e3 / EXPECTED_SHARE
    words = work.lines * work.run(config.lanes) // work.word
    apart = config.lanes * work.step * work.itemsize
    clocks = words * max(1.0, WARP * apart / LINE_BYTES) / (WARP * config.lanes) + LINES_A_RESULT
    fetching = work.results * clocks / (device.multiprocessors * CLOCK_MHZ)
    few = 1.0 + 0.02 * (config.vectors < min(2, work.lines)) + 0.005 * (config.threads != 256)
    return LAUNCH_US + max(moving, fetching) * few


def floor_us(work: Sliding, device: Device) -> float:
    return work.bytes_moved / device.copy_gbps / 1e3
