"""The text of a model that pools, for tests that compile its kernels and tests that run them."""

POOLED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.{pool}

    def forward(self, x):
        return self.pool(x)

def get_inputs():
    x = torch.randn{shape}
    x.view(-1)[3], x.view(-1)[x.numel() // 2], x.view(-1)[-1] = {special}
    return [x]

def get_init_inputs():
    return []
"""
