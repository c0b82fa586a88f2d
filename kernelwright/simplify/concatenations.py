"""Concatenations: what is cut out of one is cut out of its part, and a Map of one is one of Maps.

Parts that kernels of ours compute are written where they belong, so that a concatenation of Maps costs nothing.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, pairwise

from kernelwright.ir.nodes import Map, Node, Opaque, Shape, Slice, TensorType

CAT = "aten.cat.default"

# Each part is a kernel of its own, unless another has its shape.
MOST_PARTS = 8


def parts_of(n: Node) -> tuple[tuple[Node, ...], int] | None:
    """The parts of a concatenation and the axis they follow each other along; None if it is none, or one that casts."""
    match n:
        case Opaque(target=target, args=((Node(), *_) as parts, *rest), kwargs=()) if target == CAT:
            axis = rest[0] if rest else 0
            nodes = tuple(part for part in parts if isinstance(part, Node))
            assert isinstance(axis, int)
            same = all(part.dtype is n.dtype and len(part.shape) == len(n.shape) for part in nodes)
            return (nodes, axis % len(n.shape)) if same else None
    return None


def edges(parts: tuple[Node, ...], axis: int) -> list[tuple[int, int]]:
    """Where each part begins and ends."""
    return list(pairwise(accumulate((part.shape[axis] for part in parts), initial=0)))


def cut_part(n: Node) -> Node | None:
    """slice(cat(x, y))  ->  slice(y)  where no element is of another part"""
    match n:
        case Slice(x, start, step, shape) if n.size and (found := parts_of(x)) is not None:
            parts, axis = found
            last = start[axis] + step[axis] * (shape[axis] - 1)
            low, high = min(start[axis], last), max(start[axis], last)
            for part, (begin, end) in zip(parts, edges(parts, axis), strict=True):
                if begin <= low and high < end:
                    return Slice(part, with_value(start, axis, start[axis] - begin), step, shape)
    return None


def join_after_map(n: Node, uses: Counter[Node]) -> Node | None:
    """f(cat(x, y), z)  ->  cat(f(x, z[: n]), f(y, z[n :]))  for a concatenation of few parts that nothing else uses"""
    if not isinstance(n, Map) or not n.shape or not n.size:
        return None
    for x in n.args:
        found = parts_of(x) if uses[x] == 1 and x.shape == n.shape else None
        if found is not None and 1 < len(found[0]) <= MOST_PARTS and all(part.size for part in found[0]):
            parts, axis = found
            maps = []
            for part, (begin, end) in zip(parts, edges(parts, axis), strict=True):
                args = (part if a is x else a if not a.shape else cut(a, axis, begin, end) for a in n.args)
                maps.append(Map(n.fn, tuple(args), n.to))
            return Opaque(CAT, (tuple(maps), axis), (), (TensorType(n.shape, n.dtype),))
    return None


def cut(x: Node, axis: int, begin: int, end: int) -> Node:
    rank = len(x.shape)
    return Slice(x, with_value((0,) * rank, axis, begin), (1,) * rank, with_value(x.shape, axis, end - begin))


def with_value(values: Shape, axis: int, value: int) -> Shape:
    return (*values[:axis], value, *values[axis + 1 :])


VIEW_RULES = (cut_part,)
USE_RULES = (join_after_map,)
