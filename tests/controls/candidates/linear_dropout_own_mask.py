"""Draws a mask of its own, with a generator of its own."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)
        self.own = torch.Generator()
        self.own.seed()

    def forward(self, x):
        y = F.linear(x, self.fc.weight, self.fc.bias)
        return y * (torch.rand(y.shape, generator=self.own) >= 0.3) / 0.7
