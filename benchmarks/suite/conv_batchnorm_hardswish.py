"""A convolution with batch statistics, as a mobile network has it."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)

    def forward(self, x):
        return F.hardswish(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(8, 8, 40, 40)]


def get_init_inputs():
    return []
