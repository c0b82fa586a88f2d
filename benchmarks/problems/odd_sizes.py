"""Prime lengths in every dimension: no vector of four divides them, and hardly a row starts on a vector boundary."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, columns: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.softplus(x * self.weight + self.bias)
        return torch.minimum(y, torch.exp(-x * x)) + 0.5


BATCH, ROWS, COLUMNS = 61, 1021, 1031


def get_inputs():
    return [torch.randn(BATCH, ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
