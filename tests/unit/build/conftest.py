"""What the build tests share: an empty cache, and compilers or a reason to skip."""

import os
from dataclasses import replace

import pytest

from kernelwright.build import find_cuda, find_cxx
from kernelwright.errors import EnvironmentProblem
from kernelwright.settings import Settings, read_settings


@pytest.fixture
def settings(tmp_path) -> Settings:
    """This machine's settings with a cache of the test's own."""
    return replace(read_settings(), cache_dir=tmp_path / "cache", jobs=2)


@pytest.fixture
def cxx(settings):
    try:
        return find_cxx(settings)
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))


@pytest.fixture
def cuda(settings):
    try:
        return find_cuda(settings)
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))


@pytest.fixture
def make_program(tmp_path):
    """Writes a shell script that can stand for a compiler; gives the folder it is in."""

    def make(name: str, script: str):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return folder

    return make


@pytest.fixture
def system_path():
    return os.environ["PATH"]
