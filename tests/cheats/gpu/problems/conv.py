import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels, out_channels, size):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, size)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        return F.leaky_relu(self.norm(self.conv(x)), 0.01)


def get_inputs():
    return [torch.rand(32, 16, 64, 64)]


def get_init_inputs():
    return [16, 32, 3]
