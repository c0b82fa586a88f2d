"""Rows that are woven, windows that slide and wide blocks, run on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch

from kernelwright.generate.generate import program_text, ranked_choices
from kernelwright.ir.dtypes import DType, float32, float64
from kernelwright.ir.nodes import Graph, Group, Input, Reduce, Shape
from kernelwright.kernels import reduce, reduce_held, reduce_ring, reduce_sliding, reduce_spread, reduce_woven
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.reduce import RowWork
from kernelwright.load import Problem
from kernelwright.plan import Kernel
from kernelwright.plan.steps import contiguous
from tests.cases_of_rows import softmax_case, three_reductions, weighted_case
from tests.emulator.build import g_plus_plus, library_of, multiprocessors, order
from tests.emulator.run import agrees
from tests.emulator.test_reductions import H200, RACE, call, case_of
from tests.pools import POOLED
from tests.property.graphs_of_rows import Case
from tests.property.runs_of_rows import Run

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

Woven, Sliding = reduce_woven.Config, reduce_sliding.Config

# On one multiprocessor, so that each cluster has several rows, one after the other.
WOVEN: dict[str, tuple[Shape, Woven]] = {
    "a block a row": ((5, 1000), Woven(64, 4, 4, 0, 1, 2)),
    "two blocks, some in registers": ((5, 1000), Woven(32, 4, 2, 2, 2, 2)),
    "many blocks": ((9, 1000), Woven(32, 2, 1, 0, 16, 2)),
    "more blocks than a warp has lanes": ((3, 4000), Woven(32, 2, 2, 0, 40, 1)),
    "two rows": ((5, 1000), Woven(64, 4, 1, 1, 2, 2)),
    "some is read again": ((3, 1000), Woven(32, 4, 1, 1, 2, 1)),
    "elements": ((5, 333), Woven(32, 1, 3, 3, 2, 3)),
    "one row": ((1, 1000), Woven(64, 4, 3, 1, 1, 1)),
    "several vectors at a time": ((2, 30000), Woven(32, 4, 20, 10, 8, 2, ahead=5)),
    "several vectors, none in registers": ((5, 4000), Woven(32, 4, 16, 0, 2, 2, ahead=4)),
    "several vectors, all in one pass": ((5, 1000), Woven(64, 4, 4, 0, 1, 3, ahead=4)),
    "several vectors, some are read again": ((3, 4000), Woven(32, 4, 4, 2, 2, 1, ahead=2)),
    "several vectors, ends of rows": ((7, 1004), Woven(32, 4, 6, 0, 2, 3, ahead=3)),
    "nothing is held": ((5, 1000), Woven(32, 4, 4, 0, 2, 3)),
    "two blocks each": ((9, 1000), Woven(64, 4, 2, 0, 2, 2, 2)),
}


def why_not(config: Choice, work: RowWork) -> str | None:
    """What the template of a config says to it."""
    match config:
        case reduce_woven.Config():
            return reduce_woven.why_not(config, work, H200)
        case reduce_ring.Config():
            return reduce_ring.why_not(config, work, H200)
        case reduce_held.Config():
            return reduce_held.why_not(config, work, H200)
        case reduce_spread.Config():
            return reduce_spread.why_not(config, work, H200)
    raise AssertionError(f"{config} holds no rows")


def runs_of(cases: Sequence[tuple[Case, Choice]]) -> tuple[list[Run], Callable[..., int]]:
    """One program for all of them."""
    runs = [Run.of(number, case, H200, lambda kernel, c=config: c) for number, (case, config) in enumerate(cases)]  # type: ignore[misc]
    for run, (_, config) in zip(runs, cases, strict=True):
        (source,) = run.program.sources
        assert isinstance(source.work, RowWork)
        assert why_not(config, source.work) is None
    library = library_of(program_text([launch for run in runs for launch in run.program.launches], "cuda"))
    return runs, partial(call, library)


def checked(cases: Sequence[tuple[Case, Choice]]) -> None:
    """Right, the same bits twice, and in whatever order blocks and threads run."""
    runs, caller = runs_of(cases)
    for run in runs:
        with multiprocessors(1):
            run.check(caller)
        with multiprocessors(1), order(blocks_backwards=True, threads_backwards=True):
            run.check(caller)


@pytest.mark.slow
@pytest.mark.parametrize("name", WOVEN)
def test_woven_rows_are_right(name: str) -> None:
    shape, config = WOVEN[name]
    checked([(case_of(shape, (1,)), config)])


def test_what_only_the_last_phase_wants_is_loaded_there_ahead_of_stores() -> None:
    case, config = weighted_case((5, 1000)), Woven(32, 4, 2, 2, 2, 2)
    runs, caller = runs_of([(case, config)])
    (source,) = runs[0].program.sources
    assert source.struct.count("kw::load_constant<N>") == 2
    assert source.struct.count("kw::load_once<N>") == source.struct.count("kw::store_once<N>") == 1
    with multiprocessors(1):
        runs[0].check(caller)


def test_what_is_read_again_stays_in_the_caches() -> None:
    runs, caller = runs_of([(weighted_case((3, 1000)), Woven(32, 4, 1, 1, 2, 1))])
    (source,) = runs[0].program.sources
    assert "load_again(const Args& a" in source.struct
    with multiprocessors(1):
        runs[0].check(caller)


def stays_in_its_rows(config: Choice) -> None:
    """Inf and NaN, of a softmax."""
    x = torch.randn((6, 1000), generator=torch.Generator().manual_seed(3))
    x[0, 17], x[1, 999], x[2, 0], x[4] = float("nan"), float("inf"), -float("inf"), -float("inf")
    (run,), caller = runs_of([(softmax_case(x), config)])
    with multiprocessors(1):
        (got,) = run.forward(caller)(None, x)
    wanted = torch.softmax(x, 1)
    assert torch.equal(got.isnan(), wanted.isnan())
    assert torch.allclose(got, wanted, rtol=1e-5, atol=1e-7, equal_nan=True)


def shifted(shape: Shape) -> Case:
    """A case whose operand begins within a vector."""
    case = case_of(shape, (1,))
    (x,) = case.tensors
    moved = torch.empty(x.numel() + 1)[1:].view(shape).copy_(x)
    return Case(case.graph, case.wide, (moved,))


@pytest.mark.parametrize("config", [Woven(32, 4, 2, 2, 2, 3), Woven(64, 4, 1, 1, 2, 2)], ids=str)
def test_infinities_and_nan_stay_in_their_rows(config: Woven) -> None:
    stays_in_its_rows(config)


def test_operands_off_their_alignment_have_a_block_a_row() -> None:
    (run,), caller = runs_of([(shifted((5, 128)), Woven(32, 4, 1, 0, 1, 2))])
    run.check(caller)


def test_the_first_of_equal_elements_is_found_whatever_is_read_again() -> None:
    """A third reduction: it meets what is read again before what is held, and backwards."""
    shape = (3, 1000)
    x = torch.zeros(shape)
    run = Run.of(0, three_reductions(x), H200, lambda kernel: Woven(32, 4, 1, 1, 2, 1))
    forward = run.forward(partial(call, library_of(program_text(run.program.launches, "cuda"))))
    for columns in ([5, 133, 389], [257, 385], [300, 301, 400, 460]):
        x.zero_()[:, columns] = 2.0
        with multiprocessors(1):
            _, at = forward(None, x)
        assert at.flatten().tolist() == [columns[0]] * shape[0]


MISTAKES = {
    "nobody waits": ("while (seen_in_grid(arrived) < uint32_t(turn + 1) * Config::blocks) {}", "", RACE),
    "some do not arrive": ("arrive_in_grid(arrived);", "if (part > 0) arrive_in_grid(arrived);", "no thread can go on"),
    "one place for the states": ("turn % 2", "turn % 1", RACE + "|off by"),
    "the next row is forgotten": ("place_of(u) = here[u];", "", "off by"),
    "nobody sends for the next vectors": ("    fetch();\n", "", "off by"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_blocks_that_run_at_once_meet_as_they_should(mistake: str) -> None:
    """Whoever does otherwise is caught: by the emulator, or by the result."""
    old, new, said = MISTAKES[mistake]
    x = torch.randn((7, 192), generator=torch.Generator().manual_seed(4))
    run = Run.of(0, softmax_case(x), H200, lambda kernel: Woven(32, 1, 2, 0, 3, 2))
    text = program_text(run.program.launches, "cuda")
    assert old in text
    with pytest.raises(AssertionError, match=said):
        run.check(partial(call, library_of(text.replace(old, new))))


def test_a_gpu_that_cannot_run_all_blocks_at_once_takes_a_block_a_row() -> None:
    x = torch.randn((7, 1500), generator=torch.Generator().manual_seed(4))
    run = Run.of(0, softmax_case(x), H200, lambda kernel: Woven(512, 1, 1, 0, 3, 4))
    with multiprocessors(2):  # each has four blocks of 512 threads
        run.check(partial(call, library_of(program_text(run.program.launches, "cuda"))))


# --- windows

POOLS = {
    "maxima, apart": ("MaxPool1d(8, stride=1, padding=4, dilation=3)", (2, 3, 64)),
    "means": ("AvgPool1d(8, stride=1, padding=4)", (2, 3, 64)),
    "planes, off their words": ("MaxPool2d(4, stride=1, padding=1)", (1, 2, 5, 20)),
    "spaces, two apart": ("AvgPool3d(3, stride=2, padding=1)", (1, 1, 5, 4, 36)),
    "spaces, apart": ("MaxPool3d(3, stride=2, padding=1, dilation=3)", (1, 1, 7, 6, 40)),
    "no border": ("AvgPool2d(3, stride=1)", (1, 2, 5, 20)),
    "a line that is no whole word": ("AvgPool1d(4, stride=1)", (1, 3, 43)),
    "a last word that no window sees whole": ("AvgPool1d(3, stride=2)", (2, 3, 44)),
    "lines that a warp has for itself": ("AvgPool1d(8, stride=1, padding=4)", (1, 2, 300)),
    "few results a line": ("MaxPool1d(8, stride=1)", (2, 3, 24)),
    "more lines than lanes": ("AvgPool2d((5, 2), stride=(3, 1), padding=(2, 0))", (1, 1, 11, 20)),
}


def sliding(kernel: Kernel, number: int) -> list[Choice]:
    found = [c for c in ranked_choices(kernel, H200) if isinstance(c, Sliding)]
    return found[number % len(found) :] if found else []


def pooled(name: str, number: int, special: str) -> None:
    pool, shape = POOLS[name]
    text = POOLED.format(pool=pool, shape=shape, special=special)

    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        return [*sliding(kernel, number), choices[0]][0]

    program = agrees(Problem("pooled", text, Path("pooled.py")), pick=pick)
    (source,) = program.sources
    whole = shape[-1] % 4 == 0
    assert ("reduce_sliding" in source.call) == whole


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLS)
def test_windows_that_slide_are_right(name: str) -> None:
    pooled(name, 0, "1.0, 2.0, 3.0")


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 3, 5])
@pytest.mark.parametrize("name", POOLS)
def test_windows_that_slide_are_right_with_every_config(name: str, number: int, thorough: None) -> None:
    pooled(name, number, "1.0, 2.0, 3.0")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["maxima, apart", "means"])
def test_windows_pass_infinities_and_nan_on(name: str) -> None:
    pooled(name, 0, 'float("nan"), float("inf"), -float("inf")')


# --- wide blocks


@pytest.mark.parametrize("config", [reduce.Config(1024, 1, 4, 8, "again", 4, False)], ids=["four of them share rows"])
def test_wide_blocks_across_are_right(config: reduce.Config) -> None:
    shape = (2, 1100, 270)

    def built(dtype: DType) -> Graph:
        x = Input("x0", 0, shape, dtype, contiguous(shape))
        kinds = ("sum", "max", "argmin")
        return Graph((x,), tuple(Reduce(kind, x, (1,)) for kind in kinds), (), Group("tuple", (0, 1, 2)))

    x = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    run = Run.of(0, Case(built(float32), built(float64), (x,)), H200, lambda kernel: config)
    (source,) = run.program.sources
    assert isinstance(source.work, RowWork)
    assert reduce.why_not(config, source.work, H200) is None
    run.check(partial(call, library_of(program_text(run.program.launches, "cuda"))))
