"""Random graphs that reduce, through plan, generate and the CPU's compiler: at least as accurate as PyTorch."""

from __future__ import annotations

import ctypes
from functools import partial

import pytest
import torch
from hypothesis import Phase, Verbosity, given, settings
from hypothesis import strategies as st

from kernelwright.build import build_cpu_library, load_cpu_library
from kernelwright.device import resolve
from kernelwright.generate.generate import program_text, ranked_choices
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.reduce import CpuConfig
from kernelwright.plan import Kernel
from tests.property.graphs_of_rows import Case, cases
from tests.property.runs_of_rows import Run

CPU = resolve("cpu")
BATCHES = 6
CASES_A_BATCH = 16

# Lanes that fit nowhere and everywhere, chunks that cut rows, and pieces shared by threads.
CONFIGS = (
    CpuConfig(64, 8192, 0),
    CpuConfig(16, 32, 0),
    CpuConfig(16, 16, 32),
    CpuConfig(1, 3, 0),
    CpuConfig(4, 8, 16),
    CpuConfig(256, 256, 0),
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
