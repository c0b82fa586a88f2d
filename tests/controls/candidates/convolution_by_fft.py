"""A convolution by way of its spectrum."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)

    def forward(self, x):
        height, width = x.shape[2:]
        size = (height + 4, width + 4)
        inputs = torch.fft.rfft2(F.pad(x, (1, 1, 1, 1)), size)
        weights = torch.fft.rfft2(self.conv.weight.flip(2, 3), size)
        output = torch.fft.irfft2(torch.einsum("nchw,ochw->nohw", inputs, weights), size)
        return torch.relu(output[:, :, 2 : 2 + height, 2 : 2 + width] + self.conv.bias[:, None, None])
