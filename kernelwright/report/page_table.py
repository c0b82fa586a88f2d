"""Rows come in; the table of all problems goes out as HTML, with what filters and sorts it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from kernelwright.report import charts
from kernelwright.report.markup import hidden, plain, scrolling, tag
from kernelwright.report.row import Row
from kernelwright.report.summary import baselines_of, said_of
from kernelwright.report.words import (
    anchor_of,
    baseline_name,
    breakable,
    count_text,
    error_text,
    ratio_text,
    share_text,
    standing_mark,
    time_text,
    verdict_words,
)

__all__ = ["floor_share", "number_cell", "problems_table"]


def problems_table(rows: Sequence[Row]) -> str:
    baselines, peers = baselines_of(rows), sorted({peer for row in rows for peer in row.peers_us})
    named = [*map(baseline_name, baselines), *peers]
    titles = [("problem", ""), ("family", ""), ("verdict", ""), ("ours", "number"), ("", "")]
    titles += [(f"over {name}", "number") for name in named]
    titles += [("of the floor", "number"), ("error ours / eager", "number")]
    head = tag("tr", *(heading(i, title, kind) for i, (title, kind) in enumerate(titles)))
    scale = bar_range(rows)
    body = (table_row(row, baselines, peers, scale) for row in rows)
    table = tag("table", tag("thead", head), tag("tbody", *body), id="problems")
    return tag(
        "section",
        tag("h2", "All problems", id="all"),
        filters(rows),
        scrolling(table, "Table of all problems"),
        aria_labelledby="all",
    )


def heading(number: int, title: str, kind: str) -> str:
    if not title:
        return tag("th", hidden("speed-up over eager, drawn"), scope="col")
    button = tag("button", plain(title), type="button", data_column=str(number))
    return tag("th", button, scope="col", class_=kind or None)


def filters(rows: Sequence[Row]) -> str:
    search = '<label>search <input type="search" id="search" autocomplete="off" spellcheck="false"></label>'
    choices = (
        choice("standing", "verdict", Counter(row.standing for row in rows)),
        choice("speed", "speed", Counter(speed_word(row) for row in rows)),
        choice("family", "family", Counter(row.family for row in rows)),
    )
    count = tag("output", count_text(len(rows), "problem"), id="count", aria_live="polite")
    return tag("form", search, *choices, count, class_="filters", role="search", aria_label="Filter the problems")


def choice(name: str, label: str, counts: Counter[str]) -> str:
    options = [tag("option", f"{plain(value)} ({count})", value=value) for value, count in counts.most_common()]
    return tag("label", f"{label} ", tag("select", tag("option", "all", value=""), *options, id=name))


def speed_word(row: Row) -> str:
    """faster, same or slower than eager, beyond the noise; or that the noise is too large to say."""
    if row.standing == "right" and row.is_unclear:
        return "unclear"
    return said_of(row.speedup["eager"], row.noise) if row.is_timed("eager") else "not timed"


def bar_range(rows: Sequence[Row]) -> tuple[float, float]:
    """The ends of the scale that all bars of the table share; one far outlier must not flatten all the others."""
    values = [row.speedup["eager"].median for row in rows if row.is_timed("eager")]
    return max(0.2, min([0.5, *(0.9 * v for v in values)])), min(30.0, max([3.0, *(1.1 * v for v in values)]))


def table_row(row: Row, baselines: Sequence[str], peers: Sequence[str], scale: tuple[float, float]) -> str:
    right = row.standing == "right"
    cells = [
        tag("th", tag("a", breakable(row.problem), href=f"#{anchor_of(row.problem)}"), scope="row"),
        tag("td", plain(row.family)),
        verdict_cell(row),
        number_cell(row.ours_us.median if row.ours_us else None, time_text),
        tag("td", charts.speed_bar(row, *scale), class_="drawn"),
        *(number_cell(row.over(name) if right else None, ratio_text) for name in baselines),
        *(number_cell(over_peer(row, peer), ratio_text) for peer in peers),
        number_cell(floor_share(row), share_text),
        error_cell(row),
    ]
    return tag(
        "tr",
        *cells,
        data_problem=anchor_of(row.problem),
        data_standing=row.standing,
        data_family=row.family,
        data_speed=speed_word(row),
    )


def verdict_cell(row: Row) -> str:
    mark = tag("span", standing_mark(row), aria_hidden="true")
    degenerate = tag("abbr", "degenerate", title="an answer that looks at no input passes") if row.degenerate else ""
    words = f"{mark} {plain(verdict_words(row))}{' ' if degenerate else ''}{degenerate}"
    return tag("td", words, class_=f"verdict {row.standing}")


def number_cell(value: float | None, spell: Callable[[float], str]) -> str:
    if value is None or not math.isfinite(value):
        return tag("td", class_="number")
    return tag("td", spell(value), class_="number", data_value=f"{value:.6g}")


def over_peer(row: Row, peer: str) -> float | None:
    ours, theirs = row.ours_us, row.peers_us.get(peer)
    return theirs / ours.median if ours and theirs and row.standing == "right" else None


def floor_share(row: Row) -> float | None:
    """How much of the physical floor is reached."""
    ours = row.ours_us
    return row.work.floor_us / ours.median if row.work and ours and row.standing == "right" else None


def error_cell(row: Row) -> str:
    if row.errors is None:
        return tag("td", class_="number")
    ours, eager = row.errors.candidate_rms, row.errors.eager_rms
    return tag("td", f"{error_text(ours)} / {error_text(eager)}", class_="number", data_value=f"{ours:.6g}")
