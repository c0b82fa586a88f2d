"""The rows of two runs come in; what got faster, slower, newly right and newly wrong goes out, beyond the noise.

Two runs are hours or weeks apart, so times are not held against times where it can be helped: each run's speed-up over
its own eager is, and a change counts only if it is larger than both intervals and both runs' own noise together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernelwright.report.row import Row, Span
from kernelwright.report.summary import SMALLEST_DIFFERENCE, geomean
from kernelwright.suite.names import key_of

__all__ = ["Change", "Comparison", "compared", "comparison_object", "comparison_text"]


@dataclass(frozen=True, slots=True)
class Change:
    """How many times as fast as before, and by how much of a factor both runs may be wrong."""

    problem: str
    factor: float
    margin: float
    before: float
    after: float
    basis: str  # "over eager", or "time" where eager was not timed in both


@dataclass(frozen=True, slots=True)
class Turned:
    """A verdict that is another one now."""

    problem: str
    before: str
    after: str
    detail: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every problem is in one of these."""

    faster: tuple[Change, ...]
    slower: tuple[Change, ...]
    same: tuple[Change, ...]
    newly_right: tuple[Turned, ...]
    newly_wrong: tuple[Turned, ...]
    otherwise: tuple[Turned, ...]
    untimed: tuple[str, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]


def compared(before: Sequence[Row], after: Sequence[Row]) -> Comparison:
    old, new = ({key_of(row.problem): row for row in rows} for rows in (before, after))
    pairs = [(old[key], new[key]) for key in old if key in new]
    turned = [turned_of(a, b) for a, b in pairs if a.verdict != b.verdict]
    rights = {b.problem for _, b in pairs if b.standing == "right"}
    were_right = {b.problem for a, b in pairs if a.standing == "right"}
    changes = [change for a, b in pairs if (change := change_of(a, b)) is not None]
    timed = {change.problem for change in changes}
    order = sorted(changes, key=lambda change: -abs(math.log(change.factor)))
    return Comparison(
        faster=tuple(c for c in order if beyond(c) and c.factor > 1),
        slower=tuple(c for c in order if beyond(c) and c.factor < 1),
        same=tuple(c for c in order if not beyond(c)),
        newly_right=tuple(t for t in turned if t.problem in rights - were_right),
        newly_wrong=tuple(t for t in turned if t.problem in were_right - rights),
        otherwise=tuple(t for t in turned if t.problem not in rights and t.problem not in were_right),
        untimed=tuple(b.problem for a, b in pairs if a.verdict == b.verdict and b.problem not in timed),
        only_before=tuple(old[key].problem for key in old if key not in new),
        only_after=tuple(new[key].problem for key in new if key not in old),
    )


def turned_of(before: Row, after: Row) -> Turned:
    return Turned(after.problem, before.verdict, after.verdict, after.detail)


def change_of(before: Row, after: Row) -> Change | None:
    """Of two right and timed rows; by the speed-up over eager where both have it."""
    if before.standing != "right" or after.standing != "right":
        return None
    margin_noise = (before.noise or 0.0) ** 2 + (after.noise or 0.0) ** 2
    if "eager" in before.speedup and "eager" in after.speedup:
        a, b, basis = before.speedup["eager"], after.speedup["eager"], "over eager"
        factor = b.median / a.median
    elif before.ours_us and after.ours_us:
        a, b, basis = before.ours_us, after.ours_us, "time"
        factor = a.median / b.median
    else:
        return None
    margin = math.exp(math.sqrt(margin_noise + half_width(a) ** 2 + half_width(b) ** 2))
    return Change(after.problem, factor, margin, a.median, b.median, basis)


def half_width(span: Span) -> float:
    """Of the interval, in the logarithm."""
    return math.log(span.high / span.low) / 2 if 0 < span.low <= span.high else math.inf


def beyond(change: Change) -> bool:
    """Whether it is more than both runs' uncertainty, and more than code layout alone makes."""
    size = abs(math.log(change.factor))
    return size > max(math.log(change.margin), SMALLEST_DIFFERENCE)


def comparison_text(comparison: Comparison) -> str:
    """One block a kind, the largest change first; what stayed is counted."""
    lines: list[str] = []
    for title, changes in (("faster", comparison.faster), ("slower", comparison.slower)):
        lines += block(title, [change_line(change) for change in changes])
    for title, turned in (
        ("newly right", comparison.newly_right),
        ("newly wrong", comparison.newly_wrong),
        ("another verdict", comparison.otherwise),
    ):
        lines += block(
            title,
            [
                f"{t.problem}  {t.before} -> {t.after}  {t.detail.splitlines()[0] if t.detail else ''}".rstrip()
                for t in turned
            ],
        )
    lines += block("only in the first run", list(comparison.only_before))
    lines += block("only in the second run", list(comparison.only_after))
    everything = [change.factor for change in (*comparison.faster, *comparison.slower, *comparison.same)]
    if everything:
        lines.append(f"all {len(everything)} timed in both: {geomean(everything):.3f}x in the geometric mean")
    lines.append(f"{len(comparison.same)} the same within the noise, {len(comparison.untimed)} not timed in both")
    return "\n".join(lines)


def block(title: str, rows: Sequence[str]) -> list[str]:
    return [f"{title} ({len(rows)})", *(f"  {row}" for row in rows)] if rows else []


def change_line(change: Change) -> str:
    numbers = f"{change.before:.2f} -> {change.after:.2f} {change.basis}"
    return f"{change.factor:5.2f}x  {change.problem}  {numbers}  (uncertain by {change.margin - 1:.0%})"


def comparison_object(comparison: Comparison) -> Mapping[str, Any]:
    return asdict(comparison)
