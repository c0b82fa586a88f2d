"""An average over neighbours of squares, and its root."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = 1e-6

    def forward(self, x):
        return torch.sqrt(F.avg_pool2d(x * x, 3, stride=2) + self.eps)


def get_inputs():
    return [torch.randn(4, 12, 64, 64)]


def get_init_inputs():
    return []
