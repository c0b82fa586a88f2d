"""Convolutions that reduce their own result, run on the host: one kernel gives what PyTorch computes in several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.kernels import conv_mma, conv_sm90
from kernelwright.kernels.choices import Choice
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus
from tests.emulator.run import agrees
from tests.emulator.test_convolutions import any_of, best_of, model

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

BOTH = pytest.mark.parametrize("template", [conv_mma, conv_sm90], ids=["mma", "wgmma"])

# What follows a convolution to 20 channels.
BODIES = {
    "least": "return torch.tanh(torch.min(self.conv(x), dim=1, keepdim=True)[0])",
    "softmax": "return torch.sigmoid(torch.softmax(self.conv(x), 1) * 3)",
    "logsumexp": "return torch.relu(torch.logsumexp(self.conv(x) * 2, 1))",
    "norm": "y = self.conv(x); m = y.mean(1, keepdim=True); return (y - m) * torch.rsqrt(y.var(1, keepdim=True) + 0.1)",
    "place": "return torch.argmax(self.conv(x), 1), torch.relu(self.conv(x))",
    "with another operand": "y = F.gelu(self.conv(x)) + x[:, :1]; return (y * self.scale).sum(1), y",
    "in three phases": "y = torch.softmax(self.conv(x), 1); z = y * y.amax(1, keepdim=True); return z - z.sum(1, True)",
}

ODD_ROWS, EVEN_ROWS = (2, 8, 6, 9), (2, 8, 6, 10)


def reducing(folder: Path, template: ModuleType, conv: str, shape: tuple[int, ...], body: str, **options: str) -> None:
    """One kernel of the template computes the model, as PyTorch does."""
    path = model(folder, conv, shape, body, options.pop("inputs", ""))
    program = agrees(path, pick=best_of(template), reducing=True, **options)  # type: ignore[arg-type]
    assert [source.template for source in program.sources] == [template.HEADERS[-1]]
    assert program.sources[0].kernel.region.axes == (1,)


def test_channels_are_reduced_where_the_tensor_cores_leave_them(tmp_path: Path) -> None:
    reducing(tmp_path, conv_sm90, "Conv2d(8, 20, 3, padding=1)", ODD_ROWS, BODIES["softmax"])


def test_neighbouring_pixels_are_stored_as_vectors(tmp_path: Path) -> None:
    reducing(tmp_path, conv_mma, "Conv2d(8, 20, 3, padding=1)", EVEN_ROWS, BODIES["norm"])


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("shape", [ODD_ROWS, EVEN_ROWS], ids=["odd", "even"])
@pytest.mark.parametrize("name", BODIES)
def test_whatever_reduces_channels_is_in_the_kernel(
    name: str, shape: tuple[int, ...], template: ModuleType, tmp_path: Path
) -> None:
    reducing(tmp_path, template, "Conv2d(8, 20, 3, padding=1)", shape, BODIES[name])


GEOMETRIES = {
    "as many channels as a tile has": ("Conv2d(5, 64, 2)", (1, 5, 5, 9)),
    "one axis, strided": ("Conv1d(17, 33, 5, stride=3, padding=2)", (2, 17, 50)),
    "three axes": ("Conv3d(5, 9, (2, 3, 2), padding=1)", (1, 5, 4, 5, 6)),
    "one tap": ("Conv2d(16, 16, 1)", (2, 16, 5, 6)),
    "one pixel": ("Conv2d(16, 16, 3)", (1, 16, 3, 3)),
    "transposed, phases without taps": ("ConvTranspose2d(3, 4, 2, stride=3, output_padding=2)", (1, 3, 4, 5)),
    "transposed, three axes": ("ConvTranspose3d(4, 6, 3, stride=2)", (1, 4, 3, 4, 3)),
}


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("precision", ["reference", "tf32"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_any_geometry_can_reduce_its_channels(name: str, precision: str, template: ModuleType, tmp_path: Path) -> None:
    conv, shape = GEOMETRIES[name]
    reducing(tmp_path, template, conv, shape, BODIES["softmax"], precision=precision)


def test_phases_that_share_a_block_are_reduced_together(tmp_path: Path) -> None:
    """Four neighbours of the result are one vector."""

    def joined(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        picks = [any_of(conv_mma, seed)(kernel, choices) for seed in range(40)]
        return next(choice for choice in picks if getattr(choice, "w_phases", 1) == 2)

    conv = "ConvTranspose2d(10, 6, 3, stride=2, padding=1, output_padding=1)"
    path = model(tmp_path, conv, (1, 10, 5, 6), "return torch.softmax(self.conv(x), 1) + self.scale")
    program = agrees(path, pick=joined, reducing=True)
    assert "vector = 4" in program.text


def test_a_tile_that_is_not_finite_is_reduced_in_plain_float32(tmp_path: Path) -> None:
    special = "torch.randn(1, 9, 6, 8).index_put((torch.tensor([0, 0]), torch.tensor([3, 5]), torch.tensor([2, 4]), "
    special += "torch.tensor([2, 7])), torch.tensor([float('inf'), float('nan')]))"
    body = "y = self.conv(x); return torch.softmax(y, 1), y.amin(1)"
    reducing(tmp_path, conv_mma, "Conv2d(9, 6, 3, bias=False)", (1, 9, 6, 8), body, inputs=special)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_results_are_rounded_before_they_are_reduced(dtype: str, tmp_path: Path) -> None:
    conv, inputs = f"Conv2d(9, 6, 3, bias=False, dtype=torch.{dtype})", f"torch.randn(2, 9, 6, 7).to(torch.{dtype})"
    reducing(tmp_path, conv_mma, conv, (2, 9, 6, 7), "return self.conv(x).amax(1)", inputs=inputs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@BOTH
def test_any_tile_reduces_its_channels(seed: int, template: ModuleType, tmp_path: Path) -> None:
    path = model(tmp_path, "Conv2d(8, 16, 3, padding=1)", EVEN_ROWS, BODIES["in three phases"])
    agrees(path, pick=any_of(template, seed), reducing=True)
