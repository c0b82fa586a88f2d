"""More precise than it need be."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)

    def forward(self, x):
        weight, bias = self.fc.weight.double(), self.fc.bias.double()
        return torch.relu(F.linear(x.double(), weight, bias)).float()
