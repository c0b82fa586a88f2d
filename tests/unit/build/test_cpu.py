"""C++ to a library that runs here: built once, IEEE arithmetic, torch's threads."""

import ctypes
import math
import subprocess
import sys
from dataclasses import replace

import pytest

from kernelwright.build import build, build_cpu_library, load_cpu_library
from kernelwright.device import resolve
from kernelwright.errors import BuildError, EnvironmentProblem
from kernelwright.flags import CPU_COMPILE_FLAGS, CPU_LINK_FLAGS

SUM = """
#include <cstdint>
#include <omp.h>
extern "C" float total(const float* x, int64_t n) {
    float sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += x[i];
    return sum;
}
extern "C" int thread_count() {
    int count = 0;
#pragma omp parallel
#pragma omp single
    count = omp_get_num_threads();
    return count;
}
extern "C" int is_nan(float x) { return x != x; }
extern "C" float minus(float x) { return x - x; }
extern "C" float keeps_zeros_sign(float x) { return x + 0.0f; }
extern "C" float difference_of_squares(float x, float y) {
    const float t0 = x * x, t1 = y * y;
    return t0 - t1;
}
"""


@pytest.fixture
def library(settings, cxx):
    return load_cpu_library(build_cpu_library(SUM, settings))


def test_a_kernel_gives_the_right_sum(library):
    library.total.restype = ctypes.c_float
    values = (ctypes.c_float * 1000)(*range(1000))
    assert library.total(values, ctypes.c_int64(1000)) == 499500


def test_torch_governs_the_number_of_threads(library):
    import torch

    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert library.thread_count() == threads
    finally:
        torch.set_num_threads(before)


def test_nan_inf_and_signed_zeros_keep_their_meaning(library):
    for function in (library.minus, library.keeps_zeros_sign):
        function.argtypes, function.restype = [ctypes.c_float], ctypes.c_float
    library.is_nan.argtypes = [ctypes.c_float]
    assert library.is_nan(math.nan) == 1
    assert math.isnan(library.minus(math.inf))
    assert math.copysign(1, library.keeps_zeros_sign(-0.0)) == 1


def test_operators_are_not_contracted_across_what_was_fused(library):
    function = library.difference_of_squares
    function.argtypes, function.restype = [ctypes.c_float] * 2, ctypes.c_float
    assert [function(x, x) for x in (0.1, 1.1, 3.3, 1e-3)] == [0.0] * 4


def test_the_library_brings_no_openmp_runtime_of_its_own(settings, cxx):
    if cxx.family != "gcc":
        pytest.skip("clang's libraries need libomp")
    path = build_cpu_library(SUM, settings)
    needed = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "gomp" not in needed


def test_a_second_build_runs_no_compiler(settings, cxx, make_program):
    compiler = (
        make_program("counting-g++", f'echo "$@" >> {settings.cache_dir.parent}/calls\nexec g++ "$@"') / "counting-g++"
    )
    counted = replace(settings, cxx=str(compiler))
    first = build_cpu_library(SUM, counted)
    calls = (settings.cache_dir.parent / "calls").read_text()
    assert build_cpu_library(SUM, counted) == first
    assert (settings.cache_dir.parent / "calls").read_text() == calls
    assert calls.count(" -c kernel.cpp ") == 1


def test_another_source_is_another_library(settings, cxx):
    assert build_cpu_library(SUM, settings) != build_cpu_library(SUM + "\n", settings)


def test_build_takes_the_cpu_route_for_a_cpu(settings, cxx):
    assert build(SUM, resolve("cpu"), settings) == build_cpu_library(SUM, settings)


def test_a_rejected_source_shows_its_first_error_and_line(settings, cxx):
    with pytest.raises(BuildError) as failure:
        build_cpu_library('extern "C" int f() {\n    return undeclared_thing;\n}\n', settings)
    assert "undeclared_thing" in failure.value.first_error
    assert failure.value.line_number == 2
    assert "2 | return undeclared_thing;" in str(failure.value)
    assert "kernel.cpp" in failure.value.log


def test_without_a_compiler_the_cure_is_told(settings, tmp_path):
    with pytest.raises(EnvironmentProblem, match="no C\\+\\+ compiler"):
        build_cpu_library(SUM, replace(settings, search_path=str(tmp_path), cxx=None))


LOAD_INLINE = f"""
import ctypes, inspect, sys
import torch
from torch.utils.cpp_extension import load_inline
fast = {{"no_implicit_headers": True}} if "no_implicit_headers" in inspect.signature(load_inline).parameters else {{}}
path = load_inline("kernel", cpp_sources=sys.stdin.read(), is_python_module=False, build_directory=sys.argv[1],
                   extra_cflags={list(CPU_COMPILE_FLAGS)!r}, extra_ldflags={list(CPU_LINK_FLAGS)!r}, **fast)
library = ctypes.CDLL(path)
torch.set_num_threads(3)
sys.exit(library.thread_count() != 3)
"""


@pytest.mark.slow
def test_the_same_flags_serve_load_inline(settings, cxx, tmp_path, monkeypatch):
    from kernelwright.build import extension_environment

    for name, value in extension_environment(resolve("cpu"), settings).items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-c", LOAD_INLINE, str(tmp_path)]
    finished = subprocess.run(command, input=SUM, text=True, capture_output=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
