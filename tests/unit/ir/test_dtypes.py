"""Element types: names, sizes, ranges and the way to torch and back."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from kernelwright.ir import dtypes
from kernelwright.ir.dtypes import DTYPES, DType, by_name, from_torch

EVERY = tuple(DTYPES.values())


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_a_dtype_goes_to_torch_and_back_as_the_same_object(dtype: DType) -> None:
    assert from_torch(dtype.to_torch()) is dtype
    assert by_name(dtype.name) is dtype
    assert str(dtype.to_torch()) == f"torch.{dtype}"


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_size_and_kind_are_torchs(dtype: DType) -> None:
    kind = dtype.to_torch()
    assert dtype.itemsize == kind.itemsize
    assert (dtype.kind == "float") == kind.is_floating_point
    assert (dtype.kind == "complex") == kind.is_complex


@pytest.mark.parametrize("dtype", [d for d in EVERY if d.kind == "int"], ids=str)
def test_the_range_of_integers_is_torchs(dtype: DType) -> None:
    info = torch.iinfo(dtype.to_torch())
    assert (dtype.lowest, dtype.highest) == (info.min, info.max)


def test_floats_range_to_infinity_and_bools_from_false_to_true() -> None:
    assert (dtypes.float16.lowest, dtypes.float16.highest) == (float("-inf"), float("inf"))
    assert (dtypes.bool_.lowest, dtypes.bool_.highest) == (False, True)


def test_complex_numbers_have_no_range() -> None:
    with pytest.raises(ValueError, match="not ordered"):
        _ = dtypes.complex64.lowest


def test_only_16_bit_floats_are_computed_in_another_type_than_stored() -> None:
    assert [d.name for d in EVERY if d.is_reduced_float] == ["float16", "bfloat16"]
    assert {d.compute_cpp for d in EVERY if d.is_reduced_float} == {"float"}


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"no element type is called 'float8'.*float32"):
        by_name("float8")


def test_dtypes_and_scalars_are_read_without_torch() -> None:
    program = "import sys, kernelwright.ir.dtypes, kernelwright.ir.scalars; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
