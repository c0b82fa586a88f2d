"""No dropout at all: the right mean, the wrong distribution. Must be rejected."""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return x + 1.0
