"""Writes behind its input."""

import ctypes

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.memset(x.data_ptr() + x.numel() * 4, 0, 64)
        return torch.relu(x) * 2.0
