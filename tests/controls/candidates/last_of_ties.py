"""Of equal maxima the last, where PyTorch takes the first."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        values = x.amax(1)
        places = torch.where(x == values[:, None], torch.arange(x.shape[1]), -1)
        return values, places.amax(1)
