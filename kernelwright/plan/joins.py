"""A `Graph` comes in; the concatenations whose parts our kernels can write where they belong go out.

cat(parts) then costs nothing: each part is stored straight into its slice of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelwright.ir.nodes import Graph, Map, Node, Opaque
from kernelwright.plan.fuse import ends_of
from kernelwright.plan.steps import contiguous

CAT = "aten.cat.default"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a part lies in the concatenation: from this element on, with the strides of the whole."""

    whole: Opaque
    offset: int


def joins_of(graph: Graph, users: Mapping[Node, Sequence[Node]]) -> dict[Node, Slot]:
    """The slot of every part, for concatenations all of whose parts are made by our kernels and used nowhere else."""
    ends = ends_of(graph)
    slots: dict[Node, Slot] = {}
    for node in graph.nodes():
        if isinstance(node, Opaque) and node.target == CAT and not node.kwargs:
            parts = parts_of(node)
            ours = all(
                isinstance(p, Map) and p.dtype is node.dtype and p not in ends and users[p] == [node] for p in parts
            )
            if ours and len(set(parts)) == len(parts):
                slots |= slots_of(node, parts)
    return slots


def parts_of(node: Opaque) -> tuple[Node, ...]:
    parts = node.args[0]
    assert isinstance(parts, tuple)
    return tuple(part for part in parts if isinstance(part, Node))


def slots_of(node: Opaque, parts: Sequence[Node]) -> dict[Node, Slot]:
    axis = node.args[1] if len(node.args) > 1 else 0
    assert isinstance(axis, int)
    stride = contiguous(node.shape)[axis]
    slots: dict[Node, Slot] = {}
    begin = 0
    for part in parts:
        slots[part] = Slot(node, begin * stride)
        begin += part.shape[axis]
    return slots
