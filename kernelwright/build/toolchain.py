"""Finds the compilers of this machine: settings in, a C++ compiler or a CUDA toolkit out, or an EnvironmentProblem."""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from kernelwright.build import nvrtc as nvrtc_program
from kernelwright.device import Device
from kernelwright.errors import EnvironmentProblem
from kernelwright.flags import arch_list
from kernelwright.settings import Settings

__all__ = [
    "CudaToolkit",
    "CxxCompiler",
    "Nvrtc",
    "cuda_include_dirs",
    "extension_environment",
    "find_cuda",
    "find_cxx",
    "find_nvrtc",
    "has_cuda",
]

PROBE_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class CxxCompiler:
    """command    how to call it: the program, then any words of CXX (CXX="ccache g++")
    version    the first line of --version
    identity   changes with the compiler, its version and the CPU that -march=native means
    """

    command: tuple[str, ...]
    family: Literal["gcc", "clang"]
    version: str
    identity: str


@dataclass(frozen=True, slots=True)
class CudaToolkit:
    """home     the folder with bin/ and include/, as CUDA_HOME should be
    nvcc     the compiler itself, not a wrapper on the PATH
    version  "13.0"
    found    how it was found, in words
    """

    home: Path
    nvcc: Path
    version: str
    found: str


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """command  the program to call: Python, our nvrtc.py, the library
    library  libnvrtc.so.13 or its like
    version  "13.0"
    """

    command: tuple[str, ...]
    library: Path
    version: str


# --- C++

# g++ first: its OpenMP calls (GOMP_*) are served by every runtime torch may carry; clang++ needs libomp.
CXX_NAMES = ("g++", "c++", "clang++")


def find_cxx(settings: Settings) -> CxxCompiler:
    """CXX if set, else the first of g++, c++ and clang++ on the PATH."""
    named = [tuple(shlex.split(settings.cxx))] if settings.cxx else [(name,) for name in CXX_NAMES]
    for command in named:
        if command and (program := shutil.which(command[0], path=settings.search_path)):
            return _examine_cxx((program, *command[1:]))
    if settings.cxx:
        raise EnvironmentProblem(
            f"{settings.cxx!r} is not a program.",
            where="CXX",
            cure="Unset CXX, or set it to a C++ compiler such as g++.",
        )
    raise EnvironmentProblem(
        f"no C++ compiler: none of {', '.join(CXX_NAMES)} is on the PATH.",
        cure="Install one (apt install g++, dnf install gcc-c++ or conda install gxx), or set CXX.",
    )


@cache
def _examine_cxx(command: tuple[str, ...]) -> CxxCompiler:
    version = _say([*command, "--version"])
    # The predefined macros tell the version and, under -march=native, every instruction set the CPU has: a cache folder
    # shared by two machines never hands one the other's code.
    macros = _say([*command, "-march=native", "-dM", "-E", "-x", "c++", "/dev/null"])
    return CxxCompiler(
        command=command,
        family="clang" if "clang" in version else "gcc",
        version=version.splitlines()[0] if version else "unknown version",
        identity=hashlib.sha256(f"{version}\n{macros}".encode()).hexdigest(),
    )


# --- CUDA


def find_cuda(settings: Settings) -> CudaToolkit:
    """CUDA_HOME if set, else the toolkit that nvcc on the PATH belongs to, else the usual folders."""
    if settings.cuda_home is not None:
        toolkit = _examine_toolkit(settings.cuda_home, "CUDA_HOME is set")
        if toolkit is None:
            raise EnvironmentProblem(
                f"{settings.cuda_home} has no bin/nvcc.",
                where="CUDA_HOME",
                cure="Unset CUDA_HOME, or set it to the folder of a CUDA toolkit, such as /usr/local/cuda.",
            )
        return toolkit
    candidates = ((home, "nvcc is on the PATH") for home in _homes_behind(_nvcc_on_path(settings)))
    usual = ((home, "it is in a usual place") for home in _usual_homes())
    for home, found in (*candidates, *usual):
        if toolkit := _examine_toolkit(home, found):
            return toolkit
    raise EnvironmentProblem(
        "no CUDA toolkit: CUDA_HOME is not set, nvcc is not on the PATH, and there is none in /usr/local/cuda.",
        cure="Install the CUDA toolkit of your torch's version, or set CUDA_HOME. Without it, use --device cpu.",
    )


