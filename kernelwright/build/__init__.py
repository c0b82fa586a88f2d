"""Source text in, binary out, by content hash: a source that was built before, with the same compiler and flags, is not
built again."""

from kernelwright.build.cpu import build_cpu_library, load_cpu_library
from kernelwright.build.cubin import Cubin, compile_cubin
from kernelwright.build.cuda import build_cuda_library, library_resources
from kernelwright.build.every import build, build_all
from kernelwright.build.resources import KernelResources
from kernelwright.build.toolchain import CudaToolkit, CxxCompiler, extension_environment, find_cuda, find_cxx

__all__ = [
    "Cubin",
    "CudaToolkit",
    "CxxCompiler",
    "KernelResources",
    "build",
    "build_all",
    "build_cpu_library",
    "build_cuda_library",
    "compile_cubin",
    "extension_environment",
    "find_cuda",
    "find_cxx",
    "library_resources",
    "load_cpu_library",
]
