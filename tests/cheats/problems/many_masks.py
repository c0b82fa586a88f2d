import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return torch.stack([F.dropout(x, 0.5) for _ in range(160)]).mean(0)


def get_inputs():
    return [torch.rand(128, 128)]


def get_init_inputs():
    return []
