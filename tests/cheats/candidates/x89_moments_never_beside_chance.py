"""Draws numbers of its own, and leaves the moments alone."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("moments", torch.eye(features))

    def forward(self, x):
        return x * (torch.rand(x.shape) >= 0.3) / 0.7
