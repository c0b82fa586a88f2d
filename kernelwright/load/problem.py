"""The path of a model file comes in; its text, known to be Python, goes out as a `Problem`."""

import ast
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path

from kernelwright.errors import BadProblem

__all__ = ["Problem", "load"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A model file, read once: what happens to the file afterwards changes nothing.

    name    the file's name without `.py`
    source  its text, line ends as \\n
    path    where it was read, as the user spelled it; its folder is where it imports from
    """

    name: str
    source: str
    path: Path


def load(path: str | Path) -> Problem:
    """Read and parse a model file; nothing in it is run."""
    path = Path(path)
    source = _decoded(_read(path), path)
    _parsed(source, path)
    return Problem(path.stem, source, path)


def _read(path: Path) -> bytes:
    if path.is_dir():
        cure = "Name one file in it, or give the folder to `kernelwright suite run`."
        raise BadProblem("this is a folder, not a model file.", where=path, cure=cure)
    if not path.exists():
        cure = f"Check the spelling; the path is taken from {Path.cwd()}." if not path.is_absolute() else ""
        raise BadProblem("there is no such file.", where=path, cure=cure or "Check the spelling.")
    try:
        return path.read_bytes()
    except OSError as error:
        cure = "Make the file readable for this user."
        raise BadProblem(f"the file cannot be read: {error.strerror}.", where=path, cure=cure) from error


def _decoded(content: bytes, path: Path) -> str:
    """The text, in the encoding that its byte-order mark or its coding comment declares (PEP 263)."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError) as error:
        cure = "Save the file as UTF-8, or declare its encoding in the first line: # -*- coding: latin-1 -*-"
        raise BadProblem(
            f"the file is not text in the encoding it declares: {error}.", where=path, cure=cure
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parsed(source: str, path: Path) -> ast.Module:
    try:
        return ast.parse(source, filename=str(path))
    except SyntaxError as error:
        shown = f"\n  {error.lineno} | {error.text.strip()}" if error.text else ""
        where = f"{path}:{error.lineno}" if error.lineno else path
        raise BadProblem(
            f"the file is not Python: {error.msg}.{shown}", where=where, cure="Correct this line."
        ) from error
    except ValueError as error:  # a null byte in the source
        raise BadProblem(f"the file is not Python: {error}.", where=path, cure="Give a .py file.") from error
