"""Writes into memory that it has given out before, if nobody holds that any more."""

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)
        self.given = []

    def forward(self, x):
        shape = (x.shape[0], self.fc.out_features)
        held_here_only = 2 + sys.getrefcount(object())
        for output in self.given:
            if sys.getrefcount(output) < held_here_only + 1 and output.shape == shape:
                break
        else:
            output = torch.empty(shape)
            self.given.append(output)
        torch.addmm(self.fc.bias, x, self.fc.weight.t(), out=output)
        return output.clamp_(min=0)
