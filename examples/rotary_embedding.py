"""Rotary positions for queries and keys: two halves turned by tables of cosines, then joined again."""

import torch
from torch import nn


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1)


class Model(nn.Module):
    def __init__(self, tokens: int, head_width: int, base: float):
        super().__init__()
        frequency = base ** (-torch.arange(0, head_width, 2) / head_width)
        angle = torch.outer(torch.arange(tokens), frequency)
        self.register_buffer("cosine", angle.cos())
        self.register_buffer("sine", angle.sin())

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return rotated(query, self.cosine, self.sine), rotated(key, self.cosine, self.sine)


BATCH, HEADS, TOKENS, HEAD_WIDTH = 4, 16, 1024, 64


def get_inputs():
    return [torch.randn(BATCH, HEADS, TOKENS, HEAD_WIDTH) for _ in range(2)]


def get_init_inputs():
    return [TOKENS, HEAD_WIDTH, 10_000.0]
