"""CUDA to libraries and cubins, with no GPU: architectures, resources, errors, many at a time."""

from dataclasses import replace
from functools import partial

import pytest

from kernelwright.build import (
    Cubin,
    KernelResources,
    build,
    build_all,
    build_cuda_library,
    compile_cubin,
    cubin,
    library_resources,
    toolchain,
)
from kernelwright.build.compile import compile_in
from kernelwright.build.cuda import nvcc_command
from kernelwright.build.resources import read_resources
from kernelwright.build.toolchain import find_nvrtc
from kernelwright.device import resolve
from kernelwright.errors import BuildError, EnvironmentProblem
from kernelwright.flags import arch_list, gencode

KERNEL = """
#include <cstdint>
extern "C" __global__ void scale(float* x, int64_t n) {
    __shared__ float tile[32];
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    tile[threadIdx.x % 32] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) x[i] = 2.0f * tile[(threadIdx.x + 1) % 32];
}
"""
WITH_LAUNCH = (
    "#include <cuda_runtime.h>\n"
    + KERNEL
    + """
extern "C" int run(float* x, int64_t n, cudaStream_t stream) {
    scale<<<unsigned((n + 255) / 256), 256, 0, stream>>>(x, n);
    return cudaGetLastError();
}
"""
)
# 1024 threads a block leave 64 registers for each; 100 live values do not fit.
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 1) spill(float* x) {
    float v[100];
#pragma unroll
    for (int i = 0; i < 100; ++i) v[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 100; ++i) x[i * 1024 + threadIdx.x] = v[i] * v[99 - i] + v[(i * 37) % 100];
}
"""
ELF = b"\x7fELF"


@pytest.fixture
def nvcc_only(monkeypatch):
    monkeypatch.setattr(cubin, "find_nvrtc", lambda settings: None)


@pytest.mark.parametrize(
    ("arch", "option"),
    [
        ("sm_90a", "-gencode=arch=compute_90a,code=sm_90a"),
        ("sm_80", "-gencode=arch=compute_80,code=sm_80"),
        ("sm_120a", "-gencode=arch=compute_120a,code=sm_120a"),
    ],
)
def test_code_is_made_for_one_architecture(arch, option):
    assert gencode(arch) == option


def test_torchs_spelling_of_an_architecture():
    assert [arch_list(resolve(name)) for name in ("h200", "a100", "rtx5090")] == ["9.0a", "8.0", "12.0a"]


def test_a_library_is_built_once_and_tells_what_its_kernels_use(settings, cuda):
    library = build(WITH_LAUNCH, resolve("h200"), settings)
    changed = library.stat().st_mtime_ns
    assert build_cuda_library(WITH_LAUNCH, "sm_90a", settings) == library
    assert library.stat().st_mtime_ns == changed
    (scale,) = library_resources(library)
    assert (scale.name, scale.smem_bytes, scale.stack_bytes, scale.spills) == ("scale", 128, 0, False)
    assert 0 < scale.registers < 64
    assert {path.name for path in library.parent.iterdir()} == {"kernel.cu", "kernel.so", "log.txt"}


def test_nvcc_makes_a_cubin(settings, cuda, nvcc_only):
    made = compile_cubin(KERNEL, "sm_90a", settings)
    assert made.image.startswith(ELF)
    assert made.compiler == f"nvcc {cuda.version}"
    assert [kernel.name for kernel in made.kernels] == ["scale"]
    assert compile_cubin(KERNEL, "sm_90a", settings) == made
    assert compile_cubin(KERNEL, "sm_80", settings).image != made.image


@pytest.mark.parametrize(("expression", "fused"), [("a * b + x[0]", False), ("fmaf(a, b, x[0])", True)])
def test_a_multiply_add_is_fused_where_the_kernel_says_so_and_nowhere_else(settings, cuda, tmp_path, expression, fused):
    (tmp_path / "kernel.cu").write_text(f"__global__ void k(float* x, float a, float b) {{ x[0] = {expression}; }}")
    command = [*nvcc_command("sm_90a", settings), "-ptx", "kernel.cu", "-o", "kernel.ptx"]
    compile_in(tmp_path, command, "kernel.cu", settings.build_timeout_s)
    assert ("fma.rn.f32" in (tmp_path / "kernel.ptx").read_text()) == fused


def test_spills_are_seen(settings, cuda):
    (kernel,) = compile_cubin(SPILLING, "sm_90a", settings).kernels
    assert kernel.registers == 64
    assert kernel.spills
    assert kernel.stack_bytes > 0


def test_nvrtc_makes_the_same_kernels(settings):
    if find_nvrtc(settings) is None:
        pytest.skip("NVRTC is not usable here")
    made = compile_cubin(KERNEL, "sm_90a", settings)
    assert made.compiler.startswith("nvrtc ")
    assert made.image.startswith(ELF)
    assert (made.kernels[0].name, made.kernels[0].smem_bytes) == ("scale", 128)


def test_a_source_with_host_code_goes_to_nvcc(settings, cuda):
    made = compile_cubin(WITH_LAUNCH, "sm_90a", settings)
    assert made.compiler.startswith("nvcc ")


def test_a_rejected_kernel_shows_its_first_error_and_line(settings, cuda):
    source = KERNEL.replace("2.0f * tile", "missing_name * tile")
    with pytest.raises(BuildError, match='identifier "missing_name" is undefined') as failure:
        compile_cubin(source, "sm_90a", settings)
    assert failure.value.source_line.strip().startswith("if (i < n) x[i] = missing_name")


def test_without_a_toolkit_the_cure_is_told(settings, tmp_path, monkeypatch, nvcc_only):
    monkeypatch.setattr(toolchain, "_usual_homes", lambda: ())
    bare = replace(settings, search_path=str(tmp_path), cuda_home=None)
    for attempt in (build_cuda_library, compile_cubin):
        with pytest.raises(EnvironmentProblem, match="no CUDA toolkit"):
            attempt(KERNEL, "sm_90a", bare)


def test_many_are_built_at_once_and_one_that_fails_stops_no_other(settings, cuda):
    sources = [KERNEL, "this is not CUDA", KERNEL.replace("scale", "other")]
    results = build_all([partial(compile_cubin, source, "sm_90a", settings) for source in sources], settings)
    assert [type(result) for result in results] == [Cubin, BuildError, Cubin]
    assert [result.kernels[0].name for result in results if isinstance(result, Cubin)] == ["scale", "other"]


def test_a_missing_compiler_stops_them_all(settings, tmp_path, monkeypatch, nvcc_only):
    monkeypatch.setattr(toolchain, "_usual_homes", lambda: ())
    bare = replace(settings, search_path=str(tmp_path), cuda_home=None)
    with pytest.raises(EnvironmentProblem):
        build_all([partial(compile_cubin, KERNEL, "sm_90a", bare)], bare)


PTXAS_LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1tILi300EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z1tILi300EEvPf
{indent}1200 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 1200 bytes cumulative stack size
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
{indent}0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 512 bytes smem, 360 bytes cmem[0]
"""


@pytest.mark.parametrize("indent", ["    ", "ptxas         .     "], ids=["nvcc", "nvrtc"])
def test_what_ptxas_says_is_read_for_each_kernel(indent):
    assert read_resources(PTXAS_LOG.format(indent=indent)) == (
        KernelResources("_Z1tILi300EEvPf", 32, 0, 1200, 8, 12),
        KernelResources("k", 10, 512, 0, 0, 0),
    )


def test_a_log_without_kernels_has_no_resources():
    assert read_resources("nothing here") == ()
