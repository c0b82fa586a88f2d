"""Convolutions whose weights stream through shared memory, run on the host: geometry, phases, ranges, ends of tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelwright.generate.conv import shape_of
from kernelwright.ir.nodes import Shape
from kernelwright.kernels import conv_sm90_kept
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.conv_sm90_kept import Config
from kernelwright.load import load
from kernelwright.plan import Convolution, Kernel
from tests.emulator.build import g_plus_plus, multiprocessors, order
from tests.emulator.run import agrees, emulation_of, ran
from tests.emulator.test_convolutions import H200, model
from tests.emulator.test_kept_convolutions import LAPS, Pick

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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(("places", "stages", "octets"), [(3, 2, 2), (5, 3, 2), (4, 2, 4), (3, 2, 8)])
def test_rings_of_any_length_serve_both_teams(places: int, stages: int, octets: int, tmp_path: Path) -> None:
    path = model(tmp_path, "Conv2d(64, 200, 3, padding=1)", (3, 64, 5, 34))
    pick = streamed(lambda c: c.octets == octets, streamed=places, stages=stages)
    with multiprocessors(3):
        assert f"streamed = {places}," in agrees(path, pick=pick, precision="tf32").text


# Whole rows of an even width, of which the next one begins where what is outside of the image begins, or ends.
SEAMS = {
    "zeros of both rows": ("ConvTranspose2d(16, 128, 5, padding=1)", (2, 16, 5, 32), 36),
    "zeros on the left": ("Conv2d(16, 70, (3, 4), padding=(1, 3))", (1, 16, 6, 33), 36),
    "none are outside": ("Conv2d(16, 128, 3)", (2, 16, 6, 34), 34),
    "deep": ("Conv3d(8, 66, 3, padding=(1, 1, 2))", (1, 8, 2, 5, 34), 36),
    "one on each side": ("Conv2d(24, 65, 3, padding=1)", (1, 24, 6, 36), 38),
}


FOLLOWS = ["return self.conv(x)", "return F.gelu(self.conv(x)) + 1", "y = self.conv(x); return y * y[:, :1]"]


@pytest.mark.slow
@pytest.mark.parametrize("body", FOLLOWS)
@pytest.mark.parametrize("name", SEAMS)
def test_rows_without_seams_may_begin_at_any_even_column(name: str, body: str, tmp_path: Path) -> None:
    conv, shape, width = SEAMS[name]
    path = model(tmp_path, conv, shape, body)
    with multiprocessors(2):
        program = agrees(path, pick=streamed(lambda c: c.tile_w % 8 > 0), precision="tf32")
    assert f"tile_w = {width};" in program.text


@pytest.mark.slow
@pytest.mark.parametrize("seamless", [0, 1])
@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.parametrize("name", LAPS)
def test_weights_of_every_phase_stream_in_turn(name: str, in_turns: bool, seamless: int, tmp_path: Path) -> None:
    if seamless and in_turns and name == "without taps":
        pytest.skip("three phases of two rows have more sums than registers hold")
    conv, shape = LAPS[name]
    few = conv[conv.index(",") + 1 :].split(",", 1)
    many = f"{conv[: conv.index(',')]}, 70,{few[1]}"
    with multiprocessors(2):
        pick = streamed(lambda c: (c.turns > 1) == in_turns and c.seamless == seamless)
        agrees(model(tmp_path, many, shape), pick=pick, precision="tf32")


# --- numbers of any kind: the scale of a chunk is guessed from a part of it


CONV, X = "Conv2d(40, 66, 3, padding=1, bias=False)", (1, 40, 7, 38)
VALUES = {
    "one is large": "torch.randn(X).index_fill(2, torch.tensor([6]), 1e6)",
    "one is small": "torch.randn(X) * torch.tensor([1e-6, 1, 1, 1e-3, 1, 1, 1e-6]).view(7, 1)",
    "growing": "torch.randn(X) * torch.logspace(-5, 0, 40).view(40, 1, 1) * 1e30",
    "shrinking": "torch.randn(X) * torch.logspace(0, -5, 40).view(40, 1, 1) * 1e-30",
    "zeros first": "torch.randn(X) * (torch.arange(7) > 4).view(7, 1)",
    "zeros": "torch.zeros(X)",
    "zeros in the first channels": "torch.randn(X) * (torch.arange(40) > 20).view(40, 1, 1) * 100",
}


@pytest.mark.slow
@pytest.mark.parametrize("octets", [2, 6])
@pytest.mark.parametrize("name", VALUES)
def test_values_of_any_size_are_scaled_into_range(name: str, octets: int, tmp_path: Path) -> None:
    inputs = VALUES[name].replace("X", str(X))
    path = model(tmp_path, CONV, X, "return self.conv(x) * 3", inputs)
    agrees(path, pick=streamed(lambda c: c.octets == octets), precision="tf32")


@pytest.mark.slow
@pytest.mark.parametrize("at", [(3, 0, 2), (3, 3, 20), (39, 6, 37)])
@pytest.mark.parametrize("value", ["inf", "nan"])
def test_infinities_and_nans_come_out_where_pytorch_has_them(value: str, at: Shape, tmp_path: Path) -> None:
    """Results beside them, which they do not reach, are as accurate as without them."""
    places = ", ".join(f"torch.tensor([{n}])" for n in (0, *at))
    inputs = f"torch.randn{X}.index_put(({places}), torch.tensor([float('{value}')]))"
    path = model(tmp_path, CONV, X, "return self.conv(x)", inputs)
    agrees(path, pick=streamed(), precision="tf32")


def test_weights_that_are_not_finite_reach_their_channels_alone(tmp_path: Path) -> None:
    conv = "Conv2d(16, 80, 3)"
    for channel, value in ((3, "inf"), (70, "nan")):
        conv += f"\n        self.conv.weight.data[{channel}, 2, 0, 1] = float('{value}')"
    agrees(model(tmp_path, conv, (1, 16, 5, 34)), pick=streamed(), precision="tf32")


def test_results_do_not_depend_on_who_is_first(tmp_path: Path) -> None:
    path = model(tmp_path, "Conv2d(24, 70, 3, padding=1)", (2, 24, 9, 36))
    found = []
    for backwards in (False, True):
        with multiprocessors(3), order(blocks_backwards=backwards, threads_backwards=backwards):
            problem = load(path)
            found.append(ran(problem, None, emulation_of(problem, pick=streamed(), precision="tf32"))[0])
    assert torch.equal(*found)


# --- ends of tiles


ENDS = {
    "windows": ("Conv2d(16, 70, 3)", (2, 16, 12, 38), "return F.max_pool2d(torch.tanh(self.conv(x)), 2)"),
    "channels": ("Conv2d(16, 128, 3, padding=1)", (2, 16, 5, 37), "return torch.softmax(self.conv(x), 1)"),
    "planes": ("Conv2d(16, 70, 3)", (2, 16, 6, 38), "return self.conv(x).mean((2, 3))"),
    "groups": ("Conv2d(16, 128, 3, padding=1)", (2, 16, 5, 37), "return F.group_norm(F.gelu(self.conv(x)), 4)"),
    "batch": (
        "ConvTranspose2d(16, 72, 5, padding=1)",
        (2, 16, 4, 32),
        "return F.batch_norm(self.conv(x), None, None, training=True)",
    ),
    "phases": (
        "ConvTranspose2d(16, 70, 4, stride=2, padding=1)",
        (2, 16, 3, 17),
        "return F.batch_norm(torch.relu(self.conv(x)), None, None, training=True)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("seamless", [0, 1])
@pytest.mark.parametrize("name", ENDS)
def test_tiles_end_as_where_weights_stay(name: str, seamless: int, tmp_path: Path) -> None:
    with multiprocessors(2):
        pick = streamed(lambda c: c.seamless == seamless)
        program = agrees(model(tmp_path, *ENDS[name]), pick=pick, precision="tf32", reducing=True)
    assert "Stored" not in program.text.split("conv_sm90_kept::launch")[-1][:200]


@pytest.mark.parametrize("slabs", [1, 2])
def test_results_can_be_sent(slabs: int, tmp_path: Path) -> None:
    path = model(tmp_path, "ConvTranspose2d(16, 70, 3, stride=2, padding=1)", (2, 16, 4, 35))
    with multiprocessors(1):
        program = agrees(path, pick=streamed(lambda c: c.sent == slabs), precision="tf32")
    assert f"sent = {slabs}," in program.text
