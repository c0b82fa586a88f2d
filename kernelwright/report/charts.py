"""Rows come in; figures go out as inline SVG: colours and type are the page's, marks link to their problems.

No legends: what a mark is stands beside it. Every figure has a spoken description, and its numbers stand in the tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from statistics import median

from kernelwright.report.row import Row, Span
from kernelwright.report.summary import baselines_of, fast_share, said_of
from kernelwright.report.words import anchor_of, baseline_name, ratio_text, short_name

__all__ = ["error_chart", "family_chart", "fast_chart", "speed_bar", "speedup_chart", "times_of", "timing_bar"]

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 14, 34


@dataclass(frozen=True, slots=True)
class LogScale:
    """A value to a place, by its logarithm; what lies outside is put at the edge."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self, steps: Sequence[float] = (1, 2, 5)) -> list[float]:
        """1, 2, 5, 10 ...; where they would crowd, powers of ten alone, or every second or third of them."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        every = max(1, len(powers) // 7)
        chosen = steps if len(powers) <= 4 else (1,)
        found = [step * 10.0**power for power in powers if power % every == 0 for step in chosen]
        return [tick for tick in found if self.low * 0.999 <= tick <= self.high * 1.001]


def svg(body: str, label: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    head = f'<svg class="chart" role="img" aria-label="{escape(label)}" viewBox="0 0 {width:.0f} {height:.0f}">'
    return f"{head}{body}</svg>"


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    anchor = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(words)}</text>'


def line(x0: float, y0: float, x1: float, y1: float, kind: str) -> str:
    return f'<path class="{kind}" d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"/>'


def dot(x: float, y: float, radius: float, kind: str) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def linked(row: Row, marks: str, words: str) -> str:
    """Marks that lead to their problem, and say what they are when pointed at."""
    return f'<a href="#{anchor_of(row.problem)}" tabindex="-1"><title>{escape(words)}</title>{marks}</a>'


def fast_chart(rows: Sequence[Row]) -> str:
    """The share of problems that are right and more than p times as fast, over p: one falling line a baseline."""
    names = baselines_of(rows)
    if not names:
        return empty("nothing was timed")
    ratios = {name: sorted(row.speedup[name].median for row in rows if row.is_timed(name)) for name in names}
    most = max((values[-1] for values in ratios.values() if values), default=2.0)
    x = LogScale(0.25, max(4.0, 1.15 * most), LEFT, WIDTH - RIGHT - 60)
    y = linear(0.0, 1.0, HEIGHT - BOTTOM, TOP)
    parts = [line(x(p), y(0), x(p), y(1), "one" if p == 1 else "grid") for p in x.ticks()]
    parts += [text(x(p), HEIGHT - BOTTOM + 16, f"{p:g}×", "axis", "middle") for p in x.ticks()]
    parts += [text(LEFT - 6, y(share) + 4, f"{share:.0%}", "axis", "end") for share in (0, 0.25, 0.5, 0.75, 1)]
    highest = max(names, key=lambda name: fast_share(rows, name)(1.0))
    places = dict(zip(names, spaced([y(fast_share(rows, name)(1.0)) for name in names], 16), strict=True))
    for name in names:
        share = fast_share(rows, name)
        steps = [x.low, *[r for r in ratios[name] if r > x.low]]
        path = f"M{x(x.low):.1f} {y(share(x.low)):.1f}" + "".join(f"H{x(r):.1f}V{y(share(r)):.1f}" for r in steps[1:])
        kind = "ours" if name == "eager" else "peer"
        parts.append(f'<path class="step {kind}" d="{path}"/>')
        parts.append(dot(x(1), y(share(1.0)), 3, f"fill {kind}"))
        # The curves fall: above the highest there is room on the right, below the others on the left.
        beside, lower, anchor = (8, -6, "") if name == highest else (-8, 16, "end")
        label = f"{share(1.0):.0%} beat {baseline_name(name)}"
        parts.append(text(x(1) + beside, places[name] + lower, label, f"direct {kind}", anchor))
    said = [f"{fast_share(rows, name)(1.0):.0%} of all problems are right and faster than {name}" for name in names]
    return svg("".join(parts), "; ".join(said))


def speedup_chart(rows: Sequence[Row]) -> str:
    """Each timed problem with its interval, from the slowest to the fastest; a tick where torch.compile stands."""
    timed = sorted((row for row in rows if row.is_timed("eager")), key=lambda row: row.speedup["eager"].median)
    if not timed:
        return empty("nothing was timed against eager")
    values = [row.speedup["eager"].median for row in timed]
    y = LogScale(max(0.05, min(0.5, 0.8 * values[0])), max(4.0, 1.25 * values[-1]), HEIGHT - BOTTOM, TOP)
    x = linear(-0.5, len(timed) - 0.5, LEFT, WIDTH - RIGHT)
    parts = [line(LEFT, y(tick), WIDTH - RIGHT, y(tick), "one" if tick == 1 else "grid") for tick in y.ticks()]
    parts += [text(LEFT - 6, y(tick) + 4, f"{tick:g}×", "axis", "end") for tick in y.ticks()]
    radius = max(1.4, min(3.2, 180 / len(timed)))
    for place, row in enumerate(timed):
        span = row.speedup["eager"]
        kind = "ours" if said_of(span, row.noise) == "faster" else "peer"
        marks = line(x(place), y(span.low), x(place), y(span.high), f"whisker {kind}")
        marks += dot(x(place), y(span.median), radius, f"fill {kind}") + compile_tick(row, x(place), y)
        parts.append(linked(row, marks, f"{row.problem}: {ratio_text(span.median)} over eager"))
    best, worst = timed[-1], timed[0]
    parts.append(text(x(len(timed) - 1), y(values[-1]) - 9, short_name(best.problem), "direct ours", "end"))
    parts.append(text(x(0) + 8, y(values[0]) + 5, short_name(worst.problem), "direct"))
    parts.append(text(LEFT, HEIGHT - 8, f"{len(timed)} problems, from the slowest to the fastest", "axis"))
    return svg(
        "".join(parts), f"Speed-ups over eager from {values[0]:.2f} to {values[-1]:.2f}, median {median(values):.2f}"
    )


def compile_tick(row: Row, x: float, y: LogScale) -> str:
    """Where torch.compile stands over the same eager."""
    eager, other = row.times_us.get("eager"), row.times_us.get("compile")
    if eager is None or other is None or not other.median > 0:
        return ""
    ratio = eager.median / other.median
    return line(x - 2.5, y(ratio), x + 2.5, y(ratio), "rival") if y.low <= ratio <= y.high else ""


def family_chart(rows: Sequence[Row]) -> str:
    """Each problem's time over its physical floor, in a line for its family: eager as a tick, ours as a dot."""
    shown = [row for row in rows if row.work and row.work.floor_us > 0 and row.ours_us and row.standing == "right"]
    if not shown:
        return empty("nothing was timed")
    families = sorted({row.family for row in shown}, key=lambda f: (-sum(r.family == f for r in shown), f))
    over = {row.problem: multiples(row) for row in shown}
    most = max(max(values) for values in over.values())
    least = min(0.8, *(min(values) for values in over.values()))
    height = TOP + BOTTOM + 26 * len(families) + 6
    x = LogScale(max(least, 0.05), max(20.0, 1.2 * most), LEFT + 66, WIDTH - RIGHT)
    parts = [line(x(t), TOP, x(t), height - BOTTOM, "one" if t == 1 else "grid") for t in x.ticks((1,))]
    parts += [text(x(t), height - BOTTOM + 16, f"{t:g}×", "axis", "middle") for t in x.ticks((1,))]
    parts.append(text(x(1) + 4, TOP + 2, "the floor", "axis"))
    for number, family in enumerate(families):
        y = TOP + 22 + 26 * number
        members = [row for row in shown if row.family == family]
        parts.append(text(LEFT + 58, y + 4, family, "name", "end"))
        for place, row in enumerate(sorted(members, key=lambda row: over[row.problem][1])):
            at = y + ((place * 0.618) % 1 - 0.5) * min(14, 2.5 * len(members))  # apart, so that none hides another
            eager, ours = over[row.problem]
            kind = "ours" if ours < eager else "peer"
            marks = line(x(eager), at, x(ours), at, f"whisker {kind}") + line(
                x(eager), at - 3, x(eager), at + 3, "tick"
            )
            marks += dot(x(ours), at, 2.6, f"fill {kind}")
            parts.append(linked(row, marks, f"{row.problem}: {ours:.1f}× its floor, eager {eager:.1f}×"))
    reached = median(values[1] for values in over.values())
    return svg(
        "".join(parts), f"Times over the physical floor, by family; the median is {reached:.1f} times it", WIDTH, height
    )


