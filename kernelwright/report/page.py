"""Rows with their plans and sources come in; one HTML page that needs nothing else goes out.

Read top to bottom: a summary in sentences, four figures, one table of all problems, one section a problem. The style and
the script beside this file are put into the page; there is nothing to load.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median

from kernelwright.report import charts
from kernelwright.report.boxes import Picture
from kernelwright.report.drawing import plan_svg
from kernelwright.report.highlight import highlight
from kernelwright.report.row import KernelFacts, Row
from kernelwright.report.summary import Against, Summary, baselines_of, said_of, summarise
from kernelwright.report.words import (
    anchor_of,
    bytes_text,
    count_text,
    error_text,
    flops_text,
    ratio_text,
    standing_mark,
    time_text,
    verdict_words,
)

__all__ = ["Exhibit", "page"]

STYLE = Path(__file__).with_name("page.css")
SCRIPT = Path(__file__).with_name("page.js")

STANDINGS = {
    "right": "right",
    "unchanged": "left as they are, since no kernel of ours would help",
    "wrong": "wrong",
    "broken": "did not build or run",
    "unjudged": "could not be judged",
}


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A row with what is shown of it; `files` are links from the page, empty texts are left out."""

    row: Row
    picture: Picture | None = None
    original: str = ""
    emitted: str = ""
    files: tuple[str, ...] = ()


def page(exhibits: Sequence[Exhibit], title: str) -> str:
    """The whole page."""
    rows = [exhibit.row for exhibit in exhibits]
    single = len(rows) == 1
    body = [
        header(rows, title),
        "" if single else summary_part(summarise(rows), rows),
        "" if single else figures(rows),
        "" if single else table(rows),
        "".join(section(exhibit, is_open=single) for exhibit in exhibits) if single else sections(exhibits),
        footer(),
    ]
    script = "" if single else f"<script>{SCRIPT.read_text()}</script>"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}: kernelwright</title>\n<style>{STYLE.read_text()}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#content">Skip to the content</a>\n'
        f'<main id="content">\n{"".join(body)}</main>\n{script}\n</body>\n</html>\n'
    )


# --- the head


def header(rows: Sequence[Row], title: str) -> str:
    facts = [same(rows, key) for key in ("device", "torch", "cuda", "python", "commit", "date")]
    names = ("", "PyTorch ", "CUDA ", "Python ", "commit ", "")
    where = ", ".join(f"{name}{fact}" for name, fact in zip(names, facts, strict=True) if fact)
    precisions = sorted({row.terms.precision for row in rows})
    precision = f" Precision: {', '.join(precisions)}." if precisions != ["reference"] else ""
    commands = list(dict.fromkeys(str(row.environment.get("command", "")) for row in rows))
    shown = "".join(f"<code>{escape(command)}</code><br>" for command in commands[:4] if command)
    asked = f'<p class="command">{shown}</p>' if shown else ""
    return f'<header><h1>{escape(title)}</h1><p class="where">{escape(where)}.{escape(precision)}</p>{asked}</header>\n'


def same(rows: Sequence[Row], key: str) -> str:
    """What all rows say, or all of what they say."""
    values = dict.fromkeys(str(row.environment[key]) for row in rows if row.environment.get(key))
    return " / ".join(values)


# --- the summary


def summary_part(summary: Summary, rows: Sequence[Row]) -> str:
    sentences = [standing_sentence(summary), *(against_sentence(a) for a in summary.against if a.timed)]
    if summary.with_errors:
        sentences.append(
            f"{summary.accurate} of {summary.with_errors} are at least as close to float64 as PyTorch itself."
        )
    if summary.degenerate:
        sentences.append(
            f"{count_text(len(summary.degenerate), 'problem')} would accept an answer that looks at no input "
            f"({', '.join(map(problem_link, summary.degenerate))}) and {'is' if len(summary.degenerate) == 1 else 'are'} "
            "not counted in any mean."
        )
    numbers = "".join(map(headline, summary.against))
    paragraphs = "".join(f"<p>{sentence}</p>" for sentence in sentences)
    return f'<section aria-label="Summary" class="summary"><dl class="numbers">{headcount(summary)}{numbers}</dl><div>{paragraphs}</div></section>\n'


