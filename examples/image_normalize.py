"""Bytes to normalised floats: conversion, scaling and per-channel statistics are one pass over the pixels."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, mean: list[float], deviation: list[float]):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(-1, 1, 1))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return (pixels.float() / 255.0 - self.mean) / self.deviation


BATCH, HEIGHT, WIDTH = 16, 384, 384


def get_inputs():
    return [torch.randint(256, (BATCH, 3, HEIGHT, WIDTH), dtype=torch.uint8)]


def get_init_inputs():
    return [[0.45, 0.43, 0.40], [0.25, 0.24, 0.26]]
