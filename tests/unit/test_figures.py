"""benchmarks/figures.py turns measured rows into the README's tables."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.figures import BEGIN, END, README, figures, latest, rows_of, with_figures

GPU = {
    "device": "NVIDIA H200",
    "torch": "2.11.0+cu130",
    "cuda": "13.0",
    "python": "3.12.3",
    "copy_gbps": 4251.9,
    "commit": "bd70fa3",
    "command": "python benchmarks/device.py benchmarks/problems/relu.py benchmarks/problems/swiglu.py",
    "date": "2026-11-15",
}
CPU = {
    "device": "CPU: Xeon",
    "threads": 2,
    "torch": "2.13.0+cpu",
    "python": "3.12.3",
    "commit": "2400108",
    "command": "python benchmarks/cpu.py benchmarks/problems/relu.py",
    "date": "2026-11-15",
}


def measured(problem: str, ours_us: float, environment: dict[str, Any], **other: Any) -> dict[str, Any]:
    row = {
        "problem": problem,
        "build_s": 1.49,
        "times_us": {"eager": 3048.0, "ours": ours_us, "compile": 3115.68},
        "speedup": {"eager": 1.0088, "compile": 1.0241},
        "kernel_us": [3067.78],
        "copy_share": [0.9878],
        "error": {"ours": 0.0, "eager": 1.62e-6},
        "environment": environment,
    }
    return {**row, **other}


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_shows_times_ratios_share_error_build_and_commit(tmp_path: Path) -> None:
    text = figures(rows_of([written(tmp_path / "a.jsonl", measured("relu", 3021.9, GPU))]))
    line = (
        "| [`relu`](benchmarks/problems/relu.py) | 3.05 ms | 3.12 ms | 3.02 ms | 1.01 | 1.02 | 99% | 0 / 1.6e-06 "
        "| 1.5 s | `bd70fa3` |"
    )
    assert line in text.splitlines()
    assert text.startswith("**NVIDIA H200**, PyTorch 2.11.0+cu130, CUDA 13.0, Python 3.12.3, 2026-11-15\n")


def test_the_command_names_the_problems_of_the_table_and_no_others(tmp_path: Path) -> None:
    text = figures(rows_of([written(tmp_path / "a.jsonl", measured("relu", 3021.9, GPU))]))
    assert "\npython benchmarks/device.py benchmarks/problems/relu.py\n" in text


def test_the_later_row_of_a_file_wins(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", measured("relu", 3021.9, GPU), measured("relu", 2500.0, GPU))
    (row,) = latest(rows_of([file]))
    assert row.times_us["ours"] == 2500.0


def test_the_later_date_wins_whatever_the_files_are_called(tmp_path: Path) -> None:
    new = written(tmp_path / "a.jsonl", measured("relu", 2500.0, {**GPU, "date": "2026-11-16", "commit": "new"}))
    old = written(tmp_path / "b.jsonl", measured("relu", 3021.9, GPU))
    (row,) = latest(rows_of([new, old]))
    assert row.commit == "new"


def test_a_problem_has_one_row_on_each_device_and_gpus_come_first(tmp_path: Path) -> None:
    cpu = measured("relu", 9000.0, CPU, copy_share=[], kernel_us=[])
    rows = latest(rows_of([written(tmp_path / "a.jsonl", cpu, measured("relu", 3021.9, GPU))]))
    text = figures(rows)
    assert text.count("| [`relu`]") == 2
    assert text.index("**NVIDIA H200**") < text.index("**CPU: Xeon**, PyTorch 2.13.0+cpu, Python 3.12.3, 2 threads")


def test_what_is_not_known_is_an_empty_cell(tmp_path: Path) -> None:
    times = {"eager": 999.4, "ours": 900.0}
    bare = measured("relu", 900.0, CPU, times_us=times, speedup={"eager": 1.11}, copy_share=[None], error={})
    text = figures(rows_of([written(tmp_path / "a.jsonl", bare)]))
    assert "| 999 us |  | 900 us | 1.11 |  |  |  | 1.5 s |" in text


def test_the_share_is_that_of_the_kernel_that_takes_longest(tmp_path: Path) -> None:
    two = measured("swiglu", 900.0, GPU, copy_share=[0.99, 0.41], kernel_us=[3.0, 600.0])
    (row,) = rows_of([written(tmp_path / "a.jsonl", two)])
    assert row.floor_share == 0.41


def test_the_floor_of_a_product_is_its_arithmetic(tmp_path: Path) -> None:
    shares = {"copy_share": [0.13, 0.9], "floor_share": [0.84, 0.91], "library_us": [2700.0, None]}
    two = measured("swiglu", 900.0, GPU, kernel_us=[600.0, 3.0], **shares)
    (row,) = rows_of([written(tmp_path / "a.jsonl", two)])
    assert row.floor_share == 0.84


def test_a_later_failure_is_shown_and_not_the_time_before_it(tmp_path: Path) -> None:
    failed = {"problem": "relu", "failed": "OutOfMemoryError: 8 GB", "environment": GPU}
    (row,) = latest(rows_of([written(tmp_path / "a.jsonl", measured("relu", 3021.9, GPU), failed)]))
    text = figures([row])
    assert "| failed: OutOfMemoryError |" in text
    assert "3.02 ms" not in text


def test_rows_of_other_scripts_are_left_out(tmp_path: Path) -> None:
    other = {"check": "environment", "device": "NVIDIA H200"}
    assert rows_of([written(tmp_path / "a.jsonl", other)]) == []
    assert figures([]) == "Nothing has been measured yet."


def test_only_what_stands_between_the_marks_changes() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_figures(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert with_figures(with_figures(page, "new"), "new") == with_figures(page, "new")


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(SystemExit, match="figures:begin"):
        with_figures("no marks", "new")


def test_the_readme_has_the_marks_once() -> None:
    page = README.read_text()
    assert (page.count(BEGIN), page.count(END)) == (1, 1)
