"""A gated feed-forward block without biases."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(128, 256, bias=False)
        self.up = nn.Linear(128, 256, bias=False)
        self.down = nn.Linear(256, 128, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [torch.randn(256, 128)]


def get_init_inputs():
    return []
