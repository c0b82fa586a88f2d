"""LayerNorm with epsilon 1e-6 instead of 1e-5."""

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.norm.weight, self.norm.bias, 1e-6)
