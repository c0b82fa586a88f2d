"""An `Exhibit` comes in; its section of the page goes out: the plan, times, errors, kernels, arithmetic, sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.report import charts
from kernelwright.report.drawing import plan_svg
from kernelwright.report.exhibit import Exhibit
from kernelwright.report.highlight import highlight
from kernelwright.report.markup import hidden, plain, row_of_cells, scrolling, table_of, tag
from kernelwright.report.page_table import floor_share, number_cell
from kernelwright.report.row import Errors, KernelFacts, Row, Span
from kernelwright.report.words import (
    anchor_of,
    baseline_name,
    breakable,
    bytes_text,
    count_text,
    error_text,
    flops_text,
    ratio_text,
    share_text,
    standing_mark,
    time_text,
    verdict_words,
)

__all__ = ["problem_section"]

# More say nothing new: a network of a hundred layers has few kinds of them.
MOST_LISTED = 24
LONGEST_FORMULA = 160


def problem_section(exhibit: Exhibit, *, is_open: bool) -> str:
    row = exhibit.row
    facts = (times_part(row), errors_part(row), work_part(row), remarks_part(row))
    return tag(
        "details",
        headline(row),
        tag("p", plain(row.detail), class_="detail") if row.detail else "",
        tag("div", tag("div", plan_part(exhibit)), tag("div", *facts), class_="columns"),
        kernels_part(row),
        contractions_part(row),
        source_part("Original model", exhibit.original),
        source_part("Emitted file", exhibit.emitted),
        files_part(exhibit),
        class_="problem",
        id=anchor_of(row.problem),
        open="" if is_open else None,
    )


def headline(row: Row) -> str:
    """What is seen while the section is closed."""
    span = row.speedup.get("eager")
    ratio = f", {ratio_text(span.median)} over eager" if span and row.standing == "right" else ""
    verdict = tag(
        "span",
        f"{tag('span', standing_mark(row), aria_hidden='true')} {plain(verdict_words(row))}",
        class_=row.standing,
    )
    return tag("summary", tag("h3", breakable(row.problem)), " ", tag("span", verdict, ratio, class_="brief"))


def plan_part(exhibit: Exhibit) -> str:
    if exhibit.picture is None or not exhibit.picture.boxes:
        return ""
    name = exhibit.row.problem
    return tag("h4", "Plan") + scrolling(plan_svg(exhibit.picture, name), f"Plan of {name}")


def times_part(row: Row) -> str:
    contestants = list(charts.times_of(row))
    if not contestants:
        return ""
    ends = [end for _, span, _ in contestants for end in (span.low, span.high)]
    scale = 0.8 * max(min(ends), 1e-3), 1.25 * max(ends)
    lines = [times_line(row, name, span, charts.timing_bar(span, *scale, kind)) for name, span, kind in contestants]
    lines += [row_of_cells(f"{plain(peer)}, elsewhere", peer_cells(time_us)) for peer, time_us in row.peers_us.items()]
    titles = (
        (hidden("contestant"), None),
        ("a call", "number"),
        (hidden("median and 95 % interval, drawn"), None),
        ("this file is", "number"),
    )
    noise = "" if row.noise is None else note(f"Eager against itself in this run: {row.noise:.1%}.")
    return tag("h4", "Times") + scrolling(table_of(titles, lines, "small"), f"Times of {row.problem}") + noise


def times_line(row: Row, name: str, span: Span, drawn: str) -> str:
    ratio = row.speedup.get(name)
    between = "" if ratio is None else tag("span", f"({ratio.low:.2f} to {ratio.high:.2f})", class_="of")
    faster = "" if ratio is None else f"{ratio_text(ratio.median)} {between}"
    cells = (
        tag("td", time_text(span.median), class_="number"),
        tag("td", drawn, class_="drawn"),
        tag("td", faster, class_="number"),
    )
    return row_of_cells(plain(baseline_name(name)), cells)


def peer_cells(time_us: float) -> tuple[str, ...]:
    return tag("td", time_text(time_us), class_="number"), tag("td"), tag("td")


def errors_part(row: Row) -> str:
    if row.errors is None:
        return ""
    titles = ((hidden("whose"), None), ("rms", "number"), ("largest", "number"))
    return tag("h4", "Error against float64") + table_of(titles, error_lines(row.errors), "small")


def error_lines(errors: Errors) -> list[str]:
    whose = {
        "this file": (errors.candidate_rms, errors.candidate_max),
        "eager": (errors.eager_rms, errors.eager_max),
    }
    return [row_of_cells(name, (number_cell(v, error_text) for v in values)) for name, values in whose.items()]


def work_part(row: Row) -> str:
    if row.work is None:
        return ""
    work, share = row.work, floor_share(row)
    arithmetic = f" and {flops_text(work.flops)} of products" if work.flops else ""
    reached = "" if share is None else f"; this file reaches {share_text(share)} of that"
    rejects = (
        "" if row.kill_rate is None else f" Known-bad answers that its inputs reject: {share_text(row.kill_rate)}."
    )
    floor = f"at least {time_text(work.floor_us)}, by {work.bound}"
    return note(f"{bytes_text(work.bytes_moved)} to move{arithmetic}: {floor}{reached}.{rejects}")


def remarks_part(row: Row) -> str:
    words = ", ".join(label.replace("_", " ") for label in row.labels)
    skipped = "; ".join(f"{step} ({why})" for step, why in row.skipped.items())
    remarks = note(f"Remarks: {words}.") if words else ""
    return remarks + (note(f"Left out by the judge: {skipped}.") if skipped else "")


def note(words: str) -> str:
    return tag("p", plain(words), class_="note")


def kernels_part(row: Row) -> str:
    if not row.kernels:
        return ""
    columns = [column for column in COLUMNS if any(column.value(kernel) is not None for kernel in row.kernels)]
    titles = [("kernel", None), ("computes", None), *((c.title, "number") for c in columns), ("config", None)]
    lines = [kernel_line(kernel, columns) for kernel in row.kernels[:MOST_LISTED]]
    table = table_of(titles, lines, "small")
    return tag("h4", "Kernels") + scrolling(table, f"Kernels of {row.problem}") + left_out(len(row.kernels))


@dataclass(frozen=True, slots=True)
class Column:
    """A number of a kernel; shown if some kernel of the problem has it."""

    title: str
    value: Callable[[KernelFacts], float | None]
    spell: Callable[[float], str]


COLUMNS = (
    Column("time", lambda k: k.median_us, time_text),
    Column("floor", lambda k: k.floor_us or None, time_text),
    Column("of it", lambda k: k.floor_us / k.median_us if k.median_us else None, share_text),
    Column("PyTorch", lambda k: k.library_us, time_text),
    Column("registers", lambda k: k.registers, "{:.0f}".format),
    Column("spilled", lambda k: k.spill_bytes, bytes_text),
)


def kernel_line(kernel: KernelFacts, columns: Sequence[Column]) -> str:
    formula = kernel.formula if len(kernel.formula) <= LONGEST_FORMULA else kernel.formula[: LONGEST_FORMULA - 1] + "…"
    cells = (
        tag("td", tag("code", plain(formula)), class_="formula"),
        *(number_cell(column.value(kernel), column.spell) for column in columns),
        tag("td", plain(kernel.config), class_="config"),
    )
    return row_of_cells(tag("code", plain(kernel.name)), cells)


def contractions_part(row: Row) -> str:
    if not row.contractions:
        return ""
    counts = Counter(row.contractions)
    lines = [
        row_of_cells(
            plain(one.what + (f" (×{count})" if count > 1 else "")),
            (tag("td", plain(one.by)), tag("td", plain(one.arithmetic))),
        )
        for one, count in list(counts.items())[:MOST_LISTED]
    ]
    table = table_of((("contraction", None), ("by", None), ("arithmetic", None)), lines, "small")
    title = tag("h4", "Arithmetic of each contraction")
    return title + scrolling(table, f"Contractions of {row.problem}") + left_out(len(counts))


def left_out(count: int) -> str:
    return note(f"and {count - MOST_LISTED} more.") if count > MOST_LISTED else ""


def source_part(title: str, text: str) -> str:
    if not text:
        return ""
    length = tag("span", count_text(text.count("\n"), "line"), class_="of")
    code = tag("pre", tag("code", highlight(text, "python")), tabindex="0")
    return tag("details", tag("summary", f"{title} ", length), code, class_="source")


def files_part(exhibit: Exhibit) -> str:
    links = ", ".join(tag("a", plain(Path(path).name), href=path) for path in exhibit.files)
    return tag("p", f"Files: {links}", class_="note files") if links else ""
