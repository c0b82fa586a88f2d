"""Rows come in as problems end; a bar on a terminal, or plain lines, go out on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from kernelwright.report.row import Row

__all__ = ["Tally", "line_of", "watching"]


class Tally:
    """What has come in so far, in few words."""

    def __init__(self) -> None:
        self.right = self.faster = self.others = 0
        self.best: tuple[float, str] = (0.0, "")

    def add(self, row: Row) -> None:
        self.right += row.standing == "right"
        self.others += row.standing not in ("right", "unchanged")
        self.faster += row.speed == "FASTER"
        if row.standing == "right" and (ratio := row.over("eager")) is not None:
            self.best = max(self.best, (ratio, row.problem))

    def __str__(self) -> str:
        best = f", best {self.best[0]:.2f}x {self.best[1].rpartition('/')[2]}" if self.best[1] else ""
        trouble = f", {self.others} not" if self.others else ""
        return f"{self.right} right{trouble}, {self.faster} faster{best}"


def line_of(row: Row) -> str:
    """One row in one line."""
    ratios = "  ".join(f"{span.median:.2f}x {name}" for name, span in row.speedup.items())
    detail = "" if row.standing == "right" else row.detail.replace("\n", " ")[:100]
    words = (row.problem, row.verdict, row.speed or "", ratios, f"{row.wall_s:.0f} s", detail)
    return "  ".join(word for word in words if word)


@contextmanager
def watching(total: int) -> Iterator[Callable[[Row | None, str], None]]:
    """A bar with counts, the best and the time left; one line a problem where stderr is no terminal."""
    err = Console(stderr=True, highlight=False)
    tally = Tally()
    if not err.is_terminal:
        yield plain_lines(err, tally, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("starting", total=total)

        def watch(row: Row | None, name: str) -> None:
            if row is not None:
                tally.add(row)
                bar.advance(task)
                if row.standing not in ("right", "unchanged"):
                    bar.console.print(line_of(row), soft_wrap=True, markup=False)
            bar.update(task, description=f"{tally}; {'started' if row is None else 'done'} {name.rpartition('/')[2]}")

        yield watch


def plain_lines(err: Console, tally: Tally, total: int) -> Callable[[Row | None, str], None]:
    done = [0]

    def watch(row: Row | None, name: str) -> None:
        if row is not None:
            done[0] += 1
            tally.add(row)
            err.print(f"[{done[0]:>{len(str(total))}}/{total}] {line_of(row)}", soft_wrap=True, markup=False)

    return watch
