"""A row and a column spread against each other."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(600))

    def forward(self, row, column):
        return torch.relu(row[None, :] * column[:, None] + self.bias) - 0.1


def get_inputs():
    return [torch.randn(600), torch.randn(500)]


def get_init_inputs():
    return []
