"""Rows come in; one sqlite file to ask questions of goes out. It is made anew each time: the rows are the truth.

results    one row a problem, the latest           speedups   problem, baseline, median, low, high
kernels    one row a kernel                        about      schema, when it was made
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from kernelwright.report.row import SCHEMA, Row

__all__ = ["write_database"]

TABLES = """
CREATE TABLE about (schema INTEGER, rows INTEGER);
CREATE TABLE results (
    problem TEXT PRIMARY KEY, family TEXT, verdict TEXT, standing TEXT, speed TEXT, detail TEXT, labels TEXT,
    device TEXT, precision TEXT, effort TEXT, ours_us REAL, eager_us REAL, over_eager REAL, noise REAL,
    floor_us REAL, bound TEXT, flops INTEGER, bytes INTEGER, error_rms REAL, eager_error_rms REAL, degenerate INTEGER,
    kill_rate REAL, wall_s REAL, commit_id TEXT, date TEXT, sha256 TEXT, identity TEXT
);
CREATE TABLE speedups (problem TEXT, baseline TEXT, median REAL, low REAL, high REAL);
CREATE TABLE kernels (
    problem TEXT, name TEXT, template TEXT, config TEXT, median_us REAL, floor_us REAL, library_us REAL, bytes INTEGER,
    flops INTEGER, registers INTEGER, spill_bytes INTEGER, formula TEXT
);
"""


def write_database(rows: Sequence[Row], path: Path) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(partial)) as database:
        database.executescript(TABLES)
        insert(database, "about", [(SCHEMA, len(rows))])
        insert(database, "results", [flat(row) for row in rows])
        insert(
            database,
            "speedups",
            [(row.problem, name, s.median, s.low, s.high) for row in rows for name, s in row.speedup.items()],
        )
        insert(
            database,
            "kernels",
            [
                (
                    row.problem,
                    k.name,
                    k.template,
                    k.config,
                    k.median_us,
                    k.floor_us,
                    k.library_us,
                    k.bytes_moved,
                    k.flops,
                    k.registers,
                    k.spill_bytes,
                    k.formula,
                )
                for row in rows
                for k in row.kernels
            ],
        )
        database.commit()
    partial.replace(path)


def insert(database: sqlite3.Connection, table: str, values: Sequence[tuple[object, ...]]) -> None:
    if values:
        marks = ", ".join("?" * len(values[0]))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", values)


def flat(row: Row) -> tuple[object, ...]:
    work, errors, ours, eager = row.work, row.errors, row.ours_us, row.times_us.get("eager")
    return (
        row.problem,
        row.family,
        row.verdict,
        row.standing,
        row.speed,
        row.detail,
        " ".join(row.labels),
        row.terms.device,
        row.terms.precision,
        row.terms.effort,
        ours.median if ours else None,
        eager.median if eager else None,
        row.over("eager"),
        row.noise,
        work.floor_us if work else None,
        work.bound if work else None,
        work.flops if work else None,
        work.bytes_moved if work else None,
        errors.candidate_rms if errors else None,
        errors.eager_rms if errors else None,
        int(row.degenerate),
        row.kill_rate,
        row.wall_s,
        row.environment.get("commit"),
        row.environment.get("date"),
        row.sha256,
        row.identity,
    )
