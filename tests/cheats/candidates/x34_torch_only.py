"""Right, and nothing but torch."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0) + torch.clamp(x, min=0)
