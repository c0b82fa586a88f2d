"""A polynomial in double precision by Horner's rule."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.coefficients = [0.5, -1.25, 2.0, 0.75]

    def forward(self, x):
        y = torch.zeros_like(x)
        for c in self.coefficients:
            y = y * x + c
        return y


def get_inputs():
    return [torch.randn(300, 400, dtype=torch.float64)]


def get_init_inputs():
    return []
