"""Convolutions whose weights stream through shared memory, run on the host: geometry, phases, ranges and ends of tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.generate.conv import shape_of
from kernelwright.kernels import conv_sm90_kept
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.conv_sm90_kept import Config
from kernelwright.plan import Convolution, Kernel
from tests.emulator.build import g_plus_plus, multiprocessors, order
from tests.emulator.run import agrees
from tests.emulator.test_convolutions import H200, model
from tests.emulator.test_kept_convolutions import Pick

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")


def streamed(wanted: Callable[[Config], bool] = lambda config: True, **changes: int) -> Pick:
    """The most promising of the configs that fit and are wanted. Other kernels stay as they are."""

    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        if not isinstance(kernel.core, Convolution):
            return choices[0]
        shape = shape_of(kernel)
        every = conv_sm90_kept.streams(shape, H200)
        fitting = [c for c in every if conv_sm90_kept.why_not(c, shape, H200) is None and wanted(c)]
        best = min(fitting, key=lambda config: conv_sm90_kept.cost_us(config, shape, H200))
        return replace(best, **changes)

    return pick


# Rows that do not fill a tile, channels that are no multiple of 8 or of 64, one and several chunks, axes and groups.
GEOMETRIES = {
    "whole": ("Conv2d(16, 128, 3, padding=1)", (2, 16, 7, 38)),
    "some channels": ("Conv2d(20, 77, 3)", (2, 20, 6, 35)),
    "even taps": ("Conv2d(16, 70, (2, 4), padding=2)", (1, 16, 5, 34)),
    "one octet": ("Conv2d(8, 128, 3, padding=1)", (1, 8, 5, 30)),
    "three channels": ("Conv2d(3, 66, 5, padding=2)", (1, 3, 6, 33)),
    "dilated": ("Conv2d(16, 65, 3, padding=2, dilation=2)", (1, 16, 5, 33)),
    "strided": ("Conv2d(16, 100, 3, stride=2, padding=1)", (1, 16, 9, 69)),
    "one axis": ("Conv1d(24, 128, 5)", (2, 24, 77)),
    "three axes": ("Conv3d(16, 128, 3, padding=1)", (1, 16, 3, 5, 34)),
    "groups": ("Conv2d(32, 256, 3, groups=2)", (1, 32, 5, 35)),
    "transposed": ("ConvTranspose2d(24, 128, 5, padding=1)", (2, 24, 5, 32)),
    "transposed, three axes": ("ConvTranspose3d(16, 72, 3)", (1, 16, 2, 4, 32)),
}


@pytest.mark.parametrize("seamless", [0, 1])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_weights_that_stream_compute_what_pytorch_computes(name: str, seamless: int, tmp_path: Path) -> None:
    """Each block takes several tiles, so that places and stages are used again and again."""
    if seamless and name in ("strided", "one axis"):
        pytest.skip("rows of inputs do not follow each other")
    with multiprocessors(2):
        pick = streamed(lambda c: c.seamless == seamless)
        program = agrees(model(tmp_path, *GEOMETRIES[name]), pick=pick, precision="tf32")
    assert "kw::conv_sm90_kept::pack<" in program.text
