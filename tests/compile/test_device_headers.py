"""The device headers under the compilers that read them: each alone, each part alone, and every row of the table."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.build.cubin import compile_with_nvcc, compile_with_nvrtc
from kernelwright.build.cuda import nvcc_command
from kernelwright.build.toolchain import find_cxx, find_nvrtc, has_cuda
from kernelwright.flags import CPU_COMPILE_FLAGS
from kernelwright.ir.dtypes import DTYPES, DType, float32
from kernelwright.ir.scalars import SCALARS, Scalar
from kernelwright.kernels.device import DIRECTORY, Target, inline, parts
from kernelwright.kernels.parts import mentions
from kernelwright.settings import read_settings

HEADERS = sorted(DIRECTORY.glob("*.cuh"))
REAL = tuple(dtype for dtype in DTYPES.values() if dtype.kind != "complex")
ROWS = tuple(row for row in SCALARS.values() if row.name != "cast")
needs_cuda = pytest.mark.skipif(not has_cuda(read_settings()), reason="no CUDA toolkit here")


def compile_cpp(folder: Path, source: str, *options: str) -> str:
    """What the C++ compiler says to the source, which it must accept."""
    (folder / "source.cpp").write_text(source)
    command = [*find_cxx(read_settings()).command, *CPU_COMPILE_FLAGS, *options, "-c", "source.cpp", "-o", "source.o"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[:4000]
    return done.stderr


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_each_header_compiles_alone_for_a_cpu_without_warnings(header: Path, tmp_path: Path) -> None:
    said = compile_cpp(tmp_path, f'#include "{header.name}"\n', f"-I{DIRECTORY}", "-Wall", "-Wextra")
    assert said == ""


@needs_cuda
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_each_header_compiles_alone_with_nvcc(arch: str, tmp_path: Path) -> None:
    for header in HEADERS:
        (tmp_path / f"{header.stem}.cu").write_text(f'#include "{header.name}"\n')
    sources = [f"{header.stem}.cu" for header in HEADERS]
    command = [*nvcc_command(arch, read_settings()), f"-I{DIRECTORY}", "-c", *sources]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:4000]


def isolated_rows(target: Target) -> Iterator[str]:
    """Each row with the text it brings along, in a namespace of its own: what is not brought along is not there."""
    for row in ROWS:
        text = inline([*row.device_names, "KW_DEVICE", "int64_t"], target)
        space = f"kw_{row.name}"
        dtypes = [dtype for dtype in REAL if dtype.kind in row.accepts and not dtype.is_reduced_float]
        functions = "\n".join(device_function(row, dtype) for dtype in dtypes)
        yield (text + functions).replace("namespace kw", f"namespace {space}").replace("kw::", f"{space}::")


def operand_types(row: Scalar, dtype: DType) -> list[str]:
    types = [dtype.compute_cpp] * row.arity
    return ["bool", *types[1:]] if row.name == "where" else types


def device_function(row: Scalar, dtype: DType) -> str:
    result = "bool" if row.result == "bool" else dtype.compute_cpp
    taken = ", ".join(f"{kind} x{i}" for i, kind in enumerate(operand_types(row, dtype)))
    value = row.spell(*(f"x{i}" for i in range(row.arity)))
    return f"KW_DEVICE {result} use_{row.name}_{dtype}({taken}) {{ return {value}; }}\n"


def test_every_row_brings_along_all_it_needs_on_a_cpu(tmp_path: Path) -> None:
    compile_cpp(tmp_path, "".join(isolated_rows("cpu")))


@needs_cuda
def test_every_row_brings_along_all_it_needs_on_a_gpu() -> None:
    compile_with_nvcc("".join(isolated_rows("cuda")), "sm_90a", read_settings())


@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_no_part_needs_a_later_one(target: Target) -> None:
    seen: set[str] = set()
    provided = {name for part in parts(target) for name in part.provides}
    for part in parts(target):
        seen.update(part.provides)
        assert mentions(part) & provided <= seen, f"{part.provides} in {part.header}"


def test_the_text_is_the_same_whatever_the_order_of_the_names() -> None:
    assert inline(["silu", "cast", "load"], "cuda") == inline(["load", "silu", "cast", "silu"], "cuda")


def test_a_gpu_does_not_carry_what_is_for_a_cpu() -> None:
    assert "expf" in inline(["exp"], "cuda")
    assert "exp_reduced" not in inline(["exp"], "cuda")
    assert "expf" not in inline(["exp"], "cpu")
    targets: tuple[Target, ...] = ("cuda", "cpu")
    for target in targets:
        assert "__CUDACC__" not in inline([name for part in parts(target) for name in part.provides], target)


def test_an_unknown_name_is_refused_with_the_cure() -> None:
    with pytest.raises(KeyError, match="no device header provides 'cbrt'"):
        inline(["cbrt"], "cpu")


def kernel(row: Scalar, dtype: DType) -> str:
    """Four neighbours a thread, loaded and stored as vectors, as a pointwise kernel does."""
    types = [dtype.storage_cpp] * row.arity
    if row.name == "where":
        types[0] = "bool"
    result = "bool" if row.result == "bool" else dtype.storage_cpp
    pointers = ", ".join(f"const {kind}* a{i}" for i, kind in enumerate(types))
    loads = " ".join(f"const auto v{i} = kw::load_once<4>(a{i} + t);" for i in range(row.arity))
    lanes = " ".join(f"const auto x{i} = kw::widen({kind}(v{i}[i]));" for i, kind in enumerate(types))
    value = f"const kw::Register<{result}> value = {row.spell(*(f'x{i}' for i in range(row.arity)))};"
    return f"""
extern "C" __global__ void {row.name}_{dtype}({pointers}, {result}* y) {{
    const int64_t t = 4 * (blockIdx.x * int64_t(blockDim.x) + threadIdx.x);
    {loads}
    kw::Vec<{result}, 4> out;
    KW_LANES for (int i = 0; i < 4; ++i) {{ {lanes} {value} out[i] = kw::convert<{result}>(value); }}
    kw::store_once<4>(y + t, out);
}}
"""


def every_kernel(dtype: DType) -> str:
    rows = [row for row in ROWS if dtype.kind in row.accepts]
    names = {name for row in rows for name in row.device_names}
    used = ("load_once", "store_once", "widen", "convert", "Register", "Vec", "KW_LANES", "int64_t")
    return inline(sorted(names | set(used)), "cuda") + "".join(kernel(row, dtype) for row in rows)


@needs_cuda
@pytest.mark.slow
@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_a_kernel_of_every_row_compiles_without_spills(dtype: DType) -> None:
    built = compile_with_nvcc(every_kernel(dtype), "sm_90a", read_settings())
    assert len(built.kernels) == sum(dtype.kind in row.accepts for row in ROWS)
    assert [used.name for used in built.kernels if used.spills] == []
    # The CUDA library reduces large angles with a small table in local memory; nothing else may need any.
    stacked = [used.name for used in built.kernels if used.stack_bytes]
    assert [name for name in stacked if name.split("_")[0] not in ("sin", "cos", "tan")] == []


@pytest.mark.slow
def test_nvrtc_reads_the_same_text() -> None:
    nvrtc = find_nvrtc(read_settings())
    if nvrtc is None:
        pytest.skip("no NVRTC here")
    built = compile_with_nvrtc(every_kernel(float32), "sm_90a", nvrtc, read_settings())
    assert len(built.kernels) == sum("float" in row.accepts for row in ROWS)
