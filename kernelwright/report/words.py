"""Numbers and names come in; how a page spells them goes out."""

from __future__ import annotations

import re

from kernelwright.report.row import Row

__all__ = [
    "anchor_of", "bytes_text", "count_text", "error_text", "flops_text", "ratio_text", "short_name", "standing_mark",
    "time_text", "verdict_words",
]  # fmt: skip

# A mark and a word for each standing: never a colour alone.
MARKS = {"right": "●", "unchanged": "○", "wrong": "✕", "broken": "▲", "unjudged": "–"}

VERDICTS = {
    "CORRECT": "right",
    "NOTHING_TO_DO": "left as it is",
    "UNSUPPORTED": "left as it is: unsupported",
    "NOT_RUN": "compiled, not run",
    "BUG": "a bug of ours",
}


def standing_mark(row: Row) -> str:
    return MARKS[row.standing]


def verdict_words(row: Row) -> str:
    """CORRECT is right, REDUCED_PRECISION is reduced precision."""
    return VERDICTS.get(row.verdict, row.verdict.replace("_", " ").lower())


def anchor_of(problem: str) -> str:
    return "p-" + re.sub(r"[^A-Za-z0-9_-]+", "-", problem)


def short_name(problem: str) -> str:
    name = problem.rpartition("/")[2].strip("_")
    return name if len(name) <= 30 else name[:29] + "…"


def time_text(us: float) -> str:
    """Three digits in the unit that suits."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= 0.9995 * size:
            return f"{three_digits(us / size)} {unit}"
    return f"{three_digits(us)} µs"


def three_digits(value: float) -> str:
    return f"{value:#.3g}".rstrip(".") if value < 999.5 else f"{value:.0f}"


def ratio_text(ratio: float) -> str:
    return (
        f"{ratio:.0f}×" if ratio >= 100 or ratio == int(ratio) else f"{ratio:.2g}×" if ratio < 0.1 else f"{ratio:.3g}×"
    )


def error_text(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"


def bytes_text(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def flops_text(count: float) -> str:
    for unit, size in (("Tflop", 1e12), ("Gflop", 1e9), ("Mflop", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} flop"


def count_text(count: int, noun: str) -> str:
    """1 kernel, 2 kernels"""
    return f"{count} {noun}{'' if count == 1 else 's'}"