def headcount(summary: Summary) -> str:
    right = summary.standings.get("right", 0)
    return f'<div><dt>right</dt><dd>{right}<span class="of"> of {summary.total}</span></dd></div>'


def headline(against: Against) -> str:
    if not against.timed:
        return ""
    return f"<div><dt>over {escape(baseline_name(against.baseline))}, geometric mean</dt><dd>{ratio_text(against.geomean)}</dd></div>"


def standing_sentence(summary: Summary) -> str:
    parts = [f"{count} {STANDINGS[name]}" for name, count in ordered_standings(summary) if count]
    return f"Of {count_text(summary.total, 'problem')}, {joined(parts)}."


def ordered_standings(summary: Summary) -> list[tuple[str, int]]:
    return [(name, summary.standings.get(name, 0)) for name in STANDINGS]


def against_sentence(against: Against) -> str:
    ratio, problem = against.best
    return (
        f"Over {escape(baseline_name(against.baseline))}: <b>{against.faster}</b> of {against.timed} timed are faster beyond the noise, "
        f"{against.same} the same, {against.slower} slower; "
        f"geometric mean <b>{ratio_text(against.geomean)}</b>, median {ratio_text(against.median)}, "
        f"best {ratio_text(ratio)} ({problem_link(problem)})."
    )


def baseline_name(name: str) -> str:
    return {
        "compile": "torch.compile",
        "max-autotune": "torch.compile max-autotune",
        "graph": "CUDA-graphed eager",
    }.get(name, name)


def joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else "none"


def problem_link(problem: str) -> str:
    return f'<a href="#{anchor_of(problem)}">{escape(problem)}</a>'


# --- the figures


def figures(rows: Sequence[Row]) -> str:
    counted = [row for row in rows if not row.degenerate]
    noisy = [row.noise for row in counted if row.noise is not None]
    noise = f" Eager differs from itself by {median(noisy):.1%} in these runs, at the median." if noisy else ""
    parts = (
        figure(
            charts.fast_chart(counted),
            "Share of all problems that are right and more than <i>p</i> times as fast, over <i>p</i>.",
        ),
        figure(
            charts.speedup_chart(counted),
            "Speed-up over eager of each problem, with its 95 % interval; a tick where torch.compile stands." + noise,
        ),
        figure(
            charts.family_chart(counted),
            "Time as a multiple of the physical floor, which is the time that moving the bytes or doing the arithmetic takes "
            "at the device's own rates: eager (tick) to ours (dot). What fits in a cache can be below it.",
        ),
        figure(
            charts.error_chart(counted),
            "Error against float64 (relative rms) on the problem's own inputs, ours over eager's.",
        ),
    )
    return f'<section aria-label="Figures" class="figures">{"".join(parts)}</section>\n'


def figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"


# --- the table


def table(rows: Sequence[Row]) -> str:
    baselines = baselines_of(rows)
    titles = [
        ("problem", "text"),
        ("family", "text"),
        ("verdict", "text"),
        ("ours", "number"),
        ("", ""),
        *((f"over {baseline_name(name)}", "number") for name in baselines),
        *((f"over {peer}", "number") for peer in peers_of(rows)),
        ("of the floor", "number"),
        ("error ours / eager", "number"),
    ]
    head = "".join(heading(number, title, kind) for number, (title, kind) in enumerate(titles))
    low, high = bar_range(rows)
    lines = "".join(table_row(row, baselines, peers_of(rows), low, high) for row in rows)
    return (
        '<section aria-labelledby="all"><h2 id="all">All problems</h2>\n'
        f"{filters(rows)}\n"
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of all problems">'
        f'<table id="problems"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div></section>\n'
    )


