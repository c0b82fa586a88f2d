"""Maps of a contraction of ours in another shape than its own come in; the same Maps in its shape go out.

A normalisation by groups reads its operand in a shape of its own, and `simplify` moves that shape in under the Maps
before it, so that they can share the normalisation's kernel. It would compute them twice, for the statistics and for
the result. A contraction of ours computes them once, while its tensor cores work.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.ir.nodes import Broadcast, Const, Graph, Input, Map, Node, Param, Reshape, View
from kernelwright.plan.fuse import users_of
from kernelwright.simplify.motion import in_shape_before


def with_epilogues(
    graph: Graph, origins: Mapping[Node, Node], left_alone: frozenset[Node]
) -> tuple[Graph, dict[Node, Node]]:
    """f(reshape(x), y)  ->  reshape(f(x, y in the shape of x))  where x is such a contraction, or a Map of it, and is
    used in no other shape. Those that are `left_alone` reduce their own results, Maps and all."""
    users = users_of(graph)
    done: dict[Node, Node] = {}
    ours: set[Node] = set()  # contractions and their epilogues, as they are now
    for node in graph.nodes():
        operands = tuple(done[x] for x in node.operands)
        current = node if operands == node.operands else node.rebuild(operands)
        if node in origins and node not in left_alone and all(isinstance(u, Reshape) for u in users[node]):
            ours.add(current)
        elif isinstance(current, Map):
            current = in_shape_of_ours(current, ours) or current
        done[node] = current
    return graph.map(done.__getitem__), {done[node]: routed for node, routed in origins.items()}


def in_shape_of_ours(n: Map, ours: set[Node]) -> Node | None:
    held = next((a for a in n.args if isinstance(a, Reshape) and a.x in ours), None)
    if held is None or not all(a.x in ours if isinstance(a, Reshape) else is_there_before(a) for a in n.args):
        return None
    before = in_shape_before(n, held)
    if before is None:
        return None
    ours.add(before)
    return Reshape(before, n.shape)


def is_there_before(x: Node) -> bool:
    """Made of inputs and parameters, maybe repeated."""
    if isinstance(x, (View, Broadcast)):
        return is_there_before(x.x)
    return isinstance(x, (Const, Input, Param))
