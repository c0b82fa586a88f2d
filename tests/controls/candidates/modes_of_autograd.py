"""Calls with gradients, then without: what it gives carries neither."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)

    def forward(self, x):
        with torch.enable_grad():
            product = self.fc(x)
        with torch.inference_mode():
            return torch.relu(product)
