"""Scalar, row, column and plane operands meet one image: none of them is ever expanded in memory."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels: int, height: int, width: int):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.7))
        self.channel_scale = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.row_bias = nn.Parameter(torch.randn(height, 1))
        self.column_bias = nn.Parameter(torch.randn(width))
        self.vignette = nn.Parameter(torch.rand(1, 1, height, width))

    def forward(self, image: torch.Tensor, exposure: torch.Tensor) -> torch.Tensor:
        lit = image * exposure[:, None, None, None] * self.vignette
        return torch.tanh((lit + self.row_bias + self.column_bias) * self.channel_scale / self.temperature)


BATCH, CHANNELS, HEIGHT, WIDTH = 32, 64, 256, 256


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH), torch.rand(BATCH)]


def get_init_inputs():
    return [CHANNELS, HEIGHT, WIDTH]
