"""Paired times of two contestants come in; the ratio between them with a confidence interval goes out."""

import math
import random
from collections.abc import Sequence
from statistics import median

from kernelwright.judge.verdict import Interval

__all__ = ["interval", "ratio_interval"]

Restart = Sequence[float]
RESAMPLES = 2000


def ratio_interval(slow: Sequence[Sequence[float]], fast: Sequence[Sequence[float]]) -> Interval:
    """How many times longer `slow` takes: both hold times by restart and block, measured side by side."""
    logs = [
        [math.log(s / f) for s, f in zip(slow_run, fast_run, strict=True)]
        for slow_run, fast_run in zip(slow, fast, strict=True)
    ]
    found = interval(logs)
    return Interval(math.exp(found.median), math.exp(found.low), math.exp(found.high))


def interval(samples: Sequence[Restart]) -> Interval:
    """The median over all blocks, and a 95 % interval by resampling restarts, then blocks within each.

    Blocks of one process are alike (its memory layout, its cores); resampling them alone claims too much.
    """
    runs = [run for run in samples if run]
    if not runs:
        return Interval(math.nan, math.nan, math.nan)
    rng = random.Random(0)  # the interval of given samples is always the same
    medians = sorted(
        median(x for run in rng.choices(runs, k=len(runs)) for x in rng.choices(run, k=len(run)))
        for _ in range(RESAMPLES)
    )
    tail = int(0.025 * RESAMPLES)
    return Interval(median(x for run in runs for x in run), medians[tail], medians[-tail - 1])
