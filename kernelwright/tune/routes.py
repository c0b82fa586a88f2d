"""A `Graph` and a device come in; who computes its contractions and convolutions goes out."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.device import Device
from kernelwright.generate.gemm import gemm_of
from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import Contract, Graph, Node
from kernelwright.kernels import gemm_sm90
from kernelwright.plan import Kernel, Plan, Routes, plan, prepared
from kernelwright.plan.products import form_of
from kernelwright.settings import Settings
from kernelwright.tune.layouts import faster_in_channels_last
from kernelwright.tune.tune import Tuned

# A product is ours only if the model expects it to be faster than the library by more than the model may be wrong.
CLEARLY_FASTER = 0.8

# What the library reaches of the float32 peak on large products; small ones take at least a launch.
LIBRARY_SHARE = 0.95
LIBRARY_LAUNCH_US = 8.0


def choose_routes(
    graph: Graph, device: Device, budget_s: float, settings: Settings, precision: str = "reference"
) -> Routes:
    """Products by the cost model; convolutions by measuring, where the device is here.

    In channels-last order the library may compute in TF32 what it would not otherwise: never under `ieee`.
    """
    ready = prepared(graph)
    turned = faster_in_channels_last(ready, device, budget_s, settings) if precision != "ieee" else frozenset[Node]()
    wanted = frozenset(n for n in ready.nodes() if isinstance(n, Contract) and may_be_ours(n, device))
    if not wanted:
        return Routes(frozenset(), turned)
    kernels = plan(graph, Routes(wanted, turned)).kernels
    ours = frozenset(k.core.node for k in kernels if k.core is not None and promising(k, device))
    return Routes(ours, turned)


def may_be_ours(node: Contract, device: Device) -> bool:
    return device.arch == "sm_90a" and node.dtype is float32 and form_of(node) is not None


def promising(kernel: Kernel, device: Device) -> bool:
    """Whether some config fits, and is expected to beat the library and the pass that would follow it."""
    gemm = gemm_of(kernel)
    fitting = gemm_sm90.configs(gemm, device)
    if not fitting:
        return False
    compute_us = gemm.flops / (device.peaks.float32 * LIBRARY_SHARE) / 1e6
    library = max(compute_us, kernel.bytes_moved / device.copy_gbps / 1e3)
    return gemm_sm90.cost_us(fitting[0], gemm, device) < CLEARLY_FASTER * (library + LIBRARY_LAUNCH_US)


def without_losers(routes: Routes, planned: Plan, tuned: Sequence[Tuned]) -> Routes:
    """The routes without products that the library turned out to compute faster."""
    rows = {row.kernel: row for row in tuned}
    losers: set[Node] = set()
    for kernel in planned.kernels:
        row = rows[kernel.name]
        measured = row.library_us is not None and row.median_us is not None
        if kernel.core is not None and measured and not row.median_us <= row.library_us:  # type: ignore[operator]
            losers.add(kernel.core.node)
    return Routes(routes.own - losers, routes.in_channels_last)
