"""A random graph that reduces comes in; its program, run as the emitted file would, and compared with float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch

from kernelwright.device import Device
from kernelwright.emit.forward import forward_lines
from kernelwright.generate import Program, generate
from kernelwright.ir.interpret import interpret
from kernelwright.ir.text import graph_text
from kernelwright.kernels.choices import Choice
from kernelwright.plan import Kernel, plan
from tests.property.graphs_of_rows import Case

# How often our error may be PyTorch's, which is itself a matter of luck on few elements; and rounding of the result.
LUCK = 4.0
ULPS = 16.0

Call = Callable[..., int]


@dataclass(frozen=True)
class Run:
    """One graph of a batch, its kernels named so that they can share a library with others."""

    number: int
    case: Case
    program: Program

    @staticmethod
    def of(number: int, case: Case, device: Device, choose: Callable[[Kernel], Choice]) -> Run:
        made = plan(case.graph)
        steps = [replace(s, name=f"g{number}_{s.name}") if isinstance(s, Kernel) else s for s in made.steps]
        made = replace(made, steps=tuple(steps))
        program = generate(made, {kernel.name: choose(kernel) for kernel in made.kernels}, device)
        renamed = [replace(s, entry=f"g{number}_{s.entry}") if s in program.launches else s for s in program.steps]
        return Run(number, case, replace(program, steps=tuple(renamed)))

    @property
    def forward_text(self) -> str:
        lines = forward_lines(self.program, "torch.device('cpu')")
        names = ", ".join(["self", *(leaf.name for leaf in self.case.graph.inputs)])
        return f"def forward({names}):\n" + "\n".join(f"    {line}" for line in lines)

    @property
    def text(self) -> str:
        """What one needs to see of a graph that fails."""
        sources = [f"{source.struct}\n{source.call}" for source in self.program.sources]
        return "\n".join([graph_text(self.case.graph), self.forward_text, *sources])

    def check(self, call: Call) -> None:
        inputs = list(self.case.tensors)
        got = self.forward(call)(SimpleNamespace(), *inputs)
        again = self.forward(call)(SimpleNamespace(), *inputs)
        usual = interpret(self.case.graph, inputs, {})
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        exact = interpret(self.case.wide, wide, {})
        for place, (ours, second, theirs, true) in enumerate(zip(got, again, usual, exact, strict=True)):
            assert ours.numpy().tobytes() == second.numpy().tobytes(), f"result {place} is not the same twice"
            wrong = difference(ours, theirs, true)
            assert not wrong, f"result {place} of graph {self.number}: {wrong}\n{self.text}"

    def forward(self, call: Call) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The emitted forward(), as a function of self and the inputs."""

        def launch(entry: str, *tensors: torch.Tensor) -> None:
            assert call(entry, *tensors) == 0

        scope = {"torch": torch, "F": torch.nn.functional, "launch": launch}
        exec(self.forward_text, scope)
        made = scope["forward"]
        assert callable(made)
        return made


def difference(ours: torch.Tensor, theirs: torch.Tensor, true: torch.Tensor) -> str:
    """What is wrong with ours, if anything."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
    if not ours.is_floating_point():
        return "" if torch.equal(ours, theirs) else f"{ours} instead of {theirs}"
    scale = true.abs().max() + 1e-30
    limit = LUCK * (theirs.double() - true).abs().max() + ULPS * torch.finfo(ours.dtype).eps * scale
    error = (ours.double() - true).abs().max()
    return "" if bool(error <= limit) else f"off by {error:.3g}, PyTorch by {(theirs.double() - true).abs().max():.3g}"
