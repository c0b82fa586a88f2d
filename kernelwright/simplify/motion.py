"""Views and Maps: a view between two Maps, or a Map and a Reduce, moves out of the way, so that chains stay together.

Each kind of view has one direction, so that no two rules undo each other: Broadcast moves out over Maps, as fewer
elements are then computed; Slice, Permute and Reshape move in under Maps. A Reshape that is *held*, since further in a
value is repeated along only a part of one of its axes, moves out instead: so does what follows a norm over groups.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from kernelwright.ir.nodes import Broadcast, Gather, Graph, Map, Node, Permute, Reduce, Reshape, Shape, Slice, View
from kernelwright.simplify.views import padded, reshaped_source, squeezed, without_leading_ones

# The views that move in under Maps; the fourth, Broadcast, moves out.
INWARD = (Slice, Permute, Reshape)

# Who takes each node as an operand; None stands for the outside, which takes outputs and updated values.
Users: TypeAlias = Mapping[Node, Sequence[Node | None]]


def broadcast_over_map(n: Node) -> Node | None:
    """f(broadcast(x, s), broadcast(y, s))  ->  broadcast(f(x, y), s)  where f is then computed on fewer elements"""
    match n:
        case Map(fn, args, to) if n.shape:
            joint = joint_shape([source_shape(a) for a in args], len(n.shape))
            if math.prod(joint) >= n.size:
                return None
            small = without_leading_ones(joint)
            return Broadcast(Map(fn, tuple(respread(a, small) for a in args), to), n.shape)
    return None


def source_shape(x: Node) -> Shape:
    return x.x.shape if isinstance(x, Broadcast) else x.shape


def joint_shape(shapes: Sequence[Shape], rank: int) -> Shape:
    """The smallest shape that all of them broadcast to."""
    return tuple(max(extents) for extents in zip(*(padded(s, rank) for s in shapes), strict=True))


def respread(x: Node, shape: Shape) -> Node:
    """The source of a Broadcast, spread to a smaller shape; a scalar needs no spreading."""
    source = x.x if isinstance(x, Broadcast) else x
    short = without_leading_ones(source.shape)
    source = source if source.shape == short else Reshape(source, short)
    return source if source.shape in ((), shape) else Broadcast(source, shape)


def scalar_instead_of_broadcast(n: Node) -> Node | None:
    """f(x, broadcast(c : []))  ->  f(x, c): a Map spreads scalars itself"""
    match n:
        case Map(fn, args, to) if any(isinstance(a, Broadcast) and a.x.shape == () for a in args):
            scalars = tuple(a.x if isinstance(a, Broadcast) and a.x.shape == () else a for a in args)
            result = Map(fn, scalars, to)
            return result if result.shape == n.shape else Broadcast(result, n.shape)
    return None


def map_before_reshape(n: Node) -> Node | None:
    """f(reshape(x), y)  ->  reshape(f(x, y in the shape of x))  where the reshape of x is held and y's is not"""
    match n:
        case Map(_, args):
            held = next((a for a in args if isinstance(a, Reshape) and is_held(a.x, a.shape)), None)
            before = None if held is None else in_shape_before(n, held)
            return None if before is None else Reshape(before, n.shape)
    return None


def in_shape_before(n: Map, held: Reshape) -> Map | None:
    """The same Map of operands in the shape that the held one had; None if one of them would be held itself."""
    before = [reshaped_back(a, held) for a in n.args]
    return None if None in before else Map(n.fn, tuple(a for a in before if a is not None), n.to)


def reshaped_back(x: Node, held: Reshape) -> Node | None:
    """The operand in the shape that the held value had; None if it would be held itself."""
    shape = held.x.shape
    match x:
        case Reshape(inner) if inner.shape == shape:
            return inner
        case Broadcast(inner) if x.shape:
            source = reshaped_source(padded(inner.shape, len(x.shape)), x.shape, shape)
            return None if source is None else Broadcast(Reshape(inner, source), shape)
    if not x.shape:
        return x
    return None if is_held(x, shape) else Reshape(x, shape)


def is_held(x: Node, shape: Shape) -> bool:
    """Some value that x is made of, Map by Map, is repeated in a way that this other shape of x cannot say."""
    if not isinstance(x, Map) or not x.size:
        return False
    stack: list[Node] = [x]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen or node.shape != x.shape:
            continue
        seen.add(node)
        if isinstance(node, Broadcast):
            if reshaped_source(padded(node.x.shape, len(node.shape)), node.shape, shape) is None:
                return True
        elif isinstance(node, Map):
            stack.extend(node.args)
    return False


def views_inward(graph: Graph) -> Graph:
    """view(f(x, y))  ->  f(view(x), view(y))  for Slice, Permute and Reshape, wherever that computes nothing twice"""
    while True:
        users = users_of(graph)
        between = views_between_maps(graph, users)
        movable = {n for n in graph.nodes() if may_move(n, users, between)}
        if not movable:
            return graph
        graph = moved(graph, movable)


