"""Tokens and their places looked up, added and normalised: the tables are read in the kernel that reduces the rows."""

import torch
from torch import nn


class Model(nn.Module):
    """Looks up a row for each token and one for its place, adds both, and normalises the sum."""

    def __init__(self, vocabulary: int, places: int, width: int):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(places, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.norm(self.token(tokens) + self.place(places))


BATCH, TOKENS, VOCABULARY, WIDTH = 16, 512, 30522, 768


def get_inputs():
    return [torch.randint(VOCABULARY, (BATCH, TOKENS))]


def get_init_inputs():
    return [VOCABULARY, TOKENS, WIDTH]
