"""Nodes come in; readable, unique names for buffers and kernels go out."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Mapping, Sequence

from kernelwright.ir.nodes import Contract, Conv, Gather, Graph, Input, Map, Node, Opaque, Param, Reduce, Scan, View
from kernelwright.plan.layouts import base_of

# Names the emitted forward() uses itself.
TAKEN = frozenset(
    {
        *(*dir(builtins), "self", "torch", "nn", "F", "ctypes", "inspect", "warnings", "weakref", "load_inline"),
        *("launch", "packed"),
    }
)

# ATen's own names where they would read badly.
SPOKEN: Mapping[str, str] = {
    "_native_batch_norm_legit_functional": "normed",
    "native_dropout": "dropped",
    "layer_norm": "normed",
    "group_norm": "normed",
    "instance_norm": "normed",
    "max_pool1d": "pooled",
    "max_pool2d": "pooled",
    "max_pool3d": "pooled",
    "avg_pool1d": "pooled",
    "avg_pool2d": "pooled",
    "avg_pool3d": "pooled",
    "cat": "joined",
}


class Namer:
    """Hands out names; the second `relu` is `relu_2`."""

    def __init__(self, graph: Graph) -> None:
        arguments = {leaf.name for leaf in graph.inputs} | {scalar.name for scalar in graph.scalars}
        self.taken: set[str] = set(TAKEN) | arguments
        self.outputs = graph.outputs

    def unique(self, wish: str) -> str:
        wish = re.sub(r"\W", "_", wish).strip("_") or "value"
        wish = f"part_{wish}" if wish[0].isdigit() else wish  # of a model that is itself a sequence
        wish = f"{wish}_" if keyword.iskeyword(wish) else wish
        name, number = wish, 1
        while name in self.taken:
            number += 1
            name = f"{wish}_{number}"
        self.taken.add(name)
        return name

    def leaf(self, node: Input | Param) -> str:
        """An argument keeps its name; a parameter is named by its path."""
        return node.name if isinstance(node, Input) else self.unique(node.path.replace(".", "_"))

    def library(self, node: Node) -> str:
        match node:
            case Contract():
                return self.unique("product")
            case Conv():
                return self.unique("conv")
            case Opaque(target):
                operator = target.split(".")[1]
                return self.unique(SPOKEN.get(operator, operator))
        raise AssertionError(f"not a library call: {node}")

    def kernel_result(self, node: Node) -> str:
        """The result of the model is `y`; anything else is named after the last function."""
        if len(self.outputs) == 1 and base_of(self.outputs[0]) is node:
            return self.unique("y")
        if not isinstance(node, (Map, Gather, Reduce, Scan)):
            return self.unique("product")
        return self.unique(spoken(node) if node.fn != "identity" else "copy")

    def joined(self, node: Node) -> str:
        """A concatenation that kernels write: the model's result is `y` here too."""
        return self.unique("y" if len(self.outputs) == 1 and base_of(self.outputs[0]) is node else "joined")

    def view(self, node: Node) -> str:
        return self.unique("dense" if isinstance(node, View) else "table")

    def kernel(self, maps: Sequence[Map | Gather | Reduce | Scan], core: Node | None) -> str:
        """At most the last three functions, in order: add_mul_relu; after a product, gemm_add_mul_relu.

        Of a kernel that reduces: what it reduces by, and the last function: max_exponentials_div, cumsum_relu.
        """
        first = [] if core is None else ["conv" if isinstance(core, Conv) else "gemm"]
        reduced = [spoken(node) for node in maps if isinstance(node, (Reduce, Scan))]
        if reduced:
            ending = [node.fn for node in maps[-1:] if isinstance(node, Map) and node.fn not in ("cast", "identity")]
            return self.unique("_".join([*first, *dict.fromkeys([*reduced[:3], *ending])]) + "_kernel")
        if core is not None:
            return self.unique("_".join([*first, *dict.fromkeys(n.fn for n in maps[-3:])]) + "_kernel")
        functions = [node.fn for node in maps if node.fn not in ("cast", "identity")] or [maps[-1].fn]
        return self.unique("_".join(dict.fromkeys(functions[-3:])) + "_kernel")


def spoken(node: Map | Gather | Reduce | Scan) -> str:
    """The function's name; of a running sum, PyTorch's."""
    return f"cum{node.fn}" if isinstance(node, Scan) else node.fn
