"""Complex results are judged as pairs of real numbers."""

from __future__ import annotations

import torch

from kernelwright.judge.codec import as_real
from kernelwright.judge.criterion import score, yardstick


def test_a_complex_tensor_is_its_two_parts_and_others_are_themselves() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j])
    assert as_real(x.conj()).tolist() == [[1.0, -2.0], [3.0, 4.0]]
    assert as_real(x.real) is not None
    integers = torch.arange(3)
    assert as_real(integers) is integers


def test_a_complex_result_may_round_and_may_not_be_wrong() -> None:
    exact = torch.randn(64, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    eager = as_real(exact.to(torch.complex64))
    yard = yardstick(eager, as_real(exact), None, None, pooled_rms=0.0, allowance_rms=0.0)
    assert score(eager * (1 + 1e-7), yard).worst < 8
    wrong = eager.clone()
    wrong[5, 1] += 1e-3
    assert score(wrong, yard).worst > 100
