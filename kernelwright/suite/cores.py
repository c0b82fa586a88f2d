"""The cores of a machine and its GPUs come in; who runs where goes out: some are kept free for whoever times.

A worker that is woken while compilers keep all cores busy waits for one, for as long as a slice of the scheduler, and
that would count as its time. A core that nobody else may use is there at once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.suite.keeper import descendants
from kernelwright.suite.turns import Hold

__all__ = ["Cores", "divided", "move_to"]

# For the judge, the worker whose turn it is and the driver's threads; in pairs, for two may share one core's units.
QUIET = 4
MOST_SHARE = 3  # one core in so many at most


@dataclass(frozen=True, slots=True)
class Cores:
    """Where a problem's processes run while it is timed, and at all other times; empty: wherever the system likes."""

    quiet: tuple[int, ...] = ()
    others: tuple[int, ...] = ()

    def of(self, hold: Hold) -> tuple[int, ...]:
        return self.quiet if hold is Hold.ALONE else self.others


def divided(cores: Sequence[int], kind: str, devices: Sequence[str], jobs: int) -> dict[str, Cores]:
    """For each device its quiet cores. None where problems run one at a time, where the device is the machine itself,
    or where compilers would be left with too few."""
    nothing_to_divide = kind == "cpu" or jobs * len(devices) <= 1
    if nothing_to_divide or len(cores) < MOST_SHARE * QUIET * len(devices):
        return dict.fromkeys(devices, Cores())
    first = len(cores) - QUIET * len(devices)
    others = tuple(cores[:first])
    return {
        device: Cores(tuple(cores[first + QUIET * i : first + QUIET * (i + 1)]), others)
        for i, device in enumerate(devices)
    }


def move_to(cores: Sequence[int]) -> None:
    """This process and all below it, thread by thread; what they start later starts there too."""
    if not cores:
        return
    for process in (os.getpid(), *descendants(os.getpid())):
        with contextlib.suppress(OSError):  # it has ended
            for task in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(task.name), cores)
