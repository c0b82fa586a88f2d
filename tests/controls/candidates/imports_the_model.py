"""Starts from the problem's own file."""

import torch
from model import Model


class ModelNew(Model):
    def forward(self, x):
        return torch.addmm(self.fc.bias, x, self.fc.weight.t()).clamp_(min=0)
