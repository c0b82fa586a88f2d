"""A run on disk: rows are appended so that none is ever lost or half there, and read back.

RUN/run.json             what was asked for, where
RUN/results.jsonl        the rows, one line each: the truth; everything else can be made again
RUN/results.sqlite       the same, for queries
RUN/problems/NAME/       original.py, emitted.py, plan.json, result.json, record.json.gz, log.txt, dumps/
RUN/report.html, .md     for people
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernelwright.errors import UsageError
from kernelwright.report.row import SCHEMA, Row, read_row, row_line

__all__ = ["RunFolder", "latest", "read_rows", "write_whole"]


class RunFolder:
    """Where a run lies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows_path = path / "results.jsonl"
        self.about_path = path / "run.json"

    def problem_folder(self, name: str) -> Path:
        return self.path / "problems" / name

    def rows(self) -> list[Row]:
        return read_rows(self.rows_path)

    def about(self) -> dict[str, Any]:
        """What was asked for; nothing for rows that came without it."""
        about: dict[str, Any] = json.loads(self.about_path.read_text()) if self.about_path.is_file() else {}
        return about

    def write_about(self, about: Mapping[str, Any]) -> None:
        write_whole(self.about_path, json.dumps({"schema": SCHEMA, **about}, indent=1) + "\n")

    def append(self, row: Row) -> None:
        """One write and one fsync: after it the row is there, and a reader never sees a part of it as a line."""
        text = row_line(row).encode()
        file = os.open(self.rows_path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                text = b"\n" + text  # a machine went down in the middle of a line: it stays, and is passed over
            written = os.write(file, text)
            if written != len(text):
                raise OSError(f"only {written} of {len(text)} bytes were written to {self.rows_path}")
            os.fsync(file)
        finally:
            os.close(file)

    def fresh_problem_folder(self, name: str) -> Path:
        """Empty: what an earlier attempt left would be taken for this one's."""
        folder = self.problem_folder(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def finished(self, name: str, identity: str) -> Row | None:
        """What a problem's own process left when it was done, whether or not anybody wrote the row."""
        try:
            row = read_row(json.loads((self.problem_folder(name) / "result.json").read_text()))
        except (FileNotFoundError, ValueError):
            return None
        return row if row.identity == identity else None

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Nobody else writes here meanwhile."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(file)
            cure = "Wait for it, or give another folder with -o."
            raise UsageError("another run is writing into this folder.", where=self.path, cure=cure) from error
        try:
            yield
        finally:
            os.close(file)


def read_rows(path: Path) -> list[Row]:
    """The rows in the order they were written; a line that was cut off is none."""
    if path.is_dir():
        path = path / "results.jsonl"
    if not path.is_file():
        cure = "Give the folder that `kernelwright suite run -o` wrote, or its results.jsonl."
        raise UsageError("there are no results.", where=path, cure=cure)
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        rows.append(read_row(fields))
    return rows


def latest(rows: Iterable[Row]) -> list[Row]:
    """The last row of each problem, in the order in which the problems first came."""
    kept: dict[str, Row] = {}
    for row in rows:
        kept[row.problem] = row
    return list(kept.values())


def write_whole(path: Path, text: str) -> None:
    """The whole text or nothing: written beside, and renamed into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
