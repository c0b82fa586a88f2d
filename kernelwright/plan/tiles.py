"""Units come in; those in which a convolution's own kernel can reduce its result, joined into one, go out.

A tile of a convolution has all channels of some pixels. Rows that are reduced along the channels, and nothing else, are
whole there. Which tile has room for how many channels, templates say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelwright.ir.nodes import Const, Conv, Graph, Node, Scan, walk
from kernelwright.plan.fuse import ends_of, users_of
from kernelwright.plan.layouts import base_of
from kernelwright.plan.rows import MOST_POINTERS
from kernelwright.plan.units import Unit

CHANNELS = (1,)


def with_reductions(units: Sequence[Unit], graph: Graph, reducing: frozenset[Node]) -> list[Unit]:
    """Each convolution that is named, together with the first unit that reduces its result in whole rows."""
    if not reducing:
        return list(units)
    position = {node: i for i, node in enumerate(graph.nodes())}
    left = sorted(units, key=lambda unit: unit.position)
    for core in [unit for unit in left if unit.core in reducing]:
        for rows in [unit for unit in left if reduces_whole_rows(unit, core)]:
            both = joined(core, rows, position)
            if pointers(both, graph) <= MOST_POINTERS:
                left = [unit for unit in left if unit not in (core, rows)] + [both]
                break
    return left


def reduces_whole_rows(rows: Unit, core: Unit) -> bool:
    """Whether the unit reduces channels of what the other makes, as it is, and needs nothing that waits for that."""
    conv = core.core
    if not isinstance(conv, Conv) or conv.groups != 1 or rows.shape != conv.shape or rows.axes != CHANNELS:
        return False
    if rows.core is not None or any(isinstance(node, Scan) for node in rows.nodes):
        return False
    made, own = set(core.nodes), set(rows.nodes)
    operands = [x for x in rows.operands if base_of(x) not in own]
    others = tuple(x for x in operands if x not in made)
    return len(others) < len(operands) and made.isdisjoint(walk(others))


def joined(core: Unit, rows: Unit, position: Mapping[Node, int]) -> Unit:
    maps = sorted(dict.fromkeys((*core.maps, *rows.maps)), key=position.__getitem__)
    return replace(rows, maps=tuple(maps), core=core.core)


def pointers(unit: Unit, graph: Graph) -> int:
    """What the kernel reads beside its core's operands, and what somebody else may read."""
    own, users, ends = set(unit.nodes), users_of(graph), ends_of(graph)
    loads = {x for n in unit.maps for x in n.operands if base_of(x) not in own and not isinstance(base_of(x), Const)}
    stores = [n for n in unit.nodes if n in ends or any(user not in own for user in users[n])]
    return len(loads) + len(stores)
