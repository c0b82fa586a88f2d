"""A `Graph` and its row groups come in; the groups of all other Maps that share one kernel go out.

The graph is cut into levels by its barriers: whatever is computed in PyTorch, row groups, and views of what a kernel of
ours computes; what a Gather picks from lies behind one too. A node's level is the most barriers on any way from the
inputs to it. Maps of one level and one shape can share a kernel without ever waiting for each other. Each Map is put on
the latest level its users allow, so that a value is made where it is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Gather,
    Graph,
    Item,
    Map,
    Node,
    Opaque,
    Pointwise,
    Reduce,
    Scan,
    Shape,
    View,
)
from kernelwright.ir.rewrite import rewrite
from kernelwright.ir.scalars import SCALARS
from kernelwright.plan.layouts import base_of
from kernelwright.plan.rows import RowGroup, contracted, row_groups

# Values this small are launched together even when they have nothing in common: a launch costs more than they do.
TINY_ELEMENTS = 4096

# Operands and results of one kernel. CUDA takes 4 KB of arguments; a call with more pointers than this is slow to make.
MOST_POINTERS = 48

# A small value is computed again by each kernel that uses it, instead of by a kernel of its own, up to this cost.
CHEAP_FLOPS = 32


@dataclass(frozen=True, slots=True)
class Fused:
    """Everything that kernels of ours compute, in groups, each in SSA order. Cheap rank-0 Maps stand in every group
    that uses them."""

    maps: tuple[tuple[Pointwise, ...], ...]
    rows: tuple[RowGroup, ...]


def fuse(graph: Graph, own: frozenset[Node] = frozenset()) -> Fused:
    """What shares a kernel. `own` are the products that take Maps as their epilogues."""
    users = users_of(graph)
    rows = row_groups(graph, epilogues(graph, own))
    group_of = {node: group.members for group in rows for node in group.members}
    pieces = list(contracted(graph.nodes(), group_of))
    levels = latest_levels(graph, users, pieces)
    inlined = inlined_values(graph, users) - set(group_of)
    order = {node: i for i, node in enumerate(graph.nodes())}
    families: dict[tuple[int, Shape], list[Pointwise]] = defaultdict(list)
    for node in graph.nodes():
        if isinstance(node, (Map, Gather)) and node not in inlined and node not in group_of:
            families[levels[node], node.shape].append(node)
    parts = [
        part for family in families.values() for whole in together(family, own) for part in before_products(whole, own)
    ]
    groups = [group for part in parts for group in split_by_pointers(part)]
    maps = tuple(tuple(sorted((*inlined_for(group, inlined), *group), key=order.__getitem__)) for group in groups)
    whole = [tuple(sorted((*inlined_for(g.nodes, inlined), *g.nodes), key=order.__getitem__)) for g in rows]
    return Fused(maps, tuple(replace(group, nodes=nodes) for group, nodes in zip(rows, whole, strict=True)))


def epilogues(graph: Graph, own: frozenset[Node]) -> frozenset[Node]:
    """The Maps that a product's kernel can compute before it stores: of its shape, on its level."""
    if not own:
        return frozenset()
    levels = earliest_levels(contracted(graph.nodes(), {}))
    found: set[Node] = set(own)
    for node in graph.nodes():
        if isinstance(node, Map):
            cores = [x for x in node.args if x in found and x.shape == node.shape and levels[x] == levels[node]]
            if cores:
                found.add(node)
    return frozenset(found)


def before_products(part: list[Pointwise], own: frozenset[Node]) -> list[list[Pointwise]]:
    """A product's epilogue reads nothing by index: what it would pick comes from a kernel before it."""
    inside = set(part)
    gathers = [node for node in part if isinstance(node, Gather)]
    if not gathers or not any(x in own for node in part for x in node.operands):
        return [part]
    early: set[Node] = set()
    pending: list[Node] = list(gathers)
    while pending:
        node = pending.pop()
        if node in inside and node not in early:
            early.add(node)
            pending.extend(node.operands)
    if any(x in own for node in early for x in node.operands):
        return [part]
    return [[n for n in part if n in early], [n for n in part if n not in early]]


