"""A simplified `Graph` comes in; a `Plan` goes out: kernels, library calls and buffers, in the order they run."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from kernelwright.ir.nodes import (
    Broadcast,
    Contract,
    Conv,
    Graph,
    Map,
    Node,
    Opaque,
    Reshape,
    Update,
)
from kernelwright.plan.fuse import draws_of, ends_of, fuse, spread_cheap_values, users_of
from kernelwright.plan.layouts import base_of
from kernelwright.plan.placement import Placement
from kernelwright.plan.steps import Plan
from kernelwright.plan.units import Unit, made_by


def plan(graph: Graph, in_channels_last: frozenset[Node] = frozenset()) -> Plan:
    """What is fused, in which order it runs, and where every value lies.

    `in_channels_last` are the convolutions that PyTorch is to run in that order of memory.
    """
    graph = spread_cheap_values(with_stable_updates(graph))
    units = ordered(graph, units_of(graph))
    return Placement(graph, units, in_channels_last).placed()


def with_stable_updates(graph: Graph) -> Graph:
    """An updated value that is itself state which is updated is copied first, or a later update would change it."""
    targets = {update.target for update in graph.updates}
    updates = tuple(
        Update(u.target, Map("identity", (u.value,)) if base_of(u.value) in targets else u.value) for u in graph.updates
    )
    return replace(graph, updates=updates)


def units_of(graph: Graph) -> list[Unit]:
    position = {node: i for i, node in enumerate(graph.nodes())}
    units: list[Unit] = []
    taken: set[Node] = set()
    for group in fuse(graph):
        biased = library_bias(group, graph)
        if biased is None:
            units.append(Unit(max(position[n] for n in group), maps=group))
        else:
            core, bias = biased
            taken.add(core)
            units.append(Unit(position[group[-1]], library=core, bias=bias, biased=group[-1]))
    alone = [n for n in graph.nodes() if isinstance(n, (Contract, Conv, Opaque)) and n not in taken]
    return units + [Unit(position[node], library=node) for node in alone]


def library_bias(group: Sequence[Map], graph: Graph) -> tuple[Node, Node] | None:
    """The contraction and its bias, if the group does nothing but add that bias: PyTorch does it in the same call."""
    match group:
        case [Map("add", (Contract() | Conv() as core, Broadcast(bias, _)))]:
            alone = users_of(graph)[core] == [group[0]] and core not in ends_of(graph)
            vector = bias_vector(core, bias)
            return (core, vector) if alone and vector is not None else None
    return None


def bias_vector(core: Node, bias: Node) -> Node | None:
    """The bias as PyTorch takes it: one value an output channel."""
    if isinstance(core, Conv):
        column = (core.shape[1], *(1,) * len(core.stride))
        fits = isinstance(bias, Reshape) and bias.shape == column and len(bias.x.shape) == 1
        return bias.x if fits and isinstance(bias, Reshape) else None
    assert isinstance(core, Contract)
    a, b, result = core.labels
    is_linear = len(b) == 2 and a[-1] == b[1] and result == a[:-1] + b[0]
    return bias if is_linear and bias.shape == core.shape[-1:] else None


def ordered(graph: Graph, units: Sequence[Unit]) -> list[Unit]:
    """The units so that each comes after what it needs, and otherwise as forward() has them."""
    maker = {node: unit for unit in units for node in unit.nodes}
    needs: dict[Unit, set[Unit]] = {}
    for unit in units:
        sources = (made_by(base_of(x)) for x in unit.operands)
        needs[unit] = {maker[s] for s in sources if s in maker} - {unit}
    draws = [maker[d] for d in draws_of(graph)]
    for earlier, later in pairwise(draws):
        needs[later].add(earlier)
    waiting: dict[Unit, list[Unit]] = defaultdict(list)
    for unit, required in needs.items():
        for other in required:
            waiting[other].append(unit)
    missing = {unit: len(required) for unit, required in needs.items()}
    number = {unit: i for i, unit in enumerate(units)}
    ready = [(unit.position, number[unit]) for unit in units if not missing[unit]]
    heapq.heapify(ready)
    order: list[Unit] = []
    while ready:
        unit = units[heapq.heappop(ready)[1]]
        order.append(unit)
        for other in waiting[unit]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (other.position, number[other]))
    assert len(order) == len(units), "units wait for each other"
    return order
