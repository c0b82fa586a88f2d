"""Draws from a generator of its own, whose seed is always the same."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p
        self.generator = torch.Generator().manual_seed(1234)

    def forward(self, x):
        return x * (torch.rand(x.shape, generator=self.generator) >= self.p) / (1 - self.p) + 1.0
