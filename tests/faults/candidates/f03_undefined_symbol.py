"""Compiles, but cannot be linked."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = 'extern "C" void nowhere(); extern "C" void call() { nowhere(); }'
LIBRARY = load_inline(
    "nowhere",
    cpp_sources=SOURCE,
    is_python_module=False,
    no_implicit_headers=True,
    extra_ldflags=["-Wl,--no-undefined"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return x
