"""Several run folders come in; one with all their rows and files goes out. Of two rows for a problem the later stays
later."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from kernelwright.suite.folder import RunFolder, read_rows

__all__ = ["copy_all", "copy_plan", "merged"]

Copy = Callable[[Path, Path], None]


def merged(runs: Sequence[Path], output: Path, copy: Copy) -> int:
    """The number of rows there are now. Merging again what is there already adds nothing.

    `copy` brings what lies beside a row from its folder to the new one.
    """
    target = RunFolder(output)
    with target.claimed():
        rows = target.rows() if target.rows_path.is_file() else []
        about = target.about()
        for run in runs:
            source = RunFolder(run)
            for row in read_rows(run):
                if row in rows:
                    continue
                target.append(row)
                rows.append(row)
                copy(source.problem_folder(row.problem), target.problem_folder(row.problem))
            about = {**source.about(), **about, "merged": [*about.get("merged", []), run.name]}
        target.write_about({**about, "problems": len({row.problem for row in rows})})
    return len(rows)


def copy_all(source: Path, target: Path) -> None:
    """Everything: the sources, the dumps, the logs, the judge's evidence."""
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)


def copy_plan(source: Path, target: Path) -> None:
    """The drawing alone: no text of the problem, nor of what was made from it, which may not be ours to hand on."""
    if (source / "plan.json").is_file():
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / "plan.json", target / "plan.json")
