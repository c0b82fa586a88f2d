"""Convolutions that reduce their own results, run on the host: their kernels give what PyTorch computes in several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.generate import Program
from kernelwright.kernels import conv_mma, conv_sm90
from kernelwright.kernels.choices import Choice
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus
from tests.emulator.run import agrees
from tests.emulator.test_convolutions import any_of, first_of

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

# Several convolutions in one program: compilers take as long for one as for three.
MODEL = """
import torch
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([{convs}])
        self.scale = nn.Parameter(torch.rand(self.convs[0].out_channels, *(1,) * {rank}))
        self.norm = nn.BatchNorm2d(self.convs[0].out_channels)

    def forward(self, x):
        {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

Pick = Callable[[Kernel, Sequence[Choice]], Choice]


def program(
    folder: Path, pick: Pick, conv: str, shape: tuple[int, ...], bodies: Sequence[str], precision: str = "reference"
) -> Program:
    """Each body of a convolution of its own, y; the joined kernels first."""
    calls = [f"(lambda y: {body})(self.convs[{i}](x))" for i, body in enumerate(bodies)]
    text = MODEL.format(
        convs=", ".join([f"nn.{conv}"] * len(bodies)),
        rank=len(shape) - 2,
        body=f"return ({', '.join(calls)},)",
        inputs=f"torch.randn({shape})",
    )
    (folder / "model.py").write_text(text)
    return agrees(folder / "model.py", pick=pick, precision=precision, reducing=True)


def is_joined(kernel: Kernel) -> bool:
    return kernel.core is not None and bool(kernel.region.axes)


def joined(made: Program) -> list[Kernel]:
    return [source.kernel for source in made.sources if is_joined(source.kernel)]


WHOLE = {
    "least": "torch.tanh(torch.min(y, dim=1, keepdim=True)[0])",
    "softmax": "torch.sigmoid(torch.softmax(y, 1) * 3)",
    "logsumexp": "torch.relu(torch.logsumexp(y * 2, 1))",
    "norm": "(y - y.mean(1, keepdim=True)) * torch.rsqrt(y.var(1, keepdim=True) + 0.1)",
    "place": "(torch.argmax(y, 1), torch.relu(y))",
    "with another operand": "((F.gelu(y) + x[:, :1]) * self.scale).sum(1)",
    "in three phases": "(lambda z: z - z.sum(1, True))(y * torch.softmax(y, 1).amax(1, keepdim=True))",
}

PIECES = {
    "mean": "F.gelu(y).mean(tuple(range(2, y.dim())))",
    "instance norm": "F.instance_norm(y) / 2",
    "group norm": "F.group_norm(F.gelu(y), 2)",
    "layer norm": "F.layer_norm(y, y.shape[1:])",
    "batch norm": "F.batch_norm(y, None, None, training=True) * self.scale",
    "softmax of space": "torch.softmax(y.flatten(2), 2)",
    "everything": "y.mean()",
}

WINDOWS = {
    "largest": "F.mish(F.max_pool2d(F.hardswish(y - 0.5), 2))",
    "mean": "torch.sigmoid(F.avg_pool2d(F.relu(y) * self.scale, 4)) * 2",
    "of another size along each axis": "F.max_pool2d(y, (1, 2)) + 1",
    "of powers": "F.avg_pool2d(y * y, 2)",
}

# Results of fewer elements would share a kernel.
CONV, ODD_ROWS, EVEN_ROWS = (
    "Conv2d(8, 20, 3, padding=1)",
    (3, 8, 9, 11),
    (3, 8, 9, 10),
)  # fewer elements would share a kernel


def test_channels_statistics_and_windows_are_reduced_where_the_tensor_cores_leave_them(tmp_path: Path) -> None:
    bodies = [WHOLE["softmax"], PIECES["group norm"], WINDOWS["largest"]]
    made = program(tmp_path, first_of(conv_sm90), CONV, ODD_ROWS, bodies)
    assert sorted(kernel.region.axes for kernel in joined(made)) == [(1,), (2, 3, 4), (4, 5)]
    assert not [source for source in made.sources if source.template == "reduce"]


def phases_together(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
    """All phases of the last axis in one block."""
    if kernel.core is None:
        return choices[0]
    picks = [any_of(conv_mma, seed)(kernel, choices) for seed in range(40)]
    return next(choice for choice in picks if getattr(choice, "w_phases", 1) == 2)


def test_phases_that_share_a_block_are_reduced_together(tmp_path: Path) -> None:
    conv = "ConvTranspose2d(10, 6, 3, stride=2, padding=1, output_padding=1)"
    made = program(tmp_path, phases_together, conv, (1, 10, 5, 6), [WHOLE["softmax"]])
    assert len(joined(made)) == 1
    assert "vector = 4, w_phases = 2" in made.text


def test_a_tile_that_is_not_finite_is_reduced_in_plain_float32(tmp_path: Path) -> None:
    bodies = ["(torch.softmax(y, 1), y.amin(1))", "y.amax((2, 3))", "F.max_pool2d(y, 2)"]
    calls = [f"(lambda y: {body})(self.convs[{i}](x))" for i, body in enumerate(bodies)]
    special = "torch.randn(2, 9, 6, 8).index_put((torch.tensor([0, 0]), torch.tensor([3, 5]), torch.tensor([2, 4]), "
    special += "torch.tensor([2, 7])), torch.tensor([float('inf'), float('nan')]))"
    convs = ", ".join(["nn.Conv2d(9, 6, 3, bias=False)"] * 3)
    text = MODEL.format(convs=convs, rank=2, body=f"return ({', '.join(calls)},)", inputs=special)
    (tmp_path / "model.py").write_text(text)
    made = agrees(tmp_path / "model.py", pick=first_of(conv_mma), reducing=True)
    assert len(joined(made)) == 3


# --- everything else, where there is time for it


BOTH = pytest.mark.parametrize("template", [conv_mma, conv_sm90], ids=["mma", "wgmma"])

GEOMETRIES = {
    "odd rows": (CONV, ODD_ROWS),
    "even rows": (CONV, EVEN_ROWS),
    "as many channels as a tile has": ("Conv2d(5, 64, 2)", (1, 5, 9, 12)),
    "one axis, strided": ("Conv1d(17, 34, 5, stride=3, padding=2)", (2, 17, 197)),
    "three axes": ("Conv3d(5, 10, (2, 3, 2), padding=1)", (1, 5, 6, 8, 9)),
    "one tap": ("Conv2d(16, 16, 1)", (2, 16, 11, 12)),
    "transposed, phases without taps": ("ConvTranspose2d(3, 4, 2, stride=3, output_padding=2)", (2, 3, 8, 9)),
    "transposed, three axes": ("ConvTranspose3d(4, 6, 3, stride=2)", (2, 4, 3, 4, 3)),
}


@pytest.mark.usefixtures("thorough")
@BOTH
@pytest.mark.parametrize("precision", ["reference", "tf32"])
@pytest.mark.parametrize("bodies", [WHOLE, PIECES], ids=["whole", "pieces"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_any_geometry_can_reduce(
    name: str, bodies: dict[str, str], precision: str, template: ModuleType, tmp_path: Path
) -> None:
    conv, shape = GEOMETRIES[name]
    fitting = [
        body for kind, body in bodies.items() if kind != "with another operand" or shape in (ODD_ROWS, EVEN_ROWS)
    ]
    made = program(tmp_path, first_of(template), conv, shape, fitting, precision)
    assert len(joined(made)) == len(fitting)


@pytest.mark.usefixtures("thorough")
def test_running_statistics_are_kept(tmp_path: Path) -> None:
    made = program(tmp_path, first_of(conv_mma), CONV, EVEN_ROWS, [PIECES["mean"], "self.norm(y) + 1"])
    assert len(joined(made)) == 2
    assert not [source for source in made.sources if source.template == "reduce"]


@pytest.mark.usefixtures("thorough")
def test_phases_that_share_a_block_leave_their_statistics_together(tmp_path: Path) -> None:
    conv = "ConvTranspose2d(10, 6, 3, stride=2, padding=1, output_padding=1)"
    program(tmp_path, phases_together, conv, (2, 10, 5, 6), [PIECES["group norm"], PIECES["batch norm"]])


@pytest.mark.usefixtures("thorough")
@BOTH
@pytest.mark.parametrize("conv", ["Conv2d(12, 8, 3, groups=4, padding=1)", "Conv2d(5, 150, 2)"], ids=["groups", "many"])
def test_rows_in_pieces_lie_in_any_number_of_channel_tiles(conv: str, template: ModuleType, tmp_path: Path) -> None:
    shape = (4, 12, 12, 14) if "12" in conv else (2, 5, 7, 10)
    made = program(tmp_path, first_of(template), conv, shape, list(PIECES.values()))
    assert len(joined(made)) == len(PIECES)


POOLED = {
    "odd rows": (CONV, ODD_ROWS, WINDOWS),
    "even rows": (CONV, EVEN_ROWS, WINDOWS),
    "groups": ("Conv2d(8, 12, 3, groups=2)", (3, 8, 18, 15), WINDOWS),
    "many channels": ("Conv2d(5, 150, 2)", (2, 5, 9, 10), WINDOWS),
    "one axis": ("Conv1d(17, 34, 5, stride=3)", (2, 17, 200), {"largest": "F.max_pool1d(F.gelu(y), 4)"}),
    "three axes": ("Conv3d(5, 10, 3, padding=1)", (1, 5, 6, 8, 13), {"mean": "F.avg_pool3d(y, 2)"}),
    "transposed": ("ConvTranspose2d(8, 20, 3, padding=1)", EVEN_ROWS, WINDOWS),
    "one tap": ("Conv2d(16, 16, 1)", (2, 16, 11, 12), WINDOWS),
    "small images": ("Conv2d(8, 16, 3, padding=1)", (40, 8, 4, 6), {"largest": "F.max_pool2d(y, 2)"}),
}


@pytest.mark.usefixtures("thorough")
@BOTH
@pytest.mark.parametrize("precision", ["reference", "tf32"])
@pytest.mark.parametrize("name", POOLED)
def test_windows_side_by_side_are_pooled(name: str, precision: str, template: ModuleType, tmp_path: Path) -> None:
    conv, shape, bodies = POOLED[name]
    made = program(tmp_path, first_of(template), conv, shape, list(bodies.values()), precision)
    assert len(joined(made)) == len(bodies)


@pytest.mark.usefixtures("thorough")
def test_one_pixel_is_a_row(tmp_path: Path) -> None:
    program(tmp_path, first_of(conv_mma), "Conv2d(16, 16, 3)", (1, 16, 3, 3), [WHOLE["softmax"]])


@pytest.mark.usefixtures("thorough")
@pytest.mark.parametrize("seed", range(6))
@BOTH
def test_any_tile_reduces(seed: int, template: ModuleType, tmp_path: Path) -> None:
    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        if not is_joined(kernel):
            return choices[0]
        return any_of(template, seed)(kernel, choices)

    bodies = [WHOLE["in three phases"], PIECES["group norm"], PIECES["batch norm"], WINDOWS["largest"]]
    program(tmp_path, pick, "Conv2d(8, 16, 3, padding=1)", EVEN_ROWS, bodies)


@pytest.mark.usefixtures("thorough")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_results_are_rounded_before_they_are_reduced(dtype: str, tmp_path: Path) -> None:
    calls = ["self.convs[0](x).amax(1)", "self.convs[1](x).float().mean((2, 3))"]
    convs = ", ".join([f"nn.Conv2d(9, 6, 3, bias=False, dtype=torch.{dtype})"] * 2)
    inputs = f"torch.randn(2, 9, 6, 7).to(torch.{dtype})"
    text = MODEL.format(convs=convs, rank=2, body=f"return ({', '.join(calls)})", inputs=inputs)
    (tmp_path / "model.py").write_text(text)
    made = agrees(tmp_path / "model.py", pick=first_of(conv_mma), reducing=True)
    assert len(joined(made)) == 2
