"""Batch statistics by hand, running statistics updated as the original does."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        norm = self.norm
        mean, var = x.mean(dim=(0, 2, 3)), x.var(dim=(0, 2, 3), unbiased=False)
        count = x.numel() // x.shape[1]
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(var * count / (count - 1), norm.momentum)
        scale = norm.weight / torch.sqrt(var + norm.eps)
        return torch.relu((x - mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None])
