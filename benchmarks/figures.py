"""Measured rows (JSON lines) come in; the block of figures in README.md, as Markdown tables, is written anew.

    python benchmarks/figures.py [RESULTS.jsonl ...]        benchmarks/results/*.jsonl by default
    python benchmarks/figures.py --check                    exit with 1 if the block is not what the rows give

Rows are those of benchmarks/device.py and benchmarks/cpu.py. Of several rows for one problem on one device the latest
counts: the later date, and within a day the later line of the later file by name. A run that failed is shown as failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"

BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"

TITLES = (
    ("problem", ":--"),
    ("eager", "--:"),
    ("torch.compile", "--:"),
    ("kernelwright", "--:"),
    ("x eager", "--:"),
    ("x torch.compile", "--:"),
    ("of floor", "--:"),
    ("error: ours / eager", "--:"),
    ("build", "--:"),
    ("commit", ":--"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One problem as measured on one device; `floor_share`: the floor of its longest kernel over that kernel's time."""

    problem: str
    device: str
    software: str
    commit: str
    script: str
    path: str
    date: str
    times_us: Mapping[str, float]
    speedup: Mapping[str, float]
    floor_share: float | None
    error: Mapping[str, float]
    build_s: float | None
    failed: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    files = options.results or sorted(RESULTS.glob("*.jsonl"))
    old = README.read_text()
    new = with_figures(old, figures(latest(rows_of(files))))
    if options.check:
        sys.exit(0 if new == old else "README.md does not show these results: run python benchmarks/figures.py.")
    README.write_text(new)


def rows_of(files: Iterable[Path]) -> list[Row]:
    """The rows in the order they were measured, as far as dates and the order of files and lines tell."""
    lines = [line for file in files for line in file.read_text().splitlines() if line.strip()]
    read = (json.loads(line) for line in lines)
    rows = [row_of(fields) for fields in read if "problem" in fields and "environment" in fields and is_timing(fields)]
    return sorted(rows, key=lambda row: row.date)  # a stable sort: within a day the order stands


def is_timing(fields: Mapping[str, Any]) -> bool:
    """Whether a row says how long a call takes, or that it failed; judgements have intervals, and their own tables."""
    times = fields.get("times_us", {}).values()
    return "failed" in fields or (bool(times) and all(isinstance(us, (int, float)) for us in times))


def row_of(fields: Mapping[str, Any]) -> Row:
    where = fields["environment"]
    return Row(
        problem=fields["problem"],
        device=where["device"],
        software=software_text(where),
        commit=where["commit"],
        script=where["command"].split(" ")[1],
        path=problem_path(fields["problem"], where["command"]),
        date=where["date"],
        times_us=fields.get("times_us", {}),
        speedup=fields.get("speedup", {}),
        floor_share=main_share(fields),
        error=fields.get("error", {}),
        build_s=fields.get("build_s"),
        failed=fields.get("failed", ""),
    )


def software_text(environment: Mapping[str, Any]) -> str:
    cuda = f", CUDA {environment['cuda']}" if environment.get("cuda") else ""
    threads = f", {environment['threads']} threads" if environment.get("threads") else ""
    return f"PyTorch {environment['torch']}{cuda}, Python {environment['python']}{threads}"


def problem_path(problem: str, command: str) -> str:
    """The file as the command named it, so that the command can be run again."""
    named = (word for word in command.split(" ") if Path(word).stem == problem)
    return next(named, f"benchmarks/problems/{problem}.py")


def main_share(fields: Mapping[str, Any]) -> float | None:
    """Of the kernel that takes longest. The floor is a copy of its bytes, as measured that day; of a product, which
    has been timed against the library too, what its arithmetic takes at the device's rate."""
    copies = fields.get("copy_share") or []
    floors, libraries, times = (
        padded(fields.get(name), len(copies)) for name in ("floor_share", "library_us", "kernel_us")
    )
    shares = [floor if library else copy for copy, floor, library in zip(copies, floors, libraries, strict=True)]
    known = [(us or 0.0, share) for us, share in zip(times, shares, strict=True) if share]
    return max(known)[1] if known else None


def padded(values: Sequence[float | None] | None, length: int) -> list[float | None]:
    """As long as it must be: rows of older runs lack some fields."""
    return [*(values or []), *[None] * length][:length]


def latest(rows: Iterable[Row]) -> list[Row]:
    """The last row of each problem on each device, in the order in which the problems first came."""
    kept: dict[tuple[str, str], Row] = {}
    for row in rows:
        kept[row.device, row.problem] = row
    return list(kept.values())


def figures(rows: Sequence[Row]) -> str:
    """One table a device and software, with the command that gives it; GPUs first."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.device, row.software, row.script), []).append(row)
    order = sorted(groups, key=lambda key: key[0].startswith("CPU"))
    return "\n\n".join(group_text(groups[key]) for key in order) if order else "Nothing has been measured yet."


def group_text(rows: Sequence[Row]) -> str:
    first = rows[0]
    dates = sorted({row.date for row in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    lines = [
        f"**{first.device}**, {first.software}, {when}",
        "",
        table_line(title for title, _ in TITLES),
        table_line(rule for _, rule in TITLES),
        *(table_line(cells(row)) for row in rows),
        "",
        "```",
        f"python {first.script} {' '.join(row.path for row in rows)}",
        "```",
    ]
    return "\n".join(lines)


def table_line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def cells(row: Row) -> tuple[str, ...]:
    return (
        f"[`{row.problem}`]({row.path})",
        time_text(row.times_us.get("eager")),
        time_text(row.times_us.get("compile")),
        f"failed: {row.failed.partition(':')[0]}" if row.failed else time_text(row.times_us.get("ours")),
        ratio_text(row.speedup.get("eager")),
        ratio_text(row.speedup.get("compile")),
        "" if row.floor_share is None else f"{row.floor_share:.0%}",
        error_text(row.error),
        "" if row.build_s is None else f"{row.build_s:.1f} s",
        f"`{row.commit}`",
    )


def time_text(us: float | None) -> str:
    """Three digits, in the larger unit from 1000 us on."""
    if us is None:
        return ""
    value, unit = (us / 1e3, "ms") if us >= 999.5 else (us, "us")
    return f"{value:#.3g}".rstrip(".") + f" {unit}"


def ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def error_text(error: Mapping[str, float]) -> str:
    if "ours" in error:
        return f"{number_text(error['ours'])} / {number_text(error['eager'])}"
    return f"{number_text(error['ours_vs_eager'])} from eager" if "ours_vs_eager" in error else ""


def number_text(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"


def with_figures(page: str, block: str) -> str:
    """The page with the block between its two marks replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"README.md needs the lines {BEGIN} and {END}; the figures go between them.")
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


if __name__ == "__main__":
    main()
