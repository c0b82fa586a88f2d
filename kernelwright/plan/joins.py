"""A `Graph` comes in; the concatenations whose parts our kernels can write where they belong go out.

cat(parts) then costs nothing: each part is stored straight into its slice of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelwright.ir.nodes import Graph, Map, Node, Opaque, Reshape, Shape
from kernelwright.plan.fuse import ends_of, users_of
from kernelwright.plan.steps import contiguous
from kernelwright.simplify.concatenations import MOST_PARTS, edges, parts_of


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a part lies in the concatenation: from this element on, with these of its strides."""

    whole: Opaque
    offset: int
    strides: Shape


def joins_of(graph: Graph, users: Mapping[Node, Sequence[Node]]) -> dict[Node, Slot]:
    """The slot of every part, for concatenations all of whose parts are made by our kernels and used nowhere else."""
    ends = ends_of(graph)
    slots: dict[Node, Slot] = {}
    for node in graph.nodes():
        found = parts_of(node)
        if found is not None and isinstance(node, Opaque):
            parts, axis = found
            makers = [maker_of(part, node, axis, users) for part in parts]
            ours = [maker for maker in makers if maker is not None and maker not in ends]
            if len(set(ours)) == len(parts):
                slots |= slots_of(node, parts, ours, axis)
    return slots


def maker_of(part: Node, whole: Node, axis: int, users: Mapping[Node, Sequence[Node]]) -> Map | None:
    """The Map that can write a part, which nothing else reads: itself, or without the axis that it is stacked along."""
    if users[part] != [whole]:
        return None
    if isinstance(part, Reshape) and part.x.shape == (*part.shape[:axis], *part.shape[axis + 1 :]):
        return part.x if isinstance(part.x, Map) and users[part.x] == [part] else None
    return part if isinstance(part, Map) else None


def slots_of(node: Opaque, parts: Sequence[Node], makers: Sequence[Map], axis: int) -> dict[Node, Slot]:
    strides = contiguous(node.shape)
    without = (*strides[:axis], *strides[axis + 1 :])
    slots: dict[Node, Slot] = {}
    for part, maker, (begin, _) in zip(parts, makers, edges(tuple(parts), axis), strict=True):
        slots[maker] = Slot(node, begin * strides[axis], strides if maker is part else without)
    return slots


def with_copied_parts(graph: Graph) -> Graph:
    """cat(f(x), y)  ->  cat(f(x), identity(y))  so that f(x), too, is written where it belongs

    y is copied either way, and f(x) no more. A concatenation of many parts is left: each copy is a kernel.
    """
    users, ends = users_of(graph), ends_of(graph)
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        operands = tuple(done[x] for x in node.operands)
        found = parts_of(node)
        if found is not None and len(found[0]) <= MOST_PARTS and len(set(found[0])) == len(found[0]):
            parts, axis = found
            makers = [maker_of(part, node, axis, users) for part in parts]
            ours = [maker is not None and maker not in ends for maker in makers]
            if any(ours) and all(part.size for part in parts) and node.dtype.kind != "complex":
                pairs = zip(operands, ours, strict=True)
                operands = tuple(x if is_ours else Map("identity", (x,)) for x, is_ours in pairs)
        done[node] = node if operands == node.operands else node.rebuild(operands)
    return graph.map(lambda n: done[n])
