"""The right output, but the running statistics stay as they were. Must be rejected."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        mean, var = x.mean(dim=(0, 2, 3)), x.var(dim=(0, 2, 3), unbiased=False)
        scale = self.norm.weight / torch.sqrt(var + self.norm.eps)
        return torch.relu((x - mean[:, None, None]) * scale[:, None, None] + self.norm.bias[:, None, None])
