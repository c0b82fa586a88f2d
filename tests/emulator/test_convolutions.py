"""Convolutions in our own kernels, run on the host: geometry, template and tile of every kind give PyTorch's result."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernelwright.device import resolve
from kernelwright.generate.conv import shape_of
from kernelwright.kernels import conv_direct, conv_mma, conv_sm90, conv_sm90_ring
from kernelwright.kernels.choices import Choice
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus, multiprocessors
from tests.emulator.run import agrees

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

H200 = resolve("h200")

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.{conv}
        self.scale = nn.Parameter(torch.rand(self.conv.out_channels, *(1,) * {rank}))

    def forward(self, x):
        {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

BODY = "return F.leaky_relu(self.conv(x) / 2) * self.scale"

# Geometry and the shape of the input.
CASES = {
    "strided": ("Conv2d(24, 20, 3, padding=1, stride=2)", (2, 24, 9, 13)),
    "dilated, no bias": ("Conv2d(40, 70, (3, 2), dilation=(2, 1), bias=False)", (1, 40, 9, 8)),
    "one axis": ("Conv1d(17, 33, 5, stride=3, padding=2)", (2, 17, 50)),
    "three axes": ("Conv3d(5, 9, (2, 3, 2), padding=1)", (1, 5, 4, 5, 6)),
    "three channels, even rows": ("Conv2d(3, 16, 3, padding=1)", (2, 3, 10, 18)),
    "groups": ("Conv2d(12, 8, 3, groups=4, padding=1)", (1, 12, 7, 10)),
    "depthwise": ("Conv2d(6, 6, 3, groups=6, padding=1)", (2, 6, 9, 16)),
    "depthwise, more outputs": ("Conv2d(3, 9, (3, 5), groups=3, stride=(2, 1))", (2, 3, 9, 20)),
    "depthwise in one axis": ("Conv1d(4, 4, 7, groups=4, padding=3)", (2, 4, 133)),
    "one tap": ("Conv2d(16, 16, 1)", (2, 16, 5, 6)),
    "more padding than kernel": ("Conv2d(2, 3, 2, padding=3)", (1, 2, 3, 4)),
    "transposed": ("ConvTranspose2d(10, 6, 3, stride=2, padding=1, output_padding=1)", (1, 10, 5, 6)),
    "transposed, stride 1": ("ConvTranspose2d(9, 5, (3, 4), padding=(1, 2))", (1, 9, 6, 7)),
    "transposed, dilated": ("ConvTranspose1d(8, 8, 4, stride=3, dilation=2)", (2, 8, 11)),
    "transposed, phases without taps": ("ConvTranspose2d(3, 4, 2, stride=3, output_padding=2)", (1, 3, 4, 5)),
    "transposed in groups, three axes": ("ConvTranspose3d(4, 6, 3, stride=2, groups=2)", (1, 4, 3, 4, 3)),
    "transposed depthwise": ("ConvTranspose2d(6, 6, 3, stride=2, groups=6, padding=1)", (1, 6, 5, 7)),
}


def model(folder: Path, conv: str, shape: tuple[int, ...], body: str = BODY, inputs: str = "") -> Path:
    path = folder / "model.py"
    inputs = inputs or f"torch.randn({shape})"
    path.write_text(MODEL.format(conv=conv, rank=len(shape) - 2, body=body, inputs=inputs))
    return path


def best_of(template: ModuleType) -> Callable[[Kernel, Sequence[Choice]], Choice]:
    """The template's own favourite, whatever the others cost."""
    return lambda _, choices: next(c for c in choices if type(c) is template.Config)


def first_of(template: ModuleType) -> Callable[[Kernel, Sequence[Choice]], Choice]:
    """The same where the program has other kernels too."""
    return lambda _, choices: next((c for c in choices if type(c) is template.Config), choices[0])


