import torch
import torch.nn as nn

N = 192


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(N, 1024), torch.rand(1024, N)]


def get_init_inputs():
    return []
