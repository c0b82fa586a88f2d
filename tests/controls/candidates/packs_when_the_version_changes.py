"""Turns its weight round once, and again when somebody has written to it."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)
        self.version = -1

    def forward(self, x):
        if self.version != self.fc.weight._version:
            self.version = self.fc.weight._version
            self.packed = self.fc.weight.detach().t().contiguous()
        return torch.relu(torch.addmm(self.fc.bias, x, self.packed))
