"""The same sort of values that are rounded differently: near ties change places, and so does what hangs on them."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, score, noise):
        t = torch.expm1(score.clamp(-20, 20))
        perturbed = t / (t + 2) + noise / 10
        ordered, index = torch.sort(perturbed, dim=-1, descending=True)
        return torch.relu(ordered) / torch.log2(2.0 + index.float()), index