def has_cuda(settings: Settings) -> bool:
    """Whether `find_cuda` finds one."""
    try:
        find_cuda(settings)
    except EnvironmentProblem:
        return False
    return True


def find_nvrtc(settings: Settings) -> Nvrtc | None:
    """The NVRTC that torch brought, which suits this machine's driver, else the toolkit's; None if neither works."""
    libraries = [path for home in wheel_folders() for path in sorted(home.glob("lib/libnvrtc.so*"), reverse=True)]
    if has_cuda(settings):
        libraries += sorted(find_cuda(settings).home.glob("lib64/libnvrtc.so*"), reverse=True)
    return next((nvrtc for library in libraries if (nvrtc := _examine_nvrtc(library))), None)


@cache
def _examine_nvrtc(library: Path) -> Nvrtc | None:
    # -P keeps the folder of nvrtc.py, with our modules in it, off the child's import path.
    command = (sys.executable, "-P", str(Path(nvrtc_program.__file__)), str(library))
    version = re.fullmatch(r"\d+\.\d+", _say(list(command)))
    return Nvrtc(command, library, version[0]) if version else None


def cuda_include_dirs(settings: Settings) -> tuple[Path, ...]:
    """Folders with cuda_fp16.h and its like, which NVRTC does not bring; pip wheels have them without an nvcc."""
    homes = [settings.cuda_home] if settings.cuda_home else []
    homes += [*_homes_behind(_nvcc_on_path(settings)), *_usual_homes()]
    includes = (home / "include" for home in homes)
    return next(((include,) for include in includes if (include / "cuda_fp16.h").is_file()), ())


def extension_environment(device: Device, settings: Settings) -> dict[str, str]:
    """Variables with which a child process builds an emitted file through torch's load_inline as we would.

    torch takes the folder around nvcc for CUDA_HOME, which is wrong for a wrapper; builds for every architecture unless
    told; and wants `ninja` on the PATH, where a virtual environment that is used but not activated does not put it.
    """
    scripts = sysconfig.get_path("scripts")
    ninja = shutil.which("ninja", path=settings.search_path)
    path = settings.search_path if ninja else f"{settings.search_path}{os.pathsep}{scripts}"
    if device.kind == "cpu":
        return {"PATH": path}
    return {"PATH": path, "CUDA_HOME": str(find_cuda(settings).home), "TORCH_CUDA_ARCH_LIST": arch_list(device)}


def _nvcc_on_path(settings: Settings) -> Path | None:
    found = shutil.which("nvcc", path=settings.search_path)
    return Path(found) if found else None


@cache
def _homes_behind(nvcc: Path | None) -> tuple[Path, ...]:
    """Where nvcc itself says its toolkit is, then where it lies: around a wrapper in /usr/local/bin is none."""
    if nvcc is None:
        return ()
    top = re.search(r"^#\$ TOP=(.+)$", _say([str(nvcc), "--dryrun", "-x", "cu", "/dev/null"]), re.MULTILINE)
    told = (Path(top[1].strip()).resolve(),) if top else ()
    return (*told, nvcc.resolve().parent.parent)


def _usual_homes() -> tuple[Path, ...]:
    return (Path("/usr/local/cuda"), Path("/opt/cuda"), *wheel_folders())


def wheel_folders() -> tuple[Path, ...]:
    """Where pip wheels put CUDA: site-packages/nvidia/cu13 since CUDA 13, nvidia/cuda_nvcc and such before."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    return tuple(folder for root in roots for folder in sorted(root.glob("cu*"), reverse=True))


@cache
def _examine_toolkit(home: Path, found: str) -> CudaToolkit | None:
    nvcc = home / "bin" / "nvcc"
    if not nvcc.is_file():
        return None
    version = re.search(r"release (\d+\.\d+)", _say([str(nvcc), "--version"]))
    return CudaToolkit(home, nvcc, version[1], found) if version else None


def _say(command: list[str]) -> str:
    """What a compiler answers about itself; "" if it does not run."""
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout + answer.stderr
