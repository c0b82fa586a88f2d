"""Few long rows with weights, of each of which a block has a stretch, run on the host."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from kernelwright.generate.generate import program_text
from kernelwright.ir.nodes import Shape
from kernelwright.kernels import reduce_stretch
from kernelwright.kernels.reduce import RowWork
from tests.emulator.build import g_plus_plus, library_of, multiprocessors, order
from tests.emulator.test_reductions import H200, call
from tests.emulator.test_woven import weighted_case
from tests.property.graphs_of_rows import Case
from tests.property.runs_of_rows import Run

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

Stretch = reduce_stretch.Config

# threads, lanes, vectors, blocks, stays
STRETCHES: dict[str, tuple[Shape, Stretch]] = {
    "some is kept": ((5, 1000), Stretch(32, 4, 5, 3, 2)),
    "little is kept": ((7, 1000), Stretch(64, 4, 1, 2, 0)),
    "all is kept": ((3, 1000), Stretch(32, 4, 12, 2, 3)),
    "elements": ((4, 333), Stretch(32, 1, 3, 4, 1)),
    "more rows than warps": ((9, 600), Stretch(64, 2, 4, 3, 9)),
}


def run_of(case: Case, config: Stretch) -> Run:
    run = Run.of(0, case, H200, lambda kernel: config)
    (source,) = run.program.sources
    assert isinstance(source.work, RowWork)
    assert reduce_stretch.why_not(config, source.work, H200) is None
    return run


@pytest.mark.parametrize("name", STRETCHES)
def test_stretches_of_rows_are_right(name: str) -> None:
    """And the same bits twice, in whatever order blocks and threads run."""
    shape, config = STRETCHES[name]
    run = run_of(weighted_case(shape), config)
    caller = partial(call, library_of(program_text(run.program.launches, "cuda")))
    with multiprocessors(1 if config.blocks <= 2 else 4):
        run.check(caller)
    with multiprocessors(4), order(blocks_backwards=True, threads_backwards=True):
        run.check(caller)


def test_operands_off_their_alignment_have_a_block_a_row() -> None:
    case = weighted_case((5, 512))
    x, *weights = case.tensors
    shifted = torch.empty(5 * 512 + 1)[1:].view(5, 512).copy_(x)
    run = run_of(Case(case.graph, case.wide, (shifted, *weights)), Stretch(32, 4, 2, 2, 1))
    run.check(partial(call, library_of(program_text(run.program.launches, "cuda"))))


def test_blocks_that_do_not_wait_are_caught() -> None:
    run = run_of(weighted_case((5, 1000)), Stretch(32, 4, 5, 3, 2))
    text = program_text(run.program.launches, "cuda")
    wait = "while (uint32_t(word >> 32) != 1) word = told_by_grid(place);"
    assert wait in text
    with pytest.raises(AssertionError, match="off by"):
        run.check(partial(call, library_of(text.replace(wait, ""))))
