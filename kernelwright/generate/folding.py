"""Generated lines of any length come in; lines that can be read, in the same language, go out.

A kernel with forty results has a signature of a thousand columns. Such a line goes on in the next one, indented, after
a comma or a semicolon that stands within brackets: there neither C++ nor Python minds.
"""

from __future__ import annotations

# A line is folded where it is longer than this, and then into lines of the usual width.
LONGEST_LINE = 200
WIDTH = 120

INDENT = "    "


def folded(text: str) -> str:
    """Every line of the text; those that are too long on several lines."""
    return "\n".join(piece for line in text.split("\n") for piece in folded_line(line))


def folded_line(line: str) -> list[str]:
    hang = " " * (len(line) - len(line.lstrip())) + ("// " if line.lstrip().startswith("//") else INDENT)
    if len(line) <= LONGEST_LINE:
        return [line]
    pieces: list[str] = []
    places = breaks(line)
    start = 0
    while len(line) - start + (len(hang) if pieces else 0) > WIDTH:
        room = start + WIDTH - (len(hang) if pieces else 0)
        fitting = [place for place in places if start < place <= room]
        if not fitting:
            break
        pieces.append((hang if pieces else "") + line[start : fitting[-1]].rstrip())
        start = fitting[-1]
    return [*pieces, (hang if pieces else "") + line[start:]]


def breaks(line: str) -> list[int]:
    """Where the line may go on in the next one: behind a comma or a semicolon and its space, within brackets and
    outside of strings; in a comment, behind any. A comment at the end of a line ends the search."""
    comment = line.lstrip().startswith("//")
    found: list[int] = []
    depth, quote = 0, ""
    for i, c in enumerate(line):
        if quote:
            quote = "" if c == quote and line[i - 1] != "\\" else quote
        elif not comment and c in "\"'":
            quote = c
        elif not comment and (c == "#" or line.startswith("//", i)):
            break
        elif c == " " and i and line[i - 1] in ",;" and (depth or comment):
            found.append(i + 1)
        depth += 0 if quote else (c in "([{") - (c in ")]}")
    return found
