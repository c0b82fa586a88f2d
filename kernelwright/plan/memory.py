"""A `Graph` comes in; for each node, the values whose memory it may lie in, goes out."""

from __future__ import annotations

from kernelwright.ir.nodes import Graph, Item, Node, Opaque, View, walk
from kernelwright.simplify.ownership import may_return_an_operand

# Operators whose results are always new memory, so that a later kernel may write over them.
FRESH = frozenset(
    f"aten.{name}"
    for name in [
        "_native_batch_norm_legit_functional.default",
        "layer_norm.default",
        "group_norm.default",
        "instance_norm.default",
        "softmax.int",
        "log_softmax.int",
        "max_pool1d.default",
        "max_pool2d.default",
        "max_pool3d.default",
        "avg_pool1d.default",
        "avg_pool2d.default",
        "avg_pool3d.default",
        "native_dropout.default",
        "cumsum.default",
        "cumprod.default",
    ]
)


def memory_of(graph: Graph) -> dict[Node, frozenset[Node]]:
    """Itself, or what it is a view of; and, of an operator that may return an operand, its operands too."""
    found: dict[Node, frozenset[Node]] = {}
    for node in walk((*graph.roots, *(update.target for update in graph.updates))):
        match node:
            case View():
                found[node] = found[node.x]
            case Item(source):
                found[node] = found[source] | {node}
            case Opaque(target) if target not in FRESH and may_return_an_operand(target):
                found[node] = frozenset({node}).union(*(found[operand] for operand in node.given))
            case _:
                found[node] = frozenset({node})
    return found
