"""Rows come in; the numbers that sum them up go out: counts, means, the share that is faster than p."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kernelwright.report.row import Row, Span

__all__ = ["Against", "Summary", "baselines_of", "fast_share", "said_of", "summarise"]

# Differences below this are nobody's achievement: layout of code and memory alone makes them.
SMALLEST_DIFFERENCE = 0.02


@dataclass(frozen=True, slots=True)
class Against:
    """How right, timed problems stand against one baseline; degenerate ones are not among them."""

    baseline: str
    timed: int
    faster: int
    same: int
    slower: int
    unclear: int
    geomean: float
    median: float
    best: tuple[float, str]


@dataclass(frozen=True, slots=True)
class Summary:
    """standings  how many are right, unchanged, wrong, broken, unjudged
    verdicts   how many of each word
    against    one for each baseline
    accurate   of the rows with errors, how many are at least as close to float64 as eager, up to rounding
    """

    total: int
    standings: Mapping[str, int]
    verdicts: Mapping[str, int]
    degenerate: tuple[str, ...]
    against: tuple[Against, ...]
    with_errors: int
    accurate: int


def summarise(rows: Sequence[Row]) -> Summary:
    counted = [row for row in rows if not row.degenerate]
    measured = [row for row in rows if row.errors is not None and row.standing == "right"]
    return Summary(
        total=len(rows),
        standings=Counter(row.standing for row in rows),
        verdicts=dict(Counter(row.verdict for row in rows).most_common()),
        degenerate=tuple(row.problem for row in rows if row.degenerate),
        against=tuple(against(counted, name) for name in baselines_of(rows)),
        with_errors=len(measured),
        accurate=sum(row.errors.candidate_rms <= 1.05 * row.errors.eager_rms for row in measured if row.errors),
    )


def baselines_of(rows: Sequence[Row]) -> list[str]:
    """In the order in which they first come; eager leads."""
    names = dict.fromkeys(name for row in rows for name in row.speedup)
    return sorted(names, key=lambda name: name != "eager")


def against(rows: Sequence[Row], baseline: str) -> Against:
    timed = [row for row in rows if row.is_timed(baseline)]
    right = [row for row in rows if row.standing == "right"]
    ratios = [row.speedup[baseline].median for row in timed]
    said = Counter(said_of(row.speedup[baseline], row.noise) for row in timed)
    best = max(zip(ratios, (row.problem for row in timed), strict=True), default=(math.nan, ""))
    return Against(
        baseline=baseline,
        timed=len(timed),
        faster=said["faster"],
        same=said["same"],
        slower=said["slower"],
        unclear=sum(row.is_unclear for row in right),
        geomean=geomean(ratios),
        median=median(ratios) if ratios else math.nan,
        best=best,
    )


def said_of(span: Span, noise: float | None) -> str:
    """Faster or slower only beyond the noise that eager has against itself, as the judge says it."""
    margin = 1 + max(noise or 0.0, SMALLEST_DIFFERENCE)
    if span.low > margin:
        return "faster"
    return "slower" if span.high < 1 / margin else "same"


def geomean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def fast_share(rows: Sequence[Row], baseline: str) -> Callable[[float], float]:
    """p -> the share of all problems that are right and more than p times as fast: KernelBench's fast_p."""
    ratios = [row.speedup[baseline].median for row in rows if row.is_timed(baseline)]
    return lambda p: sum(ratio > p for ratio in ratios) / len(rows) if rows else 0.0
