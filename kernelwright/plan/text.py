"""Prints a plan: one line a step, and for each kernel what it loads, computes and stores."""

from __future__ import annotations

from kernelwright.device import Device
from kernelwright.ir.nodes import Node, Opaque, Shape
from kernelwright.ir.text import node_text, number
from kernelwright.plan.products import Product
from kernelwright.plan.steps import CopyBack, Kernel, Layout, Library, Materialise, Plan, Step


def plan_text(plan: Plan, device: Device) -> str:
    names = number(plan.graph.nodes())
    lines = [line for i, step in enumerate(plan.steps) for line in step_lines(i, step, names, device)]
    floor = sum(floor_us(kernel, device) for kernel in plan.kernels)
    count = len(plan.kernels)
    whose = "1 kernel; its" if count == 1 else f"{count} kernels; their"
    lines.append(f"{whose} floor on {device.name} is {floor:.1f} us")
    return "\n".join(lines) + "\n"


def step_lines(i: int, step: Step, names: dict[Node, str], device: Device) -> list[str]:
    match step:
        case Kernel():
            return [f"{i:3}  {kernel_headline(step, device)}", *(f"       {line}" for line in kernel_body(step, names))]
        case Library(node, bias, results):
            targets = ", ".join("_" if r is None else r.name for r in results)
            extra = f" + bias {names[bias]}" if bias is not None else ""
            where = " (updates its statistics in place)" if step.in_place else ""
            return [f"{i:3}  PyTorch  {targets} = {library_text(node, names)}{extra}{where}"]
        case Materialise(node, result):
            return [f"{i:3}  copy     {result.name} = {node_text(node, names)}"]
        case CopyBack(target, value):
            return [f"{i:3}  update   {target.name} <- {names[value]}"]


def library_text(node: Node, names: dict[Node, str]) -> str:
    return node_text(node, names) if isinstance(node, Opaque) or node in names else type(node).__name__


def kernel_headline(step: Kernel, device: Device) -> str:
    shape = ", ".join(map(str, step.region.shape))
    work = f"{step.bytes_moved:,} B" + (f", {step.core.flops / 1e9:,.1f} Gflop" if step.core is not None else "")
    return f"kernel   {step.name} over [{shape}]: {work}, floor {floor_us(step, device):.1f} us"


def floor_us(kernel: Kernel, device: Device) -> float:
    """The time the bytes take, or the arithmetic: float32 products as three of float16."""
    moved = kernel.bytes_moved / device.copy_gbps / 1e3
    return moved if kernel.core is None else max(moved, 3 * kernel.core.flops / device.peaks.float16 / 1e6)


def kernel_body(step: Kernel, names: dict[Node, str]) -> list[str]:
    core = step.core
    lines: list[str] = []
    for region in core.prologues if isinstance(core, Product) else ():
        lines += [f"load   {layout_text(layout)}" for _, layout in region.loads]
        lines += [f"{names[node]:<6} = {node_text(node, names)}" for node in region.maps]
    lines += [] if core is None else [f"{names[core.node]:<6} = {node_text(core.node, names)}"]
    lines += [f"load   {layout_text(layout)}" for _, layout in step.region.loads]
    lines += [f"pick   {layout_text(o.layout)}, by index {strides_text(o.strides)}" for _, o in step.region.sources]
    lines += [f"{names[node]:<6} = {node_text(node, names)}" for node in step.region.body]
    for node, layout in step.region.stores:
        over = step.writes_over.get(layout.buffer.name)
        lines.append(f"store  {layout_text(layout)} = {names[node]}{f' (in place of {over})' if over else ''}")
    return lines


def layout_text(layout: Layout) -> str:
    offset = f" + {layout.offset}" if layout.offset else ""
    return f"{layout.buffer.name}{offset} strides {strides_text(layout.strides)} {layout.buffer.dtype.name}"


def strides_text(strides: Shape) -> str:
    return f"({', '.join(map(str, strides))})"
