"""Sums of a convolution's result that are taken without it, run on the host: statistics, windows, means over space."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.generate import Program
from kernelwright.generate.conv import shape_of
from kernelwright.ir.nodes import Conv
from kernelwright.kernels import conv_mma, conv_sm90, conv_sm90_kept
from kernelwright.kernels.choices import Choice
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus
from tests.emulator.run import agrees
from tests.emulator.test_convolutions import first_of
from tests.emulator.test_reducing_convolutions import Pick

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.{conv}
        self.norm = nn.BatchNorm{rank}d(self.conv.out_channels)
        self.scale = nn.Parameter(torch.tensor(0.75))

    def forward(self, x):
        y = self.conv(x)
        return {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def program(
    folder: Path, pick: Pick, conv: str, shape: Sequence[int], body: str, inputs: str = "", again: bool = False
) -> Program:
    given = inputs or f"torch.randn({tuple(shape)})"
    text = MODEL.format(conv=conv, rank=len(shape) - 2, body=body, inputs=given)
    (folder / "model.py").write_text(text)
    return agrees(folder / "model.py", pick=pick, reducing=True, again=again)


def convolving(made: Program) -> list[Kernel]:
    cores = ((source.kernel, source.kernel.core) for source in made.sources)
    return [kernel for kernel, core in cores if core is not None and isinstance(core.node, Conv)]


def is_stored(made: Program, conv: Conv) -> bool:
    """Whether somebody puts all of the convolution's result into memory."""
    layouts = [layout for kernel in convolving(made) for _, layout in kernel.region.stores]
    return any(layout.buffer.shape == conv.shape for layout in layouts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conv", "shape"),
    [
        ("ConvTranspose3d(3, 5, 3, stride=2, padding=1)", (2, 3, 5, 6, 9)),
        ("ConvTranspose2d(10, 18, 4, stride=2, padding=1)", (3, 10, 7, 20)),
        ("Conv2d(4, 20, 3, padding=1)", (3, 4, 11, 13)),
    ],
    ids=["3-d", "even taps", "plain"],
)
def test_statistics_and_windows_need_no_result(conv: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    pool = f"F.avg_pool{len(shape) - 2}d"
    made = program(tmp_path, first_of(conv_mma), conv, shape, f"{pool}({pool}(self.norm(y), 2), 2)")
    nodes = [kernel.core.node for kernel in convolving(made) if kernel.core is not None]
    whole = max((node for node in nodes if isinstance(node, Conv)), key=lambda node: node.size)
    assert len(nodes) == 2
    assert not is_stored(made, whole)


@pytest.mark.slow
@pytest.mark.parametrize("template", [conv_mma, conv_sm90, conv_sm90_kept], ids=lambda module: module.HEADERS[-1])
def test_weights_that_are_summed_in_forward_are_packed_in_each_call(template: ModuleType, tmp_path: Path) -> None:
    made = program(
        tmp_path, first_of(template), "Conv2d(8, 70, 3)", (2, 8, 25, 27), "torch.sigmoid(F.avg_pool2d(y, 4))"
    )
    (kernel,) = convolving(made)
    assert kernel.core is not None
    assert not kernel.core.constant
    assert "_anew(" in made.text


def test_a_scalar_parameter_does_not_stand_in_the_way_of_windows(tmp_path: Path) -> None:
    conv = "ConvTranspose3d(3, 6, 3, stride=2, padding=1)"
    made = program(tmp_path, first_of(conv_mma), conv, (2, 3, 5, 6, 7), "F.avg_pool3d(y * self.scale, 2) + self.scale")
    (kernel,) = convolving(made)
    assert kernel.core is not None
    assert isinstance(kernel.core.node, Conv)
    assert not kernel.core.node.transposed


@pytest.mark.parametrize(
    "conv",
    [
        "ConvTranspose2d(6, 9, 3, stride=2, padding=1, output_padding=1)",
        "ConvTranspose2d(6, 9, 5, stride=2, padding=(2, 0))",
        "Conv2d(6, 9, 3, padding=1)",
    ],
)
def test_a_mean_over_space_is_a_product_of_sums(conv: str, tmp_path: Path) -> None:
    made = program(tmp_path, first_of(conv_mma), conv, (3, 6, 9, 11), "(y * 0.5).mean((2, 3), keepdim=True)")
    assert not any(isinstance(node, Conv) for node in made.plan.graph.nodes())


def test_a_mean_of_what_is_not_finite_is_what_pytorch_has(tmp_path: Path) -> None:
    """Each tap has its own sum of inputs: what it cuts off is not in it, not added and taken away again."""
    special = "torch.randn(2, 3, 6, 8).index_put((torch.tensor([0, 1]), torch.tensor([2, 1]), torch.tensor([0, 4]), "
    special += "torch.tensor([0, 7])), torch.tensor([float('inf'), float('nan')]))"
    conv = "ConvTranspose2d(3, 4, 3, stride=2, padding=1)"
    program(tmp_path, first_of(conv_mma), conv, (2, 3, 6, 8), "y.mean((2, 3))", inputs=special)


def test_what_is_normalised_and_then_centred_is_centred_once(tmp_path: Path) -> None:
    conv = "ConvTranspose3d(5, 6, 3, stride=2, padding=1)"
    body = "(lambda z: z - z.mean((2, 3, 4), keepdim=True))(self.norm(y))"
    made = program(tmp_path, first_of(conv_mma), conv, (3, 5, 4, 5, 6), body)
    assert [source.template for source in made.sources].count("conv_mma") == 1


TWICE = {
    "centred": ("(lambda z: z - z.mean((2, 3, 4), keepdim=True))(self.norm(y))", ""),
    "with Maps before": ("self.norm(F.relu(y)) * self.scale", ""),
    "not finite": ("self.norm(y)", "torch.randn(3, 5, 4, 5, 6).index_fill(2, torch.tensor([1]), float('inf'))"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("body", "inputs"), TWICE.values(), ids=TWICE)
def test_a_convolution_is_computed_twice_in_place_of_being_stored(body: str, inputs: str, tmp_path: Path) -> None:
    conv = "ConvTranspose3d(5, 6, 3, stride=2, padding=1)"
    made = program(tmp_path, first_of(conv_mma), conv, (3, 5, 4, 5, 6), body, inputs, again=True)
    first, second = convolving(made)
    assert first.core is not None
    assert second.core is not None
    assert first.core.node is second.core.node
    assert (bool(first.region.axes), bool(second.region.axes)) == (True, False)
    assert not [layout for _, layout in first.region.stores if layout.buffer.shape == first.core.node.shape]
    assert len(second.region.stores) == 1


def in_turns(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
    """All phases of a tile from inputs that are carried once."""
    if kernel.core is None or not isinstance(kernel.core.node, Conv) or not kernel.core.node.transposed:
        return first_of(conv_mma)(kernel, choices)
    return next(c for c in choices if type(c) is conv_mma.Config and c.turns > 1)


TURNS = {
    "3-d, odd": ("ConvTranspose3d(3, 20, 3, stride=2, padding=1)", (2, 3, 5, 6, 9)),
    "2-d, even": ("ConvTranspose2d(10, 18, 4, stride=2, padding=1)", (3, 10, 7, 20)),
    "phases without taps": ("ConvTranspose2d(5, 6, 2, stride=3, output_padding=1)", (2, 5, 6, 7)),
}


@pytest.mark.slow
@pytest.mark.parametrize("body", ["torch.relu(y) * 2", "F.instance_norm(y)", "F.gelu(y).mean((0, 2, 3))", "y.amin(1)"])
@pytest.mark.parametrize(("conv", "shape"), TURNS.values(), ids=TURNS)
def test_phases_of_a_tile_take_turns(conv: str, shape: tuple[int, ...], body: str, tmp_path: Path) -> None:
    made = program(tmp_path, in_turns, conv, shape, body)
    assert any(getattr(source.choice, "turns", 1) > 1 for source in made.sources)


def test_a_tile_that_is_not_finite_is_added_in_plain_float32_in_its_turn(tmp_path: Path) -> None:
    special = "torch.randn(2, 3, 6, 8).index_put((torch.tensor([0, 1]), torch.tensor([2, 1]), torch.tensor([0, 4]), "
    special += "torch.tensor([0, 7])), torch.tensor([float('inf'), float('nan')]))"
    conv = "ConvTranspose2d(3, 4, 3, stride=2, padding=1)"
    made = program(tmp_path, in_turns, conv, (2, 3, 6, 8), "F.relu(y).mean((2, 3))", inputs=special)
    assert "turns = 2;" in made.text


GATHERED = {
    "3-d": ("ConvTranspose3d(3, 13, 3, stride=2, padding=1)", (3, 3, 5, 9, 11)),
    "one phase": ("Conv2d(5, 7, 3, padding=1)", (40, 5, 9, 19)),
    "no taps": ("ConvTranspose2d(5, 6, 2, stride=3, output_padding=1)", (3, 5, 6, 27)),
}


def is_gathering(kernel: Kernel, choice: Choice) -> bool:
    return isinstance(choice, conv_mma.Config) and conv_mma.gathers(choice, shape_of(kernel))


@pytest.mark.slow
@pytest.mark.parametrize("special", [False, True], ids=["finite", "not finite"])
@pytest.mark.parametrize(("conv", "shape"), GATHERED.values(), ids=GATHERED)
def test_blocks_keep_statistics_from_tile_to_tile(
    conv: str, shape: tuple[int, ...], special: bool, tmp_path: Path
) -> None:
    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        return next((c for c in choices if kernel.core is not None and is_gathering(kernel, c)), choices[0])

    space = tuple(range(2, len(shape)))
    body = f"(y.amax({(0, *space)}), F.relu(y).var({(0, *space)}))"
    inputs = f"torch.randn({shape}).index_fill(0, torch.tensor([1]), float('nan'))" if special else ""
    made = program(tmp_path, pick, conv, shape, body, inputs)
    assert "kw::conv_gathered::launch<" in made.text
