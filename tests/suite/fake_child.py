"""In place of optimize: takes a moment, notes that it has worked, and leaves a row; a remark in the problem says more.

Only the runner's bookkeeping is tested with it: which problems are run, how often, and what is written when.
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernelwright.report.row import Row, row_line
from kernelwright.suite.folder import write_whole
from kernelwright.suite.job import read_job


def main() -> None:
    job = read_job(sys.argv[1])
    text = Path(job.path).read_text()
    if "# crash" in text:
        os.abort()
    if "# raise" in text:
        raise ValueError("the model said no")
    if "# hang" in text:
        time.sleep(300)
    crowded = "# crowded" in text and not job.alone
    if crowded and "# and dies" in text:
        raise MemoryError("no room")
    time.sleep(0.15)
    row = Row(job.problem, job.path, job.sha256, job.terms, "JUDGE_ERROR" if crowded else "CORRECT", wall_s=0.1)
    row = replace(
        row,
        shortage=crowded,
        environment={"device": job.device, "isolation": "namespaces", "told": list(job.isolations)},
    )
    write_whole(Path(job.folder) / "result.json", row_line(row))
    with (Path(job.folder).parents[2] / "worked.txt").open("a") as file:
        file.write(f"{job.problem}\n")


main()
