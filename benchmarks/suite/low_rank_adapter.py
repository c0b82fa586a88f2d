"""A frozen linear layer with a low-rank correction."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(192, 192)
        self.a = nn.Linear(192, 8, bias=False)
        self.b = nn.Linear(8, 192, bias=False)

    def forward(self, x):
        return self.base(x) + 0.25 * self.b(self.a(x))


def get_inputs():
    return [torch.randn(256, 192)]


def get_init_inputs():
    return []