def users_of(graph: Graph) -> dict[Node, list[Node]]:
    """The nodes that take each node as an operand."""
    users: dict[Node, list[Node]] = defaultdict(list)
    for node in graph.nodes():
        for operand in node.operands:
            users[operand].append(node)
    return users


def ends_of(graph: Graph) -> set[Node]:
    """What must be in memory at the end."""
    return {*graph.outputs, *(update.value for update in graph.updates)}


def is_barrier(node: Node) -> bool:
    """Its operands must be in memory before it starts."""
    if isinstance(node, View):
        return is_computed(node.x)
    return bool(node.operands) and not isinstance(node, (Map, Gather, Item))


def is_computed(node: Node) -> bool:
    """By a kernel of ours."""
    return isinstance(node, (Map, Gather, Reduce, Scan))


def crosses(user: Node, x: Node) -> bool:
    """Between x and this user of it lies a barrier. A draw that only waits for x does not look at it."""
    if isinstance(user, Opaque) and x not in user.given:
        return False
    return is_barrier(user) or (isinstance(user, Gather) and user.x is x and is_computed(x))


def earliest_levels(pieces: Iterable[frozenset[Node]]) -> dict[Node, int]:
    """The most barriers on any way to each node, itself included. A row group is one barrier."""
    levels: dict[Node, int] = {}
    for piece in pieces:
        grouped = len(piece) > 1
        edges = [(node, x) for node in piece for x in node.operands if x not in piece]
        reached = max((levels[x] + (grouped or crosses(node, x)) for node, x in edges), default=int(grouped))
        for node in piece:
            levels[node] = reached
    return levels


def latest_levels(
    graph: Graph, users: Mapping[Node, Sequence[Node]], pieces: Sequence[frozenset[Node]]
) -> dict[Node, int]:
    """Maps moved to the latest level that their users allow; barriers and what they look at stay."""
    levels = earliest_levels(pieces)
    ends = ends_of(graph)
    grouped = {node for piece in pieces if len(piece) > 1 for node in piece}
    for piece in reversed(pieces):
        (node, *others) = piece
        if isinstance(node, (Map, Gather)) and node not in ends and not others:
            limits = [levels[u] - (u in grouped or crosses(u, node)) for u in users[node]]
            levels[node] = max(levels[node], min(limits, default=levels[node]))
    return levels


def inlined_values(graph: Graph, users: Mapping[Node, Sequence[Node]]) -> set[Node]:
    """Cheap rank-0 values that only kernels of ours use, and some of them on larger shapes: directly, or inlined."""
    ends = ends_of(graph)
    inlined: set[Node] = set()
    for node in reversed(graph.nodes()):
        if not isinstance(node, Map) or node.shape or node in ends or flops_of(node) > CHEAP_FLOPS:
            continue
        if all(isinstance(u, Map) for u in users[node]) and any(u.shape or u in inlined for u in users[node]):
            inlined.add(node)
    return inlined


def inlined_for(group: Sequence[Node], inlined: set[Node]) -> tuple[Map, ...]:
    """The inlined values that the group needs."""
    needed: dict[Map, None] = {}
    for node in group:
        for x in inlined_under(node, inlined):
            needed.setdefault(x)
    return tuple(needed)


def inlined_under(node: Node, inlined: set[Node]) -> Iterator[Map]:
    for x in node.operands:
        if x in inlined and isinstance(x, Map):
            yield from inlined_under(x, inlined)
            yield x


