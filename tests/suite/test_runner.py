"""The runner's bookkeeping: one row a problem whatever happens to it, nothing lost and nothing done twice."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kernelwright.report.row import row_line
from kernelwright.suite.folder import RunFolder, read_rows
from tests.suite import fake_suite

PROBLEM = "import torch\n\n\nclass Model(torch.nn.Module):  {remark}\n    pass\n\n\ndef get_inputs():\n    return []\n"


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    return problem_folder(tmp_path, {f"{i}_x": "" for i in range(6)})


def problem_folder(root: Path, remarks: dict[str, str]) -> Path:
    folder = root / "some"
    folder.mkdir()
    for name, remark in remarks.items():
        (folder / f"{name}.py").write_text(PROBLEM.format(remark=remark))
    return folder


def worked(run: Path) -> Counter[str]:
    """How often each problem was worked out to the end."""
    path = run / "worked.txt"
    return Counter(path.read_text().split()) if path.is_file() else Counter()


def verdicts(run: Path) -> dict[str, str]:
    return {row.problem: row.verdict for row in read_rows(run)}


def test_what_is_done_is_not_done_again(problems: Path, tmp_path: Path) -> None:
    assert len(fake_suite.run(problems, tmp_path / "run").rows) == 6
    again = fake_suite.run(problems, tmp_path / "run")
    assert (len(again.rows), again.before) == (0, 6)
    assert set(worked(tmp_path / "run").values()) == {1}


def test_a_problem_whose_text_changed_is_done_again_and_no_other(problems: Path, tmp_path: Path) -> None:
    fake_suite.run(problems, tmp_path / "run")
    (problems / "3_x.py").write_text(PROBLEM.format(remark="# another"))
    assert [row.problem for row in fake_suite.run(problems, tmp_path / "run").rows] == ["some/3_x"]


def test_redo_does_everything_again_and_keeps_the_old_rows(problems: Path, tmp_path: Path) -> None:
    fake_suite.run(problems, tmp_path / "run")
    assert len(fake_suite.run(problems, tmp_path / "run", redo=True).rows) == 6
    assert len(read_rows(tmp_path / "run")) == 12


def test_a_failing_problem_is_a_row_and_never_the_end(tmp_path: Path) -> None:
    remarks = {"1_good": "", "2_crash": "# crash", "3_raise": "# raise", "4_hang": "# hang", "5_good": ""}
    fake_suite.run(problem_folder(tmp_path, remarks), tmp_path / "run", limit_s=3)
    assert verdicts(tmp_path / "run") == {
        "some/1_good": "CORRECT",
        "some/2_crash": "DIED",
        "some/3_raise": "BUG",
        "some/4_hang": "OUT_OF_TIME",
        "some/5_good": "CORRECT",
    }
    said = {row.problem: row.detail for row in read_rows(tmp_path / "run")}
    assert "the model said no" in said["some/3_raise"]
    assert "longer than 3 s" in said["some/4_hang"]


def test_one_that_lacked_memory_beside_others_is_run_again_by_itself(tmp_path: Path) -> None:
    folder = problem_folder(tmp_path, {"1_good": "", "2_crowded": "# crowded", "3_dies": "# crowded # and dies"})
    fake_suite.run(folder, tmp_path / "run", jobs=2)
    assert set(verdicts(tmp_path / "run").values()) == {"CORRECT"}
    assert len(read_rows(tmp_path / "run")) == 3


def test_the_isolation_that_one_problem_found_is_told_to_the_next(problems: Path, tmp_path: Path) -> None:
    outcome = fake_suite.run(problems, tmp_path / "run", jobs=1)
    assert [row.environment["told"] for row in outcome.rows] == [[], *[["namespaces"]] * 5]


def test_a_result_whose_row_was_never_written_is_adopted_not_repeated(problems: Path, tmp_path: Path) -> None:
    fake_suite.run(problems, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    rows = folder.rows()
    folder.rows_path.write_text("".join(map(row_line, rows[:-1])))  # killed between the result and its row
    outcome = fake_suite.run(problems, tmp_path / "run")
    assert [row.problem for row in outcome.rows] == [rows[-1].problem]
    assert set(worked(tmp_path / "run").values()) == {1}


def test_after_the_total_budget_nothing_is_started_and_the_rest_is_left(problems: Path, tmp_path: Path) -> None:
    outcome = fake_suite.run(problems, tmp_path / "run", jobs=1, total_s=0.3)
    assert 0 < len(outcome.rows) < 6
    assert len(outcome.rows) + len(outcome.left) == 6
    rest = fake_suite.run(problems, tmp_path / "run")
    assert len(rest.rows) == len(outcome.left)


def test_kill_9_at_any_moment_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """Killed again and again at random moments, then left to finish: each problem has one row and was done once."""
    folder, run = problem_folder(tmp_path, {f"{i}_x": "" for i in range(12)}), tmp_path / "run"
    command = [sys.executable, fake_suite.__file__, str(folder), str(run), "2"]
    rng = random.Random(4)
    before: set[str] = set()
    for _ in range(5):
        process = subprocess.Popen(command)
        time.sleep(rng.uniform(0.3, 1.2))
        process.kill()
        process.wait()
        rows = {row.problem for row in read_rows(run)} if (run / "results.jsonl").is_file() else set()
        assert before <= rows
        before = rows
        time.sleep(0.3)  # keepers take their trees down
    subprocess.run(command, check=True, timeout=60)
    counts = Counter(row.problem for row in read_rows(run))
    assert len(counts) == 12
    assert set(counts.values()) == {1}
    # A child may be killed after its result is on disk and before it notes that it has worked; never twice.
    assert set(worked(run).values()) == {1}
