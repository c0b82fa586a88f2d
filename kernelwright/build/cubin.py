"""CUDA source in, machine code for one architecture out, with what each kernel uses: the quick compile for tuning.

NVRTC comes with CUDA builds of torch and takes 0.1 to 2 s; nvcc takes 0.5 s more, and does the same where NVRTC is
missing and where a source has host code or standard headers in it, which NVRTC does not read. Guard host code with
`#ifndef __CUDACC_RTC__` to be served by NVRTC.
"""

from dataclasses import dataclass
from pathlib import Path

from kernelwright.build.cache import cached, content_key
from kernelwright.build.compile import LOG_NAME, compile_in
from kernelwright.build.cuda import nvcc_command
from kernelwright.build.resources import KernelResources, read_resources
from kernelwright.build.toolchain import Nvrtc, cuda_include_dirs, find_cuda, find_nvrtc, has_cuda
from kernelwright.errors import BuildError
from kernelwright.flags import CUDA_COMPILE_FLAGS
from kernelwright.settings import Settings, read_settings

__all__ = ["Cubin", "compile_cubin"]

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
    nvrtc = find_nvrtc(settings)
    if nvrtc is None:
        return compile_with_nvcc(source, arch, settings)
    try:
        return compile_with_nvrtc(source, arch, nvrtc, settings)
    except BuildError:
        if not has_cuda(settings):
            raise
    return compile_with_nvcc(source, arch, settings)


def compile_with_nvcc(source: str, arch: str, settings: Settings) -> Cubin:
    """The same by nvcc, which reads any source."""
    command = [*nvcc_command(arch, settings), "-cubin", SOURCE, "-o", CUBIN]
    return _compile(source, command, f"nvcc {find_cuda(settings).version}", settings)


def compile_with_nvrtc(source: str, arch: str, nvrtc: Nvrtc, settings: Settings) -> Cubin:
    """The same by NVRTC, whose only level of optimisation is nvcc's -O3."""
    options = [
        f"--gpu-architecture={arch}",
        *(flag for flag in CUDA_COMPILE_FLAGS if flag != "-O3"),
        "--ptxas-options=-v",
        *(f"-I{folder}" for folder in cuda_include_dirs(settings)),
    ]
    return _compile(source, [*nvrtc.command, SOURCE, CUBIN, *options], f"nvrtc {nvrtc.version}", settings)


def _compile(source: str, command: list[str], compiler: str, settings: Settings) -> Cubin:
    def make(folder: Path) -> None:
        (folder / SOURCE).write_text(source)
        compile_in(folder, command, SOURCE, settings.build_timeout_s)

    path = cached(content_key("cubin", source, compiler, *command), CUBIN, make, settings)
    log = (path.parent / LOG_NAME).read_text()
    return Cubin(image=path.read_bytes(), kernels=read_resources(log), compiler=compiler, log=log)
