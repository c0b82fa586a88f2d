"""CUDA source in, shared library out, by nvcc; no GPU is needed."""

from pathlib import Path

from kernelwright.build.cache import cached, content_key
from kernelwright.build.compile import LOG_NAME, compile_in
from kernelwright.build.resources import KernelResources, read_resources
from kernelwright.build.toolchain import find_cuda, find_cxx
from kernelwright.flags import CUDA_COMPILE_FLAGS, gencode
from kernelwright.settings import Settings, read_settings

__all__ = ["build_cuda_library", "library_resources", "nvcc_command"]

SOURCE, LIBRARY = "kernel.cu", "kernel.so"


def build_cuda_library(source: str, arch: str, settings: Settings | None = None) -> Path:
    """The shared library of `source` for `arch` ("sm_90a"): kernels and the extern "C" functions that launch them."""
    settings = settings or read_settings()
    command = [*nvcc_command(arch, settings), "-shared", "-Xcompiler=-fPIC", SOURCE, "-o", LIBRARY]
    key = content_key("cuda", source, find_cuda(settings).version, find_cxx(settings).version, *command)

    def make(folder: Path) -> None:
        (folder / SOURCE).write_text(source)
        compile_in(folder, command, SOURCE, settings.build_timeout_s)

    return cached(key, LIBRARY, make, settings)


def library_resources(library: Path) -> tuple[KernelResources, ...]:
    """What the kernels of a library made by `build_cuda_library` use."""
    return read_resources((library.parent / LOG_NAME).read_text())


def nvcc_command(arch: str, settings: Settings) -> list[str]:
    """nvcc and every option that shapes device code; what to make is the caller's to add."""
    toolkit = find_cuda(settings)
    host_compiler = [f"-ccbin={find_cxx(settings).command[0]}"] if settings.cxx else []
    return [
        str(toolkit.nvcc),
        *CUDA_COMPILE_FLAGS,
        gencode(arch),
        *host_compiler,
        "-Xptxas=-v",
        # Intermediate files beside the output: a killed nvcc then leaves nothing in /tmp.
        "--objdir-as-tempdir",
    ]
