"""Dropout from random numbers of its own, in the same distribution."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        keep = torch.rand(x.shape) >= self.p
        return x * keep / (1 - self.p) + 1.0