def heading(number: int, title: str, kind: str) -> str:
    if not title:
        return '<th scope="col"><span class="hidden">speed-up over eager, drawn</span></th>'
    return f'<th scope="col" class="{kind}"><button type="button" data-column="{number}">{escape(title)}</button></th>'


def filters(rows: Sequence[Row]) -> str:
    families = Counter(row.family for row in rows)
    standings = Counter(row.standing for row in rows)
    speeds = Counter(speed_word(row) for row in rows)
    return (
        '<form class="filters" role="search" aria-label="Filter the problems">'
        '<label>search <input type="search" id="search" autocomplete="off" spellcheck="false"></label>'
        f"{choice('standing', 'verdict', standings)}{choice('speed', 'speed', speeds)}{choice('family', 'family', families)}"
        f'<output id="count" aria-live="polite">{count_text(len(rows), "problem")}</output></form>'
    )


def choice(name: str, label: str, counts: Counter[str]) -> str:
    options = "".join(
        f'<option value="{escape(value)}">{escape(value)} ({count})</option>'
        for value, count in counts.most_common()
        if value
    )
    return f'<label>{label} <select id="{name}"><option value="">all</option>{options}</select></label>'


def speed_word(row: Row) -> str:
    """faster, same or slower than eager; nothing where it was not timed."""
    span = row.speedup.get("eager")
    return said_of(span, row.noise) if span is not None and row.standing == "right" else "not timed"


def peers_of(rows: Sequence[Row]) -> list[str]:
    return sorted({peer for row in rows for peer in row.peers_us})


def bar_range(rows: Sequence[Row]) -> tuple[float, float]:
    values = [row.speedup["eager"].median for row in rows if "eager" in row.speedup and row.standing == "right"]
    return min([0.5, *(0.9 * v for v in values)]), max([3.0, *(1.1 * v for v in values)])


def table_row(row: Row, baselines: Sequence[str], peers: Sequence[str], low: float, high: float) -> str:
    ours = row.ours_us
    degenerate = ' <abbr title="an answer that looks at no input passes">degenerate</abbr>' if row.degenerate else ""
    cells = [
        f'<th scope="row"><a href="#{anchor_of(row.problem)}">{escape(row.problem)}</a></th>',
        f"<td>{escape(row.family)}</td>",
        f'<td class="verdict {row.standing}"><span aria-hidden="true">{standing_mark(row)}</span> {escape(verdict_words(row))}{degenerate}</td>',
        number_cell(ours.median if ours else None, time_text),
        f'<td class="drawn">{charts.speed_bar(row, low, high)}</td>',
        *(number_cell(row.over(name) if row.standing == "right" else None, ratio_text) for name in baselines),
        *(number_cell(over_peer(row, peer), ratio_text) for peer in peers),
        number_cell(floor_share(row), lambda share: f"{share:.0%}"),
        error_cell(row),
    ]
    return (
        f'<tr data-problem="{anchor_of(row.problem)}" data-standing="{row.standing}" data-family="{escape(row.family)}" '
        f'data-speed="{speed_word(row)}">{"".join(cells)}</tr>'
    )


def number_cell(value: float | None, spell: object) -> str:
    assert callable(spell)
    if value is None or not math.isfinite(value):
        return '<td class="number"></td>'
    return f'<td class="number" data-value="{value:.6g}">{spell(value)}</td>'


def over_peer(row: Row, peer: str) -> float | None:
    ours, theirs = row.ours_us, row.peers_us.get(peer)
    return theirs / ours.median if ours and theirs and row.standing == "right" else None


def floor_share(row: Row) -> float | None:
    ours = row.ours_us
    return row.work.floor_us / ours.median if row.work and ours and row.standing == "right" else None


def error_cell(row: Row) -> str:
    if row.errors is None:
        return '<td class="number"></td>'
    ours, eager = row.errors.candidate_rms, row.errors.eager_rms
    return f'<td class="number" data-value="{ours:.6g}">{error_text(ours)} / {error_text(eager)}</td>'


# --- one section a problem


