"""A run of a random graph with running values comes in; it is held to float64, each result by itself."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from kernelwright.ir.interpret import interpret
from tests.property.runs_of_rows import Call, Run

# How often our error may be PyTorch's, which is itself a matter of luck on few elements; and rounding of the result.
LUCK = 4.0
ULPS = 4.0


def check(run: Run, call: Call) -> None:
    """The same bits twice, integers as PyTorch has them, floats as near to float64 as PyTorch's."""
    inputs = list(run.case.tensors)
    got, again = (run.forward(call)(SimpleNamespace(), *inputs) for _ in range(2))
    usual = interpret(run.case.graph, inputs, {})
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    exact = interpret(run.case.wide, wide, {})
    for place, (ours, second, theirs, true) in enumerate(zip(got, again, usual, exact, strict=True)):
        assert ours.numpy().tobytes() == second.numpy().tobytes(), f"result {place} is not the same twice"
        wrong = difference(ours, theirs, true)
        assert not wrong, f"result {place} of graph {run.number}: {wrong}\n{run.text}"


def difference(ours: torch.Tensor, theirs: torch.Tensor, true: torch.Tensor) -> str:
    """What is wrong with ours, if anything."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
    if not ours.is_floating_point():
        return "" if torch.equal(ours, theirs) else f"{ours} instead of {theirs}"
    unlike = ours.isfinite() != theirs.isfinite()
    if unlike.any():
        return f"{int(unlike.sum())} results are finite in one and not in the other"
    ours, theirs, true = (x.double()[theirs.isfinite()] for x in (ours, theirs, true))
    # Each result has its own size, and error: running products differ by many orders of magnitude along a row.
    limit = LUCK * (theirs - true).abs() + ULPS * torch.finfo(torch.float32).eps * true.abs() + 1e-37
    worst = ((ours - true).abs() - limit).max() if len(ours) else torch.tensor(-1.0)
    return "" if bool(worst <= 0) else f"{worst:.3g} further off than PyTorch"
