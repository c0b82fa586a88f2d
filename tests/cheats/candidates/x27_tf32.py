"""Rounds the operands of a float32 matmul to TF32."""

import torch
import torch.nn as nn


def tf32(x):
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.matmul(tf32(a), tf32(b))
