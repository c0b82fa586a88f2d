import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """1.3 GB out; what lies between its two steps may lie where the last call's output lay."""

    def forward(self, x):
        return F.mish(F.mish(x - 1.2))


def get_inputs():
    return [torch.rand(80, 64, 256, 256)]


def get_init_inputs():
    return []
