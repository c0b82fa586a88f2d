"""A convolution, then a division, then leaky relu: three passes over the image become one after the convolution."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, divisor: float):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.divisor = divisor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(self.conv(x) / self.divisor, negative_slope=0.01)


BATCH, IN_CHANNELS, OUT_CHANNELS, HEIGHT, WIDTH = 128, 8, 64, 128, 128


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS, 3, 2.0]
