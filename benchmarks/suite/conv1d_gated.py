"""A dilated convolution in time with a gate, as speech networks have it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(24, 48, 3, padding=2, dilation=2)

    def forward(self, x):
        a, b = self.conv(x).chunk(2, dim=1)
        return torch.tanh(a) * torch.sigmoid(b)


def get_inputs():
    return [torch.randn(4, 24, 400)]


def get_init_inputs():
    return []
