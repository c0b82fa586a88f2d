"""Numbers and names come in; how a page spells them goes out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from kernelwright.report.row import Row

__all__ = [
    "anchor_of",
    "baseline_name",
    "breakable",
    "bytes_text",
    "count_text",
    "error_text",
    "flops_text",
    "joined",
    "ratio_text",
    "share_text",
    "short_name",
    "standing_mark",
    "time_text",
    "verdict_words",
]

# A mark and a word for each standing: never a colour alone.
MARKS = {"right": "●", "unchanged": "○", "wrong": "✕", "broken": "▲", "unjudged": "–"}

BASELINES = {
    "compile": "torch.compile",
    "max-autotune": "torch.compile, max-autotune",
    "graph": "CUDA-graphed eager",
}

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
    for unit, size in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)):
        if us >= 0.9995 * size:
            return f"{three_digits(us / size)} {unit}"
    return f"{three_digits(us * 1e3)} ns"


def three_digits(value: float) -> str:
    return f"{value:#.3g}".rstrip(".") if value < 999.5 else f"{value:.0f}"


def ratio_text(ratio: float) -> str:
    """1.05×, 12.3×, 250×"""
    digits = 2 if ratio < 9.995 else 1 if ratio < 99.95 else 0
    return f"{ratio:.{digits}f}×"


def breakable(name: str) -> str:
    """As HTML, with places where a long name may be broken."""
    return re.sub(r"([/_.])(?=\w)", r"\1<wbr>", escape(name, quote=False))


def share_text(share: float) -> str:
    return f"{share:.0%}"


def baseline_name(name: str) -> str:
    """As people call it."""
    return BASELINES.get(name, name)


def joined(parts: Sequence[str]) -> str:
    """a, b and c"""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


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
