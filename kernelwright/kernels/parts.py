"""The text of a header comes in, its parts go out; and chosen parts come in, the text that carries them goes out.

The line `// kw: NAMES` opens a part and says what it provides; a header without such lines is one part, named after its
file. What a part needs is what it mentions, so nothing has to be declared twice: in the namespace kw::split, `pack` is
split::pack, and others say so. A line `// --- WORDS` opens a section; they go with the first of its parts that is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Literal

Target = Literal["cuda", "cpu"]

OPENING = "// kw: "
SECTION = "// --- "
NAMESPACE = re.compile(r"namespace (kw(?:::\w+)?) \{")
NAMESPACE_END = "}  // namespace kw"
LEFT_OUT = ("#pragma once", '#include "')  # the headers are all in one file
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# A name that is not a member or of another namespace: exp and kw::exp, but not std::exp, ::exp, x.exp or x->exp. With
# the name after it, if that is of a namespace of ours or of a struct: split and split::pack.
MENTION = re.compile(r"(?<![\w.:])(?<!->)(?:kw::)?([A-Za-z_]\w*)(?:::([A-Za-z_]\w*))?")
PARAMETER = re.compile(r"[<,]\s*class (\w+)(?=\s*[,>=])")
SCOPE = re.compile(r"^(?:using )?namespace kw::(\w+)(?: \{|;)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a header that is emitted as a whole or not at all.

    scopes     the namespaces in kw whose names the header need not qualify
    namespace  around the part, if it is not in the text
    section    what the header says of this part and its neighbours
    condition  the `#if` around the part and its neighbours
    apart      whether there is a blank line before it
    """

    header: str
    provides: tuple[str, ...]
    text: str
    scopes: tuple[str, ...]
    namespace: str = ""
    section: str = ""
    condition: str = ""
    apart: bool = True

    def names(self) -> frozenset[str]:
        """What it provides, as it is called from kw."""
        scope = self.namespace.removeprefix("kw").removeprefix("::")
        return frozenset(f"{scope}::{name}" if scope else name for name in self.provides)


@cache
def mentions(part: Part) -> frozenset[str]:
    """Everything the part may need, as it is called from kw."""
    text = COMMENT.sub("", part.text)
    pairs = MENTION.findall(text)
    # In the text of one definition, what a template calls its parameter is nothing else.
    alone = {first for first, _ in pairs}.difference(PARAMETER.findall(text) if part.namespace else ())
    qualified = {f"{first}::{second}" for first, second in pairs if second}
    return frozenset(alone | qualified | {f"{scope}::{name}" for scope in part.scopes for name in alone})


def split(header: str, source: str, target: Target) -> Iterator[Part]:
    """The parts of one header as it reads for one target; what stands before the first part is for its readers only."""
    scopes = tuple(dict.fromkeys(SCOPE.findall(source)))
    if OPENING not in source:
        kept = [line for line in source.splitlines() if not line.startswith(LEFT_OUT)]
        yield Part(header, (Path(header).stem,), "\n".join(kept).strip(), scopes)
        return
    reader = Reader(header, scopes)
    for line in (*for_target(source.splitlines(), target), OPENING):
        yield from reader.read(line)


@dataclass(slots=True)
class Reader:
    """Where one is in a header that is read line by line; `provides` is empty between parts."""

    header: str
    scopes: tuple[str, ...]
    provides: tuple[str, ...] = ()
    lines: list[str] = field(default_factory=list)
    namespace: str = ""
    section: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)  # every `#if` that is open
    around: tuple[str, ...] = ()  # those that were open when the part began
    apart: bool = True
    after_blank: bool = True

    def read(self, line: str) -> Iterator[Part]:
        """The part that ends with this line, if one does."""
        space = NAMESPACE.fullmatch(line)
        closes = line.startswith("#endif") and len(self.conditions) == len(self.around)
        if space or closes or line.startswith((OPENING, SECTION, NAMESPACE_END)):
            yield from self.ended()
        if space or line.startswith(NAMESPACE_END):
            self.namespace, self.section = space[1] if space else "", []
        elif line.startswith(SECTION):
            self.section = [line]
        elif line.startswith(OPENING):
            self.provides, self.lines = tuple(line.removeprefix(OPENING).split()), []
            self.around, self.apart = tuple(self.conditions), self.after_blank
        elif self.provides and not line.startswith(LEFT_OUT):
            self.lines.append(line)
        elif self.section and line.startswith("//"):
            self.section.append(line)
        if line.startswith("#if"):
            self.conditions.append(line)
        if line.startswith("#endif"):
            self.conditions.pop()
        self.after_blank = not line or line.startswith(OPENING)

    def ended(self) -> Iterator[Part]:
        if not self.provides:
            return
        for condition in reversed(self.conditions[len(self.around) :]):  # what begins behind it is around the next part
            while self.lines and not self.lines[-1]:
                self.lines.pop()
            if not self.lines or self.lines.pop() != condition:
                raise ValueError(f"{self.header}: the part of {self.provides[0]} ends within an #if that it begins.")
        text, section, condition = "\n".join(self.lines).strip(), "\n".join(self.section), "\n".join(self.around)
        yield Part(self.header, self.provides, text, self.scopes, self.namespace, section, condition, self.apart)
        self.provides = ()


def for_target(lines: Iterable[str], target: Target) -> Iterator[str]:
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


def join(chosen: Iterable[Part]) -> str:
    """The parts in order, with a marker line for each header; what is around neighbours stands there once."""
    blocks: list[str] = []
    for header, parts in groupby(chosen, attrgetter("header")):
        blocks.append(f"{SECTION}{header}")
        for namespace, members in groupby(parts, attrgetter("namespace")):
            body = joined(members)
            inside = f"namespace {namespace} {{\n\n{body}\n\n}}  // namespace {namespace}"
            blocks.append(f"{inside if namespace else body}\n")
    return "\n".join(blocks) + "\n" if blocks else ""


def joined(parts: Iterable[Part]) -> str:
    """Parts of one namespace, as their header has them: under their sections, within their conditions."""
    blocks: list[str] = []
    section = ""
    for condition, group in groupby(parts, attrgetter("condition")):
        text = ""
        for part in group:
            heading = f"{part.section}\n\n" if part.section != section and part.section else ""
            space = "\n\n" if part.apart or heading else "\n"
            text += f"{space if text else ''}{heading}{part.text}"
            section = part.section
        blocks.append("\n".join([condition, text, *["#endif"] * len(condition.splitlines())]) if condition else text)
    return "\n\n".join(blocks)
