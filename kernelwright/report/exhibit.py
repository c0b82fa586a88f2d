"""A row with what a page shows of it besides: its plan, its sources, its files."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.report.boxes import Picture
from kernelwright.report.row import Row

__all__ = ["Exhibit"]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """`files` are links from the page; an empty text is left out of it."""

    row: Row
    picture: Picture | None = None
    original: str = ""
    emitted: str = ""
    files: tuple[str, ...] = ()
