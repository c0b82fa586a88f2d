"""Runs one compiler command: its output comes back, or a BuildError with the first error and its source line."""

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kernelwright.errors import BuildError, EnvironmentProblem

__all__ = ["compile_in", "rejected"]

LOG_NAME = "log.txt"

# The first group is the file, the second the line, the third the message; one row for each way a compiler says "error".
ERROR_PATTERNS: tuple[re.Pattern[str], ...] = (
    # g++ and clang++: kernel.cpp:3:14: error: 'x' was not declared in this scope
    re.compile(r"^(?P<file>[^\s:()][^:()]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<message>.*)$", re.MULTILINE),
    # nvcc and NVRTC: kernel.cu(3): error: identifier "x" is undefined
    re.compile(
        r"^(?P<file>[^\s()][^()]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #\S+)?: (?P<message>.*)$", re.MULTILINE
    ),
    # ptxas names a line of its own temporary file, which is gone: no line to show
    re.compile(r"^(?P<file>ptxas)\b.*?(?:error|fatal)\s*: (?P<message>.*)$", re.MULTILINE),
    # the linker
    re.compile(r"^(?P<file>\S*\bld\b\S*|collect2): (?P<message>.*)$", re.MULTILINE),
    re.compile(r"^(?P<file>nvcc|nvrtc)\s+(?:error|fatal)\s*: (?P<message>.*)$", re.MULTILINE),
)


def compile_in(folder: Path, command: Sequence[str], source_name: str, timeout_s: float) -> str:
    """Everything the compiler said, which is also appended to log.txt in `folder`."""
    exit_status, output = _run(command, folder, timeout_s)
    with (folder / LOG_NAME).open("a") as log:
        log.write(f"$ {' '.join(command)}\n{output}")
    if exit_status != 0:
        raise rejected(output, (folder / source_name).read_text(), where=source_name)
    return output


def rejected(output: str, source: str, *, where: str) -> BuildError:
    """The BuildError for a compiler's output: the error it reported first, with the line of `source` it points at."""
    found = [match for pattern in ERROR_PATTERNS if (match := pattern.search(output))]
    if not found:
        last_line = (output.strip().splitlines() or ["the compiler failed and said nothing."])[-1]
        return BuildError(last_line, where=where, log=output)
    first = min(found, key=lambda match: match.start())
    groups = first.groupdict()
    line_number = int(groups.get("line") or 0)
    return BuildError(
        groups["message"],
        where=where,
        source_line=_line_of(source, groups["file"], line_number),
        line_number=line_number,
        log=output,
    )


def _line_of(source: str, file: str, line_number: int) -> str:
    """Line `line_number` of our source; of a header, if the error is in one that we can read."""
    if not line_number:
        return ""
    header = Path(file)
    text = header.read_text(errors="replace") if header.is_absolute() and header.is_file() else source
    lines = text.splitlines()
    return lines[line_number - 1] if line_number <= len(lines) else ""


def _run(command: Sequence[str], folder: Path, timeout_s: float) -> tuple[int, str]:
    """Exit status and output. nvcc starts compilers of its own, so the whole process group ends when we give up."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        _stop(process)
        raise EnvironmentProblem(
            f"{Path(command[0]).name} did not finish within {timeout_s:.0f} s.",
            cure="Set KERNELWRIGHT_BUILD_TIMEOUT to more seconds, or KERNELWRIGHT_JOBS to fewer compilers at a time.",
        ) from error
    except BaseException:  # Ctrl-C does not reach a process group of its own
        _stop(process)
        raise
    return process.returncode, output


def _stop(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself in the meantime
    finally:
        process.wait()
