"""Reductions as CUDA, run on the host: random graphs and every template of them give PyTorch's result."""

from __future__ import annotations

import ctypes
from functools import partial

import pytest
import torch
from hypothesis import Phase, Verbosity, given, settings
from hypothesis import strategies as st

from kernelwright.device import resolve
from kernelwright.generate.generate import program_text, ranked_choices
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.reduce import Config
from kernelwright.plan import Kernel
from tests.emulator.build import Library, g_plus_plus, library_of
from tests.property.graphs_of_rows import Case, cases
from tests.property.runs_of_rows import Run

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

H200 = resolve("h200")
BATCHES = 4
CASES_A_BATCH = 8
MOST_THREADS = 256  # a thread of the emulator is slow


def test_random_reductions_are_as_accurate_as_pytorch(request: pytest.FixtureRequest) -> None:
    times = request.config.getoption("--cases")

    @settings(max_examples=int(BATCHES * times), phases=[Phase.generate], verbosity=Verbosity.quiet)
    @given(st.lists(st.tuples(cases(), st.integers(0, 10_000)), min_size=CASES_A_BATCH, max_size=CASES_A_BATCH))
    def holds(batch: list[tuple[Case, int]]) -> None:
        runs = [Run.of(number, case, H200, partial(any_choice, draw)) for number, (case, draw) in enumerate(batch)]
        launches = [launch for run in runs for launch in run.program.launches]
        library = library_of(program_text(launches, "cuda"))
        for run in runs:
            run.check(partial(call, library))

    holds()


def any_choice(draw: int, kernel: Kernel) -> Choice:
    """Any of the configs, however little promising."""
    choices = [c for c in ranked_choices(kernel, H200) if not (isinstance(c, Config) and c.threads > MOST_THREADS)]
    return choices[draw % len(choices)]


def call(library: Library, entry: str, *tensors: torch.Tensor) -> int:
    return library.call(entry, *tensors, ctypes.c_int(0), None)
