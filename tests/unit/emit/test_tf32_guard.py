"""A file whose convolution has TF32's accuracy by PyTorch's flag says so, and asks for the flag on every call."""

from __future__ import annotations

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


def emitted(precision: str, tf32: bool) -> str:
    problem = load(EXAMPLES / "conv_divide_leakyrelu.py")
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
def test_the_flag_is_watched_where_it_was_the_reason(precision: str, tf32: bool, guarded: bool, words: str) -> None:
    text = emitted(precision, tf32)
    assert ("torch.backends.cudnn.allow_tf32" in text) == guarded
    assert words in text
    assert "convolution of 8 to 64 channels by 3 x 3" in text
