import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.dropout = nn.Dropout(0.3)
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        return self.norm(self.dropout(x))


def get_inputs():
    return [torch.rand(64, 96)]


def get_init_inputs():
    return [96]
