"""Problems, terms and a run folder come in; each problem is run in a process tree of its own, and its row written.

What has a row under its identity is not done again. A problem that ended without its row being written (the runner was
killed in between) is adopted from the result that its own process left.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelwright.report.row import Row, Terms, identity_of
from kernelwright.suite import keeper
from kernelwright.suite.cores import divided
from kernelwright.suite.devices import Places, started
from kernelwright.suite.folder import RunFolder
from kernelwright.suite.job import Job, job_json
from kernelwright.suite.nursery import Nursery
from kernelwright.suite.problems import SuiteProblem

__all__ = ["Limits", "Order", "Outcome", "run_suite"]

# What ends a problem from outside, and its verdict; anything else without a result is a death.
ENDINGS = {
    keeper.OUT_OF_TIME: ("OUT_OF_TIME", "took longer than {limit_s:.0f} s in all"),
    keeper.OUT_OF_MEMORY: ("OUT_OF_MEMORY", "took more than {memory_gb:.0f} GB of memory"),
}
STARVED_SHARE = 0.2  # of the machine's memory: with less left no further problem is started beside others
GRACE_S = 20.0
CHILD = tuple(started("child"))


@dataclass(frozen=True, slots=True)
class Limits:
    """limit_s        of one problem, from its process's start to its end
    memory_bytes   of one problem's processes together; 0 for none
    total_s        of the run: afterwards nothing is started, and what still runs is stopped soon; None for no end
    jobs           problems at a time; one at a time has a device to itself while it is timed
    compilers      at a time, of one problem
    """

    limit_s: float
    memory_bytes: int
    total_s: float | None
    jobs: int
    compilers: int


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: all the same for every problem. `program` takes a `Job` as its last argument."""

    terms: Terms
    places: Places
    limits: Limits
    commit: str
    command: str
    program: tuple[str, ...] = CHILD


@dataclass(slots=True)
class Outcome:
    """What happened to the problems: done now, done before, left for another time."""

    rows: list[Row] = field(default_factory=list)
    before: int = 0
    left: list[str] = field(default_factory=list)


Watch = Callable[[Row | None, str], None]


def run_suite(
    problems: Sequence[SuiteProblem], order: Order, folder: RunFolder, *, done: set[str], watch: Watch
) -> Outcome:
    """Rows for all problems whose identity is not in `done`.

    `watch` hears of each problem: its name when it starts, its row when it ends.
    """
    outcome = Outcome()
    todo: list[SuiteProblem] = []
    for problem in problems:
        identity = identity_of(problem.name, problem.sha256, order.terms)
        if identity in done:
            outcome.before += 1
        elif (row := folder.finished(problem.name, identity)) is not None and not row_is_known(folder, row):
            folder.append(row)
            outcome.rows.append(row)
            watch(row, row.problem)
        else:
            todo.append(problem)
    with Crew(order, folder, watch) as crew:
        crew.run(todo, outcome)
    return outcome


def row_is_known(folder: RunFolder, row: Row) -> bool:
    """Whether that very result has its row: with --redo there is one, and it is to be made again."""
    return folder.rows_path.is_file() and any(known == row for known in folder.rows())


