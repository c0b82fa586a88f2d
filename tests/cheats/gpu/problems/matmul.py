import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(1024, 2048), torch.rand(2048, 1024)]


def get_init_inputs():
    return []
