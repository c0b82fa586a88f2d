"""A feed-forward block with a residual: two linear layers whose biases and activations are folded into what follows."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.up(x), approximate="tanh")
        return x + F.hardswish(self.down(hidden))


ROWS, WIDTH, HIDDEN = 2048, 256, 1024


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
