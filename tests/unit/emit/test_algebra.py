"""What was left out by algebra is said in the emitted file."""

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
        self.conv = nn.ConvTranspose2d(4, 8, 3, stride=2, padding=1)

    def forward(self, x):
        y = self.conv(x)
        return {result}

def get_inputs():
    return [torch.randn(2, 4, 16, 16)]

def get_init_inputs():
    return []
"""

RESULTS = {
    "torch.sigmoid(nn.functional.avg_pool2d(y, 2))": "pool before convolution",
    "y.mean((2, 3))": "sum before product",
    "torch.sigmoid(y)": None,
}


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("result", RESULTS)
def test_the_emitted_file_names_the_rules_that_left_something_out(result: str, device: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL.format(result=result))
    (said,) = [line for line in explained(path, device, "emit")["emit"].split("\n") if "algebra " in line] or [""]
    rule = RESULTS[result]
    assert rule in said if rule else not said