def multiples(row: Row) -> tuple[float, float]:
    """Eager's time and ours, as multiples of the floor; eager's is ours where it was not timed."""
    assert row.work is not None
    assert row.ours_us is not None
    eager = row.times_us.get("eager", row.ours_us)
    return eager.median / row.work.floor_us, row.ours_us.median / row.work.floor_us


def error_chart(rows: Sequence[Row]) -> str:
    """Our error against float64 over eager's; on the diagonal both are alike."""
    shown = [row for row in rows if row.errors and row.standing == "right" and row.errors.eager_rms > 0]
    exact = sum(1 for row in rows if row.errors and row.standing == "right" and row.errors.candidate_rms == 0)
    if not shown:
        return empty("no error was measured")
    both = [(row.errors.eager_rms, row.errors.candidate_rms) for row in shown if row.errors]
    values = [value for pair in both for value in pair if value > 0]
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values) * 1.0001))
    low = min(low, high / 100)
    size = 320
    x, y = LogScale(low, high, LEFT + 6, size + 60), LogScale(low, high, size - BOTTOM, TOP)
    parts = [line(x(t), TOP, x(t), size - BOTTOM, "grid") for t in x.ticks((1,))]
    parts += [line(LEFT + 6, y(t), size + 60, y(t), "grid") for t in y.ticks((1,))]
    parts += [text(x(t), size - BOTTOM + 16, power_text(t), "axis", "middle") for t in x.ticks((1,))]
    parts += [text(LEFT, y(t) + 4, power_text(t), "axis", "end") for t in y.ticks((1,))]
    parts.append(line(x(low), y(low), x(high), y(high), "one"))
    parts.append(text(x(high) - 4, size - BOTTOM - 8, "closer to float64 than eager", "axis", "end"))
    parts.append(text(LEFT + 12, TOP + 12, "farther", "axis"))
    for row in shown:
        assert row.errors is not None
        ours, eager = row.errors.candidate_rms, row.errors.eager_rms
        kind = "ours" if ours <= 1.05 * eager else "peer"
        words = f"{row.problem}: {ours:.1e}, eager {eager:.1e}"
        parts.append(linked(row, dot(x(eager), y(max(ours, low)), 3, f"fill {kind}"), words))
    parts.append(text(x(high), size - 2, "eager's error", "axis", "end"))
    more = f", {exact} exact" if exact else ""
    return svg("".join(parts), f"Errors of {len(shown)} problems beside eager's{more}", WIDTH, size)


