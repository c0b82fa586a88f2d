"""Keeps the original in its own file and inherits from it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)

    def forward(self, x):
        return torch.relu(self.fc(x))


class ModelNew(Model):
    def forward(self, x):
        return torch.addmm(self.fc.bias, x, self.fc.weight.t()).clamp_(min=0)


def get_inputs():
    return [torch.rand(2, 64)]


def get_init_inputs():
    return [64, 48]
