"""A soft maximum minus each score."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.margin = 0.1

    def forward(self, x):
        return torch.logsumexp(x, dim=-1, keepdim=True) - x + self.margin


def get_inputs():
    return [torch.randn(600, 256)]


def get_init_inputs():
    return []
