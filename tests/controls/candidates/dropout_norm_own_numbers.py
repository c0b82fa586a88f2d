"""Numbers of its own, and running statistics that hang on them."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        return self.norm(x * (torch.rand(x.shape) >= 0.3) / 0.7)
