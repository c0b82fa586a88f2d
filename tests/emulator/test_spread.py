"""Few long rows that all threads store, run on the host."""

from __future__ import annotations

import pytest

from kernelwright.kernels import reduce_spread
from tests.cases_of_rows import weighted_case
from tests.emulator.build import g_plus_plus
from tests.emulator.test_reductions import case_of
from tests.emulator.test_woven import runs_of, shifted, stays_in_its_rows
from tests.property.graphs_of_rows import Case

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

Spread = reduce_spread.Config

# threads, lanes, vectors, blocks, width, beside
SPREAD: dict[str, tuple[Case, Spread]] = {
    "in order": (case_of((3, 1000), (1,)), Spread(32, 4, 4, 3, 64, 1)),
    "backwards": (case_of((3, 1000), (1,)), Spread(32, 4, 4, 3, 32, 1)),
    "elements": (case_of((2, 333), (1,)), Spread(32, 1, 2, 4, 32, 1)),
    "weights, rows beside each other": (weighted_case((5, 1000)), Spread(64, 4, 2, 2, 64, 4)),
    "weights, backwards": (weighted_case((5, 1000)), Spread(32, 2, 2, 5, 32, 2)),
    "launches that begin early": (weighted_case((5, 1000)), Spread(32, 4, 2, 3, 32, 2, True)),
    "one row": (case_of((1, 4000), (1,)), Spread(64, 4, 4, 8, 64, 1)),
}


def checked(case: Case, config: Spread) -> None:
    (run,), caller = runs_of([(case, config)])
    run.check(caller)


@pytest.mark.parametrize("name", SPREAD)
def test_rows_that_all_threads_store_are_right(name: str) -> None:
    checked(*SPREAD[name])


def test_operands_off_their_alignment_are_stored_one_by_one() -> None:
    checked(shifted((3, 512)), Spread(32, 4, 4, 2, 32, 1))


def test_infinities_and_nan_stay_in_their_rows() -> None:
    stays_in_its_rows(Spread(32, 4, 4, 3, 64, 1))