def any_of(template: ModuleType, seed: int) -> Callable[[Kernel, Sequence[Choice]], Choice]:
    """One of all configs that fit, not only of those that are ranked."""

    def pick(kernel: Kernel, _: Sequence[Choice]) -> Choice:
        shape = shape_of(kernel)
        products = 1 if shape.tf32 else 3
        every: list[Any] = conv_direct.candidates(shape)
        if template is conv_mma:
            found = [c for block in conv_mma.TILES[products] for c in conv_mma.candidates(products, block, shape)]
            found += [joined for c in found for joined in conv_mma.with_phases(c, shape)]
            every = [conv_mma.with_blocks(c, shape, H200) for c in found]
            every += conv_mma.in_turns(every, shape, H200)
        if template in (conv_sm90, conv_sm90_ring):
            every = [c for block in template.TILES[products] for c in template.candidates(products, block, shape, H200)]
        fitting = [c for c in every if template.why_not(c, shape, H200) is None]
        choice: Choice = random.Random(seed).choice(fitting)
        return choice

    return pick


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_cuda_cores_compute_what_pytorch_computes(name: str, tmp_path: Path) -> None:
    program = agrees(model(tmp_path, *CASES[name]), pick=best_of(conv_direct))
    assert [source.template for source in program.sources] == ["conv_direct"]


@pytest.mark.slow
@pytest.mark.parametrize("template", [conv_mma, conv_sm90], ids=["mma", "wgmma"])
@pytest.mark.parametrize("name", CASES)
def test_tensor_cores_are_as_accurate_as_float32(name: str, template: ModuleType, tmp_path: Path) -> None:
    program = agrees(model(tmp_path, *CASES[name]), pick=best_of(template))
    assert "three tensor-core products" in program.sources[0].arithmetic


