"""Rows that pass through a ring in shared memory, run on the host."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from kernelwright.generate.generate import program_text
from kernelwright.ir.nodes import Shape
from kernelwright.kernels import reduce_ring
from tests.cases_of_rows import softmax_case, three_reductions, weighted_case
from tests.emulator.build import g_plus_plus, library_of, multiprocessors, order
from tests.emulator.test_reductions import H200, RACE, call, case_of
from tests.emulator.test_woven import runs_of, shifted, stays_in_its_rows
from tests.property.runs_of_rows import Run

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

Ring = reduce_ring.Config

# threads, lanes, vectors, ahead, step, blocks, together, each, holds; on one multiprocessor, so that blocks have
# several rows.
RINGS: dict[str, tuple[Shape, Ring]] = {
    "a block a row": ((5, 1000), Ring(64, 4, 6, 2, 2, 1, 2)),
    "two blocks": ((5, 1000), Ring(32, 4, 6, 2, 1, 2, 2)),
    "many blocks": ((9, 1000), Ring(32, 2, 2, 1, 1, 16, 2)),
    "more blocks than a warp has lanes": ((3, 4000), Ring(32, 2, 3, 1, 1, 40, 1)),
    "more words than threads": ((3, 6000), Ring(32, 1, 6, 1, 1, 38, 1)),
    "elements": ((5, 333), Ring(32, 1, 9, 3, 3, 2, 3)),
    "one row": ((1, 1000), Ring(64, 4, 8, 4, 4, 1, 1)),
    "more places than rows": ((2, 1000), Ring(64, 4, 6, 2, 2, 1, 3)),
    "a row ahead": ((7, 1004), Ring(32, 4, 8, 4, 2, 2, 3)),
    "two blocks each": ((9, 1000), Ring(64, 4, 3, 1, 1, 2, 2, 2)),
    "two words a vector": ((5, 2000), Ring(32, 8, 6, 2, 2, 2, 2)),
    "two rows are held": ((9, 1000), Ring(32, 4, 9, 1, 1, 2, 2, holds=2)),
    "three rows are held": ((11, 1004), Ring(32, 4, 14, 2, 2, 2, 1, holds=3)),
    "more rows could be held than there are": ((2, 1000), Ring(32, 4, 13, 1, 1, 2, 1, holds=3)),
    "a clerk": ((9, 1000), Ring(32, 4, 9, 1, 1, 2, 2, holds=2, clerks=32)),
    "a clerk of three rows": ((11, 1004), Ring(64, 4, 8, 2, 2, 2, 1, holds=3, clerks=32)),
    "a clerk hears many": ((5, 4000), Ring(32, 2, 5, 1, 1, 40, 1, holds=2, clerks=32)),
    "a clerk for fewer rows": ((2, 1000), Ring(32, 4, 13, 1, 1, 2, 1, holds=3, clerks=32)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RINGS)
def test_rows_through_a_ring_are_right(name: str) -> None:
    """And the same bits twice, in whatever order blocks and threads run."""
    shape, config = RINGS[name]
    case = case_of(shape, (1,)) if config.holds == 1 else weighted_case(shape)  # which has one reduction
    runs, caller = runs_of([(case, config)])
    for run in runs:
        with multiprocessors(1):
            run.check(caller)
        with multiprocessors(1), order(blocks_backwards=True, threads_backwards=True):
            run.check(caller)


def test_weights_and_phases_between_pass_through_a_ring() -> None:
    """LayerNorm with weights; and three reductions, each of what the one before has found."""
    shape = (5, 1000)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    three = (three_reductions(x), Ring(32, 4, 7, 3, 1, 2, 2))
    runs, caller = runs_of([(weighted_case(shape), Ring(32, 4, 6, 2, 2, 2, 2)), three])
    for run in runs:
        with multiprocessors(1):
            run.check(caller)


def test_infinities_and_nan_stay_in_their_rows() -> None:
    stays_in_its_rows(Ring(32, 4, 6, 2, 2, 2, 3))


def test_operands_off_their_alignment_have_a_block_a_row() -> None:
    (run,), caller = runs_of([(shifted((5, 128)), Ring(32, 4, 2, 1, 1, 1, 2))])
    run.check(caller)


MISTAKES = {
    "nobody waits": ("while (uint32_t(word >> 32) != uint32_t(turn) + 1) word = told_by_grid(parts + i);", "", "off by"),  # noqa: E501
    "some say nothing": ("    if (threadIdx.x == 0) {\n        uint64_t* const parts", "    if (threadIdx.x == 0 && part > 0) {\n        uint64_t* const parts", "no thread can go on"),  # noqa: E501
    "what arrives is not waited for": ("arrived_but<Slots::ahead / step>();", "", "off by"),
    "places are sent to too early": ("const int spot = Slots::next(place, Slots::ahead);", "const int spot = place;", RACE + "|off by"),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_who_breaks_the_ring_is_caught(mistake: str) -> None:
    """By the emulator, or by the result."""
    old, new, said = MISTAKES[mistake]
    x = torch.randn((7, 192), generator=torch.Generator().manual_seed(4))
    run = Run.of(0, softmax_case(x), H200, lambda kernel: Ring(32, 1, 3, 1, 1, 3, 2))
    text = program_text(run.program.launches, "cuda")
    assert old in text
    with pytest.raises(AssertionError, match=said):
        run.check(partial(call, library_of(text.replace(old, new))))
