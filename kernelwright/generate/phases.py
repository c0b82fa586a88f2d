"""A `Region` that reduces comes in; which walk along the rows computes, finishes and stores what goes out.

A reduction is finished after the walk (phase) in which its operand is known. What is computed from finished rows alone
is one value a row: computed once, as soon as it can be. What is computed from those for every column belongs to a later
phase, where its operands are read or computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kernelwright.ir.nodes import Map, Node, Reduce
from kernelwright.plan import Layout, Region
from kernelwright.plan.layouts import base_of


@dataclass(frozen=True, slots=True)
class Phases:
    """`level` of a value of every column: the first phase that can compute it. Of a row's: how many it must follow.

    region    what is computed
    known     what an operand may be without looking through views: loads and values of the body
    walks     how many phases there are
    delayed   results that take the memory of an operand: stored when nothing is read again
    """

    region: Region
    known: frozenset[Node]
    level: Mapping[Node, int]
    walks: int
    delayed: frozenset[Node]

    @property
    def reduces(self) -> list[Reduce]:
        return [node for node in self.region.body if isinstance(node, Reduce)]

    @property
    def finishing(self) -> int:
        """After so many phases all rows are finished; at most one more follows, which only stores."""
        return max(self.level[node] for node in self.reduces)

    def is_full(self, node: Node) -> bool:
        """Whether it has a value for every column; otherwise one for each row."""
        return is_full(node, self.region)

    def resolved(self, x: Node) -> Node:
        """The value, load or constant that an operand is: views only repeat or reshape a row's value."""
        return x if x in self.known else base_of(x)

    def reduced_in(self, phase: int) -> list[Reduce]:
        return [node for node in self.reduces if self.level[node] == phase + 1]

    def row_values(self, level: int) -> list[Map | Reduce]:
        """What is known of a row after so many phases and not before."""
        known = [node for node in self.region.body if not self.is_full(node) and self.level[node] == level]
        return [node for node in known if isinstance(node, (Map, Reduce))]

    def row_stores(self) -> list[tuple[Node, Layout]]:
        return [(node, layout) for node, layout in self.region.stores if not self.is_full(node)]

    def stores_in(self, phase: int) -> list[tuple[Node, Layout]]:
        """The results of every column that the phase stores: each as soon as it can be, unless it is delayed."""
        full = [(node, layout) for node, layout in self.region.stores if self.is_full(node)]
        return [s for s in full if phase == (self.walks - 1 if s[0] in self.delayed else self.level[s[0]])]

    def roots(self, phase: int) -> list[Node]:
        """What the phase reduces or stores."""
        return [node.x for node in self.reduced_in(phase)] + [node for node, _ in self.stores_in(phase)]

    def computed_in(self, phase: int) -> list[Map]:
        """The values of every column that the phase needs, in order."""
        needed: set[Node] = set()
        pending = self.roots(phase)
        while pending:
            node = self.resolved(pending.pop())
            if node not in needed and isinstance(node, Map) and node in self.level and self.is_full(node):
                needed.add(node)
                pending += node.args
        return [node for node in self.region.body if isinstance(node, Map) and node in needed]

    def operands_in(self, phase: int) -> list[Node]:
        """Everything that the phase computes with: loads, constants, values of the body."""
        operands = [x for node in self.computed_in(phase) for x in node.args]
        return [self.resolved(x) for x in (*operands, *self.roots(phase))]


def phases_of(region: Region, written_over: Collection[str]) -> Phases:
    """`written_over` are the results that take the memory of an operand."""
    loaded = {layout.buffer.name for layout in region.reads}
    known = frozenset([*(node for node, _ in region.loads), *region.body])
    level: dict[Node, int] = {} if region.given is None else {region.given: 0}
    for node in region.body:
        reached = max((level.get(x if x in known else base_of(x), 0) for x in node.operands), default=0)
        level[node] = reached + 1 if isinstance(node, Reduce) else reached
    needed = [level[node] for node in region.body if isinstance(node, Reduce)]
    needed += [level[node] + 1 for node, _ in region.stores if is_full(node, region)]
    taken = {*loaded, *written_over}
    delayed = frozenset(node for node, layout in region.stores if layout.buffer.name in taken)
    return Phases(region, known, level, max(needed), delayed)


def is_full(node: Node, region: Region) -> bool:
    """What is given may be regrouped in the region, or seen through windows: it, and what is made of it before."""
    before = region.given is not None and bool(region.window) and node.shape == region.given.shape
    return node.shape == region.shape or node is region.given or before
