"""The exceptions kernelwright raises: each says what, where and why, the cure if known, and the exit code it ends with.

    KernelwrightError            3   something of ours is broken: a bug
    |- InternalError             3   an invariant of ours does not hold
    |- UsageError                2   the command line, an option or a setting is wrong
    |  `- BadProblem             2   the model file does not follow the protocol (no Model, no get_inputs, ...)
    |- EnvironmentProblem        4   this machine lacks something: a compiler, a GPU, a writable cache
    |- BuildError                3   a compiler was there and rejected our source; carries its first error and its log
    `- NothingToDo               5   there is no kernel to write that would help
       `- UnsupportedProblem     5   the problem is well formed, but uses what we cannot compile

A candidate that is wrong, slow or cheating is a verdict of the judge, not an exception.
"""

from pathlib import Path
from typing import ClassVar

__all__ = [
    "BadProblem",
    "BuildError",
    "EnvironmentProblem",
    "InternalError",
    "KernelwrightError",
    "NothingToDo",
    "UnsupportedProblem",
    "UsageError",
]


class KernelwrightError(Exception):
    """`where: what`, then the cure on a line of its own.

    what   what went wrong and why, as one sentence
    where  the file, option or stage it went wrong in
    cure   what to do about it
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, what: str, *, where: str | Path = "", cure: str = "") -> None:
        self.what = what
        self.where = str(where)
        self.cure = cure
        super().__init__(what)

    def __str__(self) -> str:
        headline = f"{self.where}: {self.what}" if self.where else self.what
        return f"{headline}\n  {self.cure}" if self.cure else headline

    def __reduce__(self) -> tuple[object, ...]:
        # Exception pickles its args alone, and would lose where and cure on the way out of a worker process.
        return _restore, (type(self), self.__dict__.copy())


class InternalError(KernelwrightError):
    """An invariant of ours does not hold; the user cannot be at fault."""


class UsageError(KernelwrightError):
    """The command line, an option or a setting is wrong."""

    exit_code = 2


class BadProblem(UsageError):
    """The model file does not follow the protocol."""


class EnvironmentProblem(KernelwrightError):
    """This machine lacks something: a compiler, a GPU, a writable cache."""

    exit_code = 4


class NothingToDo(KernelwrightError):
    """There is no kernel to write that would help."""

    exit_code = 5


class UnsupportedProblem(NothingToDo):
    """The problem is well formed, but uses what we cannot compile."""


class BuildError(KernelwrightError):
    """A compiler rejected a source.

    first_error  the compiler's first error message, without its position
    source_line  the line of the source it points at, "" if it points at none
    line_number  its number, counted from 1; 0 if unknown
    log          everything the compiler said
    """

    def __init__(
        self,
        first_error: str,
        *,
        where: str | Path = "",
        source_line: str = "",
        line_number: int = 0,
        log: str = "",
        cure: str = "",
    ) -> None:
        self.first_error = first_error
        self.source_line = source_line
        self.line_number = line_number
        self.log = log
        shown = f"\n  {line_number} | {source_line.strip()}" if source_line.strip() else ""
        super().__init__(f"{first_error}{shown}", where=where, cure=cure)


def _restore(kind: type[KernelwrightError], state: dict[str, object]) -> KernelwrightError:
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = (state["what"],)
    return error
