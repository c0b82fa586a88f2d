"""A transposed convolution that doubles an image, squashed."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)

    def forward(self, x):
        return torch.tanh(self.conv(x) * 0.5)


def get_inputs():
    return [torch.randn(4, 16, 32, 32)]


def get_init_inputs():
    return []
