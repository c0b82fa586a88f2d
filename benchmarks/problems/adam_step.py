"""An Adam update: four tensors in, three out, with a Python step count among the arguments."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rate: float, beta1: float, beta2: float, epsilon: float):
        super().__init__()
        self.rate = rate
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def forward(
        self, weight: torch.Tensor, gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor, step: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        first = self.beta1 * first + (1 - self.beta1) * gradient
        second = self.beta2 * second + (1 - self.beta2) * gradient * gradient
        first_unbiased = first / (1 - self.beta1**step)
        second_unbiased = second / (1 - self.beta2**step)
        weight = weight - self.rate * first_unbiased / (torch.sqrt(second_unbiased) + self.epsilon)
        return weight, first, second


ROWS, COLUMNS, STEP = 8192, 8192, 10


def get_inputs():
    shape = (ROWS, COLUMNS)
    return [torch.randn(shape), torch.randn(shape), 0.1 * torch.randn(shape), 0.01 * torch.rand(shape), STEP]


def get_init_inputs():
    return [1e-3, 0.9, 0.999, 1e-8]
