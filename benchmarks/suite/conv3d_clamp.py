"""A convolution over volumes, clamped and divided."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(4, 8, 3)

    def forward(self, x):
        return torch.clamp(self.conv(x), min=-1.0, max=1.0) / 2


def get_inputs():
    return [torch.randn(2, 4, 16, 24, 24)]


def get_init_inputs():
    return []
