import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def forward(self, x, target):
        return functional.binary_cross_entropy(x, target)


def get_inputs():
    return [torch.rand(512, 1024), torch.rand(512, 1024)]


def get_init_inputs():
    return []
