"""Kullback-Leibler divergence of two distributions given as scores."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = 1e-8

    def forward(self, p, q):
        log_p, log_q = torch.log_softmax(p, -1), torch.log_softmax(q, -1)
        return (log_p.exp() * (log_p - log_q)).sum(-1).mean()


def get_inputs():
    return [torch.randn(600, 128), torch.randn(600, 128)]


def get_init_inputs():
    return []
