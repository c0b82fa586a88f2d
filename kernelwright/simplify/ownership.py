"""A graph before and after rewriting comes in; the latter goes out, with copies of the outputs that lost their memory.

Rewriting may turn an output that was a tensor of its own into a view of an input or of another output, or into a view
that repeats its elements. The caller would see the difference when writing into it, so such an output is copied by
`identity`, which is the only use of that function in a simplified graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import torch

from kernelwright.ir.interpret import resolve_operator
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Graph,
    Input,
    Iota,
    Item,
    Map,
    Node,
    Opaque,
    Pad,
    Param,
    Slice,
    Table,
    View,
    Windows,
)

NOBODYS = frozenset[Node]()


def with_copies(before: Graph, after: Graph) -> Graph:
    """identity(x) for every output x that shares memory it did not share before."""
    shared_before, shared_after = memory(before), memory(after)
    outputs: list[Node] = []
    returned: list[int] = []
    for i, (old, new) in enumerate(zip(before.outputs, after.outputs, strict=True)):
        leaves = {m for m in shared_after[new] if isinstance(m, (Input, Param))}
        newly_aliased = not leaves <= shared_before[old]
        newly_joined = any(
            shared_after[new] & shared_after[after.outputs[j]]
            and not shared_before[old] & shared_before[before.outputs[j]]
            for j in returned
        )
        if newly_aliased or newly_joined or has_no_memory(new) or (repeats(new) and not repeats(old)):
            copied: Node = Map("identity", (new,))
            while copied in outputs:  # equal nodes are one, and so would be their memory
                copied = Map("identity", (copied,))
            outputs.append(copied)
        else:
            outputs.append(new)
            returned.append(i)
    return replace(after, outputs=tuple(outputs))


def memory(graph: Graph) -> dict[Node, frozenset[Node]]:
    """For every node, the nodes whose memory its value may lie in."""
    found: dict[Node, frozenset[Node]] = {}
    for node in graph.nodes():
        match node:
            case View():
                found[node] = found[node.x]
            case Item(source):
                found[node] = found[source] | {node}
            case Opaque(target) if may_return_an_operand(target):
                found[node] = frozenset({node}).union(*(found[operand] for operand in node.operands))
            case _:
                found[node] = frozenset({node})
    return found


@cache
def may_return_an_operand(target: str) -> bool:
    """By the operator's schema; one that is made of others (dropout, flatten) does not say."""
    overload = resolve_operator(target)
    assert isinstance(overload, torch._ops.OpOverload)
    annotated = any(result.alias_info is not None for result in overload._schema.returns)
    return annotated or overload.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


def chain(n: Node) -> Iterator[Node]:
    """n and what it is a view of, down to the node that is no view."""
    while isinstance(n, View):
        yield n
        n = n.x
    yield n


def has_no_memory(n: Node) -> bool:
    """A view of numbers that stand in the graph, or one with a border: no memory is there to be a view of. Nor does
    PyTorch see memory from its end."""
    *views, last = chain(n)
    return isinstance(last, (Const, Table, Iota)) or any(isinstance(view, Pad) or is_backwards(view) for view in views)


def is_backwards(view: Node) -> bool:
    return isinstance(view, Slice) and any(step < 0 for step in view.step)


def repeats(n: Node) -> bool:
    """Several elements lie in one place of memory."""
    return any(isinstance(view, (Broadcast, Windows)) and view.size > view.x.size for view in chain(n))
