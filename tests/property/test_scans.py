"""Random graphs with running values, through plan, generate and the CPU's compiler: as accurate as PyTorch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import Phase, Verbosity, given, settings
from hypothesis import strategies as st

from kernelwright.build import build_cpu_library, load_cpu_library
from kernelwright.device import resolve
from kernelwright.emit.forward import forward_lines
from kernelwright.generate import Program, generate
from kernelwright.generate.generate import program_text, ranked_choices
from kernelwright.generate.scan import has_scans, work_of_scan
from kernelwright.ir.interpret import interpret
from kernelwright.ir.text import graph_text
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.scan import CpuConfig
from kernelwright.plan import Kernel, plan
from tests.property.graphs_of_scans import Case, cases

CPU = resolve("cpu")
BATCHES = 8
CASES_A_BATCH = 12

# How often our error may be PyTorch's, which is itself a matter of luck on few elements; and rounding of the result.
LUCK = 4.0
ULPS = 4.0

# Rows abreast and alone, and chunks that cut rows: 0 is no chunk at all.
CONFIGS = (CpuConfig(64, 4, 0), CpuConfig(16, 1, 0), CpuConfig(16, 2, 16), CpuConfig(32, 8, 32), CpuConfig(16, 4, 48))


def test_random_scans_are_as_accurate_as_pytorch(request: pytest.FixtureRequest) -> None:
    # A failing batch names its graph; to shrink it would compile for minutes.
    @settings(
        max_examples=int(BATCHES * request.config.getoption("--cases")),
        phases=[Phase.generate],
        verbosity=Verbosity.quiet,
        deadline=None,
    )
    @given(st.lists(st.tuples(cases(), st.sampled_from(CONFIGS)), min_size=CASES_A_BATCH, max_size=CASES_A_BATCH))
    def holds(batch: list[tuple[Case, CpuConfig]]) -> None:
        runs = [Run.of(number, case, config) for number, (case, config) in enumerate(batch)]
        launches = [launch for run in runs for launch in run.program.launches]
        library = load_cpu_library(build_cpu_library(program_text(launches, "cpu")))
        for run in runs:
            run.check(library)

    holds()


@dataclass(frozen=True)
class Run:
    """One graph of a batch, its kernels named so that they can share a library with others."""

    number: int
    case: Case
    program: Program

    @staticmethod
    def of(number: int, case: Case, config: CpuConfig) -> Run:
        made = plan(case.graph)
        steps = [replace(s, name=f"g{number}_{s.name}") if isinstance(s, Kernel) else s for s in made.steps]
        made = replace(made, steps=tuple(steps))
        program = generate(made, {kernel.name: choice_for(kernel, config) for kernel in made.kernels}, CPU)
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

    def check(self, library: ctypes.CDLL) -> None:
        inputs = list(self.case.tensors)
        got = self.forward(library)(SimpleNamespace(), *inputs)
        again = self.forward(library)(SimpleNamespace(), *inputs)
        usual = interpret(self.case.graph, inputs, {})
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        exact = interpret(self.case.wide, wide, {})
        for place, (ours, second, theirs, true) in enumerate(zip(got, again, usual, exact, strict=True)):
            assert ours.numpy().tobytes() == second.numpy().tobytes(), f"result {place} is not the same twice"
            wrong = difference(ours, theirs, true)
            assert not wrong, f"result {place} of graph {self.number}: {wrong}\n{self.text}"

    def forward(self, library: ctypes.CDLL) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The emitted forward(), as a function of self and the inputs."""

        def launch(entry: str, *tensors: torch.Tensor) -> None:
            assert getattr(library, entry)(*[ctypes.c_void_p(t.data_ptr()) for t in tensors]) == 0

        scope = {"torch": torch, "F": torch.nn.functional, "launch": launch}
        exec(self.forward_text, scope)
        made = scope["forward"]
        assert callable(made)
        return made


def choice_for(kernel: Kernel, config: CpuConfig) -> Choice:
    """The config as the kernel can have it: across, sixteen vectors at least go side by side."""
    if not has_scans(kernel):
        return ranked_choices(kernel, CPU)[0]
    work = work_of_scan(kernel.region)
    chunk = config.chunk or work.length
    return replace(config, together=16 if work.across else config.together, chunk=chunk)


def difference(ours: torch.Tensor, theirs: torch.Tensor, true: torch.Tensor) -> str:
    """What is wrong with ours, if anything."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
    if not ours.is_floating_point():
        return "" if torch.equal(ours, theirs) else f"{ours} instead of {theirs}"
    unlike = ours.isfinite() != theirs.isfinite()
    if unlike.any():
        return f"{int(unlike.sum())} results are finite in one and not in the other"
    ours, theirs, true = (x.double()[theirs.isfinite()] for x in (ours, theirs, true))
    # Each result has its own size, and error: running products differ by many orders of magnitude along a row.
    limit = LUCK * (theirs - true).abs() + ULPS * torch.finfo(torch.float32).eps * true.abs() + 1e-37
    worst = ((ours - true).abs() - limit).max() if len(ours) else torch.tensor(-1.0)
    return "" if bool(worst <= 0) else f"{worst:.3g} further off than PyTorch"
