"""A `Program` comes in; the statements of forward() go out."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.emit.expressions import Expressions, made_dense, python, tuple_text
from kernelwright.generate import Launch, Program
from kernelwright.generate.program import ProgramStep
from kernelwright.ir.nodes import Detached, Fixed, Node, Param, Structure, Updated, View
from kernelwright.plan import Buffer, CopyBack, Library, Materialise
from kernelwright.plan.steps import contiguous


def forward_lines(program: Program, device: str) -> list[str]:
    """What forward() does once it knows that it was planned for the call."""
    writer = ForwardWriter(program, device)
    lines = [line for number, step in enumerate(program.steps) for line in writer.step_lines(number, step)]
    return [*lines, f"return {writer.returned(program.plan.graph.structure)}"]


class ForwardWriter:
    def __init__(self, program: Program, device: str) -> None:
        self.program = program
        self.graph = program.plan.graph
        self.known = leaves(program)  # what is in memory so far: a view may be copied late and seen otherwise before
        self.expressions = Expressions(self.known, device)
        self.device = device
        self.last_use = last_uses(program)

    def step_lines(self, number: int, step: ProgramStep) -> list[str]:
        lines = self.lines_of(step)
        self.known.update(held_after(step, self.program.plan.places))
        dead = [name for name, last in self.last_use.items() if last == number]
        more = number < len(self.program.steps) - 1
        return [*lines, f"del {', '.join(dead)}"] if dead and more else lines

    def lines_of(self, step: ProgramStep) -> list[str]:
        match step:
            case Launch():
                return self.launch_lines(step)
            case Library():
                return self.library_lines(step)
            case Materialise(node, result):
                return [f"{result.name} = {self.materialised(node)}"]
            case CopyBack(target, value):
                return [f"{target.name}.copy_({self.expressions.of(value)})"]

    def launch_lines(self, launch: Launch) -> list[str]:
        """Results are allocated, or take the memory of an operand that nothing needs any more; then one call."""
        lines = [self.packing(buffer) for buffer in launch.pointers if buffer.packed_from is not None]
        lines += [f"{buffer.name} = {self.allocation(buffer)}" for buffer in launch.allocations]
        lines += [f"{buffer.name} = {over}  # in place: {over} is not needed again" for buffer, over in launch.aliases]
        arguments = ", ".join(buffer.name for buffer in launch.pointers)
        return [*lines, f'launch("{launch.entry}", {arguments})'] if launch.sources else lines

    def packing(self, buffer: Buffer) -> str:
        assert buffer.packed_from is not None
        weight, dtype = buffer.packed_from.name, buffer.packed_from.dtype
        offset = f", {buffer.packed_offset * dtype.itemsize}" if buffer.packed_offset else ""
        return f'{buffer.name} = packed(self, "{buffer.packed_by}", "{weight}", {weight}, {buffer.nbytes}{offset})'

    def allocation(self, buffer: Buffer) -> str:
        kind = f"dtype=torch.{buffer.dtype.name}, device={self.device}"
        if buffer.strides != contiguous(buffer.shape):
            return f"torch.empty({tuple_text(buffer.shape)}, {kind}, memory_format=torch.channels_last)"
        return f"torch.empty({tuple_text(buffer.shape)}, {kind})"

    def library_lines(self, step: Library) -> list[str]:
        call = self.expressions.call(step)
        if len(step.results) == 1 or step.in_place or (step.results[1:] == (None,) and "F.dropout" in call):
            (first, *_) = step.results
            dense = made_dense(first) if first is not None and self.is_read_by_kernel(first) else ""
            return [f"{first.name} = {call}{dense}" if first is not None else call]
        names = [result.name if result is not None else "_" for result in step.results]
        lines = [f"{', '.join(names)} = {call}"]
        read = [r for r in step.results if r is not None and self.is_read_by_kernel(r)]
        return lines + [f"{r.name} = {r.name}{made_dense(r)}" for r in read]

    def is_read_by_kernel(self, buffer: Buffer) -> bool:
        return any(buffer in launch.pointers for launch in self.program.launches)

    def materialised(self, node: Node) -> str:
        """A view that strides cannot express is copied; so is one of a constant, by making it."""
        text = self.expressions.of(node)
        return f"{text}.contiguous()" if isinstance(node, View) else text

    def returned(self, structure: Structure) -> str:
        if isinstance(structure, int):
            return self.expressions.of(self.graph.outputs[structure])
        if isinstance(structure, Fixed):
            return python(structure.value)
        if isinstance(structure, Updated):
            return structure.target.name
        if isinstance(structure, Detached):
            return f"{self.returned(structure.of)}.detach()"
        inner = ", ".join(self.returned(item) for item in structure.items)
        if structure.kind == "list":
            return f"[{inner}]"
        if structure.kind != "tuple":
            return f"{structure.kind}(({inner}))"
        return f"({inner},)" if len(structure.items) == 1 else f"({inner})" if structure.items else "()"


def leaves(program: Program) -> dict[Node, Buffer]:
    """The arguments and the state, which are there from the start."""
    return {node: buffer for node, buffer in program.plan.places.items() if buffer.source is not None}


def held_after(step: ProgramStep, places: Mapping[Node, Buffer]) -> dict[Node, Buffer]:
    """The nodes whose values a step puts into memory."""
    made = {buffer.name for buffer in made_in(step)}
    return {node: buffer for node, buffer in places.items() if buffer.name in made}


def last_uses(program: Program) -> dict[str, int]:
    """For each large value that a step makes, the last step that reads it; what is returned is read to the end."""
    known = leaves(program)
    last: dict[str, int] = {}
    for number, step in enumerate(program.steps):
        for buffer in read_in(step, known):
            if buffer.source is None and buffer.packed_from is None:
                last[buffer.name] = number
        for buffer in made_in(step):
            last[buffer.name] = number
        known.update(held_after(step, program.plan.places))
    kept = {held.name for node in program.plan.graph.outputs if (held := holder(node, known)) is not None}
    return {name: number for name, number in last.items() if name not in kept}


def holder(node: Node, known: Mapping[Node, Buffer]) -> Buffer | None:
    """The buffer that a value, or what it is a view of, is read from; None for a constant."""
    while node not in known and isinstance(node, View):
        node = node.x
    return known.get(node)


def made_in(step: ProgramStep) -> list[Buffer]:
    match step:
        case Launch():
            return [*step.allocations, *(buffer for buffer, _ in step.aliases)]
        case Library():
            return [result for result in step.results if result is not None]
        case Materialise():
            return [step.result]
        case CopyBack():
            return []


def read_in(step: ProgramStep, known: Mapping[Node, Buffer]) -> list[Buffer]:
    match step:
        case Launch():
            return [*step.pointers, *(b for b in known.values() for _, over in step.aliases if b.name == over)]
        case Library():
            operands = list(step.reads)
        case Materialise(node, _):
            operands = list(node.operands)
        case CopyBack(_, value):
            operands = [value]
    found = [holder(x, known) for x in operands]
    return [buffer for buffer in found if buffer is not None]


def state_of(program: Program) -> list[Param]:
    """The parameters and buffers that forward() reads or writes, in the order they are first met."""
    return [node for node in program.plan.places if isinstance(node, Param)]
