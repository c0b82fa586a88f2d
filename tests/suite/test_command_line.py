"""The words of the command line: what they mean, and what is said of wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kernelwright.cli import main
from kernelwright.suite.folder import RunFolder
from tests.suite.made import failed_row, make_row

ROOT = Path(__file__).resolve().parents[2]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["suite", *arguments])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    for row in (make_row("a/one", 2.0), make_row("a/two", 8.0), failed_row("a/three", "INCORRECT")):
        folder.append(row)
    return folder.path


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--budget", "soon", "is no time"),
        ("--budget", "0", "more than nothing"),
        ("--baselines", "eager,magic", "'magic' is none of"),
        ("--slice", "3/2", "is no part"),
        ("--effort", "heroic", "heroic"),
    ],
)
def test_a_wrong_value_is_named_with_a_right_one(option: str, value: str, said: str) -> None:
    result = call("run", str(ROOT / "examples"), option, value)
    assert result.exit_code == 2
    assert said in result.output


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    result = call("run", str(tmp_path / "nowhere"), "-o", str(tmp_path / "run"))
    assert result.exit_code == 2
    assert "no such folder" in result.output


def test_the_summary_comes_as_json(run: Path) -> None:
    summary = json.loads(call("report", str(run), "--json").output)
    assert summary["standings"] == {"right": 2, "wrong": 1}
    assert summary["against"][0]["geomean"] == pytest.approx(4.0)


def test_a_report_can_go_elsewhere_and_have_a_title(run: Path, tmp_path: Path) -> None:
    result = call("report", str(run), "-o", str(tmp_path / "pages"), "--title", "Last night", "--no-sources")
    assert result.exit_code == 0, result.output
    assert "<h1>Last night</h1>" in (tmp_path / "pages" / "report.html").read_text()
    assert (tmp_path / "pages" / "report.md").read_text().startswith("# Last night")


def test_a_comparison_fails_on_worse_only_if_asked(run: Path, tmp_path: Path) -> None:
    worse = RunFolder(tmp_path / "worse")
    worse.path.mkdir()
    worse.append(make_row("a/one", 1.0))
    result = call("compare", str(run), str(worse.path))
    assert result.exit_code == 0
    assert "slower (1)" in result.output
    assert "0.50x  a/one" in result.output
    assert call("compare", str(run), str(worse.path), "--fail-on-worse").exit_code == 1


def test_help_answers_without_importing_torch() -> None:
    program = "import sys; from kernelwright.cli import main; main(['suite', 'run', '--help'], standalone_mode=False); "
    checked = subprocess.run(
        [sys.executable, "-c", program + "sys.exit('torch' in sys.modules)"], cwd=ROOT, check=False, capture_output=True
    )
    assert checked.returncode == 0


def test_reports_are_made_without_torch(run: Path) -> None:
    program = (
        "import sys; from kernelwright.cli import main; "
        f"main(['suite', 'report', {str(run)!r}], standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
