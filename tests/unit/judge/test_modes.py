"""Runs under another arithmetic, or with precautions: what they do to a model's results."""

import pytest
import torch
from torch.nn import functional

from kernelwright.judge.modes import OnCpuFirst


def test_what_a_gpu_would_assert_raises_on_the_cpu_first() -> None:
    inside, outside = torch.rand(5), torch.tensor([0.5, 1.5])
    with OnCpuFirst():
        assert torch.equal(
            functional.binary_cross_entropy(inside, inside), functional.binary_cross_entropy(inside, inside)
        )
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            functional.binary_cross_entropy(outside, outside)
        with pytest.raises(IndexError):
            functional.embedding(torch.tensor([7]), torch.rand(3, 2))


def test_trying_an_operator_changes_nothing() -> None:
    x = torch.zeros(3)
    with OnCpuFirst():
        x.index_put_((torch.tensor([1]),), torch.tensor([2.0]), accumulate=True)
        x.scatter_add_(0, torch.tensor([2]), torch.tensor([3.0]))
    assert x.tolist() == [0.0, 2.0, 3.0]
