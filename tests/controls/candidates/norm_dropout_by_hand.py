"""State, chance of its own, and an output that is rounding throughout."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)
        self.norm = nn.BatchNorm1d(units)

    def forward(self, x):
        y = self.fc(x)
        mean, variance, n = y.mean(0), y.var(0, unbiased=False), y.shape[0]
        self.norm.num_batches_tracked += 1
        self.norm.running_mean = self.norm.running_mean * 0.9 + 0.1 * mean
        self.norm.running_var = self.norm.running_var * 0.9 + 0.1 * variance * n / (n - 1)
        y = (y - mean) / torch.sqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias
        return torch.relu(y) * (torch.rand(y.shape) >= 0.2) / 0.8, y.mean(0)
