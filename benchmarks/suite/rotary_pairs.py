"""Rotary position embedding on interleaved pairs."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        angles = torch.outer(torch.arange(96.0), 1e4 ** (-torch.arange(0, 32) / 32))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x):
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.cat((even * self.cos - odd * self.sin, even * self.sin + odd * self.cos), dim=-1)


def get_inputs():
    return [torch.randn(8, 8, 96, 64)]


def get_init_inputs():
    return []
