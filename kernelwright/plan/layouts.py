"""A chain of views over a buffer comes in; the strides, offset and guards that express it go out, where they can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelwright.ir.nodes import Broadcast, Gather, Iota, Node, Pad, Permute, Reshape, Shape, Slice, View, Windows
from kernelwright.plan.steps import Buffer, Guard, Layout


def base_of(node: Node) -> Node:
    """The value that a chain of views looks at."""
    while isinstance(node, View):
        node = node.x
    return node


def layout_of(node: Node, places: Mapping[Node, Buffer]) -> Layout | None:
    """Where a node's elements lie, through its views down to a buffer, all of them in memory none from its end; None
    if such strides cannot say it."""
    layout = guarded_layout(node, places)
    if isinstance(layout, View) or isinstance(layout.buffer.source, Iota):
        return None
    return layout if layout.is_plain else None


def guarded_layout(node: Node, places: Mapping[Node, Buffer]) -> Layout | View:
    """Where a node's elements lie, and where there are none; or the innermost of its views that strides and guards
    cannot express."""
    chain, base = views_of(node, places)
    layout = Layout(places[base], base.shape, places[base].strides, 0)
    for view in chain:
        seen = seen_through(view, layout)
        if seen is None:
            return view
        layout = seen
    return layout


def views_of(node: Node, places: Mapping[Node, Buffer]) -> tuple[list[View], Node]:
    """The views between a node and what is in memory, innermost first."""
    chain: list[View] = []
    while isinstance(node, View) and node not in places:
        chain.append(node)
        node = node.x
    return chain[::-1], node


def views_between(x: Node, inner: Node) -> list[View]:
    """The views that x is of an inner node, innermost first."""
    chain: list[View] = []
    while x is not inner:
        assert isinstance(x, View)
        chain.append(x)
        x = x.x
    return chain[::-1]


def loaded(node: Node) -> tuple[Node, ...]:
    """The operands that are read where the kernel stands; a Gather's source is not."""
    return node.indices if isinstance(node, Gather) else node.operands


def made_of(x: Node, body: Sequence[Node]) -> set[Node]:
    """All of a kernel's body that an operand has a part in."""
    made = {x}
    for node in body:
        if any(operand in made or base_of(operand) in made for operand in loaded(node)):
            made.add(node)
    return made - {x}


def seen_through(view: View, x: Layout) -> Layout | None:
    """The layout through one more view; strides of memory and of guards change alike."""
    if isinstance(view, Pad):
        return padded_layout(view, x)
    moved = through(view, x.shape, x.strides, x.offset)
    guards = [(through(view, x.shape, guard.strides, guard.offset), guard.extent) for guard in x.guards]
    if moved is None or any(form is None for form, _ in guards):
        return None
    strides, offset = moved
    kept = tuple(Guard(*form, extent) for form, extent in guards if form is not None)
    return Layout(x.buffer, view.shape, strides, offset, tuple(g for g in kept if may_fail(g, view.shape)), x.fill)


def through(view: View, old: Shape, strides: Shape, offset: int) -> tuple[Shape, int] | None:
    """offset + sum(i * strides) over x's elements, as a form of the view's."""
    match view:
        case Permute(_, order):
            return tuple(strides[axis] for axis in order), offset
        case Broadcast(_, shape):
            return broadcast_strides(old, strides, shape), offset
        case Slice(_, start, step, _):
            begin = offset + sum(s * b for s, b in zip(strides, start, strict=True))
            return tuple(s * k for s, k in zip(strides, step, strict=True)), begin
        case Windows(_, axes, _, stride, dilation):
            outer = list(strides)
            for axis, apart in zip(axes, stride, strict=True):
                outer[axis] *= apart
            return (*outer, *(strides[axis] * d for axis, d in zip(axes, dilation, strict=True))), offset
        case Reshape(_, shape):
            regrouped = reshape_strides(old, strides, shape)
            return None if regrouped is None else (regrouped, offset)
    raise AssertionError(f"no view: {view}")


def padded_layout(view: Pad, x: Layout) -> Layout | None:
    """Each padded axis is guarded. Two borders of different values would need two fills."""
    if x.guards and x.fill != view.value:
        return None
    offset = x.offset - sum(s * b for s, b in zip(x.strides, view.before, strict=True))
    guards = [
        Guard(g.strides, g.offset - sum(s * b for s, b in zip(g.strides, view.before, strict=True)), g.extent)
        for g in x.guards
    ]
    for axis, extent in enumerate(x.shape):
        if view.before[axis] or view.after[axis]:
            unit = tuple(int(i == axis) for i in range(len(x.shape)))
            guards.append(Guard(unit, -view.before[axis], extent))
    return Layout(x.buffer, view.shape, x.strides, offset, tuple(guards), view.value)


def may_fail(guard: Guard, shape: Shape) -> bool:
    """Whether some element of the shape is outside."""
    steps = [stride * (extent - 1) for stride, extent in zip(guard.strides, shape, strict=True)]
    lowest = guard.offset + sum(min(step, 0) for step in steps)
    highest = guard.offset + sum(max(step, 0) for step in steps)
    return lowest < 0 or highest >= guard.extent


def broadcast_strides(old: Shape, strides: Shape, shape: Shape) -> Shape:
    lead = len(shape) - len(old)
    pairs = zip(old, strides, shape[lead:], strict=True)
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
