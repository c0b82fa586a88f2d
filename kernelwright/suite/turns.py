"""The phases of a problem come in; each goes on when the device is free for it.

A device has two lock files. One that wants it to itself holds the gate, with others of its kind, until it has had it;
one that shares it passes only a gate that nobody holds. So those who time queue up while the last ones check, and then
go one after the other: the device is emptied once for all of them. They come back only after checking the next problem,
so that nobody starves. Locks go with their process, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

__all__ = ["Hold", "Turns", "hold_of"]


class Hold(Enum):
    """How a phase has the device."""

    NOT = "not at all"
    WITH_OTHERS = "with others"
    ALONE = "alone"


# By the first word of what the pipeline and the judge report; a phase that is not here goes on as the one before it.
GPU_PHASES: Mapping[str, Hold] = {
    "load": Hold.NOT,
    "capture": Hold.NOT,
    "simplify": Hold.NOT,
    "route": Hold.ALONE,  # times convolutions in two layouts
    "tune": Hold.ALONE,
    "generate": Hold.NOT,
    "judge": Hold.WITH_OTHERS,
    "build": Hold.NOT,  # compilers, for many seconds, and one call
    "examine": Hold.WITH_OTHERS,
    "start": Hold.NOT,  # processes, for seconds, and one call of each
    "time": Hold.ALONE,
    "conclude": Hold.NOT,  # processes end, intervals are estimated
}
MEASURED = ("route", "tune")  # where nothing is measured, these are arithmetic

# The device is the machine itself: whatever runs is on it.
CPU_PHASES = {name: Hold.WITH_OTHERS if hold is Hold.NOT else hold for name, hold in GPU_PHASES.items()}


def hold_of(phase: str, kind: str) -> Hold | None:
    """How a phase needs a device of this kind; None for as before."""
    table = CPU_PHASES if kind == "cpu" else GPU_PHASES
    return table.get(phase.partition(" ")[0])


class Turns:
    """One process's place at one device.

    alone     whoever has it at all has it to itself
    measured  whether routes and configs are measured on it
    moved     hears of each new hold
    """

    def __init__(
        self,
        folder: Path,
        device: str,
        *,
        alone: bool,
        measured: bool = True,
        moved: Callable[[Hold], None] = lambda hold: None,
    ) -> None:
        self.kind = device.partition(":")[0]
        self.alone = alone
        self.measured = measured
        self.moved = moved
        self.hold = Hold.NOT
        self.waited_s = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        name = device.replace(":", "-")
        self._gate = os.open(folder / f"{name}.gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._device = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def enter(self, phase: str) -> None:
        """Wait until the phase may begin."""
        arithmetic = not self.measured and phase.partition(" ")[0] in MEASURED
        wanted = hold_of("generate" if arithmetic else phase, self.kind)  # which is no more than that either
        if wanted is not None:
            self.take(Hold.ALONE if self.alone and wanted is Hold.WITH_OTHERS else wanted)

    def take(self, wanted: Hold) -> None:
        if wanted is self.hold:
            return
        # Let go first: two that both wanted more than they have would wait for each other.
        self.moved(Hold.NOT)
        fcntl.flock(self._device, fcntl.LOCK_UN)
        self.hold = wanted
        if wanted is Hold.NOT:
            return
        alone, began = wanted is Hold.ALONE, time.monotonic()
        fcntl.flock(self._gate, fcntl.LOCK_SH if alone else fcntl.LOCK_EX)
        fcntl.flock(self._device, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        self.waited_s += time.monotonic() - began
        self.moved(wanted)

    def close(self) -> None:
        os.close(self._gate)
        os.close(self._device)
