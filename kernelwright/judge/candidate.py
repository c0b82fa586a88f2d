"""A file's text comes in, code or an answer with code in it; a `Candidate` and what can be read off its text go out.

Nothing here convicts: what a text contains gives labels, and whether it is Python that defines ModelNew at all.
"""

import ast
import re
import textwrap
from dataclasses import dataclass

__all__ = ["Candidate", "Facts", "extract", "imported_names", "read_facts"]

MAX_BYTES = 4 << 20
FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+.-]*)[^\n]*\n(?P<body>.*?)^[ \t]*(?P=fence)[ \t]*$",
    re.S | re.M,
)
OPENING = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*[\w+.-]*[^\n]*\n", re.M)


@dataclass(frozen=True, slots=True)
class Candidate:
    """The text of a file that should define ModelNew, and where it was taken from."""

    text: str
    name: str = "candidate"
    origin: str = "the whole file"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a candidate's text says.

    problem            why it cannot be run at all; "" if it can
    imports_reference  it says `from model import ...`: it wants the problem's own file
    builds             it compiles something: load_inline, load, NVRTC, Triton
    cuda               it cannot do without a GPU: CUDA sources or Triton
    vendor             it calls a vendor's library from sources of its own
    streams            it makes CUDA streams
    """

    problem: str
    imports_reference: bool = False
    builds: bool = False
    cuda: bool = False
    vendor: bool = False
    streams: bool = False


def extract(text: str, suffix: str) -> Candidate:
    """The candidate in a .py file, or in an answer: its last complete block of code that defines ModelNew.

    An answer that was saved as .py, and so is no Python, is one all the same. A block that has the class from elsewhere
    shows how to use what another one defines.
    """
    if suffix == ".py" and (is_python(text) or not OPENING.search(text)):
        return Candidate(text)
    blocks = [_outdented(match["body"]) for match in FENCE.finditer(text)]
    defining = [number for number, body in enumerate(blocks, 1) if defines_model(body)]
    fitting = [number for number in defining if not _only_fetches_model(blocks[number - 1])] or defining
    if fitting:
        last = fitting[-1]
        drafts = f", {len(fitting)} of them define ModelNew" if len(fitting) > 1 else ""
        return Candidate(blocks[last - 1], origin=f"code block {last} of {len(blocks)}{drafts}")
    if defines_model(text):
        return Candidate(text)
    opened = list(OPENING.finditer(text))
    if opened and defines_model(text[opened[-1].end() :]):
        return Candidate(text[opened[-1].end() :], origin="the last code block, which nothing closes")
    if blocks:
        return Candidate(blocks[-1], origin=f"code block {len(blocks)} of {len(blocks)}; none defines ModelNew")
    return Candidate(text)


def defines_model(text: str) -> bool:
    """Whether it is whole: Python that binds ModelNew at the top."""
    return is_python(text) and any(_binds_model(node) for node in ast.walk(_parsed(text)))


def _only_fetches_model(text: str) -> bool:
    """Whether ModelNew is another module's wherever this one binds it."""
    return not any(_binds_model(node) for node in ast.walk(_Made().visit(_parsed(text))))


class _Made(ast.NodeTransformer):
    """Leaves out what fetches ModelNew from another module."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        return None if isinstance(node.value, ast.Attribute) and node.value.attr == "ModelNew" else node


def _outdented(body: str) -> str:
    """A block that stands in a list is indented, all of it."""
    return body if is_python(body) else textwrap.dedent(body)


def is_python(text: str) -> bool:
    try:
        _parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _parsed(text: str) -> ast.Module:
    return ast.parse(text.removeprefix("\ufeff"))  # some editors put a mark of the encoding first


def _binds_model(node: ast.AST) -> bool:
    match node:
        case ast.ClassDef(name="ModelNew") | ast.Name(id="ModelNew", ctx=ast.Store()):
            return True
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return any((alias.asname or alias.name) == "ModelNew" for alias in names)
    return False


def read_facts(candidate: Candidate) -> Facts:
    text = candidate.text
    if not text.strip():
        return Facts("the file is empty")
    if "\0" in text:
        return Facts("the file is not text: it contains null bytes")
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        return Facts(f"the file has more than {MAX_BYTES >> 20} MiB")
    try:
        tree = _parsed(text)
    except SyntaxError as error:
        return Facts(f"the file is not Python: line {error.lineno}: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return Facts(f"the file cannot be parsed: {type(error).__name__}")
    if "ModelNew" not in text:  # where the name stands anywhere, running the file tells
        return Facts("the file does not define ModelNew")
    names = set(_names(tree))
    return Facts(
        problem="",
        imports_reference=any(_imports_reference(node) for node in ast.walk(tree)),
        builds=bool(names & {"load_inline", "cpp_extension", "triton", "nvrtc", "ctypes", "cffi", "cuda", "tilelang"}),
        cuda=bool(names & {"triton", "cuda_sources", "nvrtc"}) or "__global__" in text,
        vendor=any(
            re.search(r"\b(cublas|cudnn|cusparse|cusolver|cblas_|mkl_)\w*\s*\(", source) for source in _strings(tree)
        ),
        streams="Stream" in names or any("cudaStreamCreate" in source for source in _strings(tree)),
    )


def imported_names(source: str) -> list[str]:
    """Top-level names of the modules that a source imports."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [alias.name.partition(".")[0] for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                found.append(module.partition(".")[0])
    return found


def _imports_reference(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module="model", level=0):
            return True
        case ast.Import(names=names):
            return any(alias.name == "model" for alias in names)
    return False


def _strings(tree: ast.AST) -> list[str]:
    """Literals long enough to be sources."""
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 40
    ]


def _names(tree: ast.AST) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                found.append(name)
            case ast.Import(names=names):
                found += [part for alias in names for part in alias.name.split(".")]
            case ast.ImportFrom(module=module, names=names):
                found += [*(module or "").split("."), *(alias.name for alias in names)]
    return found
