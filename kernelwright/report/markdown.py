"""Rows come in; a summary and one table go out as Markdown, for a README or an issue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelwright.report.row import Row
from kernelwright.report.summary import Summary, baselines_of, summarise
from kernelwright.report.words import count_text, error_text, ratio_text, time_text, verdict_words

__all__ = ["markdown"]


def markdown(rows: Sequence[Row], title: str) -> str:
    summary = summarise(rows)
    return "\n".join([f"# {title}", "", *summary_lines(summary, rows), "", *table_lines(rows), ""])


def summary_lines(summary: Summary, rows: Sequence[Row]) -> Iterator[str]:
    devices = ", ".join(dict.fromkeys(row.terms.device for row in rows))
    standings = ", ".join(f"{count} {name}" for name, count in summary.standings.items())
    yield f"{count_text(summary.total, 'problem')} on {devices}: {standings}."
    for a in summary.against:
        if a.timed:
            yield (
                f"Over {a.baseline}: {a.faster} of {a.timed} faster, {a.same} the same, {a.slower} slower"
                f"{f', {a.unclear} more too noisy to say' if a.unclear else ''}; "
                f"geometric mean {ratio_text(a.geomean)}, median {ratio_text(a.median)}."
            )
    if summary.degenerate:
        yield f"Not counted, since an answer that looks at no input passes: {', '.join(summary.degenerate)}."


def table_lines(rows: Sequence[Row]) -> Iterator[str]:
    baselines = baselines_of(rows)
    ratios = [f"over {name}" for name in baselines]
    titles = ["problem", "family", "verdict", "ours", *ratios, "of the floor", "error ours / eager"]
    yield table_line(titles)
    yield table_line([":--", ":--", ":--", *["--:"] * (len(titles) - 3)])
    for row in rows:
        yield table_line(cells(row, baselines))


def cells(row: Row, baselines: Sequence[str]) -> list[str]:
    ours = row.ours_us
    share = row.work.floor_us / ours.median if row.work and ours and row.standing == "right" else None
    errors = f"{error_text(row.errors.candidate_rms)} / {error_text(row.errors.eager_rms)}" if row.errors else ""
    ratios = [row.over(name) if row.standing == "right" else None for name in baselines]
    return [
        f"`{row.problem}`",
        row.family,
        verdict_words(row) + (", degenerate" if row.degenerate else ""),
        time_text(ours.median) if ours else "",
        *("" if ratio is None else ratio_text(ratio) for ratio in ratios),
        "" if share is None else f"{share:.0%}",
        errors,
    ]


def table_line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"
