"""Random graphs with running values, through plan, generate and the CPU's compiler: as accurate as PyTorch."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import Phase, Verbosity, given, settings
from hypothesis import strategies as st

from kernelwright.build import build_cpu_library, load_cpu_library
from kernelwright.device import resolve
from kernelwright.generate.generate import program_text, ranked_choices
from kernelwright.generate.scan import has_scans, work_of_scan
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.scan import CpuConfig
from kernelwright.plan import Kernel
from tests.property.graphs_of_rows import Case
from tests.property.graphs_of_scans import cases
from tests.property.runs_of_rows import Run
from tests.property.runs_of_scans import check

CPU = resolve("cpu")
BATCHES = 6
CASES_A_BATCH = 16

# Chunks that cut rows: 0 is no chunk at all.
CONFIGS = (CpuConfig(64, 1, 0), CpuConfig(16, 1, 16), CpuConfig(32, 1, 32), CpuConfig(16, 1, 48))


def test_random_scans_are_as_accurate_as_pytorch(request: pytest.FixtureRequest) -> None:
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
            check(run, call)

    holds()


def choice_for(config: CpuConfig, kernel: Kernel) -> Choice:
    """The config as the kernel can have it: across, sixteen vectors at least go side by side."""
    if not has_scans(kernel):
        return ranked_choices(kernel, CPU)[0]
    work = work_of_scan(kernel.region)
    return replace(config, together=16 if work.across else config.together, chunk=config.chunk or work.length)
