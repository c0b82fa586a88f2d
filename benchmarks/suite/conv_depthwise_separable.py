"""A depthwise convolution followed by one over channels."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.point = nn.Conv2d(24, 32, 1)

    def forward(self, x):
        return F.relu6(self.point(F.relu6(self.depth(x))))


def get_inputs():
    return [torch.randn(4, 24, 40, 40)]


def get_init_inputs():
    return []
