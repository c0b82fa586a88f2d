"""Data movement as CUDA, run on the host: PyTorch's bits, with every access inside its tensor."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.load import Problem
from kernelwright.load.instantiate import instantiate
from tests.emulator.build import g_plus_plus
from tests.emulator.run import SEED, emulated, emulated_problem
from tests.movement import CASES, EXACT, OUTSIDE, SOURCE

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")


@pytest.fixture(scope="module")
def outputs() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """By case, what the original gives and what the kernels give."""
    problem = Problem("movement", SOURCE, Path("movement.py"))
    instance = instantiate(problem, SEED, "cpu")
    with torch.no_grad():
        wanted = instance.model(*instance.inputs)
    return dict(zip(CASES, zip(wanted, emulated(problem), strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_kernels_move_what_pytorch_moves(name: str, outputs: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> None:
    wanted, got = outputs[name]
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if name in EXACT:
        assert torch.equal(got, wanted)
    else:
        torch.testing.assert_close(got, wanted, rtol=2e-6, atol=8e-6)


def test_an_index_past_the_end_is_not_read() -> None:
    """The emulator would find the access; the result is NaN, of integers the least value, of booleans False."""
    problem = emulated_problem(Problem("outside", OUTSIDE, Path("outside.py")), PLACES=[2**40, -1, -7])
    rows, embedded, numbers, signs, columns = emulated(problem)
    for outside in (rows[0], rows[2], *embedded, columns[:, 0]):
        assert outside.isnan().all()
    assert not rows[1].isnan().any()
    assert not columns[:, 1:].isnan().any()
    assert (numbers[[0, 2]] == torch.iinfo(torch.int64).min).all()
    assert not signs[[0, 2]].any()
