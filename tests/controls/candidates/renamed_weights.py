"""The same weights in the same order under other names."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        linear = nn.Linear(features, units)
        self.w, self.b = linear.weight, linear.bias

    def forward(self, x):
        return torch.relu(torch.addmm(self.b, x, self.w.t()))
