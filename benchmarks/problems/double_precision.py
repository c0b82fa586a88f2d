"""A Lennard-Jones potential in float64: powers by multiplication, a cutoff by comparison, all in double precision."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, depth: float, radius: float, cutoff: float):
        super().__init__()
        self.depth = depth
        self.radius = radius
        self.cutoff = cutoff

    def forward(self, distance: torch.Tensor) -> torch.Tensor:
        attraction = (self.radius / distance) ** 6
        energy = 4.0 * self.depth * (attraction * attraction - attraction)
        return torch.where(distance < self.cutoff, energy, torch.zeros_like(energy))


PAIRS = 64_000_000


def get_inputs():
    return [0.9 + 3.0 * torch.rand(PAIRS, dtype=torch.float64)]


def get_init_inputs():
    return [1.0, 1.0, 2.5]
