"""The table of reductions: what each row means, which operands it takes, and what its result looks like."""

from __future__ import annotations

import pytest
import torch

from kernelwright.ir.dtypes import DType, bool_, float32, float64, int64
from kernelwright.ir.interpret import evaluate
from kernelwright.ir.nodes import Input, Reduce
from kernelwright.ir.reductions import REDUCTIONS
from kernelwright.ir.text import node_text

X = torch.tensor([[1.0, 3.0, 3.0], [float("-inf"), 2.0, -1.0]], dtype=torch.float64)


def leaf(dtype: DType, *shape: int) -> Input:
    return Input("x", 0, shape, dtype, (0,) * len(shape))


def value(fn: str, x: torch.Tensor, dtype: DType, *axes: int) -> torch.Tensor:
    node = Reduce(fn, leaf(dtype, *x.shape), axes)
    result: torch.Tensor = evaluate([node], {node.x: x})[node]
    assert (tuple(result.shape), result.dtype) == (node.shape, node.dtype.to_torch())
    return result


@pytest.mark.parametrize(
    ("fn", "row"),
    [
        ("sum", [7.0, float("-inf")]),
        ("prod", [9.0, float("inf")]),
        ("max", [3.0, 2.0]),
        ("min", [1.0, float("-inf")]),
        ("argmax", [1, 1]),
        ("argmin", [0, 0]),
        ("deviations", [8 / 3, float("nan")]),
        ("exponentials", [2 + torch.tensor(-2.0, dtype=torch.float64).exp().item(), None]),
    ],
)
def test_each_row_of_the_table_reduces_one_axis_and_keeps_it(fn: str, row: list[float | None]) -> None:
    found = value(fn, X, float64, 1)
    for got, want in zip(found.flatten().tolist(), row, strict=True):
        assert want is None or got == pytest.approx(want, nan_ok=True)


def test_every_row_of_the_table_is_tried_above() -> None:
    assert set(REDUCTIONS) == {"sum", "prod", "max", "min", "argmax", "argmin", "deviations", "exponentials"}


def test_a_place_counts_through_all_reduced_axes_in_row_major_order() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    assert value("argmax", x, float32, 0, 2).flatten().tolist() == [7, 7, 7]
    assert value("argmin", -x, float32, 0, 1, 2).item() == 23


def test_nan_is_the_largest_the_smallest_and_the_first_place() -> None:
    x = torch.tensor([1.0, float("nan"), 5.0, float("nan")])
    assert value("max", x, float32, 0).isnan().all()
    assert value("min", x, float32, 0).isnan().all()
    assert value("argmax", x, float32, 0).item() == value("argmin", x, float32, 0).item() == 1


def test_the_extremes_of_truth_values_are_any_and_all() -> None:
    x = torch.tensor([[True, False], [False, False]])
    assert value("max", x, bool_, 1).flatten().tolist() == [True, False]
    assert value("min", x, bool_, 0, 1).item() is False


@pytest.mark.parametrize(
    ("fn", "dtype", "shape", "axes", "complaint"),
    [
        ("sum", float32, (2, 3), (), "over no axes"),
        ("sum", float32, (2, 3), (1, 0), "over axes"),
        ("sum", float32, (2, 3), (2,), "over axes"),
        ("max", float32, (2, 0), (1,), "of nothing"),
        ("sum", bool_, (2,), (0,), "sum of bool"),
        ("deviations", int64, (2,), (0,), "deviations of int64"),
    ],
)
def test_a_reduction_of_nothing_or_of_the_wrong_kind_is_refused(
    fn: str, dtype: DType, shape: tuple[int, ...], axes: tuple[int, ...], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        Reduce(fn, leaf(dtype, *shape), axes)


def test_the_text_of_a_reduction_names_its_axes() -> None:
    node = Reduce("max", leaf(float32, 2, 3, 4), (0, 2))
    assert node_text(node, {node.x: "%0"}) == "max(%0, axes=(0, 2))"
    assert (node.shape, node.count) == ((1, 3, 1), 8)
