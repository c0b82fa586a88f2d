"""The right answer, but the input is overwritten on the way."""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp_(min=0) * 2.0
