"""The doctor finds what is here, and says what to do about what is not."""

import os
import sys
from dataclasses import replace

import pytest

from kernelwright import doctor
from kernelwright.build import toolchain
from kernelwright.doctor import CHECKS, diagnose
from kernelwright.settings import read_settings


@pytest.fixture
def settings(tmp_path):
    return replace(read_settings(), cache_dir=tmp_path / "cache")


@pytest.fixture
def bare(settings, tmp_path, monkeypatch):
    """Settings of a machine with no tools at all."""
    monkeypatch.setattr(toolchain, "_usual_homes", lambda: ())
    monkeypatch.setattr(doctor, "find_nvrtc", lambda settings: None)
    return replace(settings, search_path=str(tmp_path), cuda_home=None, cxx=None)


def findings(settings):
    return {finding.subject: finding for finding in diagnose(settings)}


def test_there_is_one_finding_for_each_check_in_order(settings):
    assert [finding.subject for finding in diagnose(settings)] == list(CHECKS)


def test_what_runs_this_test_is_found(settings):
    found = findings(settings)
    assert found["Python"].state == "ok"
    assert sys.executable in found["Python"].detail
    assert found["PyTorch"].state == "ok"
    assert found["CPU"].state == "ok"
    assert (found["cache folder"].state, str(settings.cache_dir) in found["cache folder"].detail) == ("ok", True)


def test_whatever_is_not_ok_has_a_cure_and_whatever_is_ok_needs_none(settings, bare):
    for finding in (*diagnose(settings), *diagnose(bare)):
        assert bool(finding.cure) == (finding.state != "ok"), finding


def test_a_machine_without_tools_is_told_each_of_them(bare):
    found = findings(bare)
    assert {subject for subject in ("C++ compiler", "OpenMP", "CUDA toolkit") if found[subject].state == "missing"} == {
        "C++ compiler",
        "OpenMP",
        "CUDA toolkit",
    }
    assert found["NVRTC"].state == "warning"
    assert found["ninja"].state in ("warning", "missing")


def test_a_kernel_is_built_and_runs_with_torchs_threads(settings):
    found = findings(settings)
    if found["C++ compiler"].state != "ok":
        pytest.skip(found["C++ compiler"].detail)
    assert found["OpenMP"].state == "ok"


def test_a_cache_folder_that_cannot_be_written_is_found(settings, tmp_path):
    (tmp_path / "file").write_text("")
    found = findings(replace(settings, cache_dir=tmp_path / "file"))["cache folder"]
    assert found.state == "missing"
    assert "KERNELWRIGHT_CACHE_DIR" in found.cure


@pytest.fixture
def toolkit(settings):
    if findings(settings)["CUDA toolkit"].state == "missing":
        pytest.skip("no CUDA toolkit here")
    return toolchain.find_cuda(settings)


def test_a_toolkit_that_torch_would_look_for_elsewhere_is_told(settings, toolkit, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_torch_cuda", lambda: (toolkit.version, tmp_path))
    found = findings(settings)["CUDA toolkit"]
    assert (found.state, found.cure) == ("warning", f"export CUDA_HOME={toolkit.home}")


def test_a_toolkit_of_another_version_than_torchs_is_told(settings, toolkit, monkeypatch):
    monkeypatch.setattr(doctor, "_torch_cuda", lambda: ("7.5", toolkit.home))
    found = findings(settings)["CUDA toolkit"]
    assert found.state == "warning"
    assert "built for CUDA 7.5" in found.detail


def test_a_ninja_that_is_installed_but_not_on_the_path_is_told(bare, tmp_path, monkeypatch):
    (tmp_path / "ninja").write_text("")
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda _: str(tmp_path))
    found = findings(bare)["ninja"]
    assert found.state == "warning"
    assert f"{tmp_path}{os.pathsep}" in found.cure
