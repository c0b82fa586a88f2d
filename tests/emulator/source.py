"""CUDA C++ comes in; the same program as C++ for g++ goes out, line for line.

Three forms have no meaning in C++ and are rewritten: launches `kernel<<<grid, block>>>(...)`, `__shared__` variables
and `asm`. Everything else is left to the headers in host/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

OPEN, CLOSE = "([{", ")]}"
NAME_BEFORE = re.compile(r"[\w:]+$")
LAUNCH = "<<<"
SHARED = re.compile(r"\b(?P<extern>extern\s+)?(?:static\s+)?__shared__\s+(?P<declaration>[^;=]*);")
ALIGN = re.compile(r"(?:__align__|alignas)\s*\((?P<bytes>[^()]*)\)")
DECLARATOR = re.compile(r"^(?P<type>.*?)(?P<name>\w+)\s*(?P<extents>(?:\[[^\]]*\]\s*)*)$", re.DOTALL)
ASM = re.compile(r"\basm\b\s*(?:volatile\b|__volatile__\b)?\s*\(")
# An operand of asm: its constraint, quoted, before the expression in brackets.
BOUND = re.compile(r'"(?P<written>[=+]?)(?P<kind>[a-zA-Z])"\s*\(')


def host_source(cuda: str) -> str:
    return with_launches(with_asm(with_shared(cuda)))


# --- launches


def with_launches(text: str) -> str:
    """`kernel<A><<<grid, block>>>(x)`  ->  `::emulator::configured(kernel<A>, grid, block)(x)`"""
    while (at := text.find(LAUNCH)) >= 0:
        begin = kernel_begin(text, at)
        end = launch_end(text, at + len(LAUNCH))
        kernel, shape = text[begin:at], text[at + len(LAUNCH) : end]
        text = f"{text[:begin]}::emulator::configured({kernel}, {shape}){text[end + 3 :]}"
    return text


def kernel_begin(text: str, end: int) -> int:
    """Where the name of the kernel, with its template arguments, begins."""
    end = len(text[:end].rstrip())
    if text[end - 1] == ">":
        depth = 0
        for at in range(end - 1, -1, -1):
            depth += {">": 1, "<": -1}.get(text[at], 0)
            if depth == 0:
                end = at
                break
    name = NAME_BEFORE.search(text[:end])
    if name is None:
        raise ValueError(f"a launch without a kernel: {text[max(0, end - 60) : end + 20]!r}")
    return name.start()


def launch_end(text: str, begin: int) -> int:
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] in OPEN) - (text[at] in CLOSE)
        if depth == 0 and text.startswith(">>>", at):
            return at
    raise ValueError(f"a launch without its end: {text[begin : begin + 60]!r}")


# --- shared variables


def with_shared(text: str) -> str:
    """`__shared__ float tile[32][33];`  ->  a reference to that array in the shared memory of the block"""
    return SHARED.sub(lambda match: as_long_as(match[0], " ".join(shared_declarations(match))), text)


def shared_declarations(match: re.Match[str]) -> Iterator[str]:
    declaration = match["declaration"]
    aligned = ALIGN.search(declaration)
    alignment = aligned["bytes"] if aligned else "1"
    first, *others = split(ALIGN.sub("", declaration), ",")
    found = DECLARATOR.match(first.strip())
    if found is None:
        raise ValueError(f"a shared variable that is not understood: {match[0]!r}")
    for declarator in (found, *(DECLARATOR.match(other.strip()) for other in others)):
        assert declarator is not None, match[0]
        name, kind = declarator["name"], f"Shared_{declarator['name']}"
        if match["extern"]:
            yield (
                f"typedef {found['type'].strip()} {kind}; "
                f"{kind}* const {name} = static_cast<{kind}*>(::emulator::dynamic_shared({alignment}));"
            )
        else:
            yield (
                f"typedef {found['type'].strip()} {kind}{declarator['extents'].strip()}; "
                f"{kind}& {name} = ::emulator::shared<{kind}, decltype([] {{}}), {alignment}>();"
            )


# --- inline PTX


def with_asm(text: str) -> str:
    """`asm volatile("ptx" : "=f"(x) : "f"(y) : "memory")`  ->  a call that interprets the text on these operands"""
    text = BOUND.sub(lambda m: f"::emulator::{'output' if m['written'] else 'input'}('{m['kind']}', ", text)
    made = ""
    while (match := ASM.search(text)) is not None:
        end = closing(text, match.end() - 1)
        made += text[: match.start()] + as_long_as(text[match.end() : end], interpreted(text[match.end() : end]))
        text = text[end + 1 :]
    return made + text


def interpreted(statement: str) -> str:
    """The sections of an asm: the code, outputs, inputs, clobbers."""
    code, *sections = split(statement, ":")
    # Not stripped: in a macro, the blank after a backslash is the end of a line.
    operands = ", ".join(section for section in sections[:2] if section.strip(" \t\n\\"))
    return (
        "do { static const ::emulator::Code* const code_ = ::emulator::parsed("
        f"{code}); const ::emulator::Operand operands_[] = {{{operands}{', ' if operands else ''}{{}}}}; "
        "::emulator::execute(code_, operands_, int(sizeof operands_ / sizeof *operands_) - 1); } while (0)"
    )


# --- text


def as_long_as(before: str, after: str) -> str:
    """With as many lines as before, so that messages name the right one; lines of a macro end with a backslash."""
    missing = before.count("\n") - after.count("\n")
    return after + ("\\\n" if "\\\n" in before else "\n") * missing


def closing(text: str, begin: int) -> int:
    """The bracket that closes the one at `begin`."""
    depth = 0
    for at in outside_strings(text, begin):
        depth += (text[at] in OPEN) - (text[at] in CLOSE)
        if depth == 0:
            return at
    raise ValueError(f"a bracket that is not closed: {text[begin : begin + 60]!r}")


def split(text: str, separator: str) -> list[str]:
    """At each separator that is in no bracket and no string; `::` is two separators, unless names stand around it."""
    parts, begin, depth, angles = [], 0, 0, 0
    for at in outside_strings(text, 0):
        character = text[at]
        depth += (character in OPEN) - (character in CLOSE)
        angles += (character == "<") - (character == ">") if separator == "," else 0
        if character == separator and depth == 0 and angles == 0 and not in_scope_operator(text, at):
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def in_scope_operator(text: str, at: int) -> bool:
    """Whether this colon is of a `::` before a name, as in `::emulator::output` or `split::pairs`."""
    if text[at] != ":":
        return False
    first = at if text[at + 1 : at + 2] == ":" else at - 1
    return (
        text[first : first + 2] == "::" and text[first + 2 : first + 3].isidentifier() and not is_section(text, first)
    )


def is_section(text: str, first: int) -> bool:
    """Whether `::` begins a section of operands: `: :` without the blank, before a bound operand."""
    return text[first:].startswith("::::emulator::") or text[first:].startswith("::KW_BIND")


def outside_strings(text: str, begin: int) -> Iterator[int]:
    """Positions from `begin` that are in no string literal."""
    at = begin
    while at < len(text):
        if text[at] == '"':
            at += 1
            while text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        else:
            yield at
        at += 1
