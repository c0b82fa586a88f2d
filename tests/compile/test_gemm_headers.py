"""The GEMM headers compile alone, and no config that is shipped spills registers or keeps arrays in memory."""

from __future__ import annotations

import itertools
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import kernelwright
from kernelwright.build.cuda import nvcc_command
from kernelwright.build.resources import KernelResources, read_resources
from kernelwright.build.toolchain import has_cuda
from kernelwright.device import resolve
from kernelwright.kernels import (
    gemm_simt,
    gemm_skinny,
    gemm_sm80,
    gemm_sm90,
    gemm_sm90_bricks,
    gemm_sm90_f16x1,
    gemm_sm90_half,
    gemm_sm90_turned,
)
from kernelwright.kernels.choices import GemmConfig
from kernelwright.kernels.gemm_shape import Gemm, Operand
from kernelwright.settings import read_settings

HEADERS = Path(kernelwright.__file__).parent / "kernels" / "cuda"
FOR_EVERY_GPU = (
    "ptx80",
    "gemm_prologue",
    "split",
    "gemm_epilogue",
    "row_pieces",
    "gemm_rows",
    "gemm_sm80",
    "gemm_simt",
    "gemm_skinny",
)
OURS = (
    "ptx90",
    *FOR_EVERY_GPU,
    "gemm_sm90",
    "gemm_sm90_bricks",
    "gemm_sm90_f16x1",
    "gemm_sm90_half",
    "gemm_sm90_late",
    "gemm_sm90_sent",
    "gemm_sm90_turned",
)

pytestmark = pytest.mark.skipif(not has_cuda(read_settings()), reason="no CUDA compiler")

# relu(x + bias[n]) / 2: one operand for each column.
BIAS_RELU = """
struct Epilogue {
    struct Args { float* c; const float* bias; int64_t pitch; };
    template <int N> KW_DEVICE static void store(const Args& args, const float (&x)[N], int64_t m, int64_t n) {
        for (int i = 0; i < N; i++) args.c[m * args.pitch + n + i] = fmaxf(x[i] + __ldg(args.bias + n + i), 0.f) * 0.5f;
    }
};
"""

# gelu(x * row[m] + bias[n]) + residual[m, n]: operands of every class, and a function of many instructions.
GELU_RESIDUAL = """
struct Epilogue {
    struct Args { float* c; const float *bias, *row, *residual; int64_t pitch; };
    template <int N> KW_DEVICE static void store(const Args& args, const float (&x)[N], int64_t m, int64_t n) {
        struct alignas(4 * N) Vector { float v[N]; };
        const Vector bias = *(const Vector*)(args.bias + n);
        const Vector residual = *(const Vector*)(args.residual + m * args.pitch + n);
        const float row = __ldg(args.row + m);
        Vector y;
        for (int i = 0; i < N; i++) {
            const float t = x[i] * row + bias.v[i];
            y.v[i] = 0.5f * t * (1.f + erff(t * 0.70710678f)) + residual.v[i];
        }
        *(Vector*)(args.c + m * args.pitch + n) = y;
    }
};
"""


