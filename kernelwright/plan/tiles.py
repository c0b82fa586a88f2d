"""Units come in; those in which a convolution's own kernel can reduce its result, joined into one, go out.

Whole rows: a tile of a convolution has all channels of some pixels, so that what is reduced along the channels is whole
there, and everything that follows can be computed there too. Which tile has room for how many channels, templates say.

Rows in pieces: what is reduced over space, maybe over images and neighbouring channels too, lies in many tiles. The
convolution's kernel keeps what each tile knows of it and finishes the rows; what sees them again along the row is left
to a kernel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelwright.ir.nodes import Const, Conv, Graph, Map, Node, Reduce, Reshape, Scan, Shape, walk
from kernelwright.plan.fuse import ends_of, users_of
from kernelwright.plan.layouts import base_of
from kernelwright.plan.rows import MOST_POINTERS
from kernelwright.plan.units import Unit

CHANNELS = (1,)


@dataclass(frozen=True, slots=True)
class Pieces:
    """A row of the region is so many neighbouring channels of one image, or of all images, over all of space."""

    channels: int
    all_images: bool


def with_reductions(units: Sequence[Unit], graph: Graph, reducing: frozenset[Node]) -> list[Unit]:
    """Each convolution that is named, together with the first unit that reduces its result."""
    if not reducing:
        return list(units)
    position = {node: i for i, node in enumerate(graph.nodes())}
    left = sorted(units, key=lambda unit: unit.position)
    for core in [unit for unit in left if unit.core in reducing]:
        for rows in [unit for unit in left if reduces_result(unit, core)]:
            both = [in_order(unit, position) for unit in joined(core, rows)]
            if both and pointers(both[0], graph) <= MOST_POINTERS:
                left = [unit for unit in left if unit not in (core, rows)] + both
                break
    return left


def joined(core: Unit, rows: Unit) -> list[Unit]:
    """The unit that convolves and reduces, and the one that is left, if any; nothing if they cannot be joined."""
    assert isinstance(core.core, Conv)
    if is_whole(rows.shape, rows.axes, core.core):
        return [replace(rows, maps=(*core.maps, *rows.maps), core=core.core)]
    if pieces_of(rows.shape, rows.axes, core.core) is None or levels_of(rows) is None:
        return []
    return in_pieces(core, rows)


def in_order(unit: Unit, position: Mapping[Node, int]) -> Unit:
    return replace(unit, maps=tuple(sorted(dict.fromkeys(unit.maps), key=position.__getitem__)))


# --- what a convolution's kernel can reduce


def is_whole(shape: Shape, axes: Shape, conv: Conv) -> bool:
    return shape == conv.shape and axes == CHANNELS and conv.groups == 1


def pieces_of(shape: Shape, axes: Shape, conv: Conv) -> Pieces | None:
    """How a row lies in the convolution's result, whose channels, and whose space, may be grouped otherwise."""
    images, channels, *space = conv.shape
    forms = [(1, 2)] if len(shape) > 3 and shape[1] * shape[2] == channels else []
    for own in [(1,), *forms]:
        first = own[-1] + 1
        fits = shape[0] == images and math.prod(shape[i] for i in own) == channels
        if not fits or math.prod(shape[first:]) != math.prod(space):
            continue
        reduced = [i for i in own if i in axes]
        if set(range(first, len(shape))) <= set(axes) and reduced == list(own[len(own) - len(reduced) :]):
            return Pieces(math.prod(shape[i] for i in reduced), all_images=0 in axes)
    return None


def reduces_result(rows: Unit, core: Unit) -> bool:
    """Whether the unit reduces what the other makes, as it is, and needs nothing else that waits for that."""
    conv = core.core
    if not isinstance(conv, Conv) or not rows.axes or rows.core is not None:
        return False
    if any(isinstance(node, Scan) for node in rows.nodes) or 0 in rows.shape:
        return False
    made, own = set(core.nodes), set(rows.nodes)
    operands = [x for x in rows.operands if base_of(x) not in own]
    seen = [x for x in operands if x in made and rows.shape == conv.shape]
    if not core.maps and rows.shape != conv.shape:
        seen = [x for x in operands if isinstance(x, Reshape) and x.x is conv and x.shape == rows.shape]
    others = tuple(x for x in operands if x not in seen)
    return bool(seen) and made.isdisjoint(walk(others))


# --- rows in pieces


def levels_of(rows: Unit) -> dict[Node, int] | None:
    """0 for what needs no finished row, 1 for what does; None if one reduction needs another."""
    level: dict[Node, int] = {}
    for node in rows.maps:
        reached = max((level.get(base_of(x), 0) for x in node.operands), default=0)
        if isinstance(node, Reduce) and reached:
            return None
        level[node] = reached or int(isinstance(node, Reduce))
    return level


def in_pieces(core: Unit, rows: Unit) -> list[Unit]:
    """What makes the rows and is made of them alone; then what sees them again along the row."""
    level = levels_of(rows)
    assert level is not None
    reduced = set(needed_by([node for node in rows.maps if isinstance(node, Reduce)], rows))
    first = [node for node in rows.maps if node.shape != rows.shape or node in reduced]
    rest = [node for node in rows.maps if node not in first]
    again = [n for n in needed_by(rest, rows) if n in first and not n.shape and not level[n]]  # cheap, and in both
    made = replace(rows, maps=(*core.maps, *first), core=core.core)
    after = Unit(rows.position, maps=tuple(n for n in (*again, *rest) if isinstance(n, Map)))
    return [made, after] if rest else [made]


def needed_by(nodes: Sequence[Node], rows: Unit) -> Iterator[Map | Reduce | Scan]:
    """The nodes and what they need of the unit."""
    return (node for node in walk(tuple(nodes)) if node in rows.maps and isinstance(node, (Map, Reduce, Scan)))


def pointers(unit: Unit, graph: Graph) -> int:
    """What the kernel reads beside its core's operands, and what somebody else may read."""
    own, users, ends = set(unit.nodes), users_of(graph), ends_of(graph)
    loads = {x for n in unit.maps for x in n.operands if base_of(x) not in own and not isinstance(base_of(x), Const)}
    stores = [n for n in unit.nodes if n in ends or any(user not in own for user in users[n])]
    return len(loads) + len(stores)
