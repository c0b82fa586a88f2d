"""What compilers say, read: the first error, its place and its source line."""

import os
import sys
import time
from pathlib import Path

import pytest

from kernelwright.build.compile import compile_in, rejected
from kernelwright.errors import BuildError, EnvironmentProblem

SOURCE = "line one\nline two\nline three\n"

# compiler output, the message, the line number, the source line
OUTPUTS = [
    (
        "kernel.cpp: In function 'int f()':\nkernel.cpp:2:9: error: 'x' not declared\nkernel.cpp:3:1: error: second",
        "'x' not declared",
        2,
        "line two",
    ),
    (
        "kernel.cu:1:10: fatal error: nope.h: No such file or directory",
        "nope.h: No such file or directory",
        1,
        "line one",
    ),
    (
        'kernel.cu(1): warning #177-D: unused\nkernel.cu(3): error: identifier "x" is undefined\n',
        'identifier "x" is undefined',
        3,
        "line three",
    ),
    ("kernel.cu(2): error #20: too much\n", "too much", 2, "line two"),
    ('kernel.cu(1): catastrophic error: cannot open source file "a"', 'cannot open source file "a"', 1, "line one"),
    ("ptxas /tmp/x.ptx, line 23; error   : Unknown modifier '.bar'\n", "Unknown modifier '.bar'", 0, ""),
    (
        "ptxas error   : Entry function 'k' uses too much shared data\n",
        "Entry function 'k' uses too much shared data",
        0,
        "",
    ),
    ("ptxas fatal   : Ptx assembly aborted\n", "Ptx assembly aborted", 0, ""),
    ("nvcc fatal   : Unsupported gpu architecture 'compute_1'\n", "Unsupported gpu architecture 'compute_1'", 0, ""),
    ("/usr/bin/ld: cannot find -lx\ncollect2: error: ld returned 1\n", "cannot find -lx", 0, ""),
    ("something odd\nthe last word\n", "the last word", 0, ""),
    ("", "the compiler failed and said nothing.", 0, ""),
]


@pytest.mark.parametrize(("output", "message", "line_number", "line"), OUTPUTS)
def test_the_first_error_is_found_with_its_line(output, message, line_number, line):
    error = rejected(output, SOURCE, where="here")
    assert (error.first_error, error.line_number, error.source_line) == (message, line_number, line)
    assert error.log == output


def test_a_line_past_the_end_shows_no_source():
    assert rejected("kernel.cu(99): error: eh", SOURCE, where="").source_line == ""


def test_an_error_in_a_header_shows_the_headers_line(tmp_path):
    header = tmp_path / "vec.cuh"
    header.write_text("first\nsecond\n")
    assert rejected(f"{header}(2): error: eh", SOURCE, where="").source_line == "second"


def python(program):
    return [sys.executable, "-c", program]


def test_output_is_returned_and_logged(tmp_path):
    (tmp_path / "kernel.cu").write_text(SOURCE)
    assert compile_in(tmp_path, python("print('all well')"), "kernel.cu", 60) == "all well\n"
    assert "all well\n" in (tmp_path / "log.txt").read_text()


def test_a_failing_compiler_raises_a_build_error(tmp_path):
    (tmp_path / "kernel.cu").write_text(SOURCE)
    program = "import sys; print('kernel.cu(2): error: bad', file=sys.stderr); sys.exit(1)"
    with pytest.raises(BuildError, match=r"bad\n  2 \| line two"):
        compile_in(tmp_path, python(program), "kernel.cu", 60)


def test_a_compiler_that_hangs_is_stopped_with_its_children(tmp_path):
    (tmp_path / "kernel.cu").write_text(SOURCE)
    child = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); open('pid', 'w').write(str(p.pid)); p.wait()"
    )
    began = time.monotonic()
    with pytest.raises(EnvironmentProblem, match="KERNELWRIGHT_BUILD_TIMEOUT"):
        compile_in(tmp_path, python(child), "kernel.cu", 2)
    assert time.monotonic() - began < 30
    assert not _runs(int((tmp_path / "pid").read_text()))


def _runs(pid):
    for _ in range(50):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except (ProcessLookupError, FileNotFoundError):
            return False
        time.sleep(0.1)
    return True
