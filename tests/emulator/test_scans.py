"""Running values as CUDA, run on the host: random graphs and every template of them give PyTorch's result."""

from __future__ import annotations

import ctypes
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import Phase, Verbosity, given, settings
from hypothesis import strategies as st

from kernelwright.device import resolve
from kernelwright.generate.generate import program_text, ranked_choices
from kernelwright.generate.scan import has_scans, work_of_scan
from kernelwright.ir.dtypes import DType, float32, float64
from kernelwright.ir.nodes import Const, Graph, Group, Input, Map, Scan, Shape
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.scan import AcrossConfig, AlongConfig, ScanConfig, ScanWork, why_not
from kernelwright.plan import Kernel
from kernelwright.plan.steps import contiguous
from tests.emulator.build import Library, g_plus_plus, library_of, order
from tests.property.graphs_of_rows import Case
from tests.property.graphs_of_scans import cases
from tests.property.runs_of_rows import Run
from tests.property.runs_of_scans import check

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

H200 = resolve("h200")
BATCHES = 4
CASES_A_BATCH = 8

# Small ones, since a thread of the emulator is slow: part of a warp, a warp, blocks, and rows cut into chunks.
CONFIGS: tuple[ScanConfig, ...] = (
    AlongConfig(1, 32, 1, 2, 1),
    AlongConfig(4, 8, 2, 1, 1),
    AlongConfig(32, 1, 4, 2, 1),
    AlongConfig(64, 1, 1, 1, 1),
    AlongConfig(64, 1, 2, 2, 2),
    AlongConfig(64, 1, 4, 1, 1),
    AlongConfig(96, 1, 1, 1, 3),
    AcrossConfig(32, 1, 4, 1),
    AcrossConfig(32, 4, 2, 1),
    AcrossConfig(64, 2, 4, 3),
    AcrossConfig(32, 1, 1, 2),
)


def test_random_scans_are_as_accurate_as_pytorch(request: pytest.FixtureRequest) -> None:
    times = request.config.getoption("--cases")

    @settings(max_examples=int(BATCHES * times), phases=[Phase.generate], verbosity=Verbosity.quiet)
    @given(st.lists(st.tuples(cases(), st.integers(0, 10_000)), min_size=CASES_A_BATCH, max_size=CASES_A_BATCH))
    def holds(batch: list[tuple[Case, int]]) -> None:
        runs = [Run.of(number, case, H200, partial(any_choice, draw)) for number, (case, draw) in enumerate(batch)]
        launches = [launch for run in runs for launch in run.program.launches]
        library = library_of(program_text(launches, "cuda"))
        for run in runs:
            check(run, partial(call, library))

    holds()


def any_choice(draw: int, kernel: Kernel) -> Choice:
    if not has_scans(kernel):
        return ranked_choices(kernel, H200)[0]
    work = work_of_scan(kernel.region)
    fitting = [config for config in CONFIGS if why_not(config, work, H200) is None]
    return fitting[draw % len(fitting)]


def call(library: Library, entry: str, *tensors: torch.Tensor) -> int:
    return library.call(entry, *tensors, ctypes.c_int(0), None)


# --- each template by itself

ALONG = {
    "a thread a row": AlongConfig(1, 32, 4, 2, 1),
    "part of a warp": AlongConfig(8, 8, 4, 2, 1),
    "a warp": AlongConfig(32, 2, 4, 4, 1),
    "a block": AlongConfig(128, 1, 4, 1, 1),
    "a block, element by element": AlongConfig(64, 1, 1, 4, 1),
    "cut": AlongConfig(64, 1, 4, 1, 4),
    "cut into more chunks than a warp has lanes": AlongConfig(64, 1, 1, 1, 40),
}
ACROSS = {
    "a thread a row": AcrossConfig(64, 1, 4, 1),
    "a thread several rows": AcrossConfig(32, 4, 4, 1),
    "cut": AcrossConfig(32, 2, 2, 5),
}


def case_of(shape: Shape, axis: int, reverse: bool) -> Case:
    """A running sum of a product, an exclusive running largest product of what that gives, and a running extreme."""

    def built(dtype: DType) -> Graph:
        x = Input("x0", 0, shape, dtype, contiguous(shape))
        total = Scan("sum", Map("mul", (x, x)), axis, reverse)
        shares = Map("div", (total, Map("add", (total, Const(1.0, dtype)))))
        factors = Map("add", (shares, Const(0.25, dtype)))
        outputs = (Scan("prod", factors, axis, reverse, True), Scan("max", x, axis, reverse), shares)
        return Graph((x,), outputs, (), Group("tuple", (0, 1, 2)))

    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    return Case(built(float32), built(float64), (x,))


@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize(
    ("shape", "axis", "config"),
    [
        *(pytest.param((5, 2600), 1, config, id=f"along, {name}") for name, config in ALONG.items()),
        *(pytest.param((3, 30, 24), 1, config, id=f"across, {name}") for name, config in ACROSS.items()),
    ],
)
def test_every_template_gives_what_pytorch_gives(shape: Shape, axis: int, config: ScanConfig, reverse: bool) -> None:
    run = Run.of(0, case_of(shape, axis, reverse), H200, lambda kernel: config)
    (source,) = run.program.sources
    assert isinstance(source.work, ScanWork)
    assert source.work.stages == 2
    assert why_not(config, source.work, H200) is None
    check(run, partial(call, library_of(program_text(run.program.launches, "cuda"))))


def test_operands_off_their_alignment_are_read_element_by_element() -> None:
    case = case_of((5, 64), 1, reverse=False)
    memory = torch.empty(5 * 64 + 1)
    (x,) = case.tensors
    shifted = memory[1:].view(5, 64).copy_(x)
    run = Run.of(0, Case(case.graph, case.wide, (shifted,)), H200, lambda kernel: ALONG["a warp"])
    check(run, partial(call, library_of(program_text(run.program.launches, "cuda"))))


@pytest.mark.parametrize("config", [ALONG["a block"], ALONG["cut"]], ids=["whole", "cut"])
def test_no_bit_depends_on_the_order_in_which_blocks_and_threads_run(config: ScanConfig) -> None:
    run = Run.of(0, case_of((5, 1040), 1, reverse=False), H200, lambda kernel: config)
    library = library_of(program_text(run.program.launches, "cuda"))
    first = run.forward(partial(call, library))(SimpleNamespace(), *run.case.tensors)
    with order(blocks_backwards=True, threads_backwards=True):
        second = run.forward(partial(call, library))(SimpleNamespace(), *run.case.tensors)
    for a, b in zip(first, second, strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()
