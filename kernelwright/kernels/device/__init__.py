"""Device headers as text: from the names of functions to the C++ that an emitted file must carry to use them.

A header is a row of parts. The line `// kw: NAMES` opens a part and says what it provides; a header without such lines
is one part, named after its file. What a part needs is what it mentions, so nothing has to be declared twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Target = Literal["cuda", "cpu"]

DIRECTORY = Path(__file__).parent
OPENING = "// kw: "
NAMESPACE = "namespace kw {"
NAMESPACE_END = "}  // namespace kw"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# A name that is not a member or of another namespace: exp and kw::exp, but not std::exp, ::exp or x.exp.
MENTION = re.compile(r"(?<![\w.:])(?:kw::)?([A-Za-z_]\w*)")
INCLUDE = re.compile(r'^#include "(\w+)\.cuh"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a header that is emitted as a whole or not at all."""

    header: str
    provides: tuple[str, ...]
    inside_namespace: bool
    text: str

    def mentions(self) -> frozenset[str]:
        return frozenset(MENTION.findall(COMMENT.sub("", self.text)))


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
            pending += [providers[name] for name in part.mentions() if name in providers]
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


def split(header: str, source: str, target: Target) -> Iterator[Part]:
    """The parts of one header as it reads for one target; what stands before the first part is for its readers only."""
    provides: tuple[str, ...] = ()
    inside = False
    lines: list[str] = []
    if OPENING not in source:
        kept = [x for x in source.splitlines() if x != "#pragma once" and not x.startswith('#include "')]
        yield Part(header, (Path(header).stem,), False, "\n".join(kept).strip())
        return
    for line in (*_for_target(source.splitlines(), target), OPENING):
        if line.startswith((OPENING, NAMESPACE, NAMESPACE_END)):
            if provides:
                yield Part(header, provides, inside, "\n".join(lines).strip())
            provides = tuple(line.removeprefix(OPENING).split()) if line.startswith(OPENING) else ()
            inside = inside if line.startswith(OPENING) else line == NAMESPACE
            lines = []
        else:
            lines.append(line)


def _for_target(lines: Iterable[str], target: Target) -> Iterator[str]:
    """The lines left when `#ifdef __CUDACC__` and `#ifndef __CUDACC__` are decided; other conditions stay."""
    # One entry for each open condition: whether its lines are kept, or None for a condition that stays.
    kept: list[bool | None] = []
    for line in lines:
        directive = line.split("//")[0].strip()
        decided = {"#ifdef __CUDACC__": target == "cuda", "#ifndef __CUDACC__": target == "cpu"}
        was_decided = bool(kept) and kept[-1] is not None
        if directive in decided:
            kept.append(decided[directive])
        elif directive == "#else" and was_decided:
            kept[-1] = not kept[-1]
        elif directive == "#endif" and was_decided:
            kept.pop()
        else:
            if False not in kept:
                yield line
            if directive.startswith("#if"):
                kept.append(None)
            elif directive == "#endif":
                kept.pop()


def join(chosen: Sequence[Part]) -> str:
    """The parts in order, with a marker line for each header and each run of namespace members wrapped once."""
    blocks: list[str] = []
    header, inside = "", False
    for part in chosen:
        if inside and (part.header != header or not part.inside_namespace):
            blocks.append(NAMESPACE_END)
            inside = False
        if part.header != header:
            blocks.append(f"// --- {part.header}")
            header = part.header
        if part.inside_namespace and not inside:
            blocks.append(NAMESPACE)
            inside = True
        blocks.append(part.text)
    if inside:
        blocks.append(NAMESPACE_END)
    return "\n".join(blocks) + "\n" if blocks else ""
