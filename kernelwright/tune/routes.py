"""A `Graph` and a device come in; who computes its contractions and convolutions goes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelwright.device import Device
from kernelwright.generate.gemm import ROUNDED
from kernelwright.generate.generate import priced_choices
from kernelwright.ir.nodes import Const, Contract, Conv, Graph, Iota, Node, Reduce
from kernelwright.kernels.gemm_shape import ITEMSIZE
from kernelwright.plan import Convolution, Kernel, Plan, Product, Routes, plan, prepared
from kernelwright.plan.convolutions import why_not_ours
from kernelwright.plan.layouts import base_of
from kernelwright.plan.opened import parts_of
from kernelwright.plan.products import form_of
from kernelwright.settings import Settings
from kernelwright.tune.conv_library import conv_library_us
from kernelwright.tune.joining import Microseconds, faster_joined, is_fed, is_joined, replaced_by, total
from kernelwright.tune.layouts import faster_in_channels_last
from kernelwright.tune.measure import pass_after_us
from kernelwright.tune.tune import Tuned

# A product is ours only if the model expects it to be faster than the library by more than the model may be wrong. In
# 16 bits both run at the tensor cores' rate and differ by the pass that follows, so that less can be wrong.
CLEARLY_FASTER = {"float32": 0.8, "float16": 0.95, "bfloat16": 0.95}

# Where the device is here, what is chosen is measured and given back if it loses: half a chance is worth a trial.
WORTH_A_TRIAL = 1.1

# The same for a contraction that reduces its own result, against the kernels that do it apart. A convolution's tiles
# end in another way then, and how long that takes is an estimate. A product's main loop is the same in both, and what
# is left to compare is passes over its result, of which the model knows the bytes.
JOINED_CLEARLY_FASTER = {Convolution: 0.9, Product: 1.0}
JOINED_WORTH_A_TRIAL = {Convolution: 1.5, Product: 1.1}

# What the library takes besides: with it, a product at the device's peak and then the writing of its result is within
# 15% of what was measured on the H200, from 4096 x 4096 x 16 to 8192 x 8192 x 8192.
LIBRARY_LAUNCH_US = 8.0
# What it reaches of a copy's bandwidth, by the most rows of the shorter side (measured on the H200 at 8192 x 8192).
LIBRARY_BANDWIDTH = {1: 0.65, 16: 0.45, 64: 0.31}

# What templates multiply, by kind of device.
MULTIPLIED = {"cuda": frozenset(ITEMSIZE), "cpu": frozenset({"float32"})}


def choose_routes(
    graph: Graph,
    device: Device,
    budget_s: float,
    settings: Settings,
    precision: str = "reference",
    strict_weights: bool = False,
) -> Routes:
    """Products and convolutions by the cost model; what it prefers is measured later, where the device is here.

    In channels-last order the library may compute in TF32 what it would not otherwise: never under `ieee`.
    """
    resample = device.kind == "cuda"
    ready = prepared(graph, resample)
    precision = "tf32" if precision == "reference" and tf32_in_products() else precision
    turned = faster_in_channels_last(ready, device, budget_s, settings) if precision != "ieee" else frozenset[Node]()
    wanted = frozenset(n for n in ready.nodes() if may_be_ours(n, device))
    if not wanted:
        return Routes(frozenset(), turned, precision, resample=resample)
    every = Routes(wanted, turned, precision, tf32_in_convolutions(), strict_weights, resample=resample)
    ours = frozenset(k.core.routed for k in plan(graph, every).kernels if k.core is not None and promising(k, device))
    return with_fed(with_again(with_joined(replace(every, own=ours), graph, device), graph, device), graph, device)


def with_joined(routes: Routes, graph: Graph, device: Device) -> Routes:
    """The same, with those of our contractions that should reduce their own results, by the cost model."""
    if not any(isinstance(node, Reduce) for node in graph.nodes()):
        return routes
    joined = plan(graph, replace(routes, reducing=routes.own))
    if not any(map(is_joined, joined.kernels)):
        return routes

    def margin(kernel: Kernel) -> float:
        assert kernel.core is not None
        return (JOINED_WORTH_A_TRIAL if device.present else JOINED_CLEARLY_FASTER)[type(kernel.core)]

    known = model_us(device)
    return replace(routes, reducing=faster_joined(joined, plan(graph, routes), known, known, margin, is_joined))


def with_again(routes: Routes, graph: Graph, device: Device) -> Routes:
    """The same, with those of our convolutions that are computed twice, for what is reduced of them and for the rest.
    The cost model decides, by the whole plan: what else stores the result and reads it counts too. A plan of its own
    has only who could save enough of it: of networks with a hundred convolutions nobody has."""
    convs = frozenset(node for node in routes.own if isinstance(node, Conv)) if device.kind == "cuda" else frozenset()
    if not convs:
        return routes
    known, margin = model_us(device), JOINED_CLEARLY_FASTER[Convolution]
    once, twice = plan(graph, routes), plan(graph, replace(routes, reducing=routes.reducing | convs, again=convs))
    once_us = total(map(known, once.kernels))
    for node in sorted(convs, key=lambda n: n.size, reverse=True):
        cores = [k for k in twice.kernels if k.core is not None and k.core.routed is node]
        theirs_us = total(map(known, replaced_by(cores, twice, once))) if len(cores) > 1 else None
        if once_us is None or theirs_us is None or theirs_us < (1 - margin) * once_us:
            continue
        tried = replace(routes, reducing=routes.reducing | {node}, again=routes.again | {node})
        tried_us = total(map(known, plan(graph, tried).kernels))
        if tried_us is not None and tried_us < margin * once_us:
            routes, once_us = tried, tried_us
    return routes


def with_fed(routes: Routes, graph: Graph, device: Device) -> Routes:
    """The same, with those of our products that should compute their operands on the way. The cost model decides, on a
    device that is here too: it weighs bytes that are known against instructions that are counted."""
    fed = plan(graph, replace(routes, fed=routes.own)) if routes.own else None
    if fed is None or not any(map(is_fed, fed.kernels)):
        return routes
    known = model_us(device)
    return replace(routes, fed=faster_joined(fed, plan(graph, routes), known, known, lambda _: 1.0, is_fed))


def model_us(device: Device) -> Microseconds:
    """What the cost model expects of the config that it likes best."""
    return lambda kernel: next((us for us, _ in priced_choices(kernel, device)), None)


def tf32_in_products() -> bool:
    """PyTorch's own flag, as the caller, or the model's file, has set it."""
    import torch

    return torch.get_float32_matmul_precision() != "highest"


def tf32_in_convolutions() -> bool:
    """The same for convolutions."""
    import torch

    return torch.backends.cudnn.allow_tf32


def may_be_ours(node: Node, device: Device) -> bool:
    """Whether it is a product, or a call that is one inside, of numbers that some template multiplies."""
    if isinstance(node, Conv):
        convolved = device.kind == "cuda" or node.dtype.name in MULTIPLIED[device.kind]
        return convolved and why_not_ours(node) is None
    product = node if isinstance(node, Contract) else parts_of(node)
    if product is None or any(isinstance(base_of(x), (Const, Iota)) for x in (product.a, product.b)):
        return False  # nor is there a place in memory where zeros, or an index, could be read
    return product.a.dtype.name in MULTIPLIED[device.kind] and form_of(product) is not None


def promising(kernel: Kernel, device: Device) -> bool:
    """Whether some config fits, and is expected to beat the library and the pass that would follow it."""
    priced = priced_choices(kernel, device)
    if not priced:
        return False
    assert kernel.core is not None
    (ours_us, _), *_ = priced
    margin = WORTH_A_TRIAL if device.present else CLEARLY_FASTER[kernel.core.node.operands[0].dtype.name]
    return ours_us < margin * library_us(kernel, device)


def library_us(kernel: Kernel, device: Device) -> float:
    """What PyTorch should take for the core, and the pass over its result that would follow."""
    core = kernel.core
    if isinstance(core, Convolution):
        return conv_library_us(core, device) + pass_after_us(kernel, device)
    assert isinstance(core, Product)
    rates = {"float32": device.peaks.tf32 if core.precision in ROUNDED else device.peaks.float32}
    compute_us = core.flops / rates.get(core.node.a.dtype.name, device.peaks.float16) / 1e6
    short = min(core.m, core.n)
    share = next((share for rows, share in LIBRARY_BANDWIDTH.items() if short <= rows), 1.0)
    reading_us, writing_us = (n / device.copy_gbps / 1e3 for n in (core.bytes_read, core.node.nbytes))
    product_us = max(compute_us, reading_us / share) + writing_us
    return LIBRARY_LAUNCH_US + product_us + pass_after_us(kernel, device)


def without_losers(routes: Routes, planned: Plan, tuned: Sequence[Tuned], present: bool = False) -> Routes:
    """The routes without what the library turned out to compute faster. On a device that is `present`, convolutions
    that were not measured, or that gave wrong results, are the library's too."""
    rows = {row.kernel: row for row in tuned}
    losers: set[Node] = set()
    for kernel in planned.kernels:
        row = rows[kernel.name]
        measured = row.library_us is not None and row.median_us is not None
        if kernel.core is not None and measured and not row.median_us <= row.library_us:  # type: ignore[operator]
            losers.add(kernel.core.routed)
        if present and isinstance(kernel.core, Convolution) and not measured:
            losers.add(kernel.core.routed)
    own = routes.own - losers
    return replace(routes, own=own, reducing=routes.reducing & own)


def settled(
    routes: Routes, joined: tuple[Plan, Sequence[Tuned]], apart: tuple[Plan, Sequence[Tuned]], present: bool
) -> Routes:
    """What stays of the routes when a plan with joined kernels, and the one without, have both been measured."""
    reducing = faster_joined(
        joined[0], apart[0], measured_us(joined[1]), measured_us(apart[1]), lambda _: 1.0, is_joined
    )
    if_joined, if_apart = (without_losers(routes, made, tuned, present).own for made, tuned in (joined, apart))
    own = frozenset(node for node in routes.own if node in (if_joined if node in reducing else if_apart))
    return replace(routes, own=own, reducing=reducing & own)


def measured_us(tuned: Sequence[Tuned]) -> Microseconds:
    known = {row.kernel: row.median_us for row in tuned}
    return lambda kernel: known[kernel.name]
