import torch
import torch.nn as nn


class Model(nn.Module):
    """Its inputs are the same in every call."""

    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.ones(96, 256) * 0.5, torch.arange(256 * 96).reshape(256, 96) / 1e4]


def get_init_inputs():
    return []
