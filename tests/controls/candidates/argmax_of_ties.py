"""The largest value and where it stands, the last of equal ones instead of the first."""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        values, backwards = x.flip(1).max(dim=1)
        return values, x.shape[1] - 1 - backwards
