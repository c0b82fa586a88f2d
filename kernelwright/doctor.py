"""Looks at this machine: what is here, what is missing and what to do about it, one Finding for each thing we need."""

import ctypes
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelwright.build import build_cpu_library, find_cuda, find_cxx, load_cpu_library
from kernelwright.build.toolchain import cuda_include_dirs, find_nvrtc
from kernelwright.device import resolve
from kernelwright.errors import KernelwrightError
from kernelwright.settings import Settings, read_settings

__all__ = ["Finding", "diagnose"]

State = Literal["ok", "warning", "missing"]

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 6)


@dataclass(frozen=True, slots=True)
class Finding:
    """subject  what was looked for
    state    ok: it is here and works; warning: something will be slower or go wrong; missing: a device cannot be used
    detail   what was found
    cure     what to do, "" if nothing
    """

    subject: str
    state: State
    detail: str
    cure: str = ""


def diagnose(settings: Settings | None = None) -> tuple[Finding, ...]:
    """One finding for each thing kernelwright may need, in the order in which to put them right."""
    settings = settings or read_settings()
    return tuple(_guarded(subject, check, settings) for subject, check in CHECKS.items())


def _guarded(subject: str, check: Callable[[Settings], Finding], settings: Settings) -> Finding:
    """An error of ours already says what is wrong and the cure; here it is a finding."""
    try:
        return check(settings)
    except KernelwrightError as error:
        where = f"{error.where}: " if error.where else ""
        return Finding(subject, "missing", f"{where}{error.what}", error.cure)
    except ModuleNotFoundError as error:
        return Finding(subject, "missing", f"could not be examined without {error.name}.", f"pip install {error.name}")


def check_python(_: Settings) -> Finding:
    """The interpreter."""
    detail = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= OLDEST_PYTHON:
        return Finding("Python", "ok", detail)
    return Finding("Python", "missing", detail, "Use Python {}.{} or newer.".format(*OLDEST_PYTHON))


def check_torch(_: Settings) -> Finding:
    """torch, without importing it if it is not there."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Finding("PyTorch", "missing", "not installed.", "pip install torch")
    import torch

    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
    detail = f"{version}, built for {built_for}"
    if tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_TORCH:
        return Finding("PyTorch", "ok", detail)
    return Finding("PyTorch", "warning", detail, "Use torch {}.{} or newer.".format(*OLDEST_TORCH))


def check_cpu(_: Settings) -> Finding:
    """The CPU, which is always a device."""
    cpu = resolve("cpu")
    return Finding(
        "CPU",
        "ok",
        f"{cpu.name}: {cpu.multiprocessors} cores, {cpu.vector_bytes * 8}-bit vectors, "
        f"{cpu.l2_bytes >> 10} KiB L2 a core, {cpu.l3_bytes >> 20} MiB L3",
    )


def check_gpu(_: Settings) -> Finding:
    """The GPU that --device cuda means."""
    gpu = resolve("cuda")
    return Finding(
        "GPU",
        "ok",
        f"{gpu.name}: {gpu.arch}, {gpu.multiprocessors} SMs, {gpu.smem_per_block_bytes:,} B of shared memory a block, "
        f"{gpu.copy_gbps:,.0f} GB/s ({gpu.basis})",
    )


def check_nvcc(settings: Settings) -> Finding:
    """The CUDA toolkit, and whether torch will find the same one when it builds an emitted file."""
    toolkit = find_cuda(settings)
    detail = f"CUDA {toolkit.version} in {toolkit.home} ({toolkit.found})"
    built_for, guess = _torch_cuda()
    if built_for and built_for.split(".")[0] != toolkit.version.split(".")[0]:
        return Finding(
            "CUDA toolkit",
            "warning",
            f"{detail}, but torch is built for CUDA {built_for}",
            f"Install a CUDA {built_for} toolkit and set CUDA_HOME to it.",
        )
    if guess and guess.resolve() != toolkit.home.resolve():
        return Finding(
            "CUDA toolkit",
            "warning",
            f"{detail}, but torch takes it to be in {guess}",
            f"export CUDA_HOME={toolkit.home}",
        )
    return Finding("CUDA toolkit", "ok", detail)


def _torch_cuda() -> tuple[str | None, Path | None]:
    """The CUDA version torch is built for, and where it thinks the toolkit is; None for a build without CUDA."""
    import torch

    if torch.version.cuda is None:
        return None, None
    from torch.utils.cpp_extension import CUDA_HOME

    return torch.version.cuda, Path(CUDA_HOME) if CUDA_HOME else None


def check_nvrtc(settings: Settings) -> Finding:
    """NVRTC makes tuning quick; nvcc does the same, slower."""
    nvrtc = find_nvrtc(settings)
    if nvrtc is None:
        return Finding(
            "NVRTC",
            "warning",
            "not here; variants are compiled by nvcc instead, half a second slower each.",
            "pip install nvidia-cuda-nvrtc, in the CUDA version of torch.",
        )
    if not cuda_include_dirs(settings):
        return Finding("NVRTC", "warning", f"{nvrtc.version}, without CUDA's headers (cuda_fp16.h).", "Set CUDA_HOME.")
    return Finding("NVRTC", "ok", f"{nvrtc.version} at {nvrtc.library}, headers in {cuda_include_dirs(settings)[0]}")


def check_cxx(settings: Settings) -> Finding:
    """The C++ compiler, for CPU kernels and for nvcc's host side."""
    compiler = find_cxx(settings)
    return Finding("C++ compiler", "ok", f"{compiler.version} at {compiler.command[0]}")