def nvcc(folder: Path, source: str, *what: str, arch: str = "sm_90a") -> str:
    """Compiles, and gives what ptxas said."""
    (folder / "kernel.cu").write_text(source)
    command = [*nvcc_command(arch, read_settings()), f"-I{HEADERS}", *what, "kernel.cu"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert "C75" not in log, log  # wgmma serialised, or setmaxnreg ignored
    return log


def resources(
    folder: Path, header: str, epilogue: str, entry: str, arch: str = "sm_90a"
) -> tuple[KernelResources, ...]:
    source = f'#include "{header}"\n{epilogue}{entry}'
    return read_resources(nvcc(folder, source, "-cubin", "-o", "kernel.cubin", arch=arch))


def product(
    m: int, n: int, k: int, dtype: str = "float32", vector: int = 4, batches: int = 1, constant: bool = True
) -> Gemm:
    a = Operand(dtype, k, 1, m * k if batches > 1 else 0, constant=False)
    w = Operand(dtype, k, 1, n * k if batches > 1 else 0, constant=constant)
    return Gemm(m, n, k, batches, a, w, vector, 4 * batches * m * n)


@pytest.mark.slow
@pytest.mark.parametrize("header", OURS)
def test_a_header_compiles_alone(header: str, tmp_path: Path) -> None:
    nvcc(tmp_path, f'#include "{header}.cuh"\n', "-c", "-o", "kernel.o")


@pytest.mark.parametrize("header", FOR_EVERY_GPU)
def test_a_header_for_every_gpu_compiles_for_ampere(header: str, tmp_path: Path) -> None:
    nvcc(tmp_path, f'#include "{header}.cuh"\n', "-cubin", "-o", "kernel.cubin", arch="sm_80")


LARGE = product(1024, 8192, 8192)
SM90 = {
    "smallest": (gemm_sm90.Config(128, 32, 1, 1), product(77, 129, 100, vector=1)),
    "default": (gemm_sm90.Config(256, 64, 1, 4), LARGE),
    "between": (gemm_sm90.Config(192, 64, 1, 4), LARGE),
    "64 rows": (gemm_sm90.Config(256, 64, 4, 4, tile_m=64), product(64, 8192, 8192)),
    "64 rows, narrow": (gemm_sm90.Config(128, 32, 1, 1, tile_m=64), product(7, 129, 100, vector=1)),
    "64 columns": (gemm_sm90.Config(64, 64, 1, 2), product(8192, 10, 8192, vector=2)),
    "split, packed and padded": (gemm_sm90.Config(256, 64, 4, 1), product(130, 131, 2949, vector=1, constant=False)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SM90)
def test_the_float32_hopper_kernel_does_not_spill(name: str, tmp_path: Path) -> None:
    does_not_spill(tmp_path, gemm_sm90, BIAS_RELU, *SM90[name])


def does_not_spill(tmp_path: Path, template: ModuleType, epilogue: str, config: GemmConfig, gemm: Gemm) -> None:
    assert template.why_not(config, gemm, resolve("h200")) is None
    found = resources(tmp_path, template.HEADER, epilogue, template.entry("gemm_0", config, gemm, "Epilogue"))
    assert any("multiply_kernel" in kernel.name for kernel in found)
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


def test_a_heavy_epilogue_does_not_make_the_widest_tile_spill(tmp_path: Path) -> None:
    entry = gemm_sm90.entry("gemm_0", gemm_sm90.Config(256, 64, 1, 4), LARGE, "Epilogue")
    found = resources(tmp_path, gemm_sm90.HEADER, GELU_RESIDUAL, entry)
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


SM80 = {
    "smallest": (gemm_sm80.Config(64, 64, 1), product(77, 129, 100, vector=1), BIAS_RELU),
    "default": (gemm_sm80.Config(128, 128, 4), LARGE, GELU_RESIDUAL),
    "high, packed and padded": (
        gemm_sm80.Config(128, 64, 1),
        product(130, 131, 2949, vector=1, constant=False),
        BIAS_RELU,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("device", "arch"), [("a100", "sm_80"), ("a10", "sm_86"), ("l4", "sm_89"), ("h200", "sm_90a")])
@pytest.mark.parametrize("name", SM80)
def test_the_float32_ampere_kernel_does_not_spill(name: str, device: str, arch: str, tmp_path: Path) -> None:
    config, gemm, epilogue = SM80[name]
    assert gemm_sm80.why_not(config, gemm, resolve(device)) is None
    entry = gemm_sm80.entry("gemm_0", config, gemm, "Epilogue")
    claim = f'static_assert(sizeof(kw::gemm_sm80::Shared<gemm_0_Config>) == {gemm_sm80.smem_bytes(config)}, "");\n'
    found = resources(tmp_path, gemm_sm80.HEADER, epilogue, entry + claim, arch)
    assert any("multiply_kernel" in kernel.name for kernel in found)
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


SIMT = {
    "smallest": (gemm_simt.Config(64, 64, 16, False, 1), product(3, 5, 7, "bfloat16", vector=1)),
    "default": (gemm_simt.Config(128, 128, 8, False, 4), LARGE),
    "short sums": (gemm_simt.Config(64, 64, 16, True, 4), product(4096, 4096, 16)),
    "transposed": (
        gemm_simt.Config(128, 128, 8, False, 4),
        replace(LARGE, a=Operand("float32", 1, 1024, 0, False), w=Operand("float32", 1, 8192, 0, True)),
    ),
}


@pytest.mark.parametrize("name", SIMT)
def test_the_cuda_core_kernel_does_not_spill(name: str, tmp_path: Path) -> None:
    config, gemm = SIMT[name]
    assert gemm_simt.why_not(config, gemm, resolve("h200")) is None
    found = resources(tmp_path, gemm_simt.HEADER, BIAS_RELU, gemm_simt.entry("gemm_0", config, gemm, "Epilogue"))
    assert len(found) == 1
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


SKINNY = {
    "one row": (gemm_skinny.Config(1, True, 4, 8, 16), product(1, 1000, 8192)),
    "two rows": (gemm_skinny.Config(2, True, 8, 8, 16), product(2, 8192, 8192)),
    "four rows": (gemm_skinny.Config(4, True, 4, 2, 16), product(4, 8192, 8192)),
    "eight rows": (gemm_skinny.Config(8, True, 4, 1, 16), product(8, 8192, 8192)),
    "eight rows from cache": (gemm_skinny.Config(8, True, 4, 8, 16), product(8, 1000, 8192, "bfloat16")),
    "sixteen columns": (gemm_skinny.Config(16, False, 4, 1, 16), product(8192, 16, 8192)),
    "odd": (gemm_skinny.Config(8, True, 4, 2, 4), product(7, 33, 61, vector=1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SKINNY)
def test_the_kernel_for_few_rows_does_not_spill(name: str, tmp_path: Path) -> None:
    config, gemm = SKINNY[name]
    assert gemm_skinny.why_not(config, gemm, resolve("h200")) is None
    found = resources(tmp_path, gemm_skinny.HEADER, BIAS_RELU, gemm_skinny.entry("gemm_0", config, gemm, "Epilogue"))
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


HALF = {
    "smallest": (gemm_sm90_half.Config(64, 1, 1), product(100, 129, 64, "bfloat16", vector=1)),
    "default": (gemm_sm90_half.Config(256, 2, 4), product(1024, 8192, 8192, "float16")),
}


@pytest.mark.parametrize("name", HALF)
def test_the_half_precision_hopper_kernel_does_not_spill(name: str, tmp_path: Path) -> None:
    config, gemm = HALF[name]
    assert gemm_sm90_half.why_not(config, gemm, resolve("h200")) is None
    entry = gemm_sm90_half.entry("gemm_0", config, gemm, "Epilogue")
    found = resources(tmp_path, gemm_sm90_half.HEADER, BIAS_RELU, entry)
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


F16X1 = {
    "default": (gemm_sm90_f16x1.Config(256, 2, 4), LARGE),
    "packed each time": (gemm_sm90_f16x1.Config(64, 1, 1), product(130, 131, 61, vector=1, batches=3, constant=False)),
}


@pytest.mark.parametrize("name", F16X1)
def test_the_tf32_hopper_kernel_does_not_spill(name: str, tmp_path: Path) -> None:
    does_not_spill(tmp_path, gemm_sm90_f16x1, GELU_RESIDUAL, *F16X1[name])


def test_python_knows_which_rows_go_through_shared_memory(tmp_path: Path) -> None:
    claims = []
    for i, (few, k_warps) in enumerate(itertools.product((2, 4, 8, 16), (1, 2, 4, 8))):
        config = gemm_skinny.Config(few, True, 4, k_warps, 16)
        struct = gemm_skinny.entry(f"gemm_{i}", config, product(few, 64, 64), "Epilogue").split('extern "C"')[0]
        sizes = f"kw::gemm_skinny::Sizes<gemm_{i}_Config>"
        staged = str(gemm_skinny.is_staged(config)).lower()
        claims.append(f'{struct}static_assert({sizes}::staged == {staged}, "");')
        claims.append(f'static_assert(!{staged} || 12 * {few} * {sizes}::k_of_tile <= 48 << 10, "three tiles fit");')
    nvcc(tmp_path, f'#include "{gemm_skinny.HEADER}"\n' + "\n".join(claims), "-cubin", "-o", "kernel.cubin")


def test_libraries_of_one_process_share_no_variables(tmp_path: Path) -> None:
    """A static variable in a template or an inline function is one for the process (STB_GNU_UNIQUE: "u" in nm)."""
    entries = [
        gemm_sm90.entry("gemm_0", gemm_sm90.Config(256, 64, 4, 4), LARGE, "Epilogue"),
        gemm_sm90_half.entry("gemm_1", *HALF["default"], "Epilogue"),
    ]
    includes = f'#include "{gemm_sm90.HEADER}"\n#include "{gemm_sm90_half.HEADER}"\n'
    nvcc(tmp_path, includes + BIAS_RELU + "".join(entries), "-shared", "-Xcompiler=-fPIC", "-o", "kernel.so")
    symbols = subprocess.run(["nm", str(tmp_path / "kernel.so")], capture_output=True, text=True, check=True).stdout
    assert "gemm_1" in symbols
    assert [line for line in symbols.splitlines() if " u " in line] == []


def test_python_and_cpp_agree_on_the_sizes_of_buffers(tmp_path: Path) -> None:
    """Host code alone, so it runs without a GPU."""
    config = gemm_sm90.Config(256, 64, 4, 1)
    gemms = [product(130, 131, 2949, vector=1), product(1024, 8192, 8192), product(8, 769, 65, batches=3, vector=1)]
    lines = "\n".join(
        f'    printf("%ld %ld %ld\\n", kw::split::packed_bytes({g.n}, {g.k}, {g.w_batches}), '
        f"kw::split::packed_bytes({g.n}, {g.k}, {g.w_batches}, 1), "
        f"kw::gemm_sm90::workspace_bytes<gemm_0_Config>({g.m}, {g.n}, {g.batches}));"
        for g in gemms
    )
    entry = gemm_sm90.entry("gemm_0", config, gemms[0], "Epilogue")
    main = f"#include <cstdio>\nint main() {{\n{lines}\n}}\n"
    nvcc(tmp_path, f'#include "{gemm_sm90.HEADER}"\n{BIAS_RELU}{entry}{main}', "-o", "sizes")
    said = subprocess.run([str(tmp_path / "sizes")], capture_output=True, text=True, timeout=60, check=True).stdout
    expected = [
        f"{gemm_sm90.packed_bytes(g)} {gemm_sm90_f16x1.packed_bytes(g)} {gemm_sm90.part_bytes(config, g)}"
        for g in gemms
    ]
    assert said.splitlines() == expected


def turned(m: int, n: int, k: int, batches: int, both: bool = False) -> Gemm:
    """The second operand as `a @ b` has it: n lies along memory. `both`: and m along that of the first."""
    a = Operand("float32", 1 if both else k, m if both else 1, m * k if batches > 1 else 0, constant=False)
    w = Operand("float32", 1, n, n * k if batches > 1 else 0, constant=False)
    return Gemm(m, n, k, batches, a, w, 4 if n % 4 == 0 else 1, 4 * batches * m * n)


# Every kind of config that is offered: columns, rows, k between promotions, one part of k or several.
BRICKS = {
    "default": (gemm_sm90_bricks.Config(256, 64, 1, 4), turned(1024, 1024, 1024, 16)),
    "in parts": (gemm_sm90_bricks.Config(256, 64, 66, 4), turned(256, 256, 524288, 1)),
    "short k": (gemm_sm90_bricks.Config(256, 32, 1, 4), turned(1024, 1024, 128, 1)),
    "narrow": (gemm_sm90_bricks.Config(128, 64, 1, 4), turned(1024, 1024, 1024, 16)),
    "narrow, short k": (gemm_sm90_bricks.Config(128, 32, 1, 4), turned(1024, 1024, 128, 1)),
    "64 rows": (gemm_sm90_bricks.Config(256, 64, 4, 4, tile_m=64), turned(64, 8192, 8192, 1)),
    "64 rows, narrow, short k": (gemm_sm90_bricks.Config(128, 32, 1, 1, tile_m=64), turned(7, 129, 100, 1)),
    "odd, in parts": (gemm_sm90_bricks.Config(128, 64, 4, 1), turned(130, 131, 2949, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BRICKS)
def test_the_kernel_that_reads_bricks_does_not_spill(name: str, tmp_path: Path) -> None:
    does_not_spill(tmp_path, gemm_sm90_bricks, BIAS_RELU, *BRICKS[name])


def test_a_heavy_epilogue_does_not_make_the_widest_tile_of_bricks_spill(tmp_path: Path) -> None:
    entry = gemm_sm90_bricks.entry("gemm_0", *BRICKS["default"], "Epilogue")
    found = resources(tmp_path, gemm_sm90_bricks.HEADER, GELU_RESIDUAL, entry)
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


def test_python_and_cpp_agree_on_the_size_of_bricks(tmp_path: Path) -> None:
    gemms = [turned(130, 131, 2949, 1), turned(1024, 1024, 1024, 16), turned(8, 769, 65, 3)]
    lines = "\n".join(
        f"    {{\n        const auto w = kw::gemm_sm90_bricks::bricks_view(nullptr, {g.n}, {g.k}, {g.w_batches});\n"
        f'        printf("%ld\\n", (long)(w.inverse + (long)w.batches * w.panels * w.padded_rows));\n    }}'
        for g in gemms
    )
    main = f"#include <cstdio>\nint main() {{\n{lines}\n}}\n"
    nvcc(tmp_path, f'#include "{gemm_sm90_bricks.HEADER}"\n{main}', "-o", "sizes")
    said = subprocess.run([str(tmp_path / "sizes")], capture_output=True, text=True, timeout=60, check=True).stdout
    assert [int(line) for line in said.splitlines()] == [gemm_sm90_bricks.packed_bytes(g) for g in gemms]


# The same of products whose first operand is packed, along k or by panels.
TURNED = {
    "default": (gemm_sm90_turned.Config(256, 64, 1, 4), turned(512, 2048, 1024, 128)),
    "default, by panels": (gemm_sm90_turned.Config(256, 64, 1, 4), turned(4096, 4096, 4096, 1, both=True)),
    "in parts": (gemm_sm90_turned.Config(256, 64, 4, 4), turned(256, 256, 8192, 1)),
    "short k": (gemm_sm90_turned.Config(256, 32, 1, 4), turned(1024, 1024, 128, 1)),
    "between": (gemm_sm90_turned.Config(192, 64, 1, 4), turned(1024, 1024, 1024, 16)),
    "narrow": (gemm_sm90_turned.Config(128, 64, 1, 4), turned(1024, 1024, 1024, 16)),
    "64 columns": (gemm_sm90_turned.Config(256, 64, 4, 4, tile_m=64), turned(8192, 64, 8192, 1)),
    "64 rows, one by one": (gemm_sm90_turned.Config(64, 32, 1, 1), turned(60, 132, 100, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TURNED)
def test_the_kernel_that_packs_the_first_operand_does_not_spill(name: str, tmp_path: Path) -> None:
    does_not_spill(tmp_path, gemm_sm90_turned, BIAS_RELU, *TURNED[name])


@pytest.mark.parametrize("name", ["default", "default, by panels"])
def test_a_heavy_epilogue_does_not_make_the_widest_turned_tile_spill(name: str, tmp_path: Path) -> None:
    entry = gemm_sm90_turned.entry("gemm_0", *TURNED[name], "Epilogue")
    found = resources(tmp_path, gemm_sm90_turned.HEADER, GELU_RESIDUAL, entry)
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []
