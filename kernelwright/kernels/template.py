"""The name of a template and of the functions a kernel calls come in; the C++ text an emitted file carries goes out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from kernelwright.kernels.device import inline, parts
from kernelwright.kernels.parts import Part, Target, join, mentions, split

FOLDER = Path(__file__).parent
SUFFIX: dict[Target, str] = {"cuda": "cuh", "cpu": "hpp"}
INCLUDE = re.compile(r'^#include "(?:\.\./)?([\w/]+\.(?:cuh|hpp))"$', re.MULTILINE)


def inline_with_templates(names: Iterable[str], templates: Iterable[str], target: Target) -> str:
    """The device functions that `names` and the templates need, then the parts of the templates that are used."""
    named = frozenset(names)
    chosen = used_parts([part for template in templates for part in template_parts(template, target)], named)
    of_device = named & device_names(target)
    of_device = of_device.union(*(mentions(part) & device_names(target, included(part.header)) for part in chosen))
    return inline(sorted(of_device), target) + join(chosen)


@cache
def device_names(target: Target, headers: frozenset[str] | None = None) -> frozenset[str]:
    """What the device headers provide: all of them, or some."""
    return frozenset(
        name for part in parts(target) if headers is None or part.header in headers for name in part.provides
    )


@cache
def template_parts(template: str, target: Target) -> tuple[Part, ...]:
    header = f"{target}/{template}.{SUFFIX[target]}"
    return tuple(split(header, (FOLDER / header).read_text(), target))


def used_parts(own: Sequence[Part], named: frozenset[str]) -> list[Part]:
    """The parts that provide what is named, and what those need, in their order in the file."""
    pending = [part for part in own if named & part.names()]
    chosen = set(pending)
    while pending:
        user = pending.pop()
        needed = [part for part in own if part not in chosen and may_need(user, part)]
        chosen.update(needed)
        pending += needed
    return [part for part in own if part in chosen]


def may_need(user: Part, part: Part) -> bool:
    """Whether it mentions what the part provides, of a header that its own includes: others cannot be meant."""
    return part.header in included(user.header) and not mentions(user).isdisjoint(part.names())


@cache
def included(header: str) -> frozenset[str]:
    """The header and all that it includes, whose names it can use."""
    found = INCLUDE.findall((FOLDER / header).read_text())
    paths = (name if "/" in name else f"{Path(header).parent}/{name}" for name in found)
    return frozenset({header}).union(*(included(path) for path in paths))
