"""Device headers as text: from the names of functions to the C++ that an emitted file must carry to use them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kernelwright.kernels.parts import OPENING, Part, Target, join, mentions, split

DIRECTORY = Path(__file__).parent
INCLUDE = re.compile(r'^#include "(\w+)\.cuh"$', re.MULTILINE)


def inline(names: Iterable[str], target: Target) -> str:
    """The text of the parts that provide `names` and of all they need, each after what it needs."""
    everything = parts(target)
    providers = {name: part for part in everything for name in part.provides}
    wanted: set[Part] = set()
    pending = [_provider(name, providers) for name in names]
    while pending:
        part = pending.pop()
        if part not in wanted:
            wanted.add(part)
            pending += [providers[name] for name in mentions(part) if name in providers]
    return join([part for part in everything if part in wanted and part.text])


@cache
def parts(target: Target) -> tuple[Part, ...]:
    """Every part of every header, each after what it needs: a header follows those it includes."""
    sources = {path.stem: path.read_text() for path in sorted(DIRECTORY.glob("*.cuh"))}
    return tuple(
        part for header in _in_include_order(sources) for part in split(f"device/{header}.cuh", sources[header], target)
    )


def _provider(name: str, providers: dict[str, Part]) -> Part:
    if name not in providers:
        raise KeyError(
            f"no device header provides {name!r}. Open a part of kernels/device/*.cuh with '{OPENING}{name}'."
        )
    return providers[name]


def _in_include_order(sources: dict[str, str]) -> list[str]:
    """Headers so that each stands after those it includes; otherwise by name."""
    ordered: list[str] = []
    remaining = {header: set(INCLUDE.findall(text)) & set(sources) for header, text in sources.items()}
    while remaining:
        ready = [header for header, needs in remaining.items() if needs <= set(ordered)]
        if not ready:
            raise ValueError(f"device headers include each other in a circle: {', '.join(remaining)}.")
        ordered.append(ready[0])
        del remaining[ready[0]]
    return ordered
