"""A chain of views over a buffer comes in; the strides and offset that express it go out, where strides can."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.ir.nodes import Broadcast, Node, Permute, Reshape, Shape, Slice, View
from kernelwright.plan.steps import Buffer, Layout


def base_of(node: Node) -> Node:
    """The value that a chain of views looks at."""
    while isinstance(node, View):
        node = node.x
    return node


def layout_of(node: Node, places: Mapping[Node, Buffer]) -> Layout | None:
    """Where a node's elements lie, through its views down to a buffer; None if strides cannot say it."""
    chain: list[View] = []
    while isinstance(node, View) and node not in places:
        chain.append(node)
        node = node.x
    buffer = places[node]
    layout: Layout | None = Layout(buffer, node.shape, buffer.strides, 0)
    for view in reversed(chain):
        layout = None if layout is None else seen_through(view, layout)
    return layout


def seen_through(view: View, x: Layout) -> Layout | None:
    match view:
        case Permute(_, order):
            return Layout(x.buffer, view.shape, tuple(x.strides[axis] for axis in order), x.offset)
        case Broadcast(_, shape):
            return Layout(x.buffer, shape, broadcast_strides(x, shape), x.offset)
        case Slice(_, start, step, shape):
            offset = x.offset + sum(s * b for s, b in zip(x.strides, start, strict=True))
            strides = tuple(s * k for s, k in zip(x.strides, step, strict=True))
            return Layout(x.buffer, shape, strides, offset)
        case Reshape(_, shape):
            regrouped = reshape_strides(x.shape, x.strides, shape)
            return None if regrouped is None else Layout(x.buffer, shape, regrouped, x.offset)
    raise AssertionError(f"no view: {view}")


def broadcast_strides(x: Layout, shape: Shape) -> Shape:
    lead = len(shape) - len(x.shape)
    pairs = zip(x.shape, x.strides, shape[lead:], strict=True)
    return (0,) * lead + tuple(stride if have == want else 0 for have, stride, want in pairs)


def reshape_strides(old: Shape, strides: Shape, new: Shape) -> Shape | None:
    """The strides of the same memory under another shape: groups of old axes that lie dense are split anew."""
    if 0 in new:
        return (0,) * len(new)
    groups = dense_groups(old, strides)
    result: list[int] = []
    group = 0
    left, stride = groups[0] if groups else (1, 1)
    for extent in reversed(new):
        if extent == 1:
            result.append(0)
            continue
        if left == 1:
            group += 1
            left, stride = groups[group]
        if left % extent:
            return None
        result.append(stride)
        left, stride = left // extent, stride * extent
    return tuple(reversed(result))


def dense_groups(shape: Shape, strides: Shape) -> list[tuple[int, int]]:
    """Runs of axes that one stride walks through, innermost first, as (extent, stride)."""
    groups: list[tuple[int, int]] = []
    for extent, stride in reversed(list(zip(shape, strides, strict=True))):
        if extent == 1:
            continue
        if groups and stride == groups[-1][0] * groups[-1][1]:
            groups[-1] = (groups[-1][0] * extent, groups[-1][1])
        else:
            groups.append((extent, stride))
    return groups
