"""Weights in another shape: only the seed can make them the same."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        linear = nn.Linear(features, units)
        self.both = nn.Parameter(torch.cat([linear.weight, linear.bias[:, None]], dim=1))

    def forward(self, x):
        ones = torch.ones(x.shape[0], 1)
        return torch.relu(torch.cat([x, ones], dim=1) @ self.both.t())
