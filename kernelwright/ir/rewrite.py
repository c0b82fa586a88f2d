"""The rewrite engine: a graph and a list of rules in, the graph with every rule applied until none fires out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from .nodes import Graph, Node

# A rule looks at one node and returns what to put in its place, or None.
Rule = Callable[[Node], Node | None]

# A rule that also needs to know how many times each node is used.
UseRule = Callable[[Node, Counter[Node]], Node | None]

# Far more passes than any graph needs: two rules that undo each other would go on for ever.
MOST_PASSES = 1000


def rewrite(
    graph: Graph, rules: Sequence[Rule], use_rules: Sequence[UseRule] = (), inert: set[Node] | None = None
) -> Graph:
    """The graph after passes from leaves to outputs, each node changed by the first rule that fires, till none does.

    `inert` may hold nodes on which none of these rules fires, and gathers more, to be given to the next call.
    """
    inert = set() if inert is None else inert
    for _ in range(MOST_PASSES):
        changed = one_pass(graph, rules, use_rules, inert)
        if changed == graph:
            return graph
        graph = changed
    raise RuntimeError("rewrite rules do not settle: two of them undo each other")


def one_pass(graph: Graph, rules: Sequence[Rule], use_rules: Sequence[UseRule], inert: set[Node]) -> Graph:
    """Each node changed by the first rule that fires. `inert` gathers the nodes on which no plain rule ever does."""
    uses = count_uses(graph)
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        operands = tuple(done[operand] for operand in node.operands)
        current = node if operands == node.operands else node.rebuild(operands)
        uses[current] = max(uses[current], uses[node])
        result = None if current in inert else first(rule(current) for rule in rules)
        if result is None:
            inert.add(current)
            result = first(rule(current, uses) for rule in use_rules)
        done[node] = current if result is None else result
    return graph.map(lambda n: done[n])


def first(results: Iterable[Node | None]) -> Node | None:
    return next((result for result in results if result is not None), None)


def count_uses(graph: Graph) -> Counter[Node]:
    """How many operands, outputs and updates refer to each node."""
    uses: Counter[Node] = Counter(operand for node in graph.nodes() for operand in node.operands)
    uses.update(graph.outputs)
    uses.update(update.value for update in graph.updates)
    return uses
