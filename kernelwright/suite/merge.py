"""Several run folders come in; one with all their rows and files goes out. Of two rows for a problem the later stays
later."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from kernelwright.suite.folder import RunFolder, read_rows

__all__ = ["merged"]


def merged(runs: Sequence[Path], output: Path) -> int:
    """The number of rows there are now. Merging again what is there already adds nothing."""
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
                if (files := source.problem_folder(row.problem)).is_dir():
                    shutil.copytree(files, target.problem_folder(row.problem), dirs_exist_ok=True)
            about = {**source.about(), **about, "merged": [*about.get("merged", []), str(run)]}
        target.write_about({**about, "problems": len({row.problem for row in rows})})
    return len(rows)
