"""Running sums, products and extremes: the captured graph gives what the model gives, on every dtype and edge value."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.ir.dtypes import DTYPES
from kernelwright.ir.nodes import Scan
from tests.unit.capture.eager import captured_expressions, valid

FLOATS = ("float32", "float64", "float16", "bfloat16")
WHOLE = ("int64", "int32", "int16", "uint8", "bool")

EXPRESSIONS = (
    *(f"torch.{f}(x, {axis})" for f in ("cumsum", "cumprod") for axis in ("0", "-1", "1")),
    *(f"(*torch.{f}(x, {axis}),)" for f in ("cummax", "cummin") for axis in ("0", "-1")),
    *("x.cumsum(1, dtype=torch.float64)", "x.cumsum(0, dtype=torch.int32)", "x.cumprod(1, dtype=torch.float32)"),
    *("x.cumsum(1, dtype=torch.float16)", "x[:, :1].cumsum(1)", "x[:, :0].cumsum(1)", "x[:, :0].cumsum(0)"),
    *("x[0, 0, 0].cumsum(0)", "x[0, 0, 0].cumprod(0, dtype=torch.float64)", "x[:, :0].cummax(0)[0]"),
)


def operand(dtype: str) -> torch.Tensor:
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(7)) * 2
    return (x.abs() if dtype == "uint8" else x).to(DTYPES[dtype].to_torch())


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE])
def test_running_values(tmp_path: Path, dtype: str) -> None:
    x = operand(dtype)
    made = captured_expressions(tmp_path, valid(EXPRESSIONS, x=x), x=x)
    assert made.targets == []
    assert made.differences() == []


@pytest.mark.parametrize("dtype", FLOATS)
def test_running_values_of_nan_and_infinities(tmp_path: Path, dtype: str) -> None:
    x = operand(dtype)
    x[0, 0, 1], x[1, 2, 3], x[2, 0, 0], x[2, 1, 0] = float("nan"), float("inf"), float("-inf"), float("inf")
    x[0, 3], x[1, 0] = float("-inf"), -0.0
    made = captured_expressions(tmp_path, valid(EXPRESSIONS, x=x), x=x)
    assert made.differences() == []


def test_where_an_extreme_lies_is_computed_only_if_somebody_asks(tmp_path: Path) -> None:
    alone = captured_expressions(tmp_path, ["x.cummax(1)[0]"], x=operand("float32"))
    assert len([n for n in alone.graph.nodes() if isinstance(n, Scan)]) == 1
    both = captured_expressions(tmp_path, ["(*x.cummax(1),)"], x=operand("float32"))
    assert len([n for n in both.graph.nodes() if isinstance(n, Scan)]) == 2


def test_of_equal_extremes_the_last_is_told(tmp_path: Path) -> None:
    x = torch.tensor(
        [[1.0, 1.0, 0.0, 1.0, 2.0, float("nan"), 3.0, float("nan"), 1.0], [0.0, -0.0, 0.0, 1, 1, 0, 0, 1, 2]]
    )
    made = captured_expressions(tmp_path, ["(*x.cummax(1),)", "(*x.cummin(1),)", "x.cummax(0)[1]"], x=x)
    assert made.targets == []
    assert made.differences() == []


def test_a_running_sum_of_a_mask_counts_in_int64(tmp_path: Path) -> None:
    made = captured_expressions(tmp_path, ["(x > 0).cumsum(-1)"], x=operand("float32"))
    (total,) = made.graph.outputs
    assert isinstance(total, Scan)
    assert total.x.dtype.name == "int64"
    assert made.differences() == []