def sections(exhibits: Iterable[Exhibit]) -> str:
    inside = "".join(section(exhibit, is_open=False) for exhibit in exhibits)
    return f'<section aria-labelledby="each"><h2 id="each">Each problem</h2>\n{inside}</section>\n'


def section(exhibit: Exhibit, *, is_open: bool) -> str:
    row = exhibit.row
    brief = ratio_brief(row)
    parts = [
        f'<p class="detail">{escape(row.detail)}</p>' if row.detail else "",
        '<div class="columns">',
        f'<div class="left">{plan_part(exhibit)}</div>',
        f'<div class="right">{times_part(row)}{errors_part(row)}{work_part(row)}{labels_part(row)}</div></div>',
        kernels_part(row),
        contractions_part(row),
        source_part("Original model", exhibit.original),
        source_part("Emitted file", exhibit.emitted),
        files_part(exhibit),
    ]
    return (
        f'<details class="problem" id="{anchor_of(row.problem)}"{" open" if is_open else ""}>'
        f'<summary><h3>{escape(row.problem)}</h3> <span class="brief"><span class="{row.standing}">'
        f'<span aria-hidden="true">{standing_mark(row)}</span> {escape(verdict_words(row))}</span>{brief}</span></summary>'
        f"{''.join(parts)}</details>\n"
    )


def ratio_brief(row: Row) -> str:
    span = row.speedup.get("eager")
    return f", {ratio_text(span.median)} eager" if span and row.standing == "right" else ""


def plan_part(exhibit: Exhibit) -> str:
    if exhibit.picture is None or not exhibit.picture.boxes:
        return ""
    drawn = plan_svg(exhibit.picture, exhibit.row.problem)
    return f'<h4>Plan</h4><div class="scroll" tabindex="0" role="region" aria-label="Plan of {escape(exhibit.row.problem)}">{drawn}</div>'


def times_part(row: Row) -> str:
    contestants = list(charts.times_of(row))
    if not contestants:
        return ""
    ends = [end for _, span, _ in contestants for end in (span.low, span.high)]
    low, high = 0.8 * max(min(ends), 1e-3), 1.25 * max(ends)
    lines = ""
    for name, span, kind in contestants:
        ratio = row.speedup.get(name)
        faster = (
            f"{ratio_text(ratio.median)} <span class='of'>({ratio.low:.2f} to {ratio.high:.2f})</span>" if ratio else ""
        )
        lines += (
            f'<tr><th scope="row">{escape(baseline_name(name))}</th><td class="number">{time_text(span.median)}</td>'
            f'<td class="drawn">{charts.timing_bar(span, low, high, kind)}</td><td class="number">{faster}</td></tr>'
        )
    for peer, time_us in row.peers_us.items():
        lines += f'<tr><th scope="row">{escape(peer)}, elsewhere</th><td class="number">{time_text(time_us)}</td><td></td><td></td></tr>'
    noise = f'<p class="note">Eager against itself in this run: {row.noise:.1%}.</p>' if row.noise is not None else ""
    head = '<th scope="col"><span class="hidden">contestant</span></th><th scope="col" class="number">a call</th>'
    head += '<th scope="col"><span class="hidden">median and 95 % interval, drawn</span></th><th scope="col" class="number">this file is</th>'
    return f'<h4>Times</h4><table class="small"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>{noise}'


def errors_part(row: Row) -> str:
    if row.errors is None:
        return ""
    e = row.errors
    return (
        '<h4>Error against float64</h4><table class="small"><thead><tr><th scope="col"><span class="hidden">whose</span></th>'
        '<th scope="col" class="number">rms</th><th scope="col" class="number">largest</th></tr></thead><tbody>'
        f'<tr><th scope="row">this file</th><td class="number">{error_text(e.candidate_rms)}</td><td class="number">{error_text(e.candidate_max)}</td></tr>'
        f'<tr><th scope="row">eager</th><td class="number">{error_text(e.eager_rms)}</td><td class="number">{error_text(e.eager_max)}</td></tr>'
        "</tbody></table>"
    )


