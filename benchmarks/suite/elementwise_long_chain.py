"""Twelve pointwise functions one after another."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = 1.1

    def forward(self, x):
        y = torch.sin(x) + torch.cos(x * self.a)
        y = torch.exp(-y.abs()) * 2 - 1
        y = F.softplus(y) + torch.atan(x)
        return torch.clamp(y * y, max=4.0).sqrt()


def get_inputs():
    return [torch.randn(600, 600)]


def get_init_inputs():
    return []
