"""Prepares its weights ahead, and again when others are loaded."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)
        self.pack()
        self.register_load_state_dict_post_hook(lambda module, keys: module.pack())

    def pack(self):
        self.packed = self.fc.weight.detach().t().contiguous()

    def forward(self, x):
        return torch.relu(x @ self.packed + self.fc.bias)
