"""A problem's name comes in; KernelBench's level and number go out, where it has them."""

from __future__ import annotations

import re

__all__ = ["key_of", "level_and_number"]

PUBLIC = re.compile(r"(?:^|/)level_?(\d+)/(\d+)(?:_|$|/)")


def level_and_number(problem: str) -> tuple[int, int] | None:
    """(2, 17) for .../level2/17_Conv2d_...; None for a problem of another suite."""
    found = PUBLIC.search(problem)
    return (int(found[1]), int(found[2])) if found else None


def key_of(problem: str) -> str:
    """The same for the same problem in two runs, whatever folder it was run from."""
    public = level_and_number(problem)
    return f"level{public[0]}/{public[1]}" if public else problem