class Crew:
    """Threads, each waiting for one problem's keeper; devices in turn; one writer of rows."""

    def __init__(self, order: Order, folder: RunFolder, watch: Watch) -> None:
        self.order = order
        self.folder = folder
        self.watch = watch
        self.stopped = threading.Event()
        self.end = None if order.limits.total_s is None else time.monotonic() + order.limits.total_s
        self._writing = threading.Lock()
        self._leashes: set[int] = set()
        self._isolations: set[str] = set()
        self._nursery: Nursery | None = None
        places = order.places
        here = sorted(os.sched_getaffinity(0))
        self._cores = divided(here, places.kind, places.devices, order.limits.jobs)
        self._devices: queue.SimpleQueue[str] = queue.SimpleQueue()
        for _ in range(order.limits.jobs):
            for device in order.places.devices:
                self._devices.put(device)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._nursery is not None:
            self._nursery.close()

    def stop(self) -> None:
        """Let go of everything that runs; keepers see it and take their trees down."""
        self.stopped.set()
        with self._writing:
            for leash in self._leashes:
                with contextlib.suppress(OSError):
                    os.close(leash)
            self._leashes.clear()

    def run(self, problems: Sequence[SuiteProblem], outcome: Outcome) -> None:
        again: list[SuiteProblem] = []
        if problems and self.order.program == CHILD:
            self._nursery = Nursery(next(iter(self._cores.values())).others)
        with ThreadPoolExecutor(self.order.limits.jobs, thread_name_prefix="problem") as pool:
            try:
                self.together(problems, pool, outcome, again)
            except BaseException:  # Ctrl-C: the threads wait for their keepers, which must be let go first
                self.stop()
                raise
        for problem in again:
            self.settle(problem, self.one(problem, alone=True), outcome, None)

    def together(
        self,
        problems: Sequence[SuiteProblem],
        pool: ThreadPoolExecutor,
        outcome: Outcome,
        again: list[SuiteProblem],
    ) -> None:
        """As many at a time as there are jobs; each next one when the machine has room for it."""
        waiting = list(reversed(problems))
        running: dict[Future[Row | None], SuiteProblem] = {}
        while waiting or running:
            while waiting and len(running) < self.order.limits.jobs and self.may_start(beside=len(running)):
                problem = waiting.pop()
                running[pool.submit(self.one, problem, alone=False)] = problem
            finished, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in finished:
                problem = running.pop(future)
                self.settle(problem, future.result(), outcome, again)
            if self.late(GRACE_S):
                self.stop()
            if self.late() and waiting:
                outcome.left += [problem.name for problem in reversed(waiting)]
                waiting.clear()

    def settle(
        self, problem: SuiteProblem, row: Row | None, outcome: Outcome, again: list[SuiteProblem] | None
    ) -> None:
        """Write the row; without one the problem was stopped for want of time, and is left for the next run."""
        if row is not None and (level := row.environment.get("isolation")):
            self._isolations.add(level)
        if row is None:
            outcome.left.append(problem.name)
        elif again is not None and row.shortage and self.order.limits.jobs > 1:
            again.append(problem)
        else:
            self.folder.append(row)
            outcome.rows.append(row)
            self.watch(row, problem.name)

    def late(self, grace_s: float = 0.0) -> bool:
        return self.end is not None and time.monotonic() > self.end + grace_s

    def may_start(self, beside: int) -> bool:
        """Whether there is time and memory for one more beside those that run."""
        if self.stopped.is_set() or self.late():
            return False
        total, available = machine_memory()
        return not beside or available > STARVED_SHARE * total

    def one(self, problem: SuiteProblem, *, alone: bool) -> Row | None:
        """The problem's row: its own process's word, or what became of it; None if we let go of it."""
        if self.stopped.is_set() or (alone and self.late()):
            return None
        self.watch(None, problem.name)
        device = self._devices.get()
        try:
            folder = self.folder.fresh_problem_folder(problem.name)
            began = time.monotonic()
            code = self.kept(self.job(problem, device, folder, alone), folder)
        finally:
            self._devices.put(device)
        row = self.folder.finished(problem.name, identity_of(problem.name, problem.sha256, self.order.terms))
        if row is not None:
            return row
        return None if code == keeper.LET_GO else self.ended(problem, code, folder, time.monotonic() - began)

    def job(self, problem: SuiteProblem, device: str, folder: Path, alone: bool) -> Job:
        return Job(
            problem=problem.name,
            path=str(problem.path),
            sha256=problem.sha256,
            terms=self.order.terms,
            device=device,
            folder=str(folder),
            locks=str(locks_folder()),
            alone=alone,
            compilers=self.order.limits.compilers,
            cores=self._cores[device],
            commit=self.order.commit,
            command=self.order.command,
            isolations=tuple(sorted(self._isolations)),
        )

    def kept(self, job: Job, folder: Path) -> int:
        """The exit status of a keeper with the problem below it."""
        reading, leash = os.pipe()
        with self._writing:
            self._leashes.add(leash)
        order = {
            "command": [*self.order.program, job_json(job)],
            "log": str(folder / "log.txt"),
            "limit_s": self.order.limits.limit_s,
            "memory_bytes": self.order.limits.memory_bytes,
            "leash": reading,
        }
        try:
            code = None if self._nursery is None else self._nursery.run(order)
            return self.started_anew(order) if code is None else code
        finally:
            os.close(reading)
            with self._writing:
                if leash in self._leashes:
                    self._leashes.remove(leash)
                    os.close(leash)

    def started_anew(self, order: dict[str, Any]) -> int:
        """The same with a keeper and a problem's process that have nothing yet."""
        process = subprocess.Popen(
            [sys.executable, str(Path(keeper.__file__)), json.dumps(order)],
            stdin=subprocess.DEVNULL,
            pass_fds=[order["leash"]],
            start_new_session=True,
        )
        return process.wait()

    def ended(self, problem: SuiteProblem, code: int, folder: Path, wall_s: float) -> Row:
        """The row of a problem that could not write its own."""
        limits = self.order.limits
        lines = last_lines(folder / "log.txt")
        words = " / ".join(line[:200] for line in lines[-3:])[-300:] or "none"
        verdict, detail = ENDINGS.get(code) or (verdict_of(code, lines), "")
        return Row(
            problem=problem.name,
            path=str(problem.path),
            sha256=problem.sha256,
            terms=self.order.terms,
            verdict=verdict,
            shortage=verdict == "OUT_OF_MEMORY",  # perhaps the fault of those beside it
            detail=detail.format(limit_s=limits.limit_s, memory_gb=limits.memory_bytes / 1e9)
            or f"its process ended with status {code}; its last words: {words}",
            wall_s=round(wall_s, 1),
            environment={
                "device": self.order.terms.device,
                "commit": self.order.commit,
                "command": self.order.command,
                "date": time.strftime("%Y-%m-%d", time.gmtime()),
            },
        )


def verdict_of(code: int, lines: Sequence[str]) -> str:
    """Of a process that ended by itself: status 1 is Python's for an exception that nobody caught."""
    if any(sign in line for line in lines for sign in ("MemoryError", "out of memory", "OUT_OF_MEMORY")):
        return "OUT_OF_MEMORY"
    return "BUG" if code == 1 else "DIED"


def locks_folder() -> Path:
    """One for all runs of this user on this machine: two suites at a time share its devices too."""
    return Path(tempfile.gettempdir()) / f"kernelwright-devices-{os.getuid()}"


def last_lines(log: Path) -> list[str]:
    """As long as they are: torch says all it knows of a GPU's memory in one line, and what happened at its start."""
    text = log.read_text(errors="replace") if log.is_file() else ""
    return text.strip().splitlines()[-8:]


def machine_memory() -> tuple[int, int]:
    """Bytes there are, and bytes that can be had."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total, available
