"""The right values, laid out column by column."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (torch.relu(x.t().contiguous()) * 2.0).t()
