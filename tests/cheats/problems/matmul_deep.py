import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(48, 8192), torch.rand(8192, 48)]


def get_init_inputs():
    return []
