"""The last of equal elements, where the problem's own data have many."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.shape[1] - 1 - torch.argmax(x.flip(1), dim=1), x.amax(1)