@pytest.mark.slow
@pytest.mark.parametrize("template", [conv_mma, conv_sm90], ids=["mma", "wgmma"])
@pytest.mark.parametrize("name", ["strided", "three channels, even rows", "groups", "one axis", "transposed"])
def test_one_product_is_as_accurate_as_tf32(name: str, template: ModuleType, tmp_path: Path) -> None:
    program = agrees(model(tmp_path, *CASES[name]), pick=best_of(template), precision="tf32")
    assert "TF32" in program.sources[0].arithmetic


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("transposed", conv_mma),
        ("transposed", conv_sm90),
        ("transposed, dilated", conv_mma),
        ("transposed in groups, three axes", conv_sm90),
    ],
    ids=["mma", "wgmma", "three phases", "three axes"],
)
def test_phases_of_the_last_axis_can_share_a_block(name: str, template: ModuleType, tmp_path: Path) -> None:
    def joined(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        picks = [any_of(template, seed)(kernel, choices) for seed in range(40)]
        return next(choice for choice in picks if getattr(choice, "w_phases", 1) > 1)

    program = agrees(model(tmp_path, *CASES[name]), pick=joined)
    assert "three tensor-core products" in program.sources[0].arithmetic


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("template", [conv_direct, conv_mma, conv_sm90], ids=["direct", "mma", "wgmma"])
@pytest.mark.parametrize("name", CASES)
def test_any_tile_computes_what_pytorch_computes(name: str, template: ModuleType, seed: int, tmp_path: Path) -> None:
    agrees(model(tmp_path, *CASES[name]), pick=any_of(template, seed))


# Depthwise, in widths of which 4, 2 or 1 can be loaded and stored at once; edges on no side, on both, and at a stride.
WIDTHS = {
    "fours": ("Conv2d(3, 3, (3, 1), groups=3)", (2, 3, 19, 40), 4, 4),
    "twos": ("Conv2d(3, 3, 3, groups=3)", (2, 3, 19, 36), 4, 2),
    "ones": ("Conv2d(3, 3, 3, groups=3)", (2, 3, 18, 37), 1, 1),
    "fours, edges": ("Conv2d(3, 3, (5, 3), padding=(2, 1), groups=3)", (1, 3, 18, 36), 4, 4),
    "fours, strided": ("Conv2d(2, 2, 3, padding=1, stride=2, groups=2)", (2, 2, 19, 40), 4, 4),
    "twos, dilated": ("Conv2d(2, 2, 3, padding=(3, 6), dilation=(3, 6), groups=2)", (1, 2, 17, 38), 2, 2),
    "ones, transposed": ("ConvTranspose2d(2, 2, 3, stride=2, groups=2, padding=1)", (1, 2, 10, 20), 4, 1),
}


def four_by_four(staged: bool, loaded: int, stored: int) -> Callable[[Kernel, Sequence[Choice]], Choice]:
    """Threads of 4 x 4 outputs, which load and store so many neighbours at once."""

    def pick(kernel: Kernel, _: Sequence[Choice]) -> Choice:
        shape = shape_of(kernel)
        fitting = (c for c in conv_direct.candidates(shape) if conv_direct.why_not(c, shape, H200) is None)
        config = next(c for c in fitting if (c.staged, c.lanes, c.rows, c.threads_w) == (staged, 4, 4, 4))
        assert (conv_direct.x_vector(shape), conv_direct.vector(config, shape)) == (loaded, stored)
        return config

    return pick


@pytest.mark.parametrize("name", WIDTHS)
def test_rows_are_read_and_stored_in_the_widest_vectors_that_fit(name: str, tmp_path: Path) -> None:
    conv, x, loaded, stored = WIDTHS[name]
    agrees(model(tmp_path, conv, x, "return self.conv(x)"), pick=four_by_four(False, loaded, stored))


@pytest.mark.parametrize("name", ["twos", "fours, edges", "ones, transposed"])
def test_rows_are_copied_in_the_widest_vectors_that_fit(name: str, tmp_path: Path) -> None:
    conv, x, loaded, stored = WIDTHS[name]
    agrees(model(tmp_path, conv, x, "return self.conv(x)"), pick=four_by_four(True, loaded, stored))


@pytest.mark.parametrize("staged", [False, True], ids=["straight", "staged"])
def test_an_input_that_begins_between_vectors_is_read_in_smaller_ones(staged: bool, tmp_path: Path) -> None:
    """Columns 2 to 33 of rows of 36: every row begins 8 bytes after a multiple of 16."""
    path = model(tmp_path, "Conv2d(3, 3, 3, groups=3)", (1, 3, 9, 36), "return self.conv(x[..., 2:34])")
    agrees(path, pick=four_by_four(staged, 2, 2))


def test_operands_of_the_epilogue_are_vectors_too(tmp_path: Path) -> None:
    path = model(tmp_path, "Conv2d(3, 3, 3, padding=1, groups=3)", (2, 3, 6, 20), "return F.gelu(self.conv(x)) + x")
    agrees(path, pick=four_by_four(False, 4, 4))


EPILOGUES = {
    "nothing": "return self.conv(x)",
    "residual": "return F.gelu(self.conv(x)) + x",
    "two results": "y = self.conv(x)\n        return torch.relu(y), torch.sigmoid(y) * self.scale",
    "along the last axis": "return self.conv(x) * torch.arange(6.0, device=x.device)",
}


@pytest.mark.slow
@pytest.mark.parametrize("template", [conv_direct, conv_mma], ids=["direct", "mma"])
@pytest.mark.parametrize("name", EPILOGUES)
def test_what_follows_is_in_the_same_kernel(name: str, template: ModuleType, tmp_path: Path) -> None:
    path = model(tmp_path, "Conv2d(8, 8, 3, padding=1)", (2, 8, 5, 6), EPILOGUES[name])
    program = agrees(path, pick=best_of(template))
    assert [source.template for source in program.sources] == [template.HEADERS[-1]]


@pytest.mark.parametrize("template", [conv_direct, conv_mma], ids=["direct", "mma"])
def test_channels_last_inputs_are_read_as_they_lie(template: ModuleType, tmp_path: Path) -> None:
    inputs = "torch.randn(2, 9, 6, 7).to(memory_format=torch.channels_last)"
    agrees(model(tmp_path, "Conv2d(9, 6, 3)", (2, 9, 6, 7), inputs=inputs), pick=best_of(template))


@pytest.mark.parametrize("template", [conv_direct, conv_mma], ids=["direct", "mma"])
def test_results_may_lie_in_channels_last_order(template: ModuleType, tmp_path: Path) -> None:
    """What is added is, and what follows is not fused: the sum takes its order."""
    inputs = "torch.randn(2, 8, 5, 6).to(memory_format=torch.channels_last)"
    body = "return torch.cumsum(self.conv(x) + x, 1) * 2"
    agrees(model(tmp_path, "Conv2d(8, 8, 3, padding=1)", (2, 8, 5, 6), body, inputs), pick=first_of(template))


@pytest.mark.parametrize("template", [conv_direct, conv_mma], ids=["direct", "mma"])
def test_results_may_be_parts_of_a_concatenation(template: ModuleType, tmp_path: Path) -> None:
    body = "y = self.conv(x)\n        return torch.stack([torch.relu(y), torch.tanh(y)], -1), torch.cat([y, y * 2], 1)"
    agrees(model(tmp_path, "Conv2d(4, 4, 3)", (1, 4, 6, 8), body), pick=first_of(template))


@pytest.mark.parametrize("template", [conv_direct, conv_mma], ids=["direct", "mma"])
def test_state_that_is_convolved_is_not_written_over(template: ModuleType, tmp_path: Path) -> None:
    body = "x.copy_(torch.relu(self.conv(x)))\n        return x * 2"
    agrees(model(tmp_path, "Conv2d(8, 8, 3, padding=1)", (1, 8, 9, 10), body), pick=first_of(template))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("template", [conv_direct, conv_mma], ids=["direct", "mma"])
def test_sixteen_bit_convolutions_are_summed_in_float32(template: ModuleType, dtype: str, tmp_path: Path) -> None:
    conv = f"Conv2d(9, 6, 3, bias=False, dtype=torch.{dtype})"
    inputs = f"torch.randn(2, 9, 6, 7).to(torch.{dtype})"
    agrees(model(tmp_path, conv, (2, 9, 6, 7), "return self.conv(x)", inputs), pick=best_of(template))


@pytest.mark.parametrize("precision", ["reference", "tf32"])
@pytest.mark.parametrize(("template", "size"), [(conv_mma, 1e-30), (conv_sm90, 1e30)], ids=["small", "large"])
def test_values_of_any_size_are_scaled_into_range(
    template: ModuleType, size: float, precision: str, tmp_path: Path
) -> None:
    """Channels grow by five orders of magnitude, so that later chunks need another scale than the first."""
    conv, body = "Conv2d(40, 8, 3, bias=False)", "return self.conv(x) * 3"
    growing = f"torch.randn(1, 40, 5, 8) * torch.logspace(-5, 0, 40).view(40, 1, 1) * {size}"
    agrees(model(tmp_path, conv, (1, 40, 5, 8), body, growing), pick=best_of(template), precision=precision)


def test_infinities_and_nans_come_out_where_pytorch_has_them(tmp_path: Path) -> None:
    special = "torch.randn(1, 9, 6, 8).index_put((torch.tensor([0, 0]), torch.tensor([3, 5]), torch.tensor([2, 4]), "
    special += "torch.tensor([2, 7])), torch.tensor([float('inf'), float('nan')]))"
    path = model(tmp_path, "Conv2d(9, 6, 3, bias=False)", (1, 9, 6, 8), "return self.conv(x)", special)
    agrees(path, pick=best_of(conv_mma))


AHEAD = [(conv_mma, "strided"), (conv_mma, "transposed"), (conv_sm90, "strided"), (conv_sm90, "groups")]
AHEAD += [(conv_sm90_ring, "three axes"), (conv_sm90_ring, "transposed, stride 1"), (conv_sm90_ring, "one tap")]


@pytest.mark.slow
@pytest.mark.parametrize(("template", "name"), AHEAD, ids=lambda value: getattr(value, "__name__", value))
def test_a_block_can_ask_for_a_tile_while_it_ends_another(template: ModuleType, name: str, tmp_path: Path) -> None:
    """Small tiles, and one block on a multiprocessor: each takes several of them."""

    def ahead(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        picks = [any_of(template, seed)(kernel, choices) for seed in range(12)]
        smallest = max(picks, key=lambda choice: conv_mma.grid(choice, shape_of(kernel)))
        return replace(smallest, ahead=True, blocks=1)

    conv, shape = CASES[name]
    with multiprocessors(2):
        program = agrees(model(tmp_path, conv, (3 * shape[0], *shape[1:])), pick=ahead)
    assert "ahead = true" in program.text
