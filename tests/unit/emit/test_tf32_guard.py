"""A file whose convolution has TF32's accuracy by PyTorch's flag says so, and asks for the flag on every call."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.capture import capture
from kernelwright.device import resolve
from kernelwright.emit import emit
from kernelwright.generate import default_choices, generate
from kernelwright.load import load
from kernelwright.plan import Routes, plan, prepared
from kernelwright.simplify import simplify
from kernelwright.tune.routes import may_be_ours
from tests.stages import EXAMPLES

H200 = resolve("h200")

# So many channels that products count: with fewer all three are nearly free.
MODEL = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.rand(8, 64, 128, 128)]


def get_init_inputs():
    return []
"""


def emitted(path: Path, precision: str, tf32: bool) -> str:
    problem = load(path)
    graph = simplify(capture(problem))
    own = frozenset(node for node in prepared(graph).nodes() if may_be_ours(node, H200))
    planned = plan(graph, Routes(own, frozenset(), precision, tf32))
    return emit(generate(planned, default_choices(planned, H200), H200), problem)


@pytest.mark.parametrize(
    ("precision", "tf32", "guarded", "words"),
    [
        ("reference", True, True, "the 11 bits of TF32"),
        ("reference", False, False, "three tensor-core products"),
        ("tf32", False, False, "the 11 bits of TF32"),
    ],
    ids=["flag allows it", "flag forbids it", "user allows it"],
)
def test_the_flag_is_watched_where_it_was_the_reason(
    precision: str, tf32: bool, guarded: bool, words: str, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    text = emitted(tmp_path / "model.py", precision, tf32)
    assert ("torch.backends.cudnn.allow_tf32" in text) == guarded
    assert words in text
    assert "convolution of 64 to 64 channels by 3 x 3" in text


def test_the_flag_is_not_asked_for_where_all_products_are_taken_anyway() -> None:
    text = emitted(EXAMPLES / "conv_divide_leakyrelu.py", "reference", True)
    assert "torch.backends.cudnn.allow_tf32" not in text
    assert "three tensor-core products" in text
