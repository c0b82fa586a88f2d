"""Rows that are held in registers, run on the host."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from kernelwright.generate.generate import program_text
from kernelwright.ir.nodes import Shape
from kernelwright.kernels import reduce_held
from tests.cases_of_rows import softmax_case, three_reductions, weighted_case
from tests.emulator.build import g_plus_plus, library_of, multiprocessors, order
from tests.emulator.test_reductions import H200, RACE, call, case_of
from tests.emulator.test_woven import runs_of, shifted, stays_in_its_rows
from tests.property.runs_of_rows import Run

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

Held = reduce_held.Config

# threads, lanes, held, kept, early, blocks, together, each; on one multiprocessor, so that blocks have several rows.
HELD: dict[str, tuple[Shape, Held]] = {
    "a block a row": ((5, 1000), Held(64, 4, 4, 0, 2, 1, 2)),
    "two blocks": ((5, 1000), Held(32, 4, 4, 0, 2, 2, 2)),
    "full": ((5, 1024), Held(32, 4, 4, 0, 2, 2, 2)),
    "many blocks": ((9, 1000), Held(32, 2, 1, 0, 1, 16, 2)),
    "more vectors than are looked at late": ((3, 6000), Held(32, 4, 16, 0, 5, 3, 1)),
    "more blocks than a warp has lanes": ((3, 4000), Held(32, 2, 2, 0, 2, 40, 1)),
    "elements": ((5, 333), Held(32, 1, 6, 0, 2, 2, 3)),
    "one row": ((1, 1000), Held(64, 4, 4, 0, 2, 1, 1)),
    "more places than rows": ((2, 1000), Held(64, 4, 4, 0, 2, 1, 3)),
    "two blocks each": ((9, 1000), Held(64, 4, 2, 0, 2, 2, 2, 2)),
}


# With weights that stay in shared memory, for all vectors but the last or for some.
KEPT: dict[str, tuple[Shape, Held]] = {
    "all but one": ((5, 1000), Held(32, 4, 4, 3, 1, 2, 2)),
    "some": ((5, 3000), Held(32, 4, 12, 5, 3, 2, 1)),
    "full": ((7, 1024), Held(32, 4, 8, 2, 4, 1, 2)),
}


@pytest.mark.parametrize("name", KEPT)
def test_weights_that_stay_are_right(name: str) -> None:
    shape, config = KEPT[name]
    (run,), caller = runs_of([(weighted_case(shape), config)])
    for backwards in (False, True):
        with multiprocessors(1), order(blocks_backwards=backwards, threads_backwards=backwards):
            run.check(caller)


@pytest.mark.slow
@pytest.mark.parametrize("name", HELD)
def test_rows_that_are_held_are_right(name: str) -> None:
    """And the same bits twice, in whatever order blocks and threads run; with weights or without."""
    shape, config = HELD[name]
    runs, caller = runs_of([(case_of(shape, (1,)), config), (weighted_case(shape), config)])
    for run in runs:
        with multiprocessors(1):
            run.check(caller)
        with multiprocessors(1), order(blocks_backwards=True, threads_backwards=True):
            run.check(caller)


def test_phases_between_walk_over_what_is_held() -> None:
    """Three reductions, each of what the one before has found."""
    x = torch.randn((5, 1000), generator=torch.Generator().manual_seed(5))
    (run,), caller = runs_of([(three_reductions(x), Held(32, 4, 4, 0, 2, 2, 2))])
    with multiprocessors(1):
        run.check(caller)


def test_infinities_and_nan_stay_in_their_rows() -> None:
    stays_in_its_rows(Held(32, 4, 4, 0, 2, 2, 3))


def test_operands_off_their_alignment_have_a_block_a_row() -> None:
    (run,), caller = runs_of([(shifted((5, 128)), Held(32, 4, 1, 0, 1, 1, 2))])
    run.check(caller)


MISTAKES = {
    "a vector is not looked at": ("const int there = slot - behind;", "const int there = slot - 1 - behind;", "off by"),
    "another vector is stored": ("slots.column(slot), held[slot],\n", "slots.column(slot), held[(slot + 1) % all],\n", "off by"),  # noqa: E501
    "some say nothing": ("    if (threadIdx.x == 0) {\n        uint64_t* const parts", "    if (threadIdx.x == 0 && part > 0) {\n        uint64_t* const parts", "no thread can go on"),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_who_breaks_it_is_caught(mistake: str) -> None:
    """By the emulator, or by the result."""
    old, new, said = MISTAKES[mistake]
    x = torch.randn((7, 192), generator=torch.Generator().manual_seed(4))
    run = Run.of(0, softmax_case(x), H200, lambda kernel: Held(32, 1, 2, 0, 2, 3, 2))
    text = program_text(run.program.launches, "cuda")
    assert old in text
    with pytest.raises(AssertionError, match=f"{said}|{RACE}"):
        run.check(partial(call, library_of(text.replace(old, new))))
