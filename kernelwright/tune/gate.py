"""A kernel whose core is a convolution, and a launch of it on random data, come in; whether it may compete goes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernelwright.ir.interpret import MEANING, evaluate
from kernelwright.ir.nodes import Node
from kernelwright.plan import Convolution, Kernel, Layout

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
    core = kernel.core
    assert isinstance(core, Convolution)
    values: dict[Node, Any] = {node: placed(layout, tensors) for node, layout in kernel.region.loads}
    values |= {core.node.x: placed(core.x, tensors), core.node.weight: placed(core.weight, tensors)}
    device = values[core.node.x].device
    values[core.node] = MEANING[type(core.node)](core.node, values)
    for node in kernel.region.body:
        for operand in node.operands:
            if operand not in values:  # a constant, maybe spread
                values |= {n: v.to(device) for n, v in evaluate((operand,), {}).items()}
        values[node] = MEANING[type(node)](node, values)
    return [values[node] for node, _ in kernel.region.stores]


def placed(layout: Layout, tensors: Mapping[str, Any]) -> Any:
    return tensors[layout.buffer.name].as_strided(layout.shape, layout.strides, layout.offset)


def is_close(got: Any, wanted: Any) -> bool:
    """Integers and truth values are not compared: where they jump, rounding decides."""
    if not wanted.is_floating_point():
        return True
    largest = float(wanted.abs().max())
    return bool((got.float() - wanted.float()).abs().max() <= GROSS * max(largest, 1e-30))
