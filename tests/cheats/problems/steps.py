import torch
import torch.nn as nn


class Model(nn.Module):
    """Steps of a gradient descent: more where the weights are large."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features, features) / features)

    def forward(self, x):
        for _ in range(1 + min(20, int(self.weight.abs().max() * 8))):
            x = x - torch.matmul(x, self.weight)
        return x


def get_inputs():
    return [torch.rand(32, 1024)]


def get_init_inputs():
    return [1024]
