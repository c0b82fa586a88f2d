"""A sort whose last place in each row is wrong. Must be rejected."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, score, noise):
        perturbed = torch.tanh(score * 0.5) + 0.1 * noise
        ordered, index = torch.sort(perturbed, dim=-1, descending=True)
        index[:, -1] = index[:, -2]
        return torch.relu(ordered) * (1.0 / torch.log2(2.0 + index.float())), index
