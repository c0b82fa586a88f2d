"""The name of a template and of the functions a kernel calls come in; the C++ text an emitted file carries goes out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kernelwright.kernels.device import Part, Target, inline, join, parts, split

FOLDER = Path(__file__).parent
SUFFIX: dict[Target, str] = {"cuda": "cuh", "cpu": "hpp"}


def inline_with_templates(names: Iterable[str], templates: Iterable[str], target: Target) -> str:
    """The device functions that `names` and the templates need, then the parts of the templates that are used."""
    provided = {name for part in parts(target) for name in part.provides}
    own = [part for template in templates for part in template_parts(template, target)]
    chosen = used_parts(own, set(names))
    wanted = set(names).union(*(part.mentions() for part in chosen))
    return inline(sorted(wanted & provided), target) + join(chosen)


@cache
def template_parts(template: str, target: Target) -> tuple[Part, ...]:
    header = f"{target}/{template}.{SUFFIX[target]}"
    return tuple(split(header, (FOLDER / header).read_text(), target))


def used_parts(own: Iterable[Part], names: set[str]) -> list[Part]:
    """The parts that provide what is named, and what those mention, in their order in the file."""
    own = list(own)
    wanted = set(names)
    while True:
        chosen = [part for part in own if wanted & set(part.provides)]
        more = wanted.union(*(part.mentions() for part in chosen))
        if more == wanted:
            return chosen
        wanted = more
