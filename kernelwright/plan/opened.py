"""Calls of PyTorch that kernels of ours compute come in; the products and functions they are made of go out.

A 16-bit linear layer with a bias is captured as one call, because the library adds the bias before it rounds. A kernel
of ours can do the same: its product gives float32 sums, and the bias and the one rounding are its epilogue.
"""

from __future__ import annotations

import string
from collections.abc import Mapping

from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import Broadcast, Contract, Graph, Map, Node, Opaque

LINEAR = "aten.linear.default"
ADDMM = "aten.addmm.default"


def opened(graph: Graph, own: frozenset[Node]) -> tuple[Graph, Mapping[Node, Node]]:
    """The graph with calls that are ours opened, and for each of its products that is ours the node of `own`."""
    done: dict[Node, Node] = {}
    origins: dict[Node, Node] = {}
    for node in graph.nodes():
        operands = tuple(done[x] for x in node.operands)
        current = node if operands == node.operands else node.rebuild(operands)
        product = parts_of(current) if node in own and isinstance(node, Opaque) else None
        if product is not None:
            origins[product] = node
            assert isinstance(current, Opaque)
            done[node] = rounded(with_bias(product, bias_of(current)), current)
        else:
            done[node] = current
            if node in own:
                origins[current] = node
    return graph.map(lambda n: done[n]), origins


def parts_of(node: Node) -> Contract | None:
    """The product inside a call, if it is one that we can open: float32 sums of 16-bit operands."""
    match node:
        case Opaque("aten.linear.default", (Node() as x, Node() as weight, Node()), ()) if is_plain(x, weight):
            rows = string.ascii_lowercase[: len(x.shape) - 1]
            return Contract(x, weight, f"{rows}y,zy->{rows}z", wide=True)
        case Opaque("aten.addmm.default", (Node(), Node() as x, Node() as weight), ()) if is_plain(x, weight):
            return Contract(x, weight, "xy,yz->xz", wide=True)
    return None


def is_plain(x: Node, weight: Node) -> bool:
    return x.dtype.is_reduced_float and x.dtype is weight.dtype and len(weight.shape) == 2 and x.size * weight.size > 0


def bias_of(call: Opaque) -> Node:
    bias = call.args[2] if call.target == LINEAR else call.args[0]
    assert isinstance(bias, Node)
    return bias


def with_bias(product: Contract, bias: Node) -> Node:
    spread = bias if bias.shape in ((), product.shape) else Broadcast(bias, product.shape)
    return Map("add", (product, Map("cast", (spread,), float32)))


def rounded(value: Node, call: Opaque) -> Node:
    return Map("cast", (value,), call.dtype)
