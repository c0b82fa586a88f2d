import torch
import torch.nn as nn


class Model(nn.Module):
    """GroupNorm averages to zero: the output is rounding noise, whatever the input."""

    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x).mean(dim=(1, 2, 3))


def get_inputs():
    return [torch.rand(16, 8, 12, 12)]


def get_init_inputs():
    return [8, 4]
