"""Minus infinity and NaN exactly where the reference has them."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        mask = torch.ones_like(x).tril()
        return (x * mask - 0.1).log()