def moved(graph: Graph, movable: set[Node]) -> Graph:
    """All of them at once, by what they were in this graph: a pass for each would be one for each layer of a model."""
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        operands = tuple(done[x] for x in node.operands)
        current = node if operands == node.operands else node.rebuild(operands)
        may = node in movable and isinstance(current.operands[0], (Map, Gather))
        done[node] = moved_inward(current) if may else current
    return graph.map(lambda n: done[n])


def users_of(graph: Graph) -> Users:
    users: dict[Node, list[Node | None]] = defaultdict(list)
    for node in graph.nodes():
        for operand in node.operands:
            users[operand].append(node)
    for end in (*graph.outputs, *(update.value for update in graph.updates)):
        users[end].append(None)
    return users


def views_between_maps(graph: Graph, users: Users) -> set[Node]:
    """The views that may move in and that only Maps and Reduces read, directly or through further such views.

    A Broadcast counts as a reader where the view only inserts or drops axes of extent 1, for its sake.
    """
    found: set[Node] = set()
    for node in reversed(graph.nodes()):
        readers = (Map, Reduce, Broadcast) if only_changes_ones(node) else (Map, Reduce)
        if isinstance(node, INWARD) and all(isinstance(user, readers) or user in found for user in users[node]):
            found.add(node)
    return found


def only_changes_ones(n: Node) -> bool:
    return isinstance(n, Reshape) and squeezed(n.shape) == squeezed(n.x.shape)


def may_move(n: Node, users: Users, between: set[Node]) -> bool:
    match n:
        case (Slice() | Permute() | Reshape()) as view if isinstance(view.x, Gather) and view.x.shape:
            fits = not isinstance(view, Reshape) or only_changes_ones(view)
            return fits and users[view.x] == [view] and (view in between or isinstance(view, Slice))
        case Slice(Map() as f) if f.shape:
            return users[f] == [n] or (all(user in between for user in users[f]) and are_parts(f, users[f]))
        case (Permute() | Reshape()) as view if isinstance(view.x, Map) and view.x.shape:
            alone = view in between and users[view.x] == [view]
            held = isinstance(view, Reshape) and is_held(view.x, view.shape)
            return alone and not held and all(passes(view, source, users) for source in repeating_sources(view.x))
    return False


def repeating_sources(f: Map) -> list[Shape]:
    """The shapes of what f's operands repeat, as long as f's own."""
    return [padded(a.x.shape, len(a.shape)) for a in f.args if isinstance(a, Broadcast)]


def passes(view: View, source: Shape, users: Users) -> bool:
    """An operand that repeats `source` can be seen through this view and all that follow up to the next Map.

    If one of them could not move, it would stay between the Maps, and moving the others would be in vain.
    """
    seen = seen_through(view, source)
    return seen is not None and all(passes(user, seen, users) for user in users[view] if isinstance(user, View))


def seen_through(view: View, source: Shape) -> Shape | None:
    """The source that view(broadcast(source)) repeats, if it repeats one."""
    match view:
        case Permute(_, order):
            return tuple(source[axis] for axis in order)
        case Slice(_, _, _, shape):
            return tuple(1 if extent == 1 else cut for extent, cut in zip(source, shape, strict=True))
        case Reshape(x, shape) if view.size:
            return reshaped_source(source, x.shape, shape)
    return None


def are_parts(f: Map, users: Sequence[Node | None]) -> bool:
    """Slices that together have no more elements than f: moving them all in adds no work."""
    slices = [user for user in users if isinstance(user, Slice)]
    return len(slices) == len(users) and sum(s.size for s in slices) <= f.size


def moved_inward(n: Node) -> Node:
    (f,) = n.operands
    if isinstance(f, Gather):
        assert isinstance(n, View)
        return gathered_through(n, f) or n
    assert isinstance(f, Map)
    return f.rebuild(tuple(a if a.shape == () else n.rebuild((a,)) for a in f.args))


def gathered_through(view: View, x: Gather) -> Gather | None:
    """view(gather(x, i))  ->  gather(view(x), view(i)); the axes that are picked from stay last"""
    rank, last = len(x.shape), x.extents
    match view:
        case Permute(_, order):
            source: Node = Permute(x.x, (*order, *range(rank, rank + len(last))))
        case Slice(_, start, step, shape):
            source = Slice(x.x, (*start, *(0 for _ in last)), (*step, *(1 for _ in last)), (*shape, *last))
        case Reshape(_, shape):
            source = Reshape(x.x, (*shape, *last))
        case Broadcast(_, shape):
            source = Broadcast(Reshape(x.x, (*padded(x.shape, len(shape)), *last)), (*shape, *last))
        case _:
            return None
    return Gather(source, tuple(i if not i.shape else view.rebuild((i,)) for i in x.indices))


RULES = (broadcast_over_map, scalar_instead_of_broadcast, map_before_reshape)
