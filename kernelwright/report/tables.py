"""Results come in; what a terminal shows of them goes out, as rich renderables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.report.words import baseline_name

if TYPE_CHECKING:
    from kernelwright.doctor import Finding
    from kernelwright.judge import Judgement
    from kernelwright.tune import Tuned

GOOD, BAD, DOUBTFUL = "bold green", "bold red", "bold yellow"
SPEED_STYLE = {"FASTER": GOOD, "SAME": DOUBTFUL, "SLOWER": BAD, "INCONCLUSIVE": DOUBTFUL, "IMPOSSIBLE": BAD}
STATE_STYLE = {"ok": GOOD, "missing": BAD, "warning": DOUBTFUL}


def judgement_view(judgement: Judgement) -> RenderableType:
    """The verdict in one line, then the evidence."""
    parts: list[RenderableType] = [verdict_line(judgement)]
    if judgement.detail:
        parts.append(Text(f"  {judgement.detail}"))
    if judgement.times_us:
        parts.append(times_table(judgement))
    parts.extend(evidence_lines(judgement))
    return Group(*parts)


def verdict_line(judgement: Judgement) -> Text:
    line = Text()
    line.append(str(judgement.verdict), style=GOOD if judgement.passed else BAD)
    if judgement.speed is not None:
        line.append("  ")
        line.append(str(judgement.speed), style=SPEED_STYLE[str(judgement.speed)])
    if judgement.labels:
        line.append("  " + " ".join(str(label) for label in judgement.labels), style="dim")
    return line


def times_table(judgement: Judgement) -> Table:
    """The candidate first, then whom it was timed with; each ratio says what the candidate is beside that one."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for title in ("", "a call", "95% interval", "the candidate is"):
        table.add_column(title, justify="left" if not title else "right")
    for name in sorted(judgement.times_us, key=lambda name: (name != "candidate", not name.startswith("eager"), name)):
        interval, ratio = judgement.times_us[name], judgement.speedup.get(name)
        faster = "" if ratio is None else f"{ratio.median:.2f}x as fast ({ratio.low:.2f} to {ratio.high:.2f})"
        spread = f"{time_text(interval.low)} to {time_text(interval.high)}"
        table.add_row(baseline_name(name), time_text(interval.median), spread, faster)
    return table


def evidence_lines(judgement: Judgement) -> list[Text]:
    lines = []
    if judgement.errors is not None:
        ours, eager = judgement.errors.candidate_rms, judgement.errors.eager_rms
        lines.append(f"error against float64 (relative rms): {ours:.2g}; PyTorch's own: {eager:.2g}")
    if judgement.kill_rate is not None:
        lines.append(f"known-bad answers to this problem that these inputs reject: {judgement.kill_rate:.0%}")
    lines.append(f"isolation: {judgement.isolation}")
    lines += [f"{label}: {why}" for label, why in judgement.record.get("label_reasons", {}).items()]
    lines += [f"left out, {what}: {why}" for what, why in judgement.record.get("skipped", {}).items()]
    lines += [f"not timed, {name}: {why}" for name, why in judgement.record.get("left_out", {}).items()]
    return [Text(f"  {line}", style="dim") for line in lines]


def kernels_table(rows: Sequence[Tuned]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for title in ("kernel", "time", "floor", "of floor", "from"):
        table.add_column(title, justify="right" if title in ("time", "floor", "of floor") else "left", no_wrap=True)
    table.add_column("config", overflow="fold")  # may be long: the others must not be cut for it
    alike: dict[tuple[str, str, float], list[Tuned]] = {}
    for row in rows:  # of a kernel that is launched with many buffers, one line
        name = re.sub(r"_kernel(_\d+)?$", "", row.kernel)
        alike.setdefault((name, str(row.choice), row.floor_us), []).append(row)
    for row, *others in alike.values():
        measured = row.median_us is not None
        table.add_row(
            f"{row.kernel}{f', {1 + len(others)} times' if others else ''}",
            time_text(row.median_us) if row.median_us is not None else "-",
            time_text(row.floor_us),
            f"{row.floor_us / row.median_us:.0%}" if measured and row.median_us else "-",
            f"{row.origin}{f', {row.tried} tried' if row.tried else ''}",
            config_text(row),
        )
    return table


def config_text(row: Tuned) -> str:
    text = str(row.choice)
    return text[text.index("(") + 1 : -1]


def time_text(us: float) -> str:
    return f"{us / 1e3:.2f} ms" if us >= 1000 else f"{us:.1f} us"


def findings_table(findings: Iterable[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("", "", ""):
        table.add_column(title)
    for finding in findings:
        style = STATE_STYLE.get(str(finding.state), DOUBTFUL)
        cure = f"\n{finding.cure}" if finding.cure else ""
        table.add_row(Text(str(finding.state), style=style), str(finding.subject), f"{finding.detail}{cure}")
    return table
