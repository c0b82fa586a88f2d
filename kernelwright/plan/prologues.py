"""Units come in; those that compute an operand of one product, element by element, become part of it.

The product's kernel reads one value of the operand's shape from memory, as it would have read the operand, and computes
the operand of it on the way: the operand itself is never stored. What else the functions need is loaded where they are
computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import Broadcast, Const, Contract, Graph, Iota, Map, Node
from kernelwright.plan.fuse import ends_of, users_of
from kernelwright.plan.layouts import base_of, views_between
from kernelwright.plan.products import form_of
from kernelwright.plan.units import Prologue, Unit


def with_prologues(units: Sequence[Unit], graph: Graph, fed: frozenset[Node]) -> list[Unit]:
    """Each product that is named, together with the units that compute its operands and nothing else."""
    if not fed:
        return list(units)
    users, ends = users_of(graph), ends_of(graph)
    left = list(units)
    for unit in units:
        if unit.core not in fed:
            continue
        found = {maker: made for maker in left if (made := prologue_of(maker, unit.core, users, ends)) is not None}
        if found:
            joined = replace(unit, prologues=tuple(found.values()))
            left = [joined if other is unit else other for other in left if other not in found]
    return left


def prologue_of(
    maker: Unit, product: Node | None, users: Mapping[Node, Sequence[Node]], ends: Set[Node]
) -> Prologue | None:
    """What the unit computes, if that is one operand of the product and nobody else sees anything of it."""
    maps = [node for node in maker.maps if isinstance(node, Map)]
    if not isinstance(product, Contract) or maker.core is not None or maker.axes or len(maps) != len(maker.maps):
        return None
    form = form_of(product)
    result = next((node for node in maps if list(users[node]) == [product]), None)
    if form is None or len(form.summed) != 1 or result is None or result.dtype is not float32:
        return None
    inside = set(maps)
    # Single numbers are computed by everyone who needs them.
    seen = [n for n in maps if n is not result and n.shape and (n in ends or any(u not in inside for u in users[n]))]
    given = next((x for node in maps for x in node.args if x not in inside and can_be_read(x, result)), None)
    if seen or result in ends or given is None:
        return None
    return Prologue(result, given, tuple(maps))


def can_be_read(x: Node, result: Node) -> bool:
    """Whether it lies in memory as the operand would have: every element once."""
    base = base_of(x)
    whole = not any(isinstance(view, Broadcast) for view in views_between(x, base))
    return x.shape == result.shape and x.dtype is result.dtype and whole and not isinstance(base, (Const, Iota))
