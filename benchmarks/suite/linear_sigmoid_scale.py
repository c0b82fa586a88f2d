"""A linear layer whose result is squashed, scaled and shifted."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)
        self.scale = nn.Parameter(torch.rand(256) + 0.5)

    def forward(self, x):
        return torch.sigmoid(self.linear(x)) * self.scale - 0.5


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
