"""Rows on disk: whole or not there, and the same when they are read back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.errors import UsageError
from kernelwright.report.row import OUTCOMES, Terms, identity_of, read_row, row_line
from kernelwright.suite.folder import RunFolder, latest, read_rows
from tests.suite.made import TERMS, failed_row, make_row


@pytest.mark.parametrize(
    "row", [make_row("a/b", peers_us={"best": 90.0}), failed_row("a/c", "BUG")], ids=["right", "bug"]
)
def test_a_row_is_the_same_after_a_round_trip(row: object) -> None:
    assert read_row(json.loads(row_line(row))) == row  # type: ignore[arg-type]


def test_a_number_that_json_lacks_does_not_stop_a_row() -> None:
    line = row_line(replace(make_row("a"), noise=float("nan"), kill_rate=float("inf")))
    assert read_row(json.loads(line)).noise is None


def test_the_judges_verdicts_all_have_a_standing() -> None:
    from kernelwright.judge import Verdict

    assert {str(verdict) for verdict in Verdict} <= set(OUTCOMES)


def test_identity_changes_with_text_name_and_terms() -> None:
    one = identity_of("a", "00", TERMS)
    assert identity_of("a", "00", TERMS) == one
    others = {
        identity_of("b", "00", TERMS),
        identity_of("a", "01", TERMS),
        identity_of("a", "00", replace(TERMS, budget_s=1.0)),
    }
    assert one not in others
    assert len(others) == 3


def test_a_line_cut_off_by_a_crash_is_passed_over_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(make_row("one"))
    with folder.rows_path.open("a") as file:
        file.write(row_line(make_row("torn"))[:100])
    folder.append(make_row("two"))
    assert [row.problem for row in folder.rows()] == ["one", "two"]


def test_the_latest_row_of_a_problem_counts_at_its_first_place(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for row in (make_row("a", 1.0), make_row("b"), make_row("a", 3.0)):
        folder.append(row)
    kept = latest(folder.rows())
    assert [(row.problem, row.over("eager")) for row in kept] == [("a", 3.0), ("b", 2.0)]


def test_a_row_of_another_schema_is_refused_with_a_cure() -> None:
    with pytest.raises(UsageError, match="schema 99"):
        read_row({"schema": 99})


def test_two_runs_cannot_write_into_one_folder(tmp_path: Path) -> None:
    with RunFolder(tmp_path).claimed(), pytest.raises(UsageError, match="another run"), RunFolder(tmp_path).claimed():
        pass


def test_a_folder_without_results_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no results"):
        read_rows(tmp_path)


def test_a_result_of_other_terms_is_not_adopted(tmp_path: Path) -> None:
    folder, row = RunFolder(tmp_path), make_row("a")
    home = folder.fresh_problem_folder("a")
    (home / "result.json").write_text(row_line(row))
    assert folder.finished("a", row.identity) == row
    assert folder.finished("a", identity_of("a", row.sha256, Terms("x", "ieee", (), 1.0, "quick"))) is None
