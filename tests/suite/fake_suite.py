"""Runs the suite's runner with the fake child: folder of problems, run folder, jobs come in on the command line."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernelwright.report.row import Terms
from kernelwright.suite.devices import Places
from kernelwright.suite.folder import RunFolder
from kernelwright.suite.problems import find_problems
from kernelwright.suite.runner import Limits, Order, Outcome, run_suite

FAKE = (sys.executable, str(Path(__file__).with_name("fake_child.py")))
TERMS = Terms("cpu", "reference", ("eager",), 5.0, "quick")


def run(
    problems: Path,
    output: Path,
    *,
    jobs: int = 2,
    redo: bool = False,
    limit_s: float = 20.0,
    total_s: float | None = None,
) -> Outcome:
    order = Order(TERMS, Places("cpu", "cpu", ("cpu",)), Limits(limit_s, 0, total_s, jobs, 1), "abc", "test", FAKE)
    folder = RunFolder(output)
    with folder.claimed():
        known = folder.rows() if folder.rows_path.is_file() and not redo else []
        done = {row.identity for row in known}
        return run_suite(find_problems([problems]), order, folder, done=done, watch=lambda row, name: None)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), jobs=int(sys.argv[3]))
