import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        y = nn.functional.layer_norm(x, x.shape[1:])
        return (y * 1e7).round().to(torch.int64)


def get_inputs():
    return [torch.rand(32, 256)]


def get_init_inputs():
    return []
