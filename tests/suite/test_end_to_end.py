"""The whole command on a CPU: real problems, real judging, a page of what came of them; killed and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.report.boxes import read_picture
from kernelwright.report.row import Row
from kernelwright.suite.folder import read_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HEAD = "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
TAIL = "\n\ndef get_inputs():\n    return [torch.randn(256, 256)]\n\n\ndef get_init_inputs():\n    return []\n"
PROBLEMS = {
    "1_chain": "    def forward(self, x):\n        return torch.tanh(x * 2 + 1) * torch.sigmoid(x)\n",
    "2_linear": (
        "    def __init__(self):\n        super().__init__()\n        self.linear = nn.Linear(256, 64)\n\n"
        "    def forward(self, x):\n        return torch.relu(self.linear(x)) * 0.5\n"
    ),
    "3_product_alone": "    def forward(self, x):\n        return x @ x\n",
    "4_no_list": "    def forward(self, x):\n        return x\n",
}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kernelwright", "suite", *arguments]


def run_arguments(problems: Path, output: Path) -> list[str]:
    terms = ["--device", "cpu", "--effort", "quick", "--budget", "4s", "--baselines", "eager", "--jobs", "2"]
    return command("run", str(problems), "-o", str(output), *terms)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite") / "few"
    folder.mkdir()
    for name, body in PROBLEMS.items():
        tail = TAIL.replace("[torch", "{1: torch").replace("256)]", "256)}") if "no_list" in name else TAIL
        (folder / f"{name}.py").write_text(HEAD + body + tail)
    return folder


@pytest.fixture(scope="module")
def run(problems: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Started, killed while it works, and started again."""
    output = tmp_path_factory.mktemp("run") / "night"
    first = subprocess.Popen(run_arguments(problems, output), cwd=ROOT, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 240
    while not (output / "results.jsonl").is_file() and time.monotonic() < end and first.poll() is None:
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = (output / "results.jsonl").read_text()
    assert kept
    second = subprocess.run(
        run_arguments(problems, output), cwd=ROOT, check=False, timeout=500, capture_output=True, text=True
    )
    assert second.returncode == 0, second.stderr
    assert (output / "results.jsonl").read_text().startswith(kept)  # what was written stays as it was
    assert " done before" in second.stdout
    return output


@pytest.fixture(scope="module")
def rows(run: Path) -> dict[str, Row]:
    return {row.problem: row for row in read_rows(run)}


def test_every_problem_has_exactly_one_row(run: Path) -> None:
    names = [row.problem for row in read_rows(run)]
    assert sorted(names) == [f"few/{name}" for name in PROBLEMS]


def test_each_verdict_is_the_right_one(rows: dict[str, Row]) -> None:
    assert {name: row.standing for name, row in rows.items()} == {
        "few/1_chain": "right",
        "few/2_linear": "right",
        "few/3_product_alone": "unchanged",
        "few/4_no_list": "unjudged",
    }


def test_a_right_row_has_all_that_a_report_shows(rows: dict[str, Row]) -> None:
    row = rows["few/2_linear"]
    assert row.errors is not None
    assert row.work is not None
    assert (row.family, row.work.flops) == ("gemm", 2 * 256 * 256 * 64)
    assert row.kernels
    assert row.contractions[0].by == "PyTorch"
    assert row.environment["torch"]
    assert rows["few/1_chain"].family == "elementwise"


def test_the_files_of_a_problem_lie_beside_its_row(run: Path) -> None:
    home = run / "problems" / "few" / "2_linear"
    assert "class ModelNew" in (home / "emitted.py").read_text()
    assert (home / "original.py").read_text().startswith(HEAD)
    assert (home / "record.json.gz").stat().st_size > 0
    assert list((home / "dumps").glob("*_plan.txt"))
    kinds = [box.kind for box in read_picture((home / "plan.json").read_text()).boxes]
    assert kinds == ["input", "library", "kernel", "output"]


def test_the_pages_and_the_database_are_there(run: Path) -> None:
    for name in ("report.html", "report.md", "results.sqlite"):
        assert (run / name).stat().st_size > 0
    assert "few/1_chain" in (run / "report.md").read_text()


def test_a_run_compared_with_itself_has_not_changed(run: Path) -> None:
    done = subprocess.run(command("compare", str(run), str(run), "--json"), cwd=ROOT, check=True, capture_output=True)
    found = json.loads(done.stdout)
    assert not found["faster"]
    assert not found["slower"]
    assert not found["newly_wrong"]


def test_optimize_writes_the_same_page_for_one_problem(problems: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    subprocess.run(
        [sys.executable, "-m", "kernelwright", "optimize", str(problems / "1_chain.py"), "-o", str(tmp_path / "new.py"),
         "--device", "cpu", "--budget", "4s", "--report", str(page)],
        cwd=ROOT, check=True, timeout=300, capture_output=True,
    )  # fmt: skip
    text = page.read_text()
    assert 'svg class="plan"' in text
    assert "Error against float64" in text
    assert "ModelNew" in text
