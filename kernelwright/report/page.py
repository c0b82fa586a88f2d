"""Rows with their plans and sources come in; one HTML page that needs nothing else goes out.

Read from the top: a summary in sentences, four figures, one table of all problems, one section a problem. The style and
the script beside this file are put into the page; there is nothing to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from kernelwright.report import charts
from kernelwright.report.exhibit import Exhibit
from kernelwright.report.markup import plain, tag
from kernelwright.report.page_problem import problem_section
from kernelwright.report.page_table import problems_table
from kernelwright.report.row import Row
from kernelwright.report.summary import Against, Summary, summarise
from kernelwright.report.words import anchor_of, baseline_name, breakable, count_text, joined, ratio_text

__all__ = ["page"]

STYLE = Path(__file__).with_name("page.css")
SCRIPT = Path(__file__).with_name("page.js")

STANDINGS = {
    "right": "right",
    "unchanged": "left as they are, since no kernel of ours would help",
    "wrong": "wrong",
    "broken": "did not build or run",
    "unjudged": "could not be judged",
}
FLOOR_CAPTION = (
    "Time as a multiple of the physical floor: what moving the bytes, or doing the arithmetic, takes at the device's "
    "own rates. From eager (tick) to ours (dot). What fits in a cache can be below it."
)
FOOTER = (
    "Times are medians of one call, measured in turns with the baselines in the same run; intervals are 95 %. "
    "An answer is right if it is as close to float64 as the original's own arithmetic, on several families of "
    "inputs, with other weights, and on every call that was timed."
)


def page(exhibits: Sequence[Exhibit], title: str) -> str:
    """The whole page. Of one problem: its section alone."""
    rows = [exhibit.row for exhibit in exhibits]
    several = len(rows) > 1
    parts = [header(rows, title)]
    if several:
        parts += [summary_part(summarise(rows)), figures(rows), problems_table(rows)]
    sections = "\n".join(problem_section(exhibit, is_open=not several) for exhibit in exhibits)
    heading = tag("h2", "Each problem" if several else "Result", id="each", class_=None if several else "hidden")
    parts.append(tag("section", heading, sections, aria_labelledby="each"))
    parts.append(tag("footer", tag("p", FOOTER)))
    script = tag("script", SCRIPT.read_text()) if several else ""
    return document(title, "\n".join(parts), script)


def document(title: str, content: str, script: str) -> str:
    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
    )
    skip = tag("a", "Skip to the content", class_="skip", href="#content")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}{tag("title", plain(title), ": kernelwright")}\n'
        f"{tag('style', STYLE.read_text())}\n</head>\n<body>\n{skip}\n"
        f"{tag('main', content, id='content')}\n{script}\n</body>\n</html>\n"
    )


# --- the head


def header(rows: Sequence[Row], title: str) -> str:
    names = {"device": "", "torch": "PyTorch ", "cuda": "CUDA ", "python": "Python ", "commit": "commit ", "date": ""}
    where = ", ".join(f"{name}{fact}" for key, name in names.items() if (fact := said(rows, key)))
    precisions = sorted({row.terms.precision for row in rows} - {"reference"})
    allowed = f" Allowed precision: {', '.join(precisions)}." if precisions else ""
    commands = list(dict.fromkeys(str(row.environment.get("command") or "") for row in rows))
    asked = "<br>".join(tag("code", plain(command)) for command in commands[:4] if command)
    return tag(
        "header",
        tag("h1", plain(title)),
        tag("p", plain(f"{where}.{allowed}"), class_="where"),
        tag("p", asked, class_="command") if asked else "",
    )


def said(rows: Sequence[Row], key: str) -> str:
    """What the rows say of their environment, each answer once."""
    values = dict.fromkeys(str(row.environment[key]) for row in rows if row.environment.get(key))
    return " / ".join(values)


# --- the summary


def summary_part(summary: Summary) -> str:
    timed = [against for against in summary.against if against.timed]
    right = tag("span", f" of {summary.total}", class_="of")
    numbers = [big_number("right", f"{summary.standings.get('right', 0)}{right}")]
    numbers += [big_number(f"over {baseline_name(a.baseline)}, geometric mean", ratio_text(a.geomean)) for a in timed]
    sentences = [standing_sentence(summary), *map(against_sentence, timed)]
    if summary.with_errors:
        whole = f"{summary.accurate} of {summary.with_errors}"
        sentences.append(f"{whole} are at least as close to float64 as PyTorch itself.")
    if summary.degenerate:
        sentences.append(degenerate_sentence(summary.degenerate))
    said_so = tag("div", *(tag("p", sentence) for sentence in sentences))
    return tag("section", tag("dl", *numbers, class_="numbers"), said_so, class_="summary", aria_label="Summary")


def big_number(name: str, number: str) -> str:
    return tag("div", tag("dt", plain(name)), tag("dd", number))


def standing_sentence(summary: Summary) -> str:
    counts = [(summary.standings.get(name, 0), words) for name, words in STANDINGS.items()]
    return f"Of {count_text(summary.total, 'problem')}, {joined([f'{n} {words}' for n, words in counts if n])}."


def against_sentence(against: Against) -> str:
    ratio, problem = against.best
    return (
        f"Over {plain(baseline_name(against.baseline))}: {tag('b', str(against.faster))} of {against.timed} timed are "
        f"faster beyond the noise, {against.same} the same, {against.slower} slower"
        f"{f', {against.unclear} more too noisy to say' if against.unclear else ''}; geometric mean "
        f"{tag('b', ratio_text(against.geomean))}, median {ratio_text(against.median)}, "
        f"best {ratio_text(ratio)} ({problem_link(problem)})."
    )


def degenerate_sentence(problems: Sequence[str]) -> str:
    verb = "is" if len(problems) == 1 else "are"
    links = ", ".join(map(problem_link, problems))
    accept = f"{count_text(len(problems), 'problem')} would accept an answer that looks at no input ({links})"
    return f"{accept} and {verb} counted in no mean."


def problem_link(problem: str) -> str:
    return tag("a", breakable(problem), href=f"#{anchor_of(problem)}")


# --- the figures


def figures(rows: Sequence[Row]) -> str:
    """Degenerate problems are in none of them."""
    counted = [row for row in rows if not row.degenerate]
    noises = [row.noise for row in counted if row.noise is not None]
    noise = f" Eager differs from itself by {median(noises):.1%} in these runs, at the median." if noises else ""
    rival = "; a tick where torch.compile stands" if any("compile" in row.times_us for row in counted) else ""
    drawn = (
        (
            charts.fast_chart(counted),
            "Share of all problems that are right and more than <i>p</i> times as fast, over <i>p</i>.",
        ),
        (
            charts.speedup_chart(counted),
            f"Speed-up over eager of each problem, with its 95 % interval{rival}.{noise}",
        ),
        (
            charts.family_chart(counted),
            FLOOR_CAPTION,
        ),
        (
            charts.error_chart(counted),
            "Error against float64 (relative rms) on the problem's own inputs, ours over eager's.",
        ),
    )
    shown = (tag("figure", drawing, tag("figcaption", caption)) for drawing, caption in drawn)
    return tag("section", *shown, class_="figures", aria_label="Figures")
