"""Integer labels and boolean masks among the operands: comparisons, logic and choices in one kernel."""

import torch
from torch import nn


class Model(nn.Module):
    """Squashes the score where a pixel is valid and of the wanted class, keeps the rest, and recodes the labels."""

    def __init__(self, wanted: int, ignored: int):
        super().__init__()
        self.wanted = wanted
        self.ignored = ignored

    def forward(
        self, score: torch.Tensor, label: torch.Tensor, valid: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = valid & (label == self.wanted) & (label != self.ignored)
        code = torch.where(chosen, label * 2 + 1, -label)
        return torch.where(chosen, torch.sigmoid(score), score), code


BATCH, HEIGHT, WIDTH, CLASSES = 8, 640, 640, 4


def get_inputs():
    shape = (BATCH, HEIGHT, WIDTH)
    return [torch.randn(shape), torch.randint(CLASSES, shape), torch.rand(shape) > 0.25]


def get_init_inputs():
    return [1, 3]
