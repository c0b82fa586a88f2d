"""A kernel whose core is a convolution, and a launch of it on random data, come in; whether it may compete goes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernelwright.ir.interpret import MEANING
from kernelwright.ir.nodes import Node, Shape, View, Windows
from kernelwright.plan import Convolution, Kernel, Layout, Region

# Of the largest result. Far above what TF32 rounds and far below what a wrong index does: how accurate a kernel is, the
# judge says; a wrong one must not win because it is fast.
GROSS = 2.0**-6


def is_right(kernel: Kernel, run: Callable[[], None], tensors: Mapping[str, Any]) -> bool:
    """Whether the launch leaves what PyTorch computes from the same tensors. A launch that CUDA refuses does not."""
    import torch

    for _, layout in kernel.region.stores:
        tensors[layout.buffer.name].fill_(-1)
    with torch.no_grad():
        wanted = expected(kernel, tensors)
        try:
            run()
        except RuntimeError:
            return False
        found = [placed(layout, tensors) for _, layout in kernel.region.stores]
        return all(is_close(got, want) for got, want in zip(found, wanted, strict=True))


def expected(kernel: Kernel, tensors: Mapping[str, Any]) -> list[Any]:
    """The results, by the meaning of each node."""
    core, region = kernel.core, kernel.region
    assert isinstance(core, Convolution)
    values: dict[Node, Any] = {node: loaded(node, layout, region, tensors) for node, layout in region.loads}
    values |= {core.node.x: placed(core.x, tensors), core.node.weight: placed(core.weight, tensors)}
    device = values[core.node.x].device
    for node in (core.node, *region.body):
        for operand in node.operands:
            for part in reversed(unknown_in(operand, values)):
                if isinstance(part, Windows):  # what they are of has been seen through them
                    values[part] = values[part.x]
                else:
                    values[part] = MEANING[type(part)](part, values).to(device)
        values[node] = MEANING[type(node)](node, values)
        if node is core.node and region.window:
            values[node] = MEANING[Windows](windows_of(node, region.window), values).reshape(region.shape)
    return [values[node].reshape(layout.shape) for node, layout in region.stores]


def windows_of(given: Node, sizes: Shape) -> Windows:
    """Windows of these sizes side by side. The region may have axes of extent 1 besides."""
    axes = tuple(axis for axis, size in enumerate(sizes, 2) if size > 1)
    window = tuple(size for size in sizes if size > 1)
    return Windows(given, axes, window, window, (1,) * len(axes))


def unknown_in(operand: Node, values: Mapping[Node, Any]) -> list[Node]:
    """A constant, or views of it or of something known, outermost first."""
    chain: list[Node] = []
    while operand not in values:
        chain.append(operand)
        if not isinstance(operand, View):
            break
        operand = operand.x
    return chain


def loaded(node: Node, layout: Layout, region: Region, tensors: Mapping[str, Any]) -> Any:
    """What is one value a row is spread over its row: the first is the value. What is seen through windows stays so."""
    value = placed(layout, tensors)
    seen_through = region.window and region.given is not None and node.shape == region.given.shape
    if layout.shape == node.shape or seen_through:
        return value
    for axis in region.axes if node.size > 1 else range(value.dim()):
        value = value.narrow(axis, 0, 1)
    return value.reshape(node.shape)


def placed(layout: Layout, tensors: Mapping[str, Any]) -> Any:
    return tensors[layout.buffer.name].as_strided(layout.shape, layout.strides, layout.offset)


def is_close(got: Any, wanted: Any) -> bool:
    """Integers and truth values are not compared: where they jump, rounding decides."""
    if not wanted.is_floating_point():
        return True
    largest = float(wanted.abs().max())
    return bool((got.float() - wanted.float()).abs().max() <= GROSS * max(largest, 1e-30))
