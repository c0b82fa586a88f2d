"""Run folders come in; report.html, report.md and results.sqlite of all their rows together go out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kernelwright.errors import UsageError
from kernelwright.report.boxes import read_picture
from kernelwright.report.exhibit import Exhibit
from kernelwright.report.markdown import markdown
from kernelwright.report.page import page
from kernelwright.report.row import Row
from kernelwright.suite.database import write_database
from kernelwright.suite.folder import RunFolder, latest, write_whole

__all__ = ["exhibits_of", "sources_fit", "write_pages"]

# Marked up, sources take twice their size; a page of more than some megabytes is no pleasure on a phone.
MOST_SOURCE_BYTES = 3_000_000


def write_pages(folders: Sequence[RunFolder], target: Path, *, sources: bool, title: str | None) -> list[Path]:
    exhibits = exhibits_of(folders, target, sources=sources)
    if not exhibits:
        raise UsageError("there is no row to report on.", where=folders[0].path)
    rows = [exhibit.row for exhibit in exhibits]
    paths = [target / "report.html", target / "report.md", target / "results.sqlite"]
    name = title or target.resolve().name
    write_whole(paths[0], page(exhibits, name))
    write_whole(paths[1], markdown(rows, name))
    write_database(rows, paths[2])
    return paths


def sources_fit(folder: RunFolder) -> bool:
    """Whether the original and the emitted files of a run are small enough to stand in its page."""
    homes = [folder.problem_folder(row.problem) for row in latest(folder.rows())]
    files = [home / name for home in homes for name in ("original.py", "emitted.py")]
    return sum(path.stat().st_size for path in files if path.is_file()) <= MOST_SOURCE_BYTES


def exhibits_of(folders: Sequence[RunFolder], target: Path, *, sources: bool) -> list[Exhibit]:
    """The latest row of each problem with the files that lie beside it."""
    found = {row.problem: (folder, row) for folder in folders for row in latest(folder.rows())}
    return [exhibit(folder, row, target, sources=sources) for folder, row in found.values()]


def exhibit(folder: RunFolder, row: Row, target: Path, *, sources: bool) -> Exhibit:
    home = folder.problem_folder(row.problem)
    plan = text_of(home / "plan.json")
    return Exhibit(
        row=row,
        picture=read_picture(plan) if plan and is_whole(plan) else None,
        original=text_of(home / "original.py") if sources else "",
        emitted=text_of(home / "emitted.py") if sources else "",
        files=tuple(link(path, target) for path in files_of(home)),
    )


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def is_whole(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def files_of(home: Path) -> list[Path]:
    """What a reader may want to open, if it is there."""
    names = ("original.py", "emitted.py", "log.txt", "record.json.gz")
    dumps = sorted((home / "dumps").glob("*.*")) if (home / "dumps").is_dir() else []
    return [path for path in [*(home / name for name in names), *dumps] if path.is_file()]


def link(path: Path, target: Path) -> str:
    """From the page to the file."""
    try:
        return path.resolve().relative_to(target.resolve()).as_posix()
    except ValueError:
        return path.resolve().as_uri()
