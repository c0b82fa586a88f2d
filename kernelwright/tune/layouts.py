"""A `Graph` and a GPU come in; the convolutions that the library runs faster in channels-last order go out."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

from kernelwright.device import Device
from kernelwright.ir.nodes import Conv, Graph, Node
from kernelwright.plan import Convolution, Kernel
from kernelwright.settings import Settings
from kernelwright.tune.measure import TYPICAL, clock_of, pass_after_us
from kernelwright.tune.store import TuningKey, tuning_store

# Turning the operands around is part of what is measured; the kernel that turns the result back is not. It costs less
# than this share of the convolution.
WORTH_IT = 0.93
ROUNDS = 7
VERSION = "1"


def faster_in_channels_last(graph: Graph, device: Device, budget_s: float, settings: Settings) -> frozenset[Node]:
    """For each 2-d convolution, by measuring both; on a CPU, or a GPU that is not here, none."""
    convs = [n for n in graph.nodes() if isinstance(n, Conv) and len(n.stride) == 2 and not n.transposed]
    if not device.present or device.kind != "cuda":
        return frozenset()
    store = tuning_store(settings)
    deadline = time.monotonic() + budget_s
    chosen = []
    for conv in convs:
        key = TuningKey("conv-layout", geometry_text(conv), device.name, VERSION)
        known = store.get(key)
        if known is None and time.monotonic() < deadline:
            plain, turned = times_us(conv, device)
            better = turned < WORTH_IT * plain
            store.put(key, json.dumps({"channels_last": better}), min(plain, turned))
            known = store.get(key)
        if known is not None and json.loads(known.config)["channels_last"]:
            chosen.append(conv)
    return frozenset(chosen)


def library_conv_us(kernel: Kernel, device: Device) -> float:
    """PyTorch's time for the convolution of a kernel, in the faster order, and for the pass that would follow it."""
    import torch

    assert isinstance(kernel.core, Convolution)
    conv = kernel.core.node
    if device.kind == "cuda" and len(conv.stride) == 2 and not conv.transposed:
        return min(times_us(conv, device)) + pass_after_us(kernel, device)
    dtype = conv.dtype.to_torch()
    x = torch.randn(conv.x.shape, device=device.torch_name).to(dtype)
    weight = torch.randn(conv.weight.shape, device=device.torch_name).to(dtype)
    geometry: Any = (conv.stride, conv.padding, conv.dilation, conv.transposed, conv.output_padding, conv.groups)

    def run() -> None:
        torch.convolution(x, weight, None, *geometry)

    clock = clock_of(device)
    with torch.no_grad():
        for _ in range(2):
            run()
        return TYPICAL[device.kind]([clock(run) for _ in range(ROUNDS)]) + pass_after_us(kernel, device)


def geometry_text(conv: Conv) -> str:
    parts = (conv.x.shape, conv.weight.shape, conv.stride, conv.padding, conv.dilation, conv.groups, conv.dtype.name)
    return " ".join(map(str, parts))


def times_us(conv: Conv, device: Device) -> tuple[float, float]:
    """One call as it is, and one in channels-last order with its operands turned around first."""
    import torch
    import torch.nn.functional as F

    dtype = conv.dtype.to_torch()
    x = torch.randn(conv.x.shape, device=device.torch_name).to(dtype)
    weight = torch.randn(conv.weight.shape, device=device.torch_name).to(dtype)
    geometry: Any = (None, conv.stride, conv.padding, conv.dilation, conv.groups)

    def plain() -> None:
        F.conv2d(x, weight, *geometry)

    def turned() -> None:
        last = torch.channels_last
        F.conv2d(x.contiguous(memory_format=last), weight.contiguous(memory_format=last), *geometry)

    clock = clock_of(device)
    with torch.no_grad():
        for run in (plain, turned, plain, turned):
            run()
        samples = [(clock(plain), clock(turned)) for _ in range(ROUNDS)]
    return statistics.median(p for p, _ in samples), statistics.median(t for _, t in samples)
