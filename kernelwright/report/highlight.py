"""Source text comes in; HTML with a few marked words goes out. Python, C++ and CUDA, by one regular expression each.

Marks are one-letter elements, since a page may hold a hundred thousand of them:
b keyword, i comment, u string, q number, em a name that the language or CUDA brings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

__all__ = ["highlight", "language_of"]

PYTHON_KEYWORDS = (
    "and as assert async await break class continue def del elif else except finally for from global if import in is "
    "lambda None nonlocal not or pass raise return True False try while with yield match case"
)
CPP_KEYWORDS = (
    "alignas alignof auto bool break case char class concept const consteval constexpr continue decltype "
    "default delete do double else enum explicit extern false float for friend goto if inline int long "
    "namespace new noexcept nullptr operator private protected public requires return short signed sizeof "
    "static static_assert static_cast struct switch template this throw true typedef typename union unsigned "
    "using virtual void volatile while asm"
)
CPP_BROUGHT = (
    r"__\w+__|__\w+|threadIdx|blockIdx|blockDim|gridDim|cuda\w+|KW_\w+|u?int\d+_t|size_t|std|half|nv_bfloat16|Vec|Index"
)
PYTHON_BROUGHT = r"self|super|torch|nn|F|print|range|len|tuple|list|dict|str|int|float|bool|ctypes"


def words(text: str) -> str:
    return r"\b(?:" + "|".join(text.split()) + r")\b"


NUMBER = r"\b(?:0[xX][\da-fA-F']+|\d[\d'_]*(?:\.\d*)?(?:[eE][+-]?\d+)?)[uUlLfF]*\b"
PYTHON = re.compile(
    r'(?P<long>[rRbBfFuU]{0,2}(?:"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'))'
    r"|(?P<i>#[^\n]*)"
    r"|(?P<u>[rRbBfFuU]{0,2}(?:\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'))"
    rf"|(?P<b>{words(PYTHON_KEYWORDS)})"
    rf"|(?P<em>@[\w.]+|\b(?:{PYTHON_BROUGHT})\b)"
    rf"|(?P<q>{NUMBER})"
)
CPP = re.compile(
    r"(?P<i>//[^\n]*|/\*[\s\S]*?\*/)"
    r"|(?P<em>^[ \t]*\#[^\n]*)"
    r'|(?P<u>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\')'
    rf"|(?P<b>{words(CPP_KEYWORDS)})"
    rf"|(?P<e2>\b(?:{CPP_BROUGHT})\b)"
    rf"|(?P<q>{NUMBER})",
    re.MULTILINE,
)
LANGUAGES: Mapping[str, re.Pattern[str]] = {"python": PYTHON, "cpp": CPP}
# A string of an emitted file that holds these is source itself.
SOURCE_INSIDE = ("#include", "__global__", 'extern "C"', "namespace ")


def highlight(text: str, language: str) -> str:
    """The text as HTML, marked."""
    parts: list[str] = []
    end = 0
    for match in LANGUAGES[language].finditer(text):
        parts.append(plain(text[end : match.start()]))
        parts.append(marked(match.lastgroup or "", match.group()))
        end = match.end()
    parts.append(plain(text[end:]))
    return "".join(parts)


def marked(kind: str, text: str) -> str:
    if kind == "long":
        return long_string(text)
    tag = "em" if kind == "e2" else kind
    return f"<{tag}>{plain(text)}</{tag}>"


def long_string(text: str) -> str:
    """A docstring is prose; the kernels of an emitted file are C++, and are marked as such."""
    if not any(word in text for word in SOURCE_INSIDE):
        return f"<u>{plain(text)}</u>"
    start = re.match(r'[rRbBfFuU]{0,2}(?:"""|\'\'\')', text)
    assert start is not None
    opening, closing = start.group(), text[-3:]
    return f"<u>{opening}</u>{highlight(text[len(opening) : -3], 'cpp')}<u>{closing}</u>"


def plain(text: str) -> str:
    return escape(text, quote=False)


def language_of(name: str) -> str:
    return "python" if name.endswith(".py") else "cpp"
