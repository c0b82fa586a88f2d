"""Other roundings before integers are made."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).square().mean(1, keepdim=True)
        return ((x - mean) / torch.sqrt(variance + 1e-5) * 1e7).round().to(torch.int64)
