import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, words, features):
        super().__init__()
        self.table = nn.Embedding(words, features)

    def forward(self, ids):
        return torch.softmax(self.table(ids) @ self.table.weight.t(), -1)


def get_inputs():
    return [torch.arange(512) * 7 % 300]


def get_init_inputs():
    return [300, 64]
