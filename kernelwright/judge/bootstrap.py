"""Paired times of two contestants come in; the ratio between them with a confidence interval goes out."""

import math
import random
from collections.abc import Sequence
from itertools import chain
from statistics import median

from kernelwright.judge.verdict import Interval

__all__ = ["Runs", "interval", "ratio_interval"]

Block = Sequence[float]
Runs = Sequence[Sequence[Block]]
"""Numbers by restart, block of turns, and turn."""
RESAMPLES = 1000


def ratio_interval(slow: Runs, fast: Runs) -> Interval:
    """How many times longer `slow` takes than `fast`; turn by turn, since noise comes in spells longer than a turn."""
    logs = [
        [[math.log(s / f) for s, f in zip(*blocks, strict=True)] for blocks in zip(*runs, strict=True)]
        for runs in zip(slow, fast, strict=True)
    ]
    found = interval(logs)
    return Interval(math.exp(found.median), math.exp(found.low), math.exp(found.high))


def interval(samples: Runs) -> Interval:
    """The median over all turns, and a 95 % interval by resampling restarts, then blocks within each.

    Turns of one block are alike, blocks of one process are alike (its memory layout, its cores); resampling turns
    alone would claim too much.
    """
    runs = [run for run in samples if run]
    if not runs:
        return Interval(math.nan, math.nan, math.nan)
    rng = random.Random(0)  # the interval of given samples is always the same
    medians = sorted(
        median(
            chain.from_iterable(
                chain.from_iterable(rng.choices(run, k=len(run)) for run in rng.choices(runs, k=len(runs)))
            )
        )
        for _ in range(RESAMPLES)
    )
    tail = int(0.025 * RESAMPLES)
    everything = chain.from_iterable(chain.from_iterable(runs))
    return Interval(median(everything), medians[tail], medians[-tail - 1])
