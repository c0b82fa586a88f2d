"""Convolutions whose last axes are one long row to a kernel, run on the host, give PyTorch's result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.generate.conv import shape_of
from kernelwright.kernels import conv_direct, conv_mma, conv_sm90, conv_sm90_kept
from kernelwright.kernels.choices import Choice
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus, multiprocessors
from tests.emulator.run import agrees
from tests.emulator.test_convolutions import any_of, best_of, first_of, model

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

TEMPLATES = {"direct": conv_direct, "mma": conv_mma, "wgmma": conv_sm90, "kept": conv_sm90_kept}

# Geometry, the shape of the input, and that of the result as the kernel has it.
CASES = {
    "3 x 3 x 1": ("Conv3d(3, 20, (3, 3, 1), padding=(1, 2, 0))", (2, 3, 5, 6, 5), (1, 5, 40)),
    "3 x 3 x 1, dilated": ("Conv3d(8, 9, (3, 3, 1), dilation=(1, 2, 1))", (1, 8, 5, 9, 6), (1, 3, 30)),
    "3 x 1": ("Conv2d(9, 33, (3, 1), padding=(1, 0))", (2, 9, 9, 7), (1, 1, 63)),
    "3 x 1 in groups": ("Conv2d(12, 8, (3, 1), groups=4, padding=(2, 0), dilation=(2, 1))", (1, 12, 9, 4), (1, 1, 36)),
    "3 x 1 depthwise": ("Conv2d(6, 6, (3, 1), groups=6, padding=(1, 0))", (2, 6, 12, 5), (1, 1, 60)),
    "5 x 1 of one column": ("Conv2d(16, 16, (5, 1), stride=(2, 1), padding=(2, 0))", (1, 16, 525, 1), (1, 1, 263)),
    "1 x 1": ("Conv2d(16, 16, 1)", (2, 16, 5, 6), (1, 1, 30)),
    "1 x 1 x 1": ("Conv3d(5, 9, 1)", (2, 5, 3, 4, 5), (1, 1, 60)),
    "1 x 1 and an edge": ("Conv2d(8, 8, 1, padding=(2, 0))", (1, 8, 3, 5), (1, 1, 35)),
    "1 x 3 x 1": ("Conv3d(5, 9, (1, 3, 1), padding=(0, 1, 0))", (1, 5, 3, 6, 4), (1, 3, 24)),
    "2 x 1 x 1": ("Conv3d(8, 20, (2, 1, 1), padding=(1, 0, 0))", (1, 8, 4, 3, 2), (1, 1, 30)),
    "2 x 1 x 1, larger planes": ("Conv3d(8, 20, (2, 1, 1), padding=(1, 0, 0))", (1, 8, 4, 5, 9), (1, 5, 45)),
    "transposed": ("ConvTranspose2d(9, 5, (3, 1), padding=(1, 0), dilation=(2, 1))", (1, 9, 8, 6), (1, 1, 60)),
    "transposed, three axes": ("ConvTranspose3d(6, 4, (2, 3, 1), groups=2)", (1, 6, 3, 4, 5), (1, 4, 30)),
    "transposed, cut off": ("ConvTranspose2d(8, 8, 1, padding=(1, 0))", (1, 8, 6, 5), (1, 1, 20)),
    "transposed, strided, one column": ("ConvTranspose2d(8, 6, (3, 1), stride=(2, 1))", (1, 8, 21, 1), (1, 1, 43)),
}
BODY = "return torch.relu(self.conv(x)) * self.scale"


def seen(pick: Callable[[Kernel, Sequence[Choice]], Choice], space: tuple[int, ...]) -> Callable[..., Choice]:
    """The pick, once the kernel was seen to have such rows."""

    def checked(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        if kernel.core is not None:
            assert shape_of(kernel).y_space == space
        return pick(kernel, choices)

    return checked


@pytest.mark.slow
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("name", CASES)
def test_merged_rows_compute_what_pytorch_computes(name: str, template: ModuleType, tmp_path: Path) -> None:
    conv, x, space = CASES[name]
    with multiprocessors(2):
        agrees(model(tmp_path, conv, x, BODY), pick=seen(best_of(template), space), precision="tf32")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("template", [conv_direct, conv_mma], ids=["direct", "mma"])
@pytest.mark.parametrize("name", CASES)
def test_merged_rows_are_right_in_any_tile(name: str, template: ModuleType, seed: int, tmp_path: Path) -> None:
    conv, x, space = CASES[name]
    agrees(model(tmp_path, conv, x, BODY), pick=seen(any_of(template, seed), space))


# What follows, or how the input lies, and the rows that are left.
SURROUNDINGS = {
    "residual": ("return F.gelu(self.conv(x)) + x", "torch.randn(2, 8, 6, 5)", (1, 1, 30)),
    "two results": (
        "y = self.conv(x)\n        return torch.relu(y), y * self.scale",
        "torch.randn(2, 8, 6, 5)",
        (1, 1, 30),
    ),
    "channels last": (
        "return self.conv(x) * 2",
        "torch.randn(2, 8, 6, 5).to(memory_format=torch.channels_last)",
        (1, 1, 30),
    ),
    "columns apart in memory": ("return self.conv(x[..., 1:6]) * 2", "torch.randn(2, 8, 6, 8)", (1, 6, 5)),
    "turned": ("return self.conv(x.transpose(2, 3)) * 2", "torch.randn(2, 8, 5, 6)", (1, 6, 5)),
    "an operand along w": (
        "return self.conv(x) * torch.arange(5.0, device=x.device)",
        "torch.randn(2, 8, 6, 5)",
        (1, 6, 5),
    ),
    "an operand along h": (
        "return self.conv(x) * torch.arange(6.0, device=x.device).view(6, 1)",
        "torch.randn(2, 8, 6, 5)",
        (1, 6, 5),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("template", [conv_direct, conv_mma], ids=["direct", "mma"])
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_rows_merge_where_all_operands_go_on_as_they_do(name: str, template: ModuleType, tmp_path: Path) -> None:
    body, inputs, space = SURROUNDINGS[name]
    path = model(tmp_path, "Conv2d(8, 8, (3, 1), padding=(1, 0))", (2, 8, 6, 5), body, inputs)
    agrees(path, pick=seen(first_of(template), space))


# What is reduced, and the rows that are left: those that are reduced themselves, or have an operand of theirs, stay.
REDUCED = {
    "channels": ("return torch.softmax(self.conv(x), 1)", conv_mma, (1, 1, 96)),
    "channels, an operand along w": (
        "return (self.conv(x) * torch.arange(16.0, device=x.device)).amax(1)",
        conv_mma,
        (1, 6, 16),
    ),
    "space": ("return self.conv(x).amax((2, 3))", conv_mma, (1, 1, 96)),
    "space, an operand along w": (
        "return (self.conv(x) * torch.arange(16.0, device=x.device)).amax((2, 3))",
        conv_mma,
        (1, 6, 16),
    ),
    "windows": ("return F.max_pool2d(self.conv(x), 2)", conv_mma, (1, 6, 16)),
    "along w": ("return torch.softmax(self.conv(x), -1)", conv_sm90_kept, (1, 6, 16)),
}


@pytest.mark.slow
@pytest.mark.parametrize("conv", ["Conv2d(8, 12, 1)", "Conv2d(8, 12, (3, 1), padding=(1, 0))"], ids=["1 x 1", "3 x 1"])
@pytest.mark.parametrize("name", REDUCED)
def test_what_is_reduced_is_of_the_rows_that_were(name: str, conv: str, tmp_path: Path) -> None:
    body, template, space = REDUCED[name]
    path = model(tmp_path, conv, (2, 8, 6, 16), body)
    with multiprocessors(2):
        agrees(path, pick=seen(first_of(template), space), reducing=True, precision="tf32")


@pytest.mark.parametrize("name", ["space", "channels"])
def test_an_operand_along_w_does_not_run_over_the_end_of_its_row(name: str, tmp_path: Path) -> None:
    """Rows of 5: a pair of neighbours of the whole plane would lie in two rows."""
    bodies = {"space": "y.amax((2, 3))", "channels": "y.amax(1)"}
    body = f"y = self.conv(x) * torch.arange(5.0, device=x.device)\n        return {bodies[name]}"
    agrees(model(tmp_path, "Conv2d(8, 12, 1)", (2, 8, 4, 5), body), pick=first_of(conv_mma), reducing=True)
