"""Units come in; those in which a product's or convolution's own kernel can reduce its result, joined, go out.

Whole rows: a tile of a convolution has all channels of some pixels, so that what is reduced along the channels is whole
there, and everything that follows can be computed there too. Which tile has room for how many channels, templates say.

Lines: what is reduced along the last axis is whole in a tile that has whole rows of that.

Rows in pieces: what is reduced over space, maybe over images and neighbouring channels too, lies in many tiles; so do
the columns of a product. The kernel keeps what each tile knows of a row and finishes the rows; what sees them again
along the row is left to a kernel of its own.

Windows: what is pooled in windows side by side is whole in a tile that has whole windows. Nothing else may need what is
pooled: places that are in no window are not seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from kernelwright.ir.nodes import Const, Contract, Conv, Graph, Map, Node, Reduce, Reshape, Scan, Shape, Windows, walk
from kernelwright.plan.fuse import ends_of, users_of
from kernelwright.plan.layouts import base_of
from kernelwright.plan.rows import MOST_POINTERS
from kernelwright.plan.units import Unit

CHANNELS = (1,)

Users: TypeAlias = Mapping[Node, Sequence[Node]]


@dataclass(frozen=True, slots=True)
class Pieces:
    """A row of the region is so many neighbouring channels of one image, or of all images, over all of space."""

    channels: int
    all_images: bool


def with_reductions(
    units: Sequence[Unit], graph: Graph, reducing: frozenset[Node], again: frozenset[Node] = frozenset()
) -> list[Unit]:
    """Each product and convolution that is named, together with the first unit that reduces its result. Those that are
    computed `again` are so where the rows are seen once more, in place of being read from memory."""
    if not reducing:
        return list(units)
    position = {node: i for i, node in enumerate(graph.nodes())}
    left = sorted(units, key=lambda unit: unit.position)
    users, ends = users_of(graph), ends_of(graph)
    for core in [unit for unit in left if unit.core in reducing]:
        for rows in left:
            both = [in_order(unit, position) for unit in joined(core, rows, users, ends)]
            if both and pointers(both[0], users, ends) <= MOST_POINTERS:
                both = computed_again(core, both, users, ends) if core.core in again else both
                left = [unit for unit in left if unit not in (core, rows)] + both
                break
    return left


def joined(core: Unit, rows: Unit, users: Users, ends: Set[Node]) -> list[Unit]:
    """The unit that multiplies and reduces, and the one that is left, if any; nothing if they cannot be joined."""
    made = core.core
    assert made is not None
    if not can_be_joined(rows):
        return []
    if isinstance(made, Conv) and pools_result(rows, core):
        return in_windows(core, rows, users, ends)
    if not reduces_result(rows, core):
        return []
    if isinstance(made, Conv) and (is_whole(rows.shape, rows.axes, made) or is_line(rows.shape, rows.axes, made)):
        return [replace(rows, maps=(*core.maps, *rows.maps), core=made)]
    return in_pieces(core, rows) if has_pieces(rows.shape, rows.axes, made) and levels_of(rows) is not None else []


def can_be_joined(rows: Unit) -> bool:
    return bool(rows.axes) and rows.core is None and not any(isinstance(n, Scan) for n in rows.nodes)


def in_order(unit: Unit, position: Mapping[Node, int]) -> Unit:
    return replace(unit, maps=tuple(sorted(dict.fromkeys(unit.maps), key=position.__getitem__)))


def computed_again(core: Unit, both: Sequence[Unit], users: Users, ends: Set[Node]) -> list[Unit]:
    """The second unit with a convolution of its own, if nobody but the two needs the result."""
    made, *rest = both
    conv = core.core
    if not isinstance(conv, Conv) or len(rest) != 1 or any(n.shape != conv.shape for n in rest[0].nodes):
        return list(both)
    inside = {*made.nodes, *rest[0].nodes}
    if any(n in ends or any(user not in inside for user in users[n]) for n in core.nodes):
        return list(both)
    return [made, replace(rest[0], maps=(*core.maps, *rest[0].maps), core=conv)]


# --- what a product's or convolution's kernel can reduce


def has_pieces(shape: Shape, axes: Shape, made: Contract | Conv) -> bool:
    """Whether each tile has a part in rows that it can tell apart: of a product, those along its columns."""
    if isinstance(made, Conv):
        return pieces_of(shape, axes, made) is not None
    return axes == (len(shape) - 1,) and shape[-1] == made.shape[-1]


def is_whole(shape: Shape, axes: Shape, conv: Conv) -> bool:
    return shape == conv.shape and axes == CHANNELS and conv.groups == 1


def is_line(shape: Shape, axes: Shape, conv: Conv) -> bool:
    """Whether a row is one of the last axis of space, and not all of space."""
    return shape == conv.shape and axes == (len(shape) - 1,) and len(shape) > 3


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
    made = core.core
    assert made is not None
    if rows.shape == made.shape:
        return reads_only(rows, core, {x for x in rows.operands if x in core.nodes})
    regrouped = {x for x in rows.operands if isinstance(x, Reshape) and x.x is made and x.shape == rows.shape}
    return not core.maps and reads_only(rows, core, regrouped)


def reads_only(rows: Unit, core: Unit, seen: Set[Node]) -> bool:
    """Whether these are all that the unit reads of what the other makes, and of what is made of that."""
    own = set(rows.nodes)
    others = tuple(x for x in rows.operands if base_of(x) not in own and x not in seen)
    return bool(seen) and set(core.nodes).isdisjoint(walk(others))


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


# --- windows


def pools_result(rows: Unit, core: Unit) -> bool:
    """Whether the unit reduces, to one value each, windows of the result that lie side by side."""
    seen = {x for x in rows.operands if isinstance(x, Windows) and x.x in core.nodes}
    if len({(x.axes, x.window, x.stride, x.dilation) for x in seen}) != 1 or not reads_only(rows, core, seen):
        return False
    window, levels = next(iter(seen)), levels_of(rows)
    if levels is None or any(levels[n] for n in rows.maps if n.shape == rows.shape):
        return False
    assert core.core is not None
    rank = len(core.core.shape)
    side_by_side = window.stride == window.window and set(window.dilation) == {1} and min(window.axes) >= 2
    places = [axis for axis in range(rank, len(rows.shape)) if rows.shape[axis] > 1]
    return side_by_side and rows.shape == window.shape and set(places) <= set(rows.axes) and min(rows.axes) >= rank


def in_windows(core: Unit, rows: Unit, users: Users, ends: Set[Node]) -> list[Unit]:
    """One unit, if nobody else reads what is pooled."""
    window = next(x for x in rows.operands if isinstance(x, Windows) and x.x in core.nodes)
    unit = replace(rows, maps=(*core.maps, *rows.maps), core=core.core, window=window)
    assert core.core is not None
    inside = {*unit.nodes, *(x for x in rows.operands if isinstance(x, Windows))}
    whole = [n for n in unit.nodes if n.shape in (rows.shape, core.core.shape)]
    needed = any(n in ends or any(user not in inside for user in users[n]) for n in whole)
    return [] if needed else [unit]


def window_sizes(window: Windows) -> Shape:
    """Of every axis of space."""
    sizes = dict(zip(window.axes, window.window, strict=True))
    return tuple(sizes.get(axis, 1) for axis in range(2, len(window.x.shape)))


def pointers(unit: Unit, users: Users, ends: Set[Node]) -> int:
    """What the kernel reads beside its core's operands, and what somebody else may read."""
    own = set(unit.nodes)
    loads = {x for n in unit.maps for x in n.operands if base_of(x) not in own and not isinstance(base_of(x), Const)}
    stores = [n for n in unit.nodes if n in ends or any(user not in own for user in users[n])]
    return len(loads) + len(stores)