def speed_bar(row: Row, low: float, high: float) -> str:
    """One problem's speed-up over eager as a bar from 1, with its interval, and a tick for torch.compile."""
    span = row.speedup.get("eager")
    if span is None or row.standing != "right":
        return ""
    x = LogScale(low, high, 3, 147)
    kind = "ours" if span.median >= 1 else "peer"
    begin, end = sorted((x(1), x(span.median)))
    bar = f'<rect class="fill {kind}" x="{begin:.1f}" y="6" width="{max(end - begin, 0.6):.1f}" height="4"/>'
    whisker = line(x(span.low), 8, x(span.high), 8, f"whisker {kind}")
    eager, other = row.times_us.get("eager"), row.times_us.get("compile")
    tick = ""
    if eager and other and other.median > 0:
        place = x(eager.median / other.median)
        tick = line(place, 2, place, 14, "tick")
    one = line(x(1), 0, x(1), 16, "one")
    return f'<svg class="bar" viewBox="0 0 150 16" aria-hidden="true">{one}{bar}{whisker}{tick}</svg>'


def timing_bar(span: Span, low: float, high: float, kind: str) -> str:
    """A median and its interval on the scale of its table."""
    x = LogScale(low, high, 4, 196)
    marks = line(x(span.low), 8, x(span.high), 8, f"whisker {kind}") + dot(x(span.median), 8, 3.2, f"fill {kind}")
    return f'<svg class="bar wide" viewBox="0 0 200 16" aria-hidden="true">{line(4, 8, 196, 8, "grid")}{marks}</svg>'


def linear(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    return lambda value: begin + (value - low) / (high - low) * (end - begin)


def spaced(places: Sequence[float], gap: float) -> list[float]:
    """The places, moved apart so that labels do not cover each other."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    return moved


def power_text(value: float) -> str:
    power = round(math.log10(value))
    return f"10{str(power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def empty(why: str) -> str:
    return svg(text(WIDTH / 2, 40, why, "axis", "middle"), why, WIDTH, 80)


def times_of(row: Row) -> Iterator[tuple[str, Span, str]]:
    """Contestants in the order of a table, with how each is drawn; ours first."""
    if row.ours_us is not None:
        yield "this file", row.ours_us, "ours"
    for name, span in row.times_us.items():
        if name not in ("candidate", "eager again"):
            yield name, span, "peer"
