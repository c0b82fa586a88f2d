"""Folders and files come in; the problems in them go out, named, in order, narrowed down as the user asked."""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from kernelwright.errors import UsageError

__all__ = ["Share", "SuiteProblem", "find_problems", "narrowed"]

# What every problem defines; a file that lacks one is a part of something else and is passed over.
PROTOCOL = {"Model", "get_inputs"}


@dataclass(frozen=True, slots=True)
class SuiteProblem:
    """A problem file under the name it has in a run: the folder it was found in, and its path in there."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Share:
    """Part `number` of `of`: every of-th problem, so that all parts are alike."""

    number: int
    of: int


def find_problems(places: Sequence[Path]) -> list[SuiteProblem]:
    """Every problem file below the folders, in the order people count: 2_x before 10_x."""
    files = [(root, path) for root in places for path in files_in(root)]
    if not files:
        raise UsageError(
            "there is no problem file in " + ", ".join(map(str, places)) + ".",
            cure="Give folders with .py files that define Model and get_inputs.",
        )
    return [SuiteProblem(name, path, digest(path)) for name, path in named(files)]


def files_in(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise UsageError("there is no such folder.", where=root, cure="Give folders of problem files, or files.")
    shown = (path for path in root.rglob("*.py") if not any(part[0] == "." for part in path.relative_to(root).parts))
    return sorted(filter(is_problem, shown), key=counted)


def is_problem(path: Path) -> bool:
    """By its text alone: a file is run only in a process of its own. What has a ModelNew is a candidate, maybe ours."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):
        return False
    names = {node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))}
    return names >= PROTOCOL and "ModelNew" not in names


def counted(path: Path) -> list[tuple[int, int | str]]:
    """A key that puts numbers in the order of their value."""
    parts = re.split(r"(\d+)", str(path))
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]


def named(files: Sequence[tuple[Path, Path]]) -> list[tuple[str, Path]]:
    """folder/file for each; where two would have one name, as much of the path as tells them apart."""
    unique = list({path.resolve(): (root, path) for root, path in files}.values())
    depth = 1
    while True:
        names = [name_of(root, path, depth) for root, path in unique]
        most = max(Counter(names).values())
        if most == 1 or depth > max(len(path.resolve().parts) for _, path in unique):
            return list(zip(names, (path for _, path in unique), strict=True))
        depth += 1


def name_of(root: Path, path: Path, depth: int) -> str:
    whole = path.resolve().with_suffix("")
    inside = len(whole.relative_to(root.resolve().parent if root.is_file() else root.resolve()).parts)
    return "/".join(whole.parts[1:][-(inside + depth) :])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def narrowed(
    problems: Sequence[SuiteProblem], patterns: Sequence[str], share: Share | None, limit: int | None
) -> list[SuiteProblem]:
    """Those whose name matches a pattern (a wildcard or a part of it), of them this share, of them the first few."""
    kept = [problem for problem in problems if not patterns or any(matches(problem.name, p) for p in patterns)]
    kept = kept if share is None else kept[share.number - 1 :: share.of]
    return kept if limit is None else kept[:limit]


def matches(name: str, pattern: str) -> bool:
    return pattern.lower() in name.lower() or fnmatch(name.lower(), pattern.lower())
