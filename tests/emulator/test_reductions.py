"""Reductions as CUDA, run on the host: random graphs and every template of them give PyTorch's result."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import Phase, Verbosity, given, settings
from hypothesis import strategies as st

from kernelwright.device import resolve
from kernelwright.generate.generate import program_text, ranked_choices
from kernelwright.generate.literals import camel
from kernelwright.generate.program import Source
from kernelwright.ir.dtypes import DType, float32, float64
from kernelwright.ir.nodes import Broadcast, Const, Graph, Group, Input, Map, Reduce, Shape
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.reduce import Config, RowWork, why_not
from kernelwright.load import Problem
from kernelwright.plan import Kernel
from kernelwright.plan.steps import contiguous
from tests.emulator.build import Library, g_plus_plus, library_of, order
from tests.emulator.run import agrees
from tests.property.graphs_of_rows import Case, cases
from tests.property.runs_of_rows import Run

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

H200 = resolve("h200")
BATCHES = 4
CASES_A_BATCH = 8
RACE = "with no barrier between them"
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


def test_structs_have_the_sizes_that_configs_are_chosen_by() -> None:
    """Shared memory and workspaces are asked for before any compiler has seen the structs that lie there."""

    # The first batch that is drawn is of the simplest cases, all alike.
    @settings(max_examples=BATCHES, phases=[Phase.generate], verbosity=Verbosity.quiet)
    @given(st.lists(cases(), min_size=3 * CASES_A_BATCH, max_size=3 * CASES_A_BATCH))
    def holds(batch: list[Case]) -> None:
        runs = [Run.of(number, case, H200, partial(any_choice, number)) for number, case in enumerate(batch)]
        text = program_text([launch for run in runs for launch in run.program.launches], "cuda")
        checks = [line for run in runs for source in run.program.sources for line in sizes_checked(source)]
        library_of("\n".join([text, *checks]))

    holds()


def sizes_checked(source: Source) -> list[str]:
    if not isinstance(source.work, RowWork):
        return []
    name, work = camel(source.kernel.name), source.work
    operands = [f"sizeof({name}::Operands<{n}>) == {work.kept_bytes(n)}" for n in (1, 2, 4, 8)]
    states = [
        f"sizeof({name}::State<{phase}, {n}>) <= {n * size}"
        for phase, size in enumerate(work.state_bytes)
        for n in (1, 2, 4, 8)
    ]
    return [f"static_assert({check});" for check in (*operands, *states)]


def any_choice(draw: int, kernel: Kernel) -> Choice:
    """Any of the configs, however little promising."""
    choices = [c for c in ranked_choices(kernel, H200) if not (isinstance(c, Config) and c.threads > MOST_THREADS)]
    return choices[draw % len(choices)]


def call(library: Library, entry: str, *tensors: torch.Tensor) -> int:
    return library.call(entry, *tensors, ctypes.c_int(0), None)


# --- each template by itself

ALONG = {
    "a thread a row": Config(64, 1, 1, 2, "again", 1, False),
    "part of a warp": Config(64, 4, 8, 2, "again", 1, False),
    "a warp, held": Config(64, 4, 32, 8, "registers", 1, False),
    "a block": Config(128, 4, 128, 1, "again", 1, False),
    "a block, held": Config(64, 4, 64, 4, "registers", 1, False),
    "a block, in shared memory": Config(64, 4, 64, 4, "shared", 1, False),
    "a cluster": Config(64, 2, 64, 2, "again", 4, True),
    "a cluster, held": Config(32, 4, 32, 4, "registers", 2, True),
    "a cluster, in shared memory": Config(64, 2, 64, 1, "shared", 8, True),
    "split": Config(64, 4, 64, 2, "again", 5, False),
}
ACROSS = {
    "a thread a row": Config(64, 4, 1, 2, "again", 1, False),
    "threads share rows": Config(64, 2, 8, 2, "again", 1, False),
    "held": Config(64, 4, 16, 2, "registers", 1, False),
    "two teams a block": Config(64, 1, 32, 1, "again", 1, False),
    "split": Config(64, 2, 8, 1, "again", 3, False),
}


def case_of(shape: Shape, axes: Shape) -> Case:
    """Softmax, and a vector of length 1 after its mean is taken away: three phases; two results of the row."""

    def built(dtype: DType) -> Graph:
        x = Input("x0", 0, shape, dtype, contiguous(shape))
        largest, total = Reduce("max", x, axes), Reduce("exponentials", x, axes)
        powers = Map("exp", (Map("sub", (x, Broadcast(largest, shape))),))
        mean = Map("div", (Reduce("sum", x, axes), Const(float(math.prod(shape[axis] for axis in axes)), dtype)))
        rest = Map("sub", (x, Broadcast(mean, shape)))
        length = Map("sqrt", (Reduce("sum", Map("mul", (rest, rest)), axes),))
        outputs = (
            Map("div", (powers, Broadcast(total, shape))),
            Map("div", (rest, Broadcast(length, shape))),
            Reduce("deviations", x, axes),
            Reduce("argmax", x, axes),
        )
        return Graph((x,), outputs, (), Group("tuple", (0, 1, 2, 3)))

    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 3
    return Case(built(float32), built(float64), (x,))


@pytest.mark.parametrize(
    ("shape", "axes", "config"),
    [
        *(pytest.param((5, 1000), (1,), config, id=f"along, {name}") for name, config in ALONG.items()),
        *(pytest.param((3, 30, 24), (1,), config, id=f"across, {name}") for name, config in ACROSS.items()),
        pytest.param((4003,), (0,), Config(64, 4, 64, 2, "again", 6, False), id="everything, and a rest"),
    ],
)
def test_every_template_gives_what_pytorch_gives(shape: Shape, axes: Shape, config: Config) -> None:
    run = Run.of(0, case_of(shape, axes), H200, lambda kernel: config)
    (source,) = run.program.sources
    assert isinstance(source.work, RowWork)
    assert why_not(config, source.work, H200) is None
    run.check(partial(call, library_of(program_text(run.program.launches, "cuda"))))


@pytest.mark.parametrize("shape", [(3, 7, 24), (5, 27, 22), (4, 30, 130)], ids=str)
@pytest.mark.parametrize(
    "config",
    [
        Config(32, 1, 1, 8, "again", 1, False, beside=4),
        Config(64, 2, 1, 8, "again", 1, False, beside=2),
        Config(32, 2, 1, 3, "again", 1, False, beside=4),
    ],
    ids=["lanes apart", "pairs", "pairs, few columns at a time"],
)
def test_rows_side_by_side_give_what_pytorch_gives(shape: Shape, config: Config) -> None:
    def built(dtype: DType) -> Graph:
        x = Input("x0", 0, shape, dtype, contiguous(shape))
        kinds = ("sum", "max", "deviations", "argmin", "exponentials")
        return Graph((x,), tuple(Reduce(kind, x, (1,)) for kind in kinds), (), Group("tuple", (0, 1, 2, 3, 4)))

    x = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    run = Run.of(0, Case(built(float32), built(float64), (x,)), H200, lambda kernel: config)
    (source,) = run.program.sources
    assert isinstance(source.work, RowWork)
    assert why_not(config, source.work, H200) is None
    assert "reduce_beside" in source.call
    run.check(partial(call, library_of(program_text(run.program.launches, "cuda"))))


def test_operands_off_their_alignment_are_read_element_by_element() -> None:
    case = case_of((5, 64), (1,))
    memory = torch.empty(5 * 64 + 1)
    (x,) = case.tensors
    shifted = memory[1:].view(5, 64).copy_(x)
    run = Run.of(0, Case(case.graph, case.wide, (shifted,)), H200, lambda kernel: ALONG["a warp, held"])
    run.check(partial(call, library_of(program_text(run.program.launches, "cuda"))))


@pytest.mark.parametrize(
    ("shape", "axes", "config"),
    [
        ((9, 70), (1,), Config(64, 2, 8, 2, "again", 1, False)),
        ((9, 70), (1,), Config(64, 1, 1, 8, "again", 1, False)),
        ((9, 600), (1,), Config(64, 1, 1, 8, "again", 1, False)),
        ((70, 12), (0,), Config(64, 2, 8, 2, "again", 1, False)),
        ((20, 12), (0,), Config(64, 2, 1, 8, "again", 1, False)),
    ],
    ids=["along", "few along", "many along", "across", "few across"],
)
def test_the_first_extreme_is_found_among_infinities_and_nan(shape: Shape, axes: Shape, config: Config) -> None:
    (axis,) = axes
    inputs = torch.randint(-2, 2, shape, generator=torch.Generator().manual_seed(3)).float()
    rows = inputs if axis == 1 else inputs.T
    rows[0], rows[1] = float("inf"), -float("inf")
    rows[2, 5:], rows[3, 5:] = float("inf"), -float("inf")
    rows[4, 7], rows[5, 3:9] = float("nan"), float("nan")
    rows[6], rows[7] = torch.tensor(float("nan")), torch.tensor(1.0)
    rows[8, :4] = float("-inf")

    def built(dtype: DType) -> Graph:
        x = Input("x0", 0, shape, dtype, contiguous(shape))
        return Graph((x,), (Reduce("argmax", x, axes), Reduce("argmin", x, axes)), (), Group("tuple", (0, 1)))

    run = Run.of(0, Case(built(float32), built(float64), (inputs,)), H200, lambda kernel: config)
    (source,) = run.program.sources
    assert "add_next" in source.struct
    library = library_of(program_text(run.program.launches, "cuda"))
    found = run.forward(partial(call, library))(SimpleNamespace(), inputs)
    assert torch.equal(found[0].flatten(), inputs.argmax(axis))
    assert torch.equal(found[1].flatten(), inputs.argmin(axis))


def softmax_of(shape: Shape) -> Case:
    def built(dtype: DType) -> Graph:
        x = Input("x0", 0, shape, dtype, contiguous(shape))
        largest, total = Reduce("max", x, (1,)), Reduce("exponentials", x, (1,))
        powers = Map("exp", (Map("sub", (x, Broadcast(largest, shape))),))
        return Graph((x,), (Map("div", (powers, Broadcast(total, shape))),), (), Group("tuple", (0,)))

    return Case(built(float32), built(float64), (torch.randn(shape, generator=torch.Generator().manual_seed(4)),))


@pytest.mark.parametrize("name", ["a cluster", "split"])
def test_no_bit_depends_on_the_order_in_which_blocks_and_threads_run(name: str) -> None:
    run = Run.of(0, case_of((5, 1000), (1,)), H200, lambda kernel: ALONG[name])
    library = library_of(program_text(run.program.launches, "cuda"))
    forward = run.forward(partial(call, library))
    (x,) = run.case.tensors
    usual = [y.numpy().tobytes() for y in forward(SimpleNamespace(), x)]
    with order(blocks_backwards=True):
        assert [y.numpy().tobytes() for y in forward(SimpleNamespace(), x)] == usual
    with order(threads_backwards=True):
        assert [y.numpy().tobytes() for y in forward(SimpleNamespace(), x)] == usual


DIVIDE = """
#include "../device/monoids.cuh"
__global__ void divide(const float* x, const float* y, float* z, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) z[i] = kw::divided(x[i], kw::Divisor<float>(y[i]));
}
extern "C" int entry(const float* x, const float* y, float* z, int count) {
    divide<<<1, 32>>>(x, y, z, count);
    return cudaGetLastError();
}
"""


def test_division_by_the_inverse_of_a_row_is_division() -> None:
    generator = torch.Generator().manual_seed(2)
    powers = torch.randint(-60, 60, (2, 4000), generator=generator)
    x, y = torch.ldexp(torch.randn(2, 4000, generator=generator), powers)
    edges = torch.tensor([0.0, -0.0, 1.0, -3.0, 1e-40, 1e-30, 1e30, 3e38, float("inf"), -float("inf"), float("nan")])
    pairs = torch.cartesian_prod(edges, edges)
    x, y = torch.cat([x, pairs[:, 0]]).contiguous(), torch.cat([y, pairs[:, 1]]).contiguous()
    z = torch.empty_like(x)
    assert library_of(DIVIDE).call("entry", x, y, z, ctypes.c_int(x.numel())) == 0
    exact = x / y
    normal = (exact.abs() > 2.0**-99) & (exact.abs() < 2.0**99)
    assert torch.equal(z[normal], exact[normal])
    assert torch.allclose(z, exact, rtol=3e-7, atol=1e-37, equal_nan=True)


NORMED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.{norm}

    def forward(self, x):
        return torch.relu(self.norm(x))

def get_inputs():
    return [torch.rand{shape}]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("shared", [False, True], ids=["a block a row", "blocks share a row"])
@pytest.mark.parametrize(("norm", "shape"), [("BatchNorm2d(3)", (4, 3, 32, 64)), ("BatchNorm1d(24)", (300, 24))])
def test_running_statistics_are_replaced_where_they_lie(norm: str, shape: Shape, shared: bool) -> None:
    """Nobody but the thread that writes a row's new value looks at the old one, however many share the row."""

    def pick(_: Kernel, choices: Sequence[Choice]) -> Choice:
        fits = lambda c: c.is_split is shared and c.threads <= MOST_THREADS
        return next(choice for choice in choices if not isinstance(choice, Config) or fits(choice))

    program = agrees(Problem("normed", NORMED.format(norm=norm, shape=shape), Path("normed.py")), pick=pick)
    stored = [at.buffer.name for kernel in program.plan.kernels for _, at in kernel.region.stores]
    assert {"norm_running_mean", "norm_running_var"} <= set(stored)
