"""Constants and names in C++: the very bits PyTorch has, and no word that C++ or the templates have taken."""

from __future__ import annotations

import ctypes
import math
import re
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.build import build_cpu_library, load_cpu_library
from kernelwright.generate.literals import camel, identifier, literal, local
from kernelwright.ir.dtypes import DTYPES, DType, bfloat16, bool_, float16, float32, float64, int8, int32, int64, uint8


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, float32, "1.0f"),
        (0.1, float32, "0.1f"),
        (-0.0, float32, "-0.0f"),
        (20.0, float32, "20.0f"),
        (1e-7, float32, "1e-07f"),
        (0.1, float64, "0.1"),
        (3.0, float64, "3.0"),
        (True, bool_, "true"),
        (7, int32, "7"),
        (7, int64, "int64_t(7)"),
        (-7, int8, "int8_t(-7)"),
        (255, uint8, "uint8_t(255)"),
    ],
)
def test_a_constant_reads_as_one_would_write_it(value: float, dtype: DType, text: str) -> None:
    assert literal(value, dtype) == text


def as_float(text: str) -> float:
    """What C++ makes of a float literal."""
    bits = re.fullmatch(r"kw::bits_(float|double)\(0x([0-9a-f]+)u?l*\)", text)
    if bits is None:
        return (
            struct.unpack("<f", struct.pack("<f", float(text.removesuffix("f"))))[0] if text[-1] == "f" else float(text)
        )
    code = ("<f", "<I") if bits[1] == "float" else ("<d", "<Q")
    return struct.unpack(code[0], struct.pack(code[1], int(bits[2], 16)))[0]


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
@given(value=st.floats(allow_nan=True, allow_infinity=True) | st.floats(-70000, 70000) | st.floats(width=16))
def test_a_float_is_the_one_pytorch_has_in_a_tensor_of_that_dtype(dtype: DType, value: float) -> None:
    expected = torch.tensor(value, dtype=dtype.to_torch()).double()
    got = torch.tensor(as_float(literal(value, dtype)), dtype=torch.float64)
    assert torch.equal(torch.signbit(got), torch.signbit(expected)) or math.isnan(value)
    assert torch.equal(got, expected) or (got.isnan() and expected.isnan())


def test_the_extremes_of_every_integer_type_compile_and_stay_what_they_are() -> None:
    kinds = [dtype for dtype in DTYPES.values() if dtype.kind == "int"]
    lines = [
        f'extern "C" {d.compute_cpp} {d.name}_{end}() {{ static_assert(sizeof({literal(value, d)}) == {d.itemsize}); '
        f"return {literal(value, d)}; }}"
        for d in kinds
        for end, value in (("low", d.lowest), ("high", d.highest))
    ]
    library = load_cpu_library(build_cpu_library("#include <cstdint>\n" + "\n".join(lines)))
    for dtype in kinds:
        for end, value in (("low", dtype.lowest), ("high", dtype.highest)):
            function = getattr(library, f"{dtype.name}_{end}")
            function.restype = getattr(ctypes, f"c_{dtype.name}")
            assert function() == value


@pytest.mark.parametrize(
    "name",
    ["double", "row", "stream", "guard", "error", "N", "Args", "operator", "NULL", "int64_t", "kw", "row_"],
)
def test_a_word_that_is_taken_gets_an_underscore(name: str) -> None:
    assert identifier(name) == f"{name}_"


def test_a_free_name_stays() -> None:
    assert identifier("weight") == "weight"
    assert local("weight_") == "weight_"


def test_what_a_function_calls_its_own_gets_an_underscore() -> None:
    assert [local(name) for name in ("x", "row", "t3", "late")] == ["x_", "row_", "t3_", "late_"]


def test_two_names_stay_two() -> None:
    for change in (identifier, local):
        names = ["x", "x_", "x__", "row", "row_", "t0", "t0_"]
        assert len({change(name) for name in names}) == len(names)


def test_a_kernels_name_becomes_a_structs() -> None:
    assert camel("add_mul_relu_kernel") == "AddMulRelu"
    assert camel("add_kernel_2") != camel("add_kernel")
