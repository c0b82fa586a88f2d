"""F(2x2, 3x3): fewer products, other rounding."""

import torch
import torch.nn as nn
import torch.nn.functional as F

INPUT = torch.tensor([[1.0, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
WEIGHT = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
OUTPUT = torch.tensor([[1.0, 1, 1, 0], [0, 1, -1, -1]])


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)

    def forward(self, x):
        tiles = F.pad(x, (1, 1, 1, 1)).unfold(2, 4, 2).unfold(3, 4, 2)
        weight = torch.einsum("ij,ocjk,lk->ocil", WEIGHT, self.conv.weight, WEIGHT)
        turned = torch.einsum("ij,ncxyjk,lk->ncxyil", INPUT, tiles, INPUT)
        product = torch.einsum("ocil,ncxyil->noxyil", weight, turned)
        output = torch.einsum("ij,noxyjk,lk->noxiyl", OUTPUT, product, OUTPUT)
        return torch.relu(output.reshape(x.shape[0], -1, *x.shape[2:]) + self.conv.bias[:, None, None])
