import torch
import torch.nn as nn


class Model(nn.Module):
    """The second output is rounding throughout: a mean of what was made to have none."""

    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)
        self.norm = nn.BatchNorm1d(units)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        y = self.norm(self.fc(x))
        return self.dropout(torch.relu(y)), y.mean(0)


def get_inputs():
    return [torch.rand(64, 128)]


def get_init_inputs():
    return [128, 96]
