import torch
import torch.nn as nn


class Model(nn.Module):
    """Keeps a moving average of second moments beside a random answer."""

    def __init__(self, features):
        super().__init__()
        self.register_buffer("moments", torch.eye(features))
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        self.moments.mul_(0.9).addmm_(x.t(), x, alpha=0.1 / x.shape[0])
        return self.dropout(x)


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return [256]
