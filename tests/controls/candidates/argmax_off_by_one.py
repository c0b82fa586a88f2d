"""The right values, every index one too far. Must be rejected."""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        values, indices = x.max(dim=1)
        return values, (indices + 1) % x.shape[1]
