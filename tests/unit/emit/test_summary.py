"""ModelNew's docstring says what is computed in kernels of ours, products and convolutions first."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.pipeline import explained

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        return {result}

def get_inputs():
    return [torch.randn({shape})]

def get_init_inputs():
    return []
"""

SAID = {
    "a convolution alone": (
        ("self.conv = nn.Conv2d(8, 64, 3, bias=False)", "self.conv(x)", (16, 8, 128, 128)),
        "Model with 1 convolution in 1 kernel.",
    ),
    "a product": (
        ("self.linear = nn.Linear(256, 1024)", "torch.relu(self.linear(x))", (4096, 256)),
        "Model with 1 product and 2 pointwise functions in 1 kernel.",
    ),
    "two products": (
        ("self.linear = nn.Linear(1024, 1024)", "torch.relu(self.linear(self.linear(x)))", (4096, 1024)),
        "Model with 2 products and 3 pointwise functions in 2 kernels.",
    ),
    "a reduction": (
        ("pass", "torch.relu(x).sum(1)", (64, 1000)),
        "Model with 1 reduction and 1 pointwise function in 1 kernel.",
    ),
    "a scan": (("pass", "x.cumsum(1)", (64, 1000)), "Model with 1 scan in 1 kernel."),
}


@pytest.mark.parametrize("name", SAID)
def test_model_new_says_what_its_kernels_compute(name: str, tmp_path: Path) -> None:
    (made, result, shape), said = SAID[name]
    path = tmp_path / "model.py"
    path.write_text(MODEL.format(made=made, result=result, shape=shape))
    assert f'class ModelNew(Model):\n    """{said}"""' in explained(path, "h200", "emit")["emit"]
