import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features)

    def forward(self, x):
        return torch.matmul(x, torch.linalg.matrix_exp(self.weight))


def get_inputs():
    return [torch.rand(64, 96)]


def get_init_inputs():
    return [96]
