"""CUDA source in, machine code for one architecture out, with what each kernel uses: the quick compile for tuning.

NVRTC (through cuda.bindings, which CUDA builds of torch bring) takes 0.06 to 2 s and no process; nvcc does the same
where NVRTC is missing, and where a source has host code or standard headers in it, which NVRTC does not read. Guard
host code with `#ifndef __CUDACC_RTC__` to be served by NVRTC.
"""

import ctypes
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelwright.build.cache import cached, content_key
from kernelwright.build.compile import LOG_NAME, compile_in, rejected
from kernelwright.build.cuda import nvcc_command
from kernelwright.build.resources import KernelResources, read_resources
from kernelwright.build.toolchain import cuda_include_dirs, find_cuda, wheel_folders
from kernelwright.errors import BuildError, EnvironmentProblem
from kernelwright.flags import CUDA_COMPILE_FLAGS
from kernelwright.settings import Settings, read_settings

__all__ = ["Cubin", "compile_cubin", "nvrtc_version"]

SOURCE, CUBIN = "kernel.cu", "kernel.cubin"


@dataclass(frozen=True, slots=True)
class Cubin:
    """image     what cuModuleLoadData takes
    kernels   what each kernel uses
    compiler  "nvrtc 13.0" or "nvcc 13.0"
    log       everything the compiler said
    """

    image: bytes
    kernels: tuple[KernelResources, ...]
    compiler: str
    log: str


def compile_cubin(source: str, arch: str, settings: Settings | None = None) -> Cubin:
    """Machine code of `source` for `arch` ("sm_90a"), by NVRTC if it can, else by nvcc."""
    settings = settings or read_settings()
    if nvrtc_version() is None:
        return compile_with_nvcc(source, arch, settings)
    try:
        return compile_with_nvrtc(source, arch, settings)
    except BuildError:
        try:
            find_cuda(settings)
        except EnvironmentProblem:
            pass
        else:
            return compile_with_nvcc(source, arch, settings)
        raise


def compile_with_nvcc(source: str, arch: str, settings: Settings) -> Cubin:
    """The same by nvcc, which reads any source."""
    version = find_cuda(settings).version
    command = [*nvcc_command(arch, settings), "-cubin", SOURCE, "-o", CUBIN]

    def make(folder: Path) -> None:
        (folder / SOURCE).write_text(source)
        compile_in(folder, command, SOURCE, settings.build_timeout_s)

    key = content_key("cubin", source, version, *command)
    return _read(cached(key, CUBIN, make, settings), compiler=f"nvcc {version}")


def compile_with_nvrtc(source: str, arch: str, settings: Settings) -> Cubin:
    """The same by NVRTC, in this process."""
    options = [
        f"--gpu-architecture={arch}",
        *(flag for flag in CUDA_COMPILE_FLAGS if flag.startswith("-std")),  # -O3 is NVRTC's only level
        "--ptxas-options=-v",
        *(f"-I{folder}" for folder in cuda_include_dirs(settings)),
    ]
    version = nvrtc_version() or "missing"

    def make(folder: Path) -> None:
        (folder / SOURCE).write_text(source)
        image, log = _run_nvrtc(source, options)
        (folder / LOG_NAME).write_text(f"$ nvrtc {' '.join(options)}\n{log}")
        if image is None:
            raise rejected(log, source, where=f"{SOURCE} (NVRTC)")
        (folder / CUBIN).write_bytes(image)

    key = content_key("cubin", source, version, *options)
    return _read(cached(key, CUBIN, make, settings), compiler=f"nvrtc {version}")


def _read(path: Path, compiler: str) -> Cubin:
    log = (path.parent / LOG_NAME).read_text()
    return Cubin(image=path.read_bytes(), kernels=read_resources(log), compiler=compiler, log=log)


# --- NVRTC

# NVRTC has no standard library; these are the parts of it that device code includes. 64 bits are `long`, as on every
# 64-bit Linux: with `long long` the same kernel would have another name than nvcc gives it.
FIXED_WIDTH = (
    "\n".join(
        f"typedef {signedness}{kind} {prefix}int{bits}_t;"
        for prefix, signedness in (("", "signed "), ("u", "unsigned "))
        for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))
    )
    + "\ntypedef unsigned long uintptr_t;\ntypedef long intptr_t;\n"
)
STANDARD_HEADERS = {"cstdint": FIXED_WIDTH, "stdint.h": FIXED_WIDTH, "cstddef": "", "stddef.h": ""}


@cache
def nvrtc_version() -> str | None:
    """ "13.0", or None where NVRTC cannot be used."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return None
    _load_builtins()
    try:
        from cuda.bindings import nvrtc

        status, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError):  # the bindings are there, the library is not
        return None
    return f"{major}.{minor}" if status == nvrtc.nvrtcResult.NVRTC_SUCCESS else None


def _load_builtins() -> None:
    """libnvrtc opens its builtins by bare name, which finds them in a pip wheel only if they are loaded already."""
    for folder in wheel_folders():
        for library in sorted(folder.glob("lib/libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _run_nvrtc(source: str, options: list[str]) -> tuple[bytes | None, str]:
    """The cubin, None if the source was rejected, and the log."""
    from cuda.bindings import nvrtc

    names = [name.encode() for name in STANDARD_HEADERS]
    texts = [text.encode() for text in STANDARD_HEADERS.values()]
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), SOURCE.encode(), len(names), texts, names)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return None, f"nvrtcCreateProgram failed with {status!r}"
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        _, log_size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytearray(log_size)
        nvrtc.nvrtcGetProgramLog(program, log)
        text = log.rstrip(b"\0 \n").decode(errors="replace") + "\n"
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return None, text
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        image = bytearray(size)
        nvrtc.nvrtcGetCUBIN(program, image)
        return bytes(image), text
    finally:
        nvrtc.nvrtcDestroyProgram(program)
