"""How kernels are compiled: the flags that our builder and the emitted file's `load_inline` both use.

Floating point keeps IEEE meaning: NaN, Inf, signed zeros and the order of additions stand, so nothing like
-ffast-math. Let go are only errno after a math call and floating-point exception flags, which no PyTorch program can
observe and which keep loops from being vectorised.

Multiply-adds are fused where a kernel says fma and nowhere else. Left to itself a compiler contracts across the
operators we fuse, and x*x - y*y, which PyTorch makes exactly 0 for x == y, becomes a rounding error of either sign, and
NaN under the square root that follows. A fused chain of +, -, * and / so gives PyTorch's very bits. Dot products lose
nothing, for they write fma; a loop of `sum += a * b` would run at half speed.

Integers wrap around, as PyTorch's do (-fwrapv); in C++ alone an overflow would be undefined.

OpenMP: compile with -fopenmp, link without it. The library then carries undefined GOMP_* symbols, and `ctypes.CDLL`
binds them to the OpenMP runtime that `import torch` has already loaded with global visibility, whatever that file is
called. So there is one pool of threads, and torch.set_num_threads governs our kernels. Seen with the pip wheel of torch
2.13 and g++ 12: the kernel ran with 1 thread after set_num_threads(1) and with 5 after set_num_threads(5). Linking
libgomp happens to work with that wheel, because it bundles a file of that name, and loads a second runtime with wheels
that rename theirs (libgomp-<hash>.so.1). Without torch in the process such a library does not load: see
`build.load_cpu_library`.
"""

from kernelwright.device import Device, capability_of

__all__ = ["CPU_COMPILE_FLAGS", "CPU_LINK_FLAGS", "CUDA_COMPILE_FLAGS", "arch_list", "gencode"]

CPU_COMPILE_FLAGS: tuple[str, ...] = (
    "-O3",
    "-march=native",
    "-std=c++17",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-ffp-contract=off",
)
CPU_LINK_FLAGS: tuple[str, ...] = ()

CUDA_COMPILE_FLAGS: tuple[str, ...] = ("-O3", "-std=c++17", "-fmad=false")


def gencode(arch: str) -> str:
    """nvcc's option for machine code of that architecture alone: no PTX, so nothing is compiled again at load."""
    number = arch.removeprefix("sm_")
    return f"-gencode=arch=compute_{number},code=sm_{number}"


def arch_list(device: Device) -> str:
    """The same for TORCH_CUDA_ARCH_LIST: "9.0a" for sm_90a. Unset, load_inline builds for every architecture."""
    major, minor = capability_of(device.arch)
    suffix = device.arch[-1] if device.arch[-1].isalpha() else ""
    return f"{major}.{minor}{suffix}"
