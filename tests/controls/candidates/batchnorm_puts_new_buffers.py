"""Running statistics are new tensors after each call, under the old names."""

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
        norm.num_batches_tracked = norm.num_batches_tracked + 1
        norm.running_mean = (1 - norm.momentum) * norm.running_mean + norm.momentum * mean
        norm.running_var = (1 - norm.momentum) * norm.running_var + norm.momentum * var * count / (count - 1)
        scale = norm.weight / torch.sqrt(var + norm.eps)
        return torch.relu((x - mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None])
