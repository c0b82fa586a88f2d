"""Pooling, borders and indices: the captured graph gives what the model gives, and leaves nothing to PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.capture import operators, windows
from kernelwright.ir.dtypes import DTYPES
from tests.unit.capture.eager import captured_expressions, valid

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def windows_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "KNOWN", {**operators.KNOWN, **windows.POOLS, **windows.BORDERS})


GEOMETRIES = (
    *("2", "3, 1", "3, 2, 1", "3, 2, 1, ceil_mode=True", "2, 3, ceil_mode=True", "5, 5, 2", "4, 2, 2, ceil_mode=True"),
    "1",
)
MAX_ONLY = ("3, 1, 1, 2", "2, 2, 1, 3", "3, 2, 0, 2, ceil_mode=True")
AVERAGE_ONLY = (
    *("3, 2, 1, count_include_pad=False", "3, 2, 1, True, False", "4, 3, 2, True, True"),
    *("3, 2, 1, divisor_override=7", "2, 1, 1, False, False"),
)

POOLS = (
    *(f"F.max_pool1d(x[..., 0], {g})" for g in (*GEOMETRIES, *MAX_ONLY)),
    *(f"F.max_pool2d(x, {g})" for g in (*GEOMETRIES, *MAX_ONLY, "(2, 3), (1, 2), (0, 1)")),
    *(f"F.max_pool3d(x[None], {g})" for g in ("(1, 3, 2)", "2, 1, 1", "2, 2, 0, 1, True")),
    *(f"F.avg_pool1d(x[..., 0], {g})" for g in (*GEOMETRIES, "3, 2, 1, count_include_pad=False")),
    *(f"F.avg_pool2d(x, {g})" for g in (*GEOMETRIES, *AVERAGE_ONLY, "(2, 3), (1, 2), (0, 1)")),
    *(f"F.avg_pool3d(x[None], {g})" for g in ("(1, 3, 2)", "2, 1, 1", "2, 1, 1, True, False")),
    *("F.adaptive_avg_pool2d(x, (3, 2))", "F.adaptive_avg_pool2d(x, (1, 4))", "F.adaptive_avg_pool1d(x[..., 0], 3)"),
    *("F.max_pool2d(x[0], 3)", "F.max_pool2d(x.relu(), 3, 2, 1)"),
)
BORDERS = (
    *("F.pad(x, (1, 2))", "F.pad(x, (0, 0, 3, 1), value=2.0)", "F.pad(x, (-1, 1, 2, -2))", "F.pad(x, (0, 0))"),
    *("F.pad(F.pad(x, (1, 0)), (0, 1))", "F.pad(F.pad(x, (1, 0), value=1), (0, 1, 1, 0))", "F.pad(x, (1, 1))[..., 2:]"),
    *("F.pad(x, (1, 1)).permute(0, 3, 1, 2) + 1", "F.pad(x.relu(), (0, 1)) * 2"),
    *("x.tril()", "x.triu(1)", "x.tril(-2)", "torch.arange(8, device=x.device) + x", "x * torch.arange(3, 19, 2)"),
    *("torch.where(torch.arange(8) < 3, x, 0)",),
)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64"])
def test_pools_and_borders(tmp_path: Path, dtype: str) -> None:
    x = (torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(3)) * 4).to(DTYPES[dtype].to_torch())
    check(tmp_path, (*POOLS, *BORDERS), x)


def test_pools_of_nan_and_infinities(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 9, 8)
    x[0, 0, 2, 2], x[0, 1, 4, :], x[1, 0] = float("nan"), float("-inf"), float("inf")
    check(tmp_path, POOLS, x)


def check(folder: Path, expressions: tuple[str, ...], x: torch.Tensor) -> None:
    accepted = valid(expressions, x=x)
    assert len(accepted) > len(expressions) // 3
    found = captured_expressions(folder, accepted, x=x)
    left = [target for target in found.targets if x.is_floating_point() or "avg_pool" not in target]
    assert left == [], "only averages of integers are PyTorch's"
    tolerance = 1e-6 if x.dtype in (torch.float32, torch.float64, torch.int64) else 2**-7
    for text, eager, ours in zip(accepted, found.eager(), found.interpreted(), strict=True):
        assert eager.dtype is ours.dtype, text
        torch.testing.assert_close(ours, eager, rtol=tolerance, atol=tolerance, equal_nan=True, msg=text)
