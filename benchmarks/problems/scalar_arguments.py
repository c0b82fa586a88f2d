"""Tensors and Python scalars side by side: a float, an integer, a switch and an argument that is not given."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(
        self,
        x: torch.Tensor,
        y: torch.Tensor,
        weight: float,
        power: int,
        negate: bool,
        offset: torch.Tensor | None,
    ) -> torch.Tensor:
        mixed = torch.lerp(x, y, weight) ** power
        if offset is not None:
            mixed = mixed + offset
        return torch.log1p(torch.abs(-mixed if negate else mixed))


ROWS, COLUMNS = 8192, 8192


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS), 0.3, 3, True, None]


def get_init_inputs():
    return []
