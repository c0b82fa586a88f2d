"""Seconds for a judgement come in; whether a step still fits, and which were left out for want of time, goes out.

Each stage may use the time up to a share of the whole. A step is begun only if what it is expected to take fits: the
budget is then overrun by a wrong guess about one step, never by a stage. What is left out is said in the record.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

__all__ = ["LEAST_RUN_S", "SHARES", "Budget", "Share", "Stopwatch", "WorkClock", "share_of_restart", "time_for_restart"]

# By the end of each stage, the share of the whole that may be spent. Timing gets what is left, a third at least.
SHARES = {"examine": 0.42, "variants": 0.48, "doubt": 0.58, "sanitize": 0.68, "time": 1.0}


class WorkClock:
    """Seconds, without those in which we waited for our turn at a device: they are nobody's work."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waited_s = 0.0

    def __call__(self) -> float:
        return self._clock() - self._waited_s

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        began = self._clock()
        try:
            yield
        finally:
            self._waited_s += self._clock() - began


class Budget:
    """The time of one judgement; it starts when the candidate has been built."""

    def __init__(self, total_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.total_s = total_s
        self.skipped: dict[str, str] = {}
        self._clock = clock
        self._start = clock()

    def left(self, stage: str) -> float:
        """Seconds until the stage must be over; none, if it should be already."""
        return max(0.0, self._start + SHARES[stage] * self.total_s - self._clock())

    def fits(self, stage: str, expected_s: float) -> bool:
        return expected_s < self.left(stage)

    def allows(self, stage: str, step: str, expected_s: float) -> bool:
        """Whether the step fits; if not, it is noted as left out."""
        if self.fits(stage, expected_s):
            return True
        self.skipped[step] = f"would take about {expected_s:.1f} s, {self.left(stage):.1f} s were left"
        return False


LEAST_RUN_S = 1.0  # of measuring, for which starting all processes again is worth its while


def time_for_restart(done: int, left_s: float, starting_s: float) -> bool:
    """Whether all contestants are started once more, when starting took so long the last time; once, always."""
    return done == 0 or left_s >= starting_s + LEAST_RUN_S


def share_of_restart(left_s: float, starting_s: float, restarts: int) -> float:
    """Seconds to measure now, if each of as many restarts as fit, this one included, is to be measured as long."""
    fitting = min(restarts, 1 + int(max(left_s, 0.0) / (starting_s + LEAST_RUN_S)))
    return max(0.0, (left_s - (fitting - 1) * starting_s) / fitting)


class Share:
    """Some seconds from now on."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._end = clock() + seconds

    def lasts(self) -> bool:
        return self._clock() < self._end


class Stopwatch:
    """How long steps of one kind take: the last one tells of the next."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self.last_s = 0.0

    def lap(self) -> float:
        """Seconds since the last lap, or since the start."""
        now = self._clock()
        self.last_s, self._began = now - self._began, now
        return self.last_s
