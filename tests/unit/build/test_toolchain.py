"""Finding compilers: explicit settings first, wrappers seen through, and a cure when there is none."""

import os
import sysconfig
from dataclasses import replace

import pytest

from kernelwright.build import extension_environment, find_cuda, find_cxx, toolchain
from kernelwright.build.toolchain import cuda_include_dirs
from kernelwright.device import resolve
from kernelwright.errors import EnvironmentProblem


@pytest.fixture
def nowhere(settings, tmp_path, monkeypatch):
    """Settings of a machine with nothing on the PATH and no toolkit in the usual folders."""
    monkeypatch.setattr(toolchain, "_usual_homes", lambda: ())
    return replace(settings, search_path=str(tmp_path), cuda_home=None, cxx=None)


def test_no_cxx_compiler_is_told_with_the_cure(nowhere):
    with pytest.raises(EnvironmentProblem, match="apt install g\\+\\+"):
        find_cxx(nowhere)


def test_a_wrong_cxx_is_not_replaced_by_another_compiler_in_silence(settings):
    with pytest.raises(EnvironmentProblem, match="CXX: 'no-such-compiler'"):
        find_cxx(replace(settings, cxx="no-such-compiler"))


def test_cxx_may_have_words_after_the_program(settings, cxx):
    assert find_cxx(replace(settings, cxx="g++ -pipe")).command[1:] == ("-pipe",)


def test_the_compilers_family_is_known_by_what_it_says(nowhere, make_program):
    folder = make_program("clang++", 'echo "Debian clang version 16.0.6"')
    found = find_cxx(replace(nowhere, search_path=str(folder)))
    assert (found.family, found.version) == ("clang", "Debian clang version 16.0.6")


def test_another_compiler_version_has_another_identity(nowhere, make_program):
    one = find_cxx(replace(nowhere, cxx=str(make_program("g++-12", "echo 12") / "g++-12")))
    two = find_cxx(replace(nowhere, cxx=str(make_program("g++-13", "echo 13") / "g++-13")))
    assert one.identity != two.identity


def test_no_cuda_toolkit_is_told_with_the_cure(nowhere):
    with pytest.raises(EnvironmentProblem, match="set CUDA_HOME") as problem:
        find_cuda(nowhere)
    assert "--device cpu" in problem.value.cure


def test_a_cuda_home_without_nvcc_is_not_replaced_in_silence(settings, tmp_path):
    with pytest.raises(EnvironmentProblem, match=r"CUDA_HOME: .* has no bin/nvcc"):
        find_cuda(replace(settings, cuda_home=tmp_path))


def test_an_nvcc_that_is_a_wrapper_is_seen_through(nowhere, cuda, make_program):
    folder = make_program("nvcc", f'exec {cuda.nvcc} "$@"')
    found = find_cuda(replace(nowhere, search_path=f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin"))
    assert found.home.resolve() == cuda.home.resolve()
    assert found.nvcc.parent != folder


def test_cuda_home_goes_before_the_path(settings, cuda):
    found = find_cuda(replace(settings, cuda_home=cuda.home))
    assert (found.home, found.found) == (cuda.home, "CUDA_HOME is set")


def test_cudas_headers_are_found(settings, cuda):
    (include,) = cuda_include_dirs(settings)
    assert (include / "cuda_fp16.h").is_file()


def test_a_child_process_gets_the_variables_load_inline_needs(settings, cuda):
    environment = extension_environment(resolve("h200"), settings)
    assert environment["CUDA_HOME"] == str(cuda.home)
    assert environment["TORCH_CUDA_ARCH_LIST"] == "9.0a"


def test_ninja_is_put_on_the_path_if_it_is_not_there(nowhere):
    environment = extension_environment(resolve("cpu"), nowhere)
    assert environment["PATH"].split(os.pathsep)[-1] == sysconfig.get_path("scripts")
    assert "CUDA_HOME" not in environment
