"""A `Plan` comes in; its boxes and arrows go out: what was fused into what, ready to be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Any

from kernelwright.ir.nodes import Contract, Conv, Node, Opaque
from kernelwright.plan import Buffer, Kernel, Library, Plan, Product
from kernelwright.plan.convolutions import Convolution
from kernelwright.plan.layouts import base_of
from kernelwright.plan.steps import Layout
from kernelwright.plan.units import made_by
from kernelwright.report.boxes import Arrow, Box, Picture
from kernelwright.report.work import conv_kind, operator_name

__all__ = ["picture_of"]

# Functions that move values about and compute nothing: they are named only where there is nothing else to name.
SILENT = ("cast", "identity")
MOST_LINES = 7


def picture_of(plan: Plan) -> Picture:
    """Inputs, then the steps in the order they run, then the outputs; weights stand in the boxes that read them."""
    drawing = Drawing(plan)
    for step in plan.steps:
        drawing.add_step(step)
    drawing.add_outputs()
    return Picture(tuple(drawing.boxes), tuple(dict.fromkeys(drawing.arrows)))


class Drawing:
    """Boxes and arrows so far, and which box each buffer comes from."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.boxes: list[Box] = []
        self.arrows: list[Arrow] = []
        self.maker: dict[str, int] = {}
        for node in plan.graph.inputs:
            if node in plan.places:
                self.maker[plan.places[node].name] = self.add(Box("input", node.name, (type_text(node),), ()))

    def add(self, box: Box) -> int:
        self.boxes.append(box)
        return len(self.boxes) - 1

    def add_step(self, step: Any) -> None:
        reads, writes = list(self.read_by(step)), list(written_by(step))
        weights = tuple(f"{b.name} {shape_text(b.shape)}" for b in reads if b.name not in self.maker)
        number = self.add(box_of(step, tuple(dict.fromkeys(weights))))
        for buffer in reads:
            if buffer.name in self.maker:
                self.arrows.append(Arrow(self.maker[buffer.name], number, shape_text(buffer.shape)))
        for buffer in writes:
            self.maker[buffer.name] = number

    def read_by(self, step: Any) -> Iterator[Buffer]:
        if isinstance(step, Kernel):
            yield from (origin(layout.buffer) for layout in step.region.reads)
            yield from (origin(layout.buffer) for layout in layouts_in(step.core))
            return
        for node in read_nodes(step):
            place = self.plan.places.get(node) or self.plan.places.get(made_by(base_of(node)))
            place = place or self.plan.places.get(base_of(node))
            if place is not None:
                yield place

    def add_outputs(self) -> None:
        for i, node in enumerate(self.plan.graph.outputs):
            title = "result" if len(self.plan.graph.outputs) == 1 else f"result {i}"
            number = self.add(Box("output", title, (type_text(node),), ()))
            place = self.plan.places.get(node) or self.plan.places.get(base_of(node))
            if place is not None and place.name in self.maker:
                self.arrows.append(Arrow(self.maker[place.name], number, ""))
        for update in self.plan.graph.updates:
            place = self.plan.places.get(update.value) or self.plan.places.get(base_of(update.value))
            if place is not None and place.name in self.maker:
                name = getattr(update.target, "path", "") or getattr(update.target, "name", "state")
                number = self.add(Box("output", f"{name} updated", (type_text(update.value),), ()))
                self.arrows.append(Arrow(self.maker[place.name], number, ""))


def read_nodes(step: Any) -> Iterator[Node]:
    """What a step that is no kernel of ours is given."""
    node = getattr(step, "node", None) or getattr(step, "value", None)
    if isinstance(step, Library):
        yield from step.reads
    elif type(step).__name__ == "Materialise":
        yield from node.operands if node is not None else ()
    elif node is not None:
        yield node


def written_by(step: Any) -> Iterator[Buffer]:
    if isinstance(step, Kernel):
        yield from (layout.buffer for _, layout in step.region.stores)
    elif isinstance(step, Library):
        yield from (result for result in step.results if result is not None)
    else:
        result = getattr(step, "result", None) or getattr(step, "target", None)
        if isinstance(result, Buffer):
            yield result


def box_of(step: Any, weights: tuple[str, ...]) -> Box:
    match step:
        case Kernel():
            return Box("kernel", step.name, kernel_lines(step), weights)
        case Library():
            bias = "with its bias" if step.bias is not None else ""
            return Box(
                "library", library_title(step.node), tuple(filter(None, (library_sizes(step.node), bias))), weights
            )
    return Box("copy", {"CopyBack": "write back", "Materialise": "copy"}.get(type(step).__name__, "step"), (), weights)


def kernel_lines(step: Kernel) -> tuple[str, ...]:
    """The functions it fuses, in order; runs of the same are counted."""
    names = [node.fn for node in step.region.body]
    spoken = [name for name in names if name not in SILENT] or names[:1]
    core = [core_text(step.core)] if step.core is not None else []
    before = [n.fn for made in step.core.prologues for n in made.maps] if isinstance(step.core, Product) else []
    lines = [*counted(before), *core, *counted(spoken)]
    if len(lines) > MOST_LINES:
        left = len(lines) - MOST_LINES + 1
        lines = [*lines[: MOST_LINES - 3], f"… {left} more", *lines[-2:]]
    return tuple(lines)


def counted(names: list[str]) -> list[str]:
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return [name if count == 1 else f"{name} × {count}" for name, count in runs]


def core_text(core: Product | Convolution) -> str:
    if isinstance(core, Convolution):
        return library_title(core.node)
    sizes = [core.m, core.n, core.k] if core.batches == 1 else [core.batches, core.m, core.n, core.k]
    return "product " + " × ".join(map(str, sizes))


def library_title(node: Node) -> str:
    match node:
        case Contract():
            return "matrix product"
        case Conv():
            names = {"conv": "convolution", "conv-transpose": "transposed convolution"}
            return names.get(conv_kind(node), "depthwise convolution")
        case Opaque():
            return operator_name(node).replace("native_", "").strip("_")
    return type(node).__name__.lower()


def library_sizes(node: Node) -> str:
    if isinstance(node, Contract):
        return f"{shape_text(node.a.shape)} by {shape_text(node.b.shape)}"
    return f"weight {shape_text(node.weight.shape)}" if isinstance(node, Conv) else ""


def layouts_in(value: Any) -> Iterator[Layout]:
    """Every layout that a core names, whatever kind of core it is."""
    if isinstance(value, Layout):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from layouts_in(part)
    elif is_dataclass(value) and not isinstance(value, (type, Node)):
        for field in dataclass_fields(value):
            yield from layouts_in(getattr(value, field.name))


def origin(buffer: Buffer) -> Buffer:
    """A packed weight is drawn as the weight it is."""
    return buffer.packed_from or buffer


def type_text(node: Node) -> str:
    if isinstance(node, Opaque) and len(node.results) != 1:
        return f"{len(node.results)} results"
    return f"{node.dtype.name} {shape_text(node.shape)}"


def shape_text(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"
