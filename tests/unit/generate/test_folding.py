"""Long generated lines go on in the next one, and mean the same."""

from __future__ import annotations

import ast

import pytest

from kernelwright.generate.folding import WIDTH, folded

NAMES = [f"value_{i}" for i in range(60)]


def test_a_short_line_stays_as_it_is() -> None:
    assert folded("x = f(a, b)\n\n    y = 2") == "x = f(a, b)\n\n    y = 2"


@pytest.mark.parametrize(
    "line",
    [
        f"return ({', '.join(NAMES)})",
        f"a, b = launch('run0', {', '.join(NAMES)})[0], 2",
        "NAMES = {" + ", ".join(f'"{name}": "a, b ({{", \'c\': 1' for name in NAMES) + "}",
        f"x = f({', '.join(NAMES)})  # in place, since {', '.join(NAMES)} are not needed, (again",
    ],
)
def test_python_reads_the_same(line: str) -> None:
    text = folded(f"def f():\n    {line}")
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(f"def f():\n    {line}"))
    assert text.count("\n") > 2


def test_lines_are_short_where_they_can_be() -> None:
    lines = folded(f"        launch('run0', {', '.join(NAMES)})").split("\n")
    assert all(len(line) <= WIDTH for line in lines)
    assert all(line.startswith(" " * 12) for line in lines[1:])


def test_a_comment_goes_on_as_a_comment() -> None:
    lines = folded(f"    // {', '.join(NAMES)}; it's {', '.join(NAMES)}").split("\n")
    assert len(lines) > 4
    assert all(line.startswith("    // ") for line in lines)


def test_what_has_no_place_to_break_stays_long() -> None:
    assert folded(f"#define A(x, y) {'f(x, y), ' * 40}").count("\n") == 0
    assert folded(f"x = '{', '.join(NAMES)}'").count("\n") == 0
