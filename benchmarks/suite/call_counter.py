"""A counter in a buffer that decides nothing, but must count."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return torch.sin(x) * torch.cos(x)


def get_inputs():
    return [torch.randn(500, 400)]


def get_init_inputs():
    return []
