"""A command and its limits come in; it is run, and nothing of what it started outlives this program.

    python keeper.py '{"command": [...], "log": "log.txt", "limit_s": 60, "memory_bytes": 0, "leash": 3}'

Orphans fall back to this process (PR_SET_CHILD_SUBREAPER), so that everything the command starts, in whichever session,
is a descendant. `leash` is the reading end of a pipe whose other end the suite holds: at its end the suite is gone, and
so is all this. Exit status: the command's own, or one of those below. Standard library only: it starts in 20 ms.
A process that is a keeper by having been forked (`nursery.py`) brings its own way to start the command.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol

OUT_OF_TIME, OUT_OF_MEMORY, LET_GO = 201, 202, 203
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOOK_EVERY_S = 0.1
WEIGH_EVERY_S = 2.0  # walking through /proc costs milliseconds that somebody may be timing
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


libc = ctypes.CDLL(None)


class Running(Protocol):
    """A command under way."""

    def poll(self) -> int | None:
        """Its exit status, less than 0 for a signal; None while it runs."""


def main() -> int:
    return kept(json.loads(sys.argv[1]), started)


def kept(job: dict[str, Any], start: Callable[[dict[str, Any], IO[bytes]], Running]) -> int:
    """The exit status of what `start` begins, whose output goes to the log; afterwards nothing of it is left."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # Ctrl-C is for the suite, which then lets go of us
    with Path(job["log"]).open("ab") as log:
        process = start(job, log)
    try:
        return watched(process, job)
    finally:
        end_tree()


def started(job: dict[str, Any], log: IO[bytes]) -> Running:
    return subprocess.Popen(
        job["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=go_with_the_keeper
    )


def go_with_the_keeper() -> None:
    """In the command's process: end with this one, should it be killed."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def watched(process: Running, job: dict[str, Any]) -> int:
    """Its exit status once it ends; earlier if it takes too long, or too much, or nobody waits for it."""
    end = time.monotonic() + job["limit_s"]
    weighed = time.monotonic()
    while True:
        gone, _, _ = select.select([job["leash"]], [], [], LOOK_EVERY_S)
        if gone:
            return LET_GO
        if (code := process.poll()) is not None:
            return code if code >= 0 else 128 - code
        if time.monotonic() > end:
            return OUT_OF_TIME
        if job["memory_bytes"] and time.monotonic() > weighed + WEIGH_EVERY_S:
            weighed = time.monotonic()
            if sum(map(resident_bytes, descendants(os.getpid()))) > job["memory_bytes"]:
                return OUT_OF_MEMORY


def end_tree() -> None:
    """Kill until there is nobody left: a process that forks while being killed is found in the next round."""
    while alive := descendants(os.getpid()):
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def descendants(ancestor: int) -> list[int]:
    """Every process below this one that is not just waiting to be buried."""
    children: dict[int, list[int]] = {}
    dead: set[int] = set()
    for entry in os.listdir("/proc"):  # noqa: PTH208  names alone, many times a second
        if entry.isdigit() and (state := stat_of(int(entry))) is not None:
            parent, letter = state
            children.setdefault(parent, []).append(int(entry))
            if letter == "Z" and parent != ancestor:
                dead.add(int(entry))
    found: list[int] = []
    waiting = [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return [process for process in found if process not in dead]


def stat_of(process: int) -> tuple[int, str] | None:
    """Its parent and its state's letter."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    letter, parent = text.rpartition(")")[2].split()[:2]
    return int(parent), letter


def resident_bytes(process: int) -> int:
    """Without what it shares with others: of a forked process, what it has written."""
    try:
        fields = Path(f"/proc/{process}/statm").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(fields[1]) - int(fields[2])) * PAGE_BYTES


if __name__ == "__main__":
    sys.exit(main())
