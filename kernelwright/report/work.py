"""A `Graph` and a device come in; what is to be computed and moved, and how fast that can be done at best, go out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.ir.nodes import (
    Const,
    Contract,
    Conv,
    Gather,
    Graph,
    Input,
    Map,
    Node,
    Opaque,
    Param,
    Reduce,
    Scan,
    View,
    Windows,
)
from kernelwright.report.row import Work
from kernelwright.tune.ceiling import at_measured_speed

__all__ = ["conv_kind", "flops_of", "operator_name", "work_of"]


@dataclass(frozen=True, slots=True)
class Portrait:
    """What a family is told by.

    flops     arithmetic by kind: gemm, conv, depthwise, conv-transpose
    words     operators left to PyTorch, reductions, scans, windows, and the functions of what was reduced
    scalar    everything ends in one number
    products_of_data   contractions of two tensors that are no weights
    """

    flops: Mapping[str, int]
    words: frozenset[str]
    scalar: bool
    products_of_data: int

    @property
    def main(self) -> str:
        """The kind with the most arithmetic; nothing where there is none."""
        return max(self.flops, key=lambda kind: self.flops[kind]) if self.flops else ""

    def uses(self, *parts: str) -> bool:
        return any(part in word for word in self.words for part in parts)


Test = Callable[[Portrait], bool]

# In this order: the first that fits is the family.
FAMILIES: tuple[tuple[str, Test], ...] = (
    ("recurrent", lambda p: p.uses("lstm", "gru", "rnn_")),
    ("attention", lambda p: p.uses("dot_product") or (p.uses("softmax", "exponentials") and p.products_of_data > 1)),
    ("conv-transpose", lambda p: p.main == "conv-transpose"),
    ("depthwise", lambda p: p.main == "depthwise"),
    ("conv", lambda p: p.main == "conv"),
    ("gemm", lambda p: p.main == "gemm"),
    ("pooling", lambda p: p.uses("pool", "windows")),
    ("scan", lambda p: p.uses("cumsum", "cumprod", "cummax", "logcumsumexp", "scan")),
    ("sort", lambda p: p.uses("sort", "topk", "unique")),
    ("loss", lambda p: p.scalar),
    ("norm", lambda p: p.uses("norm", "deviations", "reduced_sqrt", "reduced_rsqrt")),
    ("softmax", lambda p: p.uses("softmax", "logsumexp", "exponentials")),
    ("reduction", lambda p: p.uses("reduce", "sum", "mean", "amax", "amin", "max", "min", "var", "std", "prod")),
    ("gather", lambda p: p.uses("gather", "index", "embedding", "scatter")),
)


def work_of(graph: Graph, device: Device) -> Work:
    """Bytes that must be moved and arithmetic that must be done; the slower of the two is the floor."""
    portrait = portrait_of(graph)
    moved = needed_bytes(graph)
    memory_us = moved / at_measured_speed(device, moved).copy_gbps / 1e3
    arithmetic_us = sum(flops_of(node) / rate_of(node, device) / 1e6 for node in graph.nodes() if flops_of(node))
    family = next((name for name, fits in FAMILIES if fits(portrait)), "elementwise")
    bound = "memory" if memory_us >= arithmetic_us else "arithmetic"
    return Work(family, sum(portrait.flops.values()), moved, max(memory_us, arithmetic_us), bound)


def portrait_of(graph: Graph) -> Portrait:
    nodes = graph.nodes()
    flops: dict[str, int] = {}
    for node in nodes:
        if count := flops_of(node):
            kind = conv_kind(node) if isinstance(node, Conv) else "gemm"
            flops[kind] = flops.get(kind, 0) + count
    return Portrait(
        flops=flops,
        words=frozenset(word for node in nodes for word in words_of(node)),
        scalar=bool(graph.outputs) and all(node.size == 1 for node in graph.outputs),
        products_of_data=sum(isinstance(n, Contract) and not any(map(is_weight, n.operands)) for n in nodes),
    )


def words_of(node: Node) -> Iterator[str]:
    match node:
        case Opaque():
            yield operator_name(node)
        case Reduce():
            yield from ("reduce", node.fn)
        case Scan():
            yield "scan"
        case Gather():
            yield "gather"
        case Windows():
            yield "windows"
        case Map(fn=fn) if any(isinstance(x, Reduce) for operand in node.operands for x in near(operand)):
            yield f"reduced_{fn}"


def near(node: Node) -> Iterator[Node]:
    """The node and what it was made from by functions of one tensor: a mean is a sum, scaled and shifted."""
    while True:
        yield node
        tensors = [x for x in node.operands if not isinstance(x, (Const, Param))]
        if not isinstance(node, (Map, View)) or len(tensors) != 1:
            return
        node = tensors[0]


def flops_of(node: Node) -> int:
    """A fused multiply-add counts as two; what is not a sum of products counts as nothing."""
    match node:
        case Contract():
            return 2 * math.prod(node.extents.values())
        case Conv():
            # Each input element of a transposed convolution meets the kernel once, as each output of a plain one does.
            positions = math.prod((node.x if node.transposed else node).shape[2:])
            taps = math.prod(node.weight.shape[2:])
            channels_in, channels_out = node.x.shape[1], node.shape[1]
            return 2 * node.shape[0] * positions * taps * channels_in * channels_out // node.groups
        case Opaque() if "scaled_dot_product" in node.target:
            return attention_flops(node)
    return 0


def attention_flops(node: Opaque) -> int:
    """Two products: queries with keys, and what comes of it with values."""
    query, key, value = node.operands[:3]
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    return 2 * pairs * (query.shape[-1] + value.shape[-1])


def rate_of(node: Node, device: Device) -> float:
    """Tflop/s at the accuracy the original has. Products in float32 are three of float16; a convolution may be one,
    since PyTorch's flags let it round its operands to 10 bits."""
    peaks = device.peaks
    dtype = node.operands[0].dtype.name
    by_type = {"float64": peaks.float64, "float16": peaks.float16, "bfloat16": peaks.bfloat16}
    if dtype in by_type:
        return by_type[dtype]
    if device.kind == "cpu":
        return peaks.float32
    return max(peaks.tf32, peaks.float16) if isinstance(node, Conv) else max(peaks.float32, peaks.float16 / 3)


def needed_bytes(graph: Graph) -> int:
    """Every tensor that is used read once, every result written once."""
    read = sum(node.nbytes for node in graph.nodes() if isinstance(node, (Input, Param)))
    written = sum(node.nbytes for node in dict.fromkeys(graph.outputs) if not isinstance(node, (Input, Param)))
    return read + written + sum(update.value.nbytes for update in graph.updates)


def conv_kind(node: Conv) -> str:
    if node.transposed:
        return "conv-transpose"
    return "depthwise" if node.groups > 1 and node.groups == node.x.shape[1] else "conv"


def operator_name(node: Opaque) -> str:
    return node.target.removeprefix("aten.").partition(".")[0]


def is_weight(node: Node) -> bool:
    return any(isinstance(leaf, Param) for leaf in chain_of(node))


def chain_of(node: Node) -> Iterator[Node]:
    """The node, and what it is a view or a cast of, down to a leaf."""
    while True:
        yield node
        if len(node.operands) != 1:
            return
        node = node.operands[0]
