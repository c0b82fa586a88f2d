"""Right, and exactly twice as slow."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)

    def forward(self, x):
        torch.relu(self.fc(x))
        return torch.relu(self.fc(x))
