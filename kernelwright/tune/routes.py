"""A `Graph` and a device come in; who computes its contractions and convolutions goes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelwright.device import Device
from kernelwright.generate.gemm import ROUNDED
from kernelwright.generate.generate import priced_choices
from kernelwright.ir.nodes import Contract, Graph, Node
from kernelwright.kernels.gemm_shape import ITEMSIZE
from kernelwright.plan import Kernel, Plan, Routes, plan, prepared
from kernelwright.plan.opened import parts_of
from kernelwright.plan.products import form_of
from kernelwright.settings import Settings
from kernelwright.tune.layouts import faster_in_channels_last
from kernelwright.tune.measure import pass_after_us
from kernelwright.tune.tune import Tuned

# A product is ours only if the model expects it to be faster than the library by more than the model may be wrong. In
# 16 bits both run at the tensor cores' rate and differ by the pass that follows, so that less can be wrong.
CLEARLY_FASTER = {"float32": 0.8, "float16": 0.95, "bfloat16": 0.95}

# Where the device is here, what is chosen is measured and given back if it loses: half a chance is worth a trial.
WORTH_A_TRIAL = 1.1

# What the library reaches of the peak of its arithmetic on large products (measured on the H200); small ones take at
# least a launch.
LIBRARY_SHARE = 0.95
LIBRARY_LAUNCH_US = 8.0
# What it reaches of a copy's bandwidth, by the most rows of the shorter side (measured on the H200 at 8192 x 8192).
LIBRARY_BANDWIDTH = {1: 0.65, 16: 0.45, 64: 0.31}


def choose_routes(
    graph: Graph, device: Device, budget_s: float, settings: Settings, precision: str = "reference"
) -> Routes:
    """Products by the cost model; convolutions by measuring, where the device is here.

    In channels-last order the library may compute in TF32 what it would not otherwise: never under `ieee`.
    """
    ready = prepared(graph)
    turned = faster_in_channels_last(ready, device, budget_s, settings) if precision != "ieee" else frozenset[Node]()
    wanted = frozenset(n for n in ready.nodes() if may_be_ours(n, device))
    if not wanted:
        return Routes(frozenset(), turned, precision)
    kernels = plan(graph, Routes(wanted, turned, precision)).kernels
    ours = frozenset(k.core.routed for k in kernels if k.core is not None and promising(k, device))
    return Routes(ours, turned, precision)


def may_be_ours(node: Node, device: Device) -> bool:
    """Whether it is a product, or a call that is one inside, of numbers that some template multiplies."""
    product = node if isinstance(node, Contract) else parts_of(node)
    return device.kind == "cuda" and product is not None and is_multiplied(product)


def is_multiplied(product: Contract) -> bool:
    return product.a.dtype.name in ITEMSIZE and form_of(product) is not None


def promising(kernel: Kernel, device: Device) -> bool:
    """Whether some config fits, and is expected to beat the library and the pass that would follow it."""
    priced = priced_choices(kernel, device)
    if not priced:
        return False
    assert kernel.core is not None
    (ours_us, _), *_ = priced
    margin = WORTH_A_TRIAL if device.present else CLEARLY_FASTER[kernel.core.node.a.dtype.name]
    return ours_us < margin * library_us(kernel, device)


def library_us(kernel: Kernel, device: Device) -> float:
    """What PyTorch should take for the product, and the pass over its result that would follow."""
    core = kernel.core
    assert core is not None
    rates = {"float32": device.peaks.tf32 if core.precision in ROUNDED else device.peaks.float32}
    compute_us = core.flops / (rates.get(core.node.a.dtype.name, device.peaks.float16) * LIBRARY_SHARE) / 1e6
    short = min(core.m, core.n)
    share = next((share for rows, share in LIBRARY_BANDWIDTH.items() if short <= rows), 1.0)
    bytes_us = (core.bytes_read + core.node.nbytes) / device.copy_gbps / 1e3 / share
    return LIBRARY_LAUNCH_US + max(compute_us, bytes_us) + pass_after_us(kernel, device)


def without_losers(routes: Routes, planned: Plan, tuned: Sequence[Tuned]) -> Routes:
    """The routes without products that the library turned out to compute faster."""
    rows = {row.kernel: row for row in tuned}
    losers: set[Node] = set()
    for kernel in planned.kernels:
        row = rows[kernel.name]
        measured = row.library_us is not None and row.median_us is not None
        if kernel.core is not None and measured and not row.median_us <= row.library_us:  # type: ignore[operator]
            losers.add(kernel.core.routed)
    return replace(routes, own=routes.own - losers)
