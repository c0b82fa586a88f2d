"""A simplified `Graph` comes in; a `Plan` goes out: kernels, library calls and buffers, in the order they run."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelwright.ir.nodes import (
    Broadcast,
    Contract,
    Conv,
    Gather,
    Graph,
    Map,
    Node,
    Opaque,
    Pointwise,
    Reshape,
    Update,
    walk,
)
from kernelwright.plan.epilogues import with_epilogues
from kernelwright.plan.fuse import ends_of, fuse, spread_cheap_values, users_of
from kernelwright.plan.indexed import read_by_index
from kernelwright.plan.joins import joins_of, with_copied_parts
from kernelwright.plan.layouts import base_of
from kernelwright.plan.memory import memory_of
from kernelwright.plan.opened import opened
from kernelwright.plan.placement import Placement
from kernelwright.plan.prologues import with_prologues
from kernelwright.plan.resampled import resampled
from kernelwright.plan.routes import LIBRARY_ONLY, Routes
from kernelwright.plan.steps import Plan
from kernelwright.plan.tiles import with_reductions
from kernelwright.plan.units import Unit, made_by


def plan(graph: Graph, routes: Routes = LIBRARY_ONLY) -> Plan:
    """What is fused, in which order it runs, and where every value lies."""
    graph, origins = opened(prepared(graph, routes.resample), routes.own)
    graph, origins = with_epilogues(graph, origins, named(origins, routes.reducing))
    reducing, again = named(origins, routes.reducing), named(origins, routes.again)
    units = with_reductions(units_of(graph, frozenset(origins)), graph, reducing, again)
    units = ordered(with_prologues(units, graph, named(origins, routes.fed)))
    return Placement(graph, units, routes, origins).placed()


def named(origins: Mapping[Node, Node], routed: frozenset[Node]) -> frozenset[Node]:
    """What has become of these contractions."""
    return frozenset(node for node, origin in origins.items() if origin in routed)


def prepared(graph: Graph, resample: bool = True) -> Graph:
    """The graph as it is planned: routes name nodes of this one."""
    whole = with_stable_updates(with_draws_in_order(resampled(graph) if resample else graph))
    return spread_cheap_values(read_by_index(with_copied_parts(whole)))


def with_draws_in_order(graph: Graph) -> Graph:
    """Each random draw waits for the one before, as if it read it: so nothing that needs the later one can share a
    kernel with what the earlier one needs."""
    done: dict[Node, Node] = {}
    last: Node | None = None
    for node in graph.nodes():
        operands = tuple(done[x] for x in node.operands)
        current = node if operands == node.operands else node.rebuild(operands)
        if isinstance(current, Opaque) and current.is_random:
            current = last = replace(current, after=last)
        done[node] = current
    return graph.map(done.__getitem__)


def with_stable_updates(graph: Graph) -> Graph:
    """An updated value that is itself state which is updated is copied first, or a later update would change it."""
    targets = {update.target for update in graph.updates}
    memory = memory_of(graph)
    updates = tuple(
        Update(u.target, Map("identity", (u.value,)) if memory[u.value] & targets else u.value) for u in graph.updates
    )
    return replace(graph, updates=updates)


def units_of(graph: Graph, own: frozenset[Node]) -> list[Unit]:
    position = {node: i for i, node in enumerate(graph.nodes())}
    units: list[Unit] = []
    taken: set[Node] = set()
    users = users_of(graph)
    joined = joins_of(graph, users)
    fused = fuse(graph, own)
    for rows in fused.rows:
        position_of_rows = max(position[n] for n in rows.nodes)
        units.append(Unit(position_of_rows, maps=rows.nodes, shape=rows.shape, axes=rows.axes))
    for group in fused.maps:
        core = core_of(group, graph, own - taken)
        biased = library_bias(group, graph, users) if core is None and group[-1] not in joined else None
        if core is not None:
            taken.add(core)
            units.append(Unit(max(position[n] for n in group), maps=group, core=core))
        elif biased is None:
            units.append(Unit(max(position[n] for n in group), maps=group))
        else:
            call, bias, added = biased
            taken.add(call)
            units.append(Unit(position[added], library=call, bias=bias, biased=added))
    alone = [n for n in graph.nodes() if isinstance(n, (Contract, Conv, Opaque)) and n not in taken]
    for node in alone:
        if isinstance(node, (Contract, Conv)) and node in own:
            units.append(Unit(position[node], core=node))
        else:
            units.append(Unit(position[node], library=node))
    return units


def core_of(group: Sequence[Pointwise], graph: Graph, own: frozenset[Node]) -> Contract | Conv | None:
    """The product or convolution whose epilogue the group can be: it has the group's shape, and nothing else that the
    group needs depends on it. An epilogue reads nothing by index."""
    if any(isinstance(node, Gather) for node in group):
        return None
    shape = group[-1].shape
    inside = set(group)
    operands = [x for node in group for x in node.operands if x not in inside]
    for x in operands:
        if isinstance(x, (Contract, Conv)) and x in own and x.shape == shape:
            others = tuple(y for y in operands if y is not x)
            if x not in set(walk(others)):
                return x
    return None


def library_bias(
    group: Sequence[Pointwise], graph: Graph, users: Mapping[Node, Sequence[Node]]
) -> tuple[Node, Node, Map] | None:
    """The contraction, its bias and their sum, if the group does nothing else: PyTorch does it in the same call."""
    match group:
        case [Map("add", (Contract() | Conv() as core, Broadcast(bias, _))) as added]:
            alone = users[core] == [added] and core not in ends_of(graph)
            vector = bias_vector(core, bias)
            return (core, vector, added) if alone and vector is not None else None
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


def ordered(units: Sequence[Unit]) -> list[Unit]:
    """The units so that each comes after what it needs, and otherwise as forward() has them."""
    maker = {node: unit for unit in units for node in unit.nodes}
    needs: dict[Unit, set[Unit]] = {}
    for unit in units:
        sources = (made_by(base_of(x)) for x in unit.operands)
        needs[unit] = {maker[s] for s in sources if s in maker} - {unit}
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
