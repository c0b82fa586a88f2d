"""Operands in float16, bfloat16, float32 and float64: each is read in its own type and promoted as PyTorch does."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(features) + 0.5)

    def forward(
        self, activation: torch.Tensor, gradient: torch.Tensor, accumulator: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        update = activation.float() * gradient.float() * self.scale
        accumulator = 0.9 * accumulator + 0.1 * update
        return accumulator, torch.sigmoid(update).to(activation.dtype)


ROWS, FEATURES = 8192, 8192


def get_inputs():
    activation = torch.randn(ROWS, FEATURES, dtype=torch.float16)
    gradient = torch.randn(ROWS, FEATURES, dtype=torch.bfloat16)
    accumulator = torch.randn(ROWS, FEATURES, dtype=torch.float64)
    return [activation, gradient, accumulator]


def get_init_inputs():
    return [FEATURES]
