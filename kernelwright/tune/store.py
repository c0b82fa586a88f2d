"""What was measured stays known: tuning results in one SQLite file, by kernel, shape, device and template."""

import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kernelwright.settings import Settings

__all__ = ["TuningKey", "TuningResult", "TuningStore", "tuning_store"]

T = TypeVar("T")

FILE_NAME = "tuning-2.sqlite3"  # another number for another schema: old and new versions do not meet in one file
BUSY_TIMEOUT_S = 30.0
SCHEMA = """
CREATE TABLE results (
    kernel TEXT NOT NULL,
    shape TEXT NOT NULL,
    device TEXT NOT NULL,
    template TEXT NOT NULL,
    config TEXT NOT NULL,
    median_us REAL NOT NULL,
    measured_at REAL NOT NULL,
    PRIMARY KEY (kernel, shape, device, template)
) WITHOUT ROWID
"""
# Primary result codes that say the file is no store of ours: SQLITE_ERROR is a missing table.
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
COLUMNS = "kernel, shape, device, template, config, median_us, measured_at"


@dataclass(frozen=True, slots=True)
class TuningKey:
    """kernel    hash of the planned kernel: core, prologues, epilogue, types
    shape     sizes and strides of its operands
    device    Device.name
    template  hash of the template's source: a changed template is measured again
    """

    kernel: str
    shape: str
    device: str
    template: str


@dataclass(frozen=True, slots=True)
class TuningResult:
    """config       the winning Config as JSON, which only its template reads
    measured_at  seconds since 1970
    """

    key: TuningKey
    config: str
    median_us: float
    measured_at: float


def tuning_store(settings: Settings) -> "TuningStore":
    """The store in the cache folder."""
    return TuningStore(settings.cache_dir / FILE_NAME)


class TuningStore:
    """Results outlive processes and are shared by them.

    Each call opens the file anew, so a store may be used across threads and forks. SQLite lets one writer in at a time;
    readers see whole results and do not wait (write-ahead log). A store that cannot be read or written costs time, not
    correctness: it warns, and the tuner measures again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, key: TuningKey) -> TuningResult | None:
        """The result last put under `key`."""
        found = self._select(
            "kernel = ? AND shape = ? AND device = ? AND template = ?",
            (key.kernel, key.shape, key.device, key.template),
        )
        return found[0] if found else None

    def other_shapes(self, key: TuningKey) -> tuple[TuningResult, ...]:
        """Results of the same kernel, device and template in any shape, newest first: where a search may begin."""
        return self._select("kernel = ? AND device = ? AND template = ?", (key.kernel, key.device, key.template))

    def put(self, key: TuningKey, config: str, median_us: float) -> None:
        """Remember a result; a later one under the same key replaces it."""
        row = (key.kernel, key.shape, key.device, key.template, config, median_us, time.time())

        def insert(database: sqlite3.Connection) -> None:
            database.execute(f"INSERT OR REPLACE INTO results ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)

        self._attempt(insert, otherwise=None)

    def _select(self, where: str, values: tuple[str, ...]) -> tuple[TuningResult, ...]:
        query = f"SELECT {COLUMNS} FROM results WHERE {where} ORDER BY measured_at DESC"

        def select(database: sqlite3.Connection) -> tuple[TuningResult, ...]:
            rows = database.execute(query, values).fetchall()
            return tuple(TuningResult(TuningKey(*row[:4]), *row[4:]) for row in rows)

        return self._attempt(select, otherwise=())

    def _attempt(self, action: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """What `action` gives; a damaged file is set aside and `action` tried once more, on a new one."""
        for _ in range(2):
            try:
                if not self.path.exists():
                    self._create()
                opened = self.path.stat().st_ino
                with closing(sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as database:
                    return action(database)
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code not in DAMAGED:  # locked for too long, read-only, disk full
                    self._warn(f"{error}; tuning results are not kept this time.")
                    return otherwise
                self._set_aside(error, opened)
            except OSError as error:
                self._warn(f"{error.strerror}; tuning results are not kept this time.")
                return otherwise
        return otherwise

    def _create(self) -> None:
        """Make the file elsewhere and link it into place: whoever finds it finds it whole, and the first one stays."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=self.path.name, dir=self.path.parent) as private:
            fresh = Path(private) / "fresh"
            with closing(sqlite3.connect(fresh, isolation_level=None)) as database:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute(SCHEMA)
            try:
                self.path.hardlink_to(fresh)
            except FileExistsError:
                return

    def _set_aside(self, error: sqlite3.Error, opened: int) -> None:
        try:
            if self.path.stat().st_ino != opened:
                return  # another process has started afresh already
            damaged = self.path.with_name(f"{self.path.name}.damaged")
            # The log belongs to the damaged file and would be replayed into the new one.
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            self.path.replace(damaged)
        except FileNotFoundError:
            return  # another process was first
        self._warn(f"{error}; starting afresh, the old file is now {damaged.name}.")

    def _warn(self, what: str) -> None:
        warnings.warn(f"{self.path}: {what}", stacklevel=4)
