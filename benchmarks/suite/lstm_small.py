"""A recurrent layer with a head on its last state."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(24, 32, batch_first=True)
        self.head = nn.Linear(32, 8)

    def forward(self, x):
        states, _ = self.lstm(x)
        return torch.tanh(self.head(states[:, -1]))


def get_inputs():
    return [torch.randn(8, 20, 24)]


def get_init_inputs():
    return []
