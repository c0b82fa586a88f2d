"""C++ source in, shared library out, for the CPU of this machine."""

import ctypes
from pathlib import Path

from kernelwright.build.cache import cached, content_key
from kernelwright.build.compile import compile_in
from kernelwright.build.toolchain import CxxCompiler, find_cxx
from kernelwright.errors import EnvironmentProblem
from kernelwright.flags import CPU_COMPILE_FLAGS, CPU_LINK_FLAGS
from kernelwright.settings import Settings, read_settings

__all__ = ["build_cpu_library", "load_cpu_library"]

SOURCE, OBJECT, LIBRARY = "kernel.cpp", "kernel.o", "kernel.so"

# clang++ calls __kmpc_*, which only libomp answers, and torch's pip wheels carry libgomp: link clang's own.
LINK_FLAGS = {"gcc": CPU_LINK_FLAGS, "clang": (*CPU_LINK_FLAGS, "-fopenmp")}


def build_cpu_library(source: str, settings: Settings | None = None) -> Path:
    """The shared library of `source`, whose entries are extern "C" and which includes no torch header."""
    settings = settings or read_settings()
    compiler = find_cxx(settings)
    compile_command, link_command = _commands(compiler)
    key = content_key("cpu", source, compiler.identity, *compile_command, *link_command)

    def make(folder: Path) -> None:
        (folder / SOURCE).write_text(source)
        compile_in(folder, compile_command, SOURCE, settings.build_timeout_s)
        compile_in(folder, link_command, SOURCE, settings.build_timeout_s)
        (folder / OBJECT).unlink()

    return cached(key, LIBRARY, make, settings)


def load_cpu_library(path: Path) -> ctypes.CDLL:
    """The library in this process, its OpenMP calls bound to torch's runtime; to the system's, if torch has none."""
    import torch  # noqa: F401  for the OpenMP runtime it brings

    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        if "GOMP_" not in str(error) and "omp_" not in str(error):
            raise
    try:
        ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise EnvironmentProblem(
            "neither torch nor the system has an OpenMP runtime (libgomp.so.1).",
            where=path,
            cure="Install it (Debian, Ubuntu: apt install libgomp1), or use an official build of torch.",
        ) from error
    return ctypes.CDLL(str(path))


def _commands(compiler: CxxCompiler) -> tuple[list[str], list[str]]:
    compile_command = [*compiler.command, *CPU_COMPILE_FLAGS, "-fPIC", "-c", SOURCE, "-o", OBJECT]
    link_command = [*compiler.command, "-shared", OBJECT, *LINK_FLAGS[compiler.family], "-o", LIBRARY]
    return compile_command, link_command
