import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        return self.dropout(self.fc(x))


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return [256, 64]
