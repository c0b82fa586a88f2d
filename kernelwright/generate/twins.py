"""Launches come in; the same ones, in which kernels that differ in nothing but names share one text, go out.

A network of equal blocks has the same kernel once a block, with other buffers. A struct takes its buffers by position,
so that one text serves them all: the file stays short, and is compiled and tuned in the time of one block.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import replace

from kernelwright.generate.literals import camel
from kernelwright.generate.program import Launch, ProgramStep, Source
from kernelwright.plan import Kernel

# A name, but none out of a namespace: kw::relu stays a function where a buffer is called relu.
WORD = re.compile(r"(?<![\w:])[A-Za-z_]\w*")
COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)
ANY_WORD = re.compile(r"\b[A-Za-z_]\w*")
# What the text of a kernel defines beside its struct and its entry, by what the names end in.
OF_STRUCT = ("", "Config", "A", "W")
OF_ENTRY = ("", "_Config", "_pack", "_problem")
# What stands before the name of an entry, where it is defined or called. Functions may have the same name: kw::relu.
BEFORE_ENTRY = re.compile(r"(?:\bint |(?<!\w)::)$")
WIDENED = "_f"  # ends the name of a value that was read as a buffer of that name


def shared(steps: Sequence[ProgramStep]) -> tuple[ProgramStep, ...]:
    """A kernel whose text came before has none of its own, and is launched by the names of the first."""
    first: dict[tuple[str, str], Source] = {}
    twins: dict[str, list[str]] = {}
    found = []
    for step in steps:
        if isinstance(step, Launch):
            sources = []
            for source in step.sources:
                one = first.setdefault((source.template, nameless(source)), source)
                twins.setdefault(one.kernel.name, []).append(source.kernel.name)
                sources.append(source if one is source else by_the_text_of(one, source))
                step = step if one is source else packed_by(one, source, step)
            step = replace(step, sources=tuple(sources))
        found.append(step)
    return tuple(told(step, twins) if isinstance(step, Launch) else step for step in found)


def nameless(source: Source) -> str:
    """The struct with a number for each name of its own, in the order they come in: equal for kernels that are."""
    body, _ = own_names(source.kernel)
    # It is launched with every buffer that its text names.
    buffers = {word for word in WORD.findall(source.call) if not word.startswith(body)}
    return numbered(renamed(COMMENT.sub("", source.struct), source.kernel, "$struct", "$entry"), buffers)


def numbered(text: str, names: Set[str]) -> str:
    """A number for each of the names, in the order they come in."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        word = match[0]
        name, end = (word, "") if word in names else (word.removesuffix(WIDENED), WIDENED)
        return numbers.setdefault(name, f"${len(numbers)}") + end if name in names else word

    return WORD.sub(number, text)


def by_the_text_of(one: Source, twin: Source) -> Source:
    """The twin as it is launched through the first one's struct."""
    body, entry = own_names(one.kernel)
    call = renamed(twin.call, twin.kernel, body, entry)
    return replace(twin, struct="", call=call, twin_of=one.kernel.name)


def packed_by(one: Source, twin: Source, launch: Launch) -> Launch:
    """Its weight is packed by the first one's entry too."""
    theirs, own = (f"{own_names(source.kernel)[1]}_pack" for source in (one, twin))
    pointers = (replace(b, packed_by=theirs) if b.packed_by == own else b for b in launch.pointers)
    return replace(launch, pointers=tuple(pointers))


def own_names(kernel: Kernel) -> tuple[str, str]:
    """What the names of its structs, and those of its entry and config, begin with."""
    return camel(kernel.name), kernel.name.removesuffix("_kernel")


def renamed(text: str, kernel: Kernel, body: str, entry: str) -> str:
    """The text with other own names."""
    own_body, own_entry = own_names(kernel)

    def word(match: re.Match[str]) -> str:
        name, before = match[0], text[max(0, match.start() - 5) : match.start()]
        end = name.removeprefix(own_body)
        if name.startswith(own_body) and end in OF_STRUCT:
            return body + end
        end = name.removeprefix(own_entry)
        if name.startswith(own_entry) and end in OF_ENTRY and (end or BEFORE_ENTRY.search(before)):
            return entry + end
        return name

    return ANY_WORD.sub(word, text)


def told(launch: Launch, twins: dict[str, list[str]]) -> Launch:
    """A struct that serves several kernels says so."""
    sources = []
    for source in launch.sources:
        names = twins.get(source.kernel.name, [])
        if source.struct and len(names) > 1:
            source = replace(source, struct=f"// The same for {', '.join(names[1:])}.\n{source.struct}")
        sources.append(source)
    return replace(launch, sources=tuple(sources))
