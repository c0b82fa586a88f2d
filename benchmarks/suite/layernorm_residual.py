"""A residual sum, normalised and shifted."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(256)

    def forward(self, x, y):
        return self.norm(x + y) * 0.5 + y


def get_inputs():
    return [torch.randn(512, 256), torch.randn(512, 256)]


def get_init_inputs():
    return []
