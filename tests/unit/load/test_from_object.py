"""A live model is described by its class and constructor arguments, or refused where those make another model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.errors import UsageError
from kernelwright.load import instantiate, problem_of


class Scaled(nn.Module):
    def __init__(self, width: int, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.width = width
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(x) * self.scale
        return result


class Doubled(Scaled):
    """Its attribute `width` is not the argument of that name."""

    def __init__(self, width: int) -> None:
        super().__init__(width * 2)


def test_constructor_arguments_are_read_back_from_attributes() -> None:
    problem = problem_of(Scaled(4, scale=0.5).eval(), [torch.randn(2, 4)])
    assert "return [[], {'width': 4, 'scale': 0.5}]" in problem.source


def test_arguments_are_described_with_their_range_and_item_by_item() -> None:
    given = [torch.tensor([-3, 4]), [torch.zeros(2) > 0, (torch.zeros(0, 3), float("-inf"), None)], 2.5]
    scope: dict[str, Any] = {}
    exec(problem_of(Scaled(4), given).source, scope)
    assert kinds(scope["get_inputs"]()) == kinds(given)
    assert {int(x) for _ in range(99) for x in scope["get_inputs"]()[0]} == set(range(-3, 5))


def kinds(values: Any) -> Any:
    """What is to be the same of values: everything but the numbers in tensors."""
    if isinstance(values, (list, tuple)):
        return type(values)(map(kinds, values))
    return (values.dtype, values.shape) if isinstance(values, torch.Tensor) else values


def test_a_model_that_its_attributes_do_not_make_again_is_refused() -> None:
    with pytest.raises(UsageError, match="is another model"):
        problem_of(Doubled(2), [torch.randn(2, 4)])
    changed = Scaled(4)
    changed.linear = nn.Linear(4, 4, bias=False)
    with pytest.raises(UsageError, match="is another model"):
        problem_of(changed, [torch.randn(2, 4)])


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(2, 4, 3, 4).to(memory_format=torch.channels_last),
        torch.randn(3, 8)[:, ::2].half(),
        torch.rand(1, 4).expand(3, 4) < 0.5,
        torch.randint(0, 7, (4, 4)).t(),
        torch.randn(3, 4, dtype=torch.complex64),
    ],
    ids=["channels last", "cast", "repeated", "transposed", "complex"],
)
def test_inputs_are_described_in_their_order_of_memory(x: torch.Tensor) -> None:
    (made,) = instantiate(problem_of(Scaled(4), [x]), 0, "cpu").inputs
    assert (made.shape, made.stride(), made.dtype) == (x.shape, x.stride(), x.dtype)
