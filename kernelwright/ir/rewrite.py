"""The rewrite engine: a graph and a list of rules in, the graph with every rule applied until none fires out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

from .nodes import Graph, Node

# A rule looks at one node and returns what to put in its place, or None.
Rule = Callable[[Node], Node | None]

# A rule that also needs to know how many times each node is used.
UseRule = Callable[[Node, Counter[Node]], Node | None]

# Far more passes than any graph needs: two rules that undo each other would go on for ever.
MOST_PASSES = 1000


def rewrite(graph: Graph, rules: Sequence[Rule], use_rules: Sequence[UseRule] = ()) -> Graph:
    """The graph after passes from leaves to outputs, each node changed by the first rule that fires, till none does."""
    for _ in range(MOST_PASSES):
        changed = one_pass(graph, rules, use_rules)
        if changed == graph:
            return graph
        graph = changed
    raise RuntimeError("rewrite rules do not settle: two of them undo each other")


def one_pass(graph: Graph, rules: Sequence[Rule], use_rules: Sequence[UseRule]) -> Graph:
    uses = count_uses(graph)
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        current = node.rebuild(tuple(done[operand] for operand in node.operands))
        uses[current] = max(uses[current], uses[node])
        plain = (rule(current) for rule in rules)
        counted = (rule(current, uses) for rule in use_rules)
        done[node] = next((r for r in chain(plain, counted) if r is not None), current)
    return graph.map(lambda n: done[n])


def count_uses(graph: Graph) -> Counter[Node]:
    """How many operands, outputs and updates refer to each node."""
    uses: Counter[Node] = Counter(operand for node in graph.nodes() for operand in node.operands)
    uses.update(graph.outputs)
    uses.update(update.value for update in graph.updates)
    return uses
