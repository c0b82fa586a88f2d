"""Keeps a scratch buffer between calls, but not its output."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    workspace = torch.empty(31, 37)

    def forward(self, x):
        scratch = torch.clamp(x, min=0, out=self.workspace[: x.shape[0]])
        return scratch * 2.0
