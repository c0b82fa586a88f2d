"""LayerNorm by Welford's recurrence, one element after the other."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        mean, squares = torch.zeros(x.shape[0]), torch.zeros(x.shape[0])
        for i in range(x.shape[1]):
            delta = x[:, i] - mean
            mean = mean + delta / (i + 1)
            squares = squares + delta * (x[:, i] - mean)
        deviation = torch.sqrt(squares / x.shape[1] + self.norm.eps)
        return (x - mean[:, None]) / deviation[:, None] * self.norm.weight + self.norm.bias