def together(family: Sequence[Pointwise], own: frozenset[Node]) -> list[list[Pointwise]]:
    """The family cut into parts that share no value. If it is tiny, all of it but the epilogues, each of which has a
    kernel already."""
    parts = connected(family)
    if family[0].size > TINY_ELEMENTS:
        return parts
    after = [part for part in parts if any(x in own for node in part for x in node.operands)]
    rest = {node for part in parts if part not in after for node in part}
    return [*after, *([[node for node in family if node in rest]] if rest else [])]


def connected(family: Sequence[Pointwise]) -> list[list[Pointwise]]:
    part_of: dict[Node, list[Pointwise]] = {}
    for node in family:
        values = [node, *(base_of(x) for x in node.operands if not isinstance(x, Const))]
        met = {id(part_of[v]): part_of[v] for v in values if v in part_of}
        merged = [n for part in met.values() for n in part] + [node]
        for member in merged:
            for v in (member, *(base_of(x) for x in member.operands if not isinstance(x, Const))):
                part_of[v] = merged
    parts = {id(part_of[n]): part_of[n] for n in family}
    order = {n: i for i, n in enumerate(family)}
    return [sorted(part, key=order.__getitem__) for part in parts.values()]


def split_by_pointers(part: Sequence[Pointwise]) -> list[tuple[Pointwise, ...]]:
    """Pieces of the part, in order, each with few enough operands; one piece nearly always."""
    pieces: list[tuple[Pointwise, ...]] = []
    piece: list[Pointwise] = []
    for node in part:
        if piece and len(pointers([*piece, node])) > MOST_POINTERS:
            pieces.append(tuple(piece))
            piece = []
        piece.append(node)
    return [*pieces, tuple(piece)]


def pointers(piece: Sequence[Pointwise]) -> set[Node]:
    """What is loaded from outside, and the results that nothing inside uses."""
    inside = set(piece)
    loads = {x for node in piece for x in node.operands if not isinstance(x, Const) and x not in inside}
    return loads | (inside - {x for node in piece for x in node.operands})


def spread_cheap_values(graph: Graph) -> Graph:
    """broadcast(map f xs)  ->  map f (broadcast xs), where that spares a kernel for a small, cheap value

    It holds because f works element by element. A value that something else uses too is made anyway, and stays.
    """
    while True:
        users, ends = users_of(graph), ends_of(graph)
        spared: set[Node] = {
            n
            for n in graph.nodes()
            if isinstance(n, Map)
            and n not in ends
            and all(isinstance(u, Broadcast) for u in users[n])
            and flops_of(n) <= CHEAP_FLOPS
            and not is_of_rows(n)
        }

        def rule(node: Node, spared: set[Node] = spared) -> Node | None:
            if not (isinstance(node, Broadcast) and isinstance(node.x, Map) and node.x in spared):
                return None
            args = node.x.args
            # A Map spreads its rank-0 operands itself, to the shape of the others: one of them must have it.
            spread = [x if x.shape == () and node.x.shape else Broadcast(x, node.shape) for x in args]
            return Map(node.x.fn, tuple(spread), node.x.to)

        changed = rewrite(graph, [rule])
        if changed == graph:
            return graph
        graph = changed


def is_of_rows(node: Node) -> bool:
    """Computed from a finished reduction, once a row in the kernel that reduced it; or read by index, in a kernel that
    is needed anyway."""
    stack, seen = [node], set[Node]()
    while stack:
        current = stack.pop()
        if isinstance(current, (Reduce, Gather)):
            return True
        if isinstance(current, (Map, View)) and current not in seen:
            seen.add(current)
            stack.extend(current.operands)
    return False


def flops_of(node: Node) -> int:
    """The cost of one element, through every Map and view down to what is loaded."""
    total = 0
    stack, seen = [node], set[Node]()
    while stack:
        current = stack.pop()
        if current in seen or not isinstance(current, (Map, View)):
            continue
        seen.add(current)
        total += SCALARS[current.fn].flops if isinstance(current, Map) else 0
        stack.extend(current.operands)
    return total
