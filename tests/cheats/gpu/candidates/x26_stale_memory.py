"""Returns memory it never wrote, and hopes that the reference's answer was there."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.empty_like(x)
