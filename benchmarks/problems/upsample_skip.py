"""A step of a decoder: features upsampled, beside the shuffled pixels of a skip connection, and activated."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """Doubles an image by linear interpolation, another by shuffling pixels, and concatenates them."""

    def __init__(self, slope: float):
        super().__init__()
        self.slope = slope

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        up = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return F.leaky_relu(torch.cat([up, F.pixel_shuffle(skip, 2)], 1), self.slope)


BATCH, CHANNELS, HEIGHT, WIDTH = 64, 64, 256, 256


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH), torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [0.1]
