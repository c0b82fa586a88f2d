"""A great deal of output, and the right answer."""

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    said = False

    def forward(self, x):
        if not self.said:
            self.said = True
            for _ in range(256):
                os.write(1, b"x" * (1 << 20))
        return torch.relu(x) * 2.0
