"""One operand is channels-first, the other channels-last, a third transposed: read as they lie, without copies."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, first: torch.Tensor, last: torch.Tensor, turned: torch.Tensor) -> torch.Tensor:
        blended = first + last.permute(0, 3, 1, 2)
        return torch.relu(blended) * torch.sigmoid(turned.transpose(2, 3))


BATCH, CHANNELS, HEIGHT, WIDTH = 16, 32, 96, 96


def get_inputs():
    first = torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)
    last = torch.randn(BATCH, HEIGHT, WIDTH, CHANNELS)
    turned = torch.randn(BATCH, CHANNELS, WIDTH, HEIGHT)
    return [first, last, turned]


def get_init_inputs():
    return []