THREAD_COUNT_SOURCE = """
#include <omp.h>
extern "C" int thread_count() {
    int count = 0;
#pragma omp parallel
#pragma omp single
    count = omp_get_num_threads();
    return count;
}
"""


def check_openmp(settings: Settings) -> Finding:
    """A kernel built and run: does it use the threads that torch uses?"""
    import torch

    library: ctypes.CDLL = load_cpu_library(build_cpu_library(THREAD_COUNT_SOURCE, settings))
    threads, torch_threads = library.thread_count(), torch.get_num_threads()
    if threads == torch_threads:
        return Finding("OpenMP", "ok", f"a kernel was built and ran with {threads} threads, as torch does")
    return Finding(
        "OpenMP",
        "warning",
        f"a kernel ran with {threads} threads and torch with {torch_threads}: they use different OpenMP runtimes.",
        "Set OMP_NUM_THREADS to fix the number for both, or unset CXX to build with g++.",
    )


def check_ninja(settings: Settings) -> Finding:
    """ninja as torch looks for it, which is on the PATH."""
    ninja = shutil.which("ninja", path=settings.search_path)
    if ninja:
        answer = subprocess.run([ninja, "--version"], capture_output=True, text=True, timeout=30, check=False)
        return Finding("ninja", "ok", f"{answer.stdout.strip()} at {ninja}")
    scripts = Path(sysconfig.get_path("scripts"))
    if (scripts / "ninja").is_file():
        return Finding(
            "ninja",
            "warning",
            f"in {scripts}, which is not on the PATH; torch does not find it when an emitted file is run.",
            f"Activate the environment, or export PATH={scripts}:$PATH",
        )
    return Finding("ninja", "missing", "not installed; emitted files cannot be built.", "pip install ninja")


def check_cache(settings: Settings) -> Finding:
    """The cache folder, by writing to it."""
    folder = settings.cache_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"kernelwright")
    except OSError as error:
        return Finding(
            "cache folder",
            "missing",
            f"{folder} cannot be written: {os.strerror(error.errno or 0)}.",
            "Make it writable, or set KERNELWRIGHT_CACHE_DIR to a folder that is.",
        )
    return Finding("cache folder", "ok", f"{folder}, {shutil.disk_usage(folder).free / 1e9:.1f} GB free")


CHECKS: dict[str, Callable[[Settings], Finding]] = {
    "Python": check_python,
    "PyTorch": check_torch,
    "CPU": check_cpu,
    "GPU": check_gpu,
    "C++ compiler": check_cxx,
    "OpenMP": check_openmp,
    "ninja": check_ninja,
    "CUDA toolkit": check_nvcc,
    "NVRTC": check_nvrtc,
    "cache folder": check_cache,
}
