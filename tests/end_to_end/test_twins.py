"""Equal blocks: their kernels are written once, and run with the buffers of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.device import resolve
from kernelwright.emit import emit
from kernelwright.load import load
from kernelwright.pipeline import planned_program
from tests.end_to_end.conftest import Emit
from tests.end_to_end.emitting import HEADER, model_source

BLOCK = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.fc = nn.Linear(32, 32)

    def forward(self, x):
        return torch.sort(x + F.silu(self.fc(self.norm(x))), -1)[0]

"""


def structs(text: str) -> list[str]:
    """Those that were generated, one for each kind of kernel."""
    return re.findall(r"^struct (\w+)", text.partition("// --- generated")[2], re.MULTILINE)


def blocks(count: int) -> str:
    layers = f"self.layers = nn.Sequential(*[Block() for _ in range({count})])"
    return model_source("return self.layers(x)", init=(layers,), inputs="torch.randn(8, 32)", above=BLOCK)


def test_more_of_the_same_blocks_need_no_more_text(emit_once: Emit) -> None:
    few, many = emit_once(blocks(3)), emit_once(blocks(6))
    assert structs(few.text) == structs(many.text)
    assert many.check()


def test_each_block_has_its_own_weights_and_statistics(emit_once: Emit) -> None:
    init = ("self.norms = nn.ModuleList(nn.BatchNorm1d(16) for _ in range(3))",)
    forward = ("for norm in self.norms:", "    x = torch.sort(norm(x), -1)[0]", "return x")
    made = emit_once(model_source(*forward, init=init, inputs="torch.randn(32, 16)"))

    def weigh(model: nn.Module) -> None:
        with torch.no_grad():
            for number, norm in enumerate(model.norms):
                norm.weight.fill_(1 + number), norm.bias.fill_(0.1 * number)

    assert len(structs(made.text)) <= 3
    assert made.check(weigh)  # buffers too


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("torch.relu(torch.sort(x, 0)[0])", "torch.tanh(torch.sort(x, 0)[0])"),
        ("torch.relu(x * 2)", "torch.relu(x * 3)"),
        ("x - self.relu", "self.relu - x"),
        ("torch.relu(x) * self.relu", "torch.relu(x) * self.a"),
        ("(x * self.a).half() * self.b", "(x * self.relu).half() * self.c"),
    ],
    ids=[
        "functions called like their kernels",
        "another constant",
        "the other way round",
        "a buffer called like a function",
        "sixteen bits",
    ],
)
def test_what_looks_alike_is_told_apart(emit_once: Emit, first: str, second: str) -> None:
    init = (
        "self.relu, self.a = nn.Parameter(torch.randn(8, 32)), nn.Parameter(torch.randn(8, 32))",
        "self.b, self.c = (nn.Parameter(torch.randn(8, 32).half()) for _ in range(2))",
    )
    forward = (f"x = torch.sort({first}, -1)[0].float()", f"return torch.sort({second}, -1)[0]")
    made = emit_once(model_source(*forward, init=init, inputs="torch.randn(8, 32)"))
    assert made.check()


def test_on_a_gpu_everything_that_is_called_is_there(tmp_path: Path) -> None:
    path = tmp_path / "blocks.py"
    layer = "self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.SiLU()) for _ in range(4)])"
    path.write_text(HEADER + model_source("return self.layers(x)", init=(layer,), inputs="torch.randn(1024, 1024)"))
    text = emit(planned_program(path, resolve("h200")), load(path))
    defined = {*structs(text), *re.findall(r'extern "C" int (\w+)\(', text)}
    entries = text.partition("// --- entries")[2].partition('"""')[0]
    called = {*re.findall(r" ::(\w+)\(", entries), *re.findall(r"addressed\((\w+)::Args", entries)}
    packing = set(re.findall(r'"(\w+_pack)"', text))
    assert len(called) <= 4, "a launcher and a struct for all layers but the last, whose result has a name of its own"
    assert len(packing) <= 2
    assert called | packing <= defined
