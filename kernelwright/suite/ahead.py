"""A problem comes in before its turn at the GPU; what its tuning would compile is compiled, for the cache to find.

Without this a GPU that everybody waits for would stand idle while compilers run. It needs no GPU: the plan is the one
that the cost model alone prefers, and a kernel that comes out otherwise is compiled in its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from kernelwright.build import build_all, build_cuda_library, compile_cubin
from kernelwright.build.cubin import Cubin
from kernelwright.capture import capture
from kernelwright.device import Device
from kernelwright.generate.generate import launch_of, program_text, source_of
from kernelwright.kernels.pointwise import Config, TileConfig
from kernelwright.load import load
from kernelwright.plan import Kernel, plan
from kernelwright.settings import Settings
from kernelwright.simplify import simplify
from kernelwright.tune.measure import cubin_text
from kernelwright.tune.routes import choose_routes
from kernelwright.tune.tune import NOT_WORTH_TUNING_BYTES, short_list

__all__ = ["builds_of", "compile_ahead"]

# Tuning's budget ends after some kernels: of a network with a hundred layers the first are enough.
MOST_KERNELS = 8

Build = Callable[[], Path | Cubin]


def compile_ahead(path: Path, device: Device, precision: str, settings: Settings) -> int:
    """How many sources were compiled, or found compiled."""
    graph = simplify(capture(load(path)))
    planned = plan(graph, choose_routes(graph, replace(device, present=False), 0.0, settings, precision))
    builds = [
        build
        for kernel in islice(tunable(planned.kernels), MOST_KERNELS)
        for build in builds_of(kernel, device, settings)
    ]
    return len(build_all(builds, settings))


def tunable(kernels: tuple[Kernel, ...]) -> Iterator[Kernel]:
    """The kernels whose configs are measured: large ones, and those with a product or a convolution."""
    return (
        k
        for k in kernels
        if (k.core is not None or k.bytes_moved >= NOT_WORTH_TUNING_BYTES) and 0 not in k.region.shape
    )


def builds_of(kernel: Kernel, device: Device, settings: Settings) -> list[Build]:
    """The builds that measuring this kernel's configs begins with: machine code alone where the launch is tuning's."""
    choices = short_list(kernel, device)
    if all(isinstance(choice, (Config, TileConfig)) for choice in choices):
        sources = [source_of(kernel, choice) for choice in choices]
        return [partial(compile_cubin, cubin_text(source), device.arch, settings) for source in sources]
    launches = [launch_of("run", [kernel], {kernel.name: choice}) for choice in choices]
    return [partial(build_cuda_library, program_text([launch], "cuda"), device.arch, settings) for launch in launches]
