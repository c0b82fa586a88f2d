"""Random graphs that reduce, through plan, generate and the CPU's compiler: at least as accurate as PyTorch."""

from __future__ import annotations

import ctypes
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import Phase, Verbosity, given, settings
from hypothesis import strategies as st

from kernelwright.build import build_cpu_library, load_cpu_library
from kernelwright.device import resolve
from kernelwright.generate.generate import program_text, ranked_choices
from kernelwright.ir.dtypes import float32
from kernelwright.ir.interpret import interpret
from kernelwright.ir.nodes import Broadcast, Graph, Group, Input, Map, Reduce
from kernelwright.ir.reductions import REDUCTIONS
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.reduce import CpuConfig
from kernelwright.plan import Kernel
from kernelwright.plan.steps import contiguous
from tests.property.graphs_of_rows import Case, cases
from tests.property.runs_of_rows import Run

CPU = resolve("cpu")
BATCHES = 4
CASES_A_BATCH = 16

# Lanes that fit nowhere and everywhere, chunks that cut rows, pieces shared by threads, and several walks at once.
CONFIGS = (
    CpuConfig(64, 8192, 0, 1),
    CpuConfig(16, 32, 0, 1),
    CpuConfig(16, 16, 32, 1),
    CpuConfig(1, 3, 0, 1),
    CpuConfig(4, 8, 16, 1),
    CpuConfig(256, 256, 0, 1),
    CpuConfig(4, 8, 0, 3),
    CpuConfig(16, 16, 0, 2),
    CpuConfig(1, 3, 0, 4),
    CpuConfig(1, 3, 30, 4),
)


def test_random_reductions_are_as_accurate_as_pytorch(request: pytest.FixtureRequest) -> None:
    # A failing batch names its graph; to shrink it would compile for minutes.
    @settings(
        max_examples=int(BATCHES * request.config.getoption("--cases")),
        phases=[Phase.generate],
        verbosity=Verbosity.quiet,
    )
    @given(st.lists(st.tuples(cases(), st.sampled_from(CONFIGS)), min_size=CASES_A_BATCH, max_size=CASES_A_BATCH))
    def holds(batch: list[tuple[Case, CpuConfig]]) -> None:
        runs = [Run.of(number, case, CPU, partial(choice_for, config)) for number, (case, config) in enumerate(batch)]
        launches = [launch for run in runs for launch in run.program.launches]
        library = load_cpu_library(build_cpu_library(program_text(launches, "cpu")))

        def call(entry: str, *tensors: torch.Tensor) -> int:
            return int(getattr(library, entry)(*[ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]))

        for run in runs:
            run.check(call)

    holds()


def choice_for(config: CpuConfig, kernel: Kernel) -> Choice:
    return config if kernel.region.axes else ranked_choices(kernel, CPU)[0]


NAN, INF = float("nan"), float("inf")
SPECIAL_ROWS = (
    (NAN,),
    (INF,),
    (-INF,),
    (INF, -INF),
    (NAN, INF),
    (NAN, NAN),
    (-INF,) * 40,
    (INF,) * 40,
    (3e38, 1e-38),
    (-0.0,) * 40,
)


def special_values() -> torch.Tensor:
    """Ordinary rows with these values among them, at places that differ from row to row."""
    x = torch.randn(len(SPECIAL_ROWS), 40, generator=torch.Generator().manual_seed(5))
    for row, values in enumerate(SPECIAL_ROWS):
        for number, value in enumerate(values):
            x[row, (7 * row + 11 * number) % 40 if len(values) < 40 else number] = value
    return x


@pytest.mark.parametrize("along", [True, False], ids=["along", "across"])
def test_nan_and_infinity_are_where_pytorch_has_them(along: bool) -> None:
    x = special_values() if along else special_values().t().contiguous()
    leaf = Input("x0", 0, tuple(x.shape), float32, contiguous(tuple(x.shape)))
    axes = (1,) if along else (0,)
    rows = [Reduce(fn, leaf, axes) for fn in REDUCTIONS]
    apart = Map("sub", (leaf, Broadcast(rows[list(REDUCTIONS).index("max")], leaf.shape)))
    total = Broadcast(rows[list(REDUCTIONS).index("exponentials")], leaf.shape)
    outputs = (*rows, Map("div", (Map("exp", (apart,)), total)))
    graph = Graph((leaf,), outputs, (), Group("tuple", tuple(range(len(outputs)))))
    run = Run.of(0, Case(graph, graph, (x,)), CPU, partial(choice_for, CpuConfig(16, 16, 0, 1)))
    library = load_cpu_library(build_cpu_library(program_text(run.program.launches, "cpu")))

    def call(entry: str, *tensors: torch.Tensor) -> int:
        return int(getattr(library, entry)(*[ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]))

    got = run.forward(call)(SimpleNamespace(), x)
    for name, ours, theirs in zip([*REDUCTIONS, "softmax"], got, interpret(graph, [x], {}), strict=True):
        close = torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6, equal_nan=True)
        assert close, f"{name}: {ours.flatten()[:10]} instead of {theirs.flatten()[:10]}"
