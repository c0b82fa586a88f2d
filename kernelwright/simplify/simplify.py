"""A `Graph` comes in; the rules are applied until none fires, and the simpler `Graph` goes out.

Every rule holds for all operands, NaN, infinities and -0.0 included, bit for bit but for what its docstring says. A
NaN's payload, and which of two zeros of unlike sign a minimum, a maximum or a clamp gives, are open in PyTorch too.
Dead code goes because a graph is what its outputs depend on, and common subexpressions because equal nodes are one
object: neither needs a rule. Random draws keep their number and order: no rule drops one, `serial` keeps them apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernelwright.ir.nodes import Broadcast, Contract, Gather, Graph, Map, Node, Opaque, Reduce, Scan, View
from kernelwright.ir.rewrite import Rule, UseRule, first, rewrite
from kernelwright.simplify import (
    algebra,
    casts,
    clamps,
    concatenations,
    constants,
    contractions,
    convolved,
    gathers,
    linear,
    motion,
    pools,
    reductions,
    scaling,
    scans,
    shifts,
    views,
)
from kernelwright.simplify.motion import views_inward
from kernelwright.simplify.ownership import with_copies


def simplify(graph: Graph) -> Graph:
    """The graph with the same values and less to compute; its outputs share memory with nothing they did not before."""
    return simplified(graph)[0]


def simplified(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    """The same, and the rules that made less work of it by algebra, not by bookkeeping, each in words: what a report
    should name."""
    fired: dict[str, None] = {}

    def noting(rule: UseRule) -> UseRule:
        def noted(n: Node, uses: Counter[Node]) -> Node | None:
            result = rule(n, uses)
            if result is not None:
                fired.setdefault(rule.__name__.replace("_", " "))
            return result

        return noted

    rules = [noting(rule) if rule in ALGEBRAIC else rule for rule in USE_RULES]
    return views_inward(with_copies(graph, settled(graph, rules))), tuple(fired)


def settled(graph: Graph, use_rules: Sequence[UseRule]) -> Graph:
    """The graph on which no rule fires and no view moves any more."""
    inert: set[Node] = set()
    while True:
        quiet = rewrite(graph, RULES, use_rules, inert)
        graph = views_inward(quiet)
        if graph == quiet:
            return quiet


def first_of(kind: type[Node], rules: Sequence[Rule]) -> Rule:
    """The first of these rules that fires, tried on one kind of node. A scalar in place of a tensor is spread."""

    def rule(n: Node) -> Node | None:
        result = first(rule(n) for rule in rules) if isinstance(n, kind) else None
        return result if result is None or result.shape == n.shape else Broadcast(result, n.shape)

    return rule


SCALAR_RULES = (*algebra.RULES, *scaling.RULES, *clamps.RULES, *casts.RULES)
RULES: tuple[Rule, ...] = (
    *constants.RULES,
    first_of(Map, (*motion.RULES, *SCALAR_RULES, *scans.MAP_RULES)),
    first_of(View, (*views.RULES, *scans.VIEW_RULES, *concatenations.VIEW_RULES)),
    first_of(Opaque, scans.OPAQUE_RULES),
    first_of(Scan, scans.SCAN_RULES),
    first_of(Contract, contractions.RULES),
    first_of(Reduce, reductions.RULES),
    first_of(Gather, gathers.RULES),
)
ALGEBRAIC: tuple[UseRule, ...] = (
    *linear.USE_RULES,
    *pools.USE_RULES,
    *convolved.USE_RULES,
    *shifts.USE_RULES,
    *reductions.ALGEBRAIC,
)
USE_RULES: tuple[UseRule, ...] = (
    *clamps.USE_RULES,
    *shifts.USE_RULES,
    *linear.USE_RULES,
    *reductions.USE_RULES,
    *pools.USE_RULES,
    *convolved.USE_RULES,
    *concatenations.USE_RULES,
    *pools.MOTION,
)
