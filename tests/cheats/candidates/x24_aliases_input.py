"""The right answer, in the input's own memory."""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp_(min=0).mul_(2.0)
