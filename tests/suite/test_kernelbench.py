"""To KernelBench's files and back."""

import json
from pathlib import Path

import pytest

from kernelwright.errors import UsageError
from kernelwright.suite.folder import RunFolder, latest
from kernelwright.suite.kernelbench import export_run, import_files
from kernelwright.suite.names import key_of, level_and_number
from tests.suite.made import failed_row, make_row


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    for row in (
        make_row("level1/1_Square_matrix_multiplication_", 2.0),
        failed_row("level1/12_Matmul", "INCORRECT"),
        failed_row("level2/3_Conv", "COMPILE_ERROR"),
        make_row("ours/mlp"),
    ):
        folder.append(row)
        home = folder.fresh_problem_folder(row.problem)
        (home / "emitted.py").write_text("class ModelNew: ...\n")
    return folder.path


def test_a_public_name_has_a_level_and_a_number() -> None:
    assert level_and_number("KernelBench/level2/17_Conv2d") == (2, 17)
    assert level_and_number("ours/mlp_relu") is None
    assert key_of("a/level_3/5_AlexNet") == key_of("level3/5") == "level3/5"


def test_an_exported_run_has_one_evaluation_a_level_in_milliseconds(run: Path, tmp_path: Path) -> None:
    list(export_run(run, tmp_path / "out", "night"))
    results = json.loads((tmp_path / "out/runs/night_level1/eval_results.json").read_text())
    assert list(results) == ["1", "12"]
    (sample,) = results["1"]
    assert (sample["compiled"], sample["correctness"], sample["runtime"]) == (True, True, 0.1)
    assert sample["runtime_stats"]["mean"] == 0.1
    assert (results["12"][0]["compiled"], results["12"][0]["correctness"]) == (True, False)
    other = json.loads((tmp_path / "out/runs/night_level2/eval_results.json").read_text())
    assert (other["3"][0]["compiled"], other["3"][0]["runtime"]) == (False, -1.0)
    assert (tmp_path / "out/runs/night_level1/level_1_problem_1_sample_0_kernel.py").is_file()


def test_exported_baselines_come_back_as_a_peers_times(run: Path, tmp_path: Path) -> None:
    list(export_run(run, tmp_path / "out", "night"))
    timing = tmp_path / "out/results/timing/Made_up_GPU/baseline_time_torch.json"
    assert json.loads(timing.read_text())["level1"]["1_Square_matrix_multiplication_.py"]["mean"] == 0.2
    (line,) = import_files([timing], run, "their eager", None)
    assert "1 problems" in line
    rows = {row.problem: row for row in latest(RunFolder(run).rows())}
    assert rows["level1/1_Square_matrix_multiplication_"].peers_us == {"their eager": 200.0}
    assert not rows["ours/mlp"].peers_us


def test_an_imported_evaluation_is_anothers_word_and_says_so(run: Path, tmp_path: Path) -> None:
    list(export_run(run, tmp_path / "out", "night"))
    list(import_files([tmp_path / "out/runs/night_level1/eval_results.json"], tmp_path / "theirs", "night", None))
    rows = {row.problem: row for row in RunFolder(tmp_path / "theirs").rows()}
    assert rows["level1/1"].verdict == "CORRECT"
    assert rows["level1/1"].ours_us is not None
    assert rows["level1/1"].ours_us.median == 100.0
    assert "not by this judge" in rows["level1/1"].detail
    assert rows["level1/12"].verdict == "INCORRECT"


def test_of_several_samples_the_fastest_right_one_counts(tmp_path: Path) -> None:
    samples = [
        {"sample_id": 0, "compiled": True, "correctness": False, "runtime": 0.1, "metadata": {}},
        {"sample_id": 1, "compiled": True, "correctness": True, "runtime": 3.0, "metadata": {"hardware": "A100"}},
        {"sample_id": 2, "compiled": True, "correctness": True, "runtime": 2.0, "metadata": {"hardware": "A100"}},
    ]
    path = tmp_path / "eval_results.json"
    path.write_text(json.dumps({"7": samples}))
    list(import_files([path], tmp_path / "run", "them", 2))
    (row,) = RunFolder(tmp_path / "run").rows()
    assert row.problem == "level2/7"
    assert row.ours_us is not None
    assert row.ours_us.median == 2000.0


def test_a_run_without_public_problems_cannot_be_exported(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(make_row("ours/mlp"))
    with pytest.raises(UsageError, match="KernelBench's"):
        list(export_run(tmp_path, tmp_path / "out", "x"))


def test_a_file_of_neither_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(UsageError):
        list(import_files([tmp_path / "x.json"], tmp_path, "x", 1))