def work_part(row: Row) -> str:
    if row.work is None:
        return ""
    w = row.work
    arithmetic = f" and {flops_text(w.flops)} of products" if w.flops else ""
    share = floor_share(row)
    reached = f"; this file reaches {share:.0%} of it" if share is not None else ""
    killed = f" Known-bad answers that its inputs reject: {row.kill_rate:.0%}." if row.kill_rate is not None else ""
    return (
        f'<p class="note">{bytes_text(w.bytes_moved)} to move{arithmetic}: at least {time_text(w.floor_us)}, '
        f"by {w.bound}{reached}.{killed}</p>"
    )


def labels_part(row: Row) -> str:
    words = ", ".join(label.replace("_", " ") for label in row.labels)
    return f'<p class="note">Remarks: {escape(words)}.</p>' if words else ""


def kernels_part(row: Row) -> str:
    if not row.kernels:
        return ""
    lines = "".join(map(kernel_line, row.kernels))
    titles = ("kernel", "computes", "time", "floor", "of it", "PyTorch", "config")
    numbers = ("time", "floor", "of it", "PyTorch")
    head = "".join(f'<th scope="col"{" class=number" if t in numbers else ""}>{t}</th>' for t in titles)
    name = escape(row.problem)
    return (
        f'<h4>Kernels</h4><div class="scroll" tabindex="0" role="region" aria-label="Kernels of {name}">'
        f'<table class="small kernels"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def kernel_line(kernel: KernelFacts) -> str:
    measured = kernel.median_us
    return (
        f'<tr><th scope="row"><code>{escape(kernel.name)}</code></th><td class="formula"><code>{escape(cut(kernel.formula))}</code></td>'
        f"{number_cell(measured, time_text)}{number_cell(kernel.floor_us or None, time_text)}"
        f"{number_cell(kernel.floor_us / measured if measured else None, lambda s: f'{s:.0%}')}"
        f'{number_cell(kernel.library_us, time_text)}<td class="config">{escape(kernel.config)}</td></tr>'
    )


def cut(formula: str) -> str:
    return formula if len(formula) <= 160 else formula[:159] + "…"


def contractions_part(row: Row) -> str:
    if not row.contractions:
        return ""
    counts = Counter(row.contractions)
    lines = "".join(
        f'<tr><th scope="row">{escape(c.what)}{f" (×{n})" if n > 1 else ""}</th><td>{escape(c.by)}</td><td>{escape(c.arithmetic)}</td></tr>'
        for c, n in list(counts.items())[:24]
    )
    more = f'<p class="note">and {len(counts) - 24} more.</p>' if len(counts) > 24 else ""
    name = escape(row.problem)
    return (
        f'<h4>Arithmetic of each contraction</h4><div class="scroll" tabindex="0" role="region" aria-label="Contractions of {name}">'
        '<table class="small"><thead><tr><th scope="col">contraction</th><th scope="col">by</th><th scope="col">arithmetic</th>'
        f"</tr></thead><tbody>{lines}</tbody></table></div>{more}"
    )


def source_part(title: str, text: str) -> str:
    if not text:
        return ""
    lines = text.count("\n")
    return (
        f'<details class="source"><summary>{title} <span class="of">{count_text(lines, "line")}</span></summary>'
        f'<pre tabindex="0"><code>{highlight(text, "python")}</code></pre></details>'
    )


def files_part(exhibit: Exhibit) -> str:
    if not exhibit.files:
        return ""
    links = ", ".join(f'<a href="{escape(path)}">{escape(Path(path).name)}</a>' for path in exhibit.files)
    return f'<p class="note files">Files: {links}</p>'


def footer() -> str:
    return (
        "<footer><p>Times are medians of one call, measured in turns with the baselines in the same run; intervals are 95 %. "
        "An answer is right if it is as close to float64 as the original's own arithmetic, on several families of inputs, "
        "with other weights, and on every call that was timed.</p></footer>\n"
    )
