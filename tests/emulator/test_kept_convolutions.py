"""Convolutions whose weights stay in shared memory, run on the host: every kind of geometry, tile and end of a tile."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelwright.generate.conv import shape_of
from kernelwright.ir.nodes import Shape
from kernelwright.kernels import conv_mma, conv_sm90_kept
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.conv_sm90_kept import Config
from kernelwright.plan import Convolution, Kernel
from tests.emulator.build import EmulatedFault, g_plus_plus, library_of, multiprocessors, order
from tests.emulator.run import Emulation, agrees, emulated, emulated_problem, program_of, ran
from tests.emulator.test_convolutions import CASES, EPILOGUES, H200, model

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

Pick = Callable[[Kernel, Sequence[Choice]], Choice]

# The second 8 of k may lie before the first, which a descriptor cannot say.
NOT_TAKEN = {"depthwise, more outputs"}
TAKEN = [name for name in CASES if name not in NOT_TAKEN]


def kept(wanted: Callable[[Config], bool] = lambda config: True, seed: int | None = None, **changes: int) -> Pick:
    """One of the configs that fit and are wanted: the most promising, or any. Other kernels stay as they are."""

    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        if not isinstance(kernel.core, Convolution):
            return choices[0]
        shape = shape_of(kernel)
        every = conv_sm90_kept.candidates(shape, H200)
        fitting = [c for c in every if conv_sm90_kept.why_not(c, shape, H200) is None and wanted(c)]
        best = min(fitting, key=lambda config: conv_sm90_kept.cost_us(config, shape, H200))
        return replace(best if seed is None else random.Random(seed).choice(fitting), **changes)

    return pick


def is_kept(program_text: str) -> bool:
    return "kw::conv_sm90_kept::launch" in program_text


def by_teams(teams: int, carriers: int) -> Callable[[Config], bool]:
    return lambda config: (config.teams, config.carriers) == (teams, carriers)


# --- teams that take turns

# Results that are just stored, of tiles whose products are issued at once: 5 and 6 tiles of one block.
TURNS = [("reference", (1, 8, 12, 34)), ("tf32", (1, 8, 14, 34))]


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "shape"), TURNS)
@pytest.mark.parametrize("backwards", [False, True])
def test_teams_take_turns(precision: str, shape: Shape, backwards: bool, tmp_path: Path) -> None:
    path = model(tmp_path, "Conv2d(8, 20, 3)", shape)
    with multiprocessors(1), order(threads_backwards=backwards):
        agrees(path, pick=kept(two_rows_by_two), precision=precision)


def two_rows_by_two(config: Config) -> bool:
    return by_teams(2, 1)(config) and config.rows == 2 and config.laps == 1 and config.abreast == 1


def test_who_does_not_hand_on_the_turn_holds_all_up(tmp_path: Path) -> None:
    problem = emulated_problem(model(tmp_path, "Conv2d(8, 20, 3)", TURNS[0][1]))
    program = program_of(problem, "h200", kept(two_rows_by_two), "reference")
    assert "Turns<C, End>::hand_on(number);" in program.text
    library = library_of(program.text.replace("Turns<C, End>::hand_on(number);", ""))
    with multiprocessors(1), pytest.raises(EmulatedFault, match="no thread can go on"):
        ran(problem, None, Emulation(problem, program, library))


# --- geometry


@pytest.mark.slow
@pytest.mark.parametrize("name", ["strided", "groups", "one axis", "three channels, even rows", "transposed"])
def test_one_product_is_as_accurate_as_tf32(name: str, tmp_path: Path) -> None:
    """Each block takes several tiles."""
    conv, shape = CASES[name]
    with multiprocessors(2):
        program = agrees(model(tmp_path, conv, (3 * shape[0], *shape[1:])), pick=kept(), precision="tf32")
    assert is_kept(program.text)


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKEN)
def test_pairs_are_as_accurate_as_float32(name: str, tmp_path: Path) -> None:
    with multiprocessors(3):
        program = agrees(model(tmp_path, *CASES[name]), pick=kept())
    assert "three tensor-core products" in program.sources[0].arithmetic


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize("name", TAKEN)
def test_any_tile_computes_what_pytorch_computes(name: str, precision: str, seed: int, tmp_path: Path) -> None:
    conv, shape = CASES[name]
    with multiprocessors(1 + seed):
        agrees(model(tmp_path, conv, (2 * shape[0], *shape[1:])), pick=kept(seed=seed), precision=precision)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize(("teams", "carriers"), [(3, 1), (2, 1), (2, 2)])
def test_rings_of_any_length_serve_all_teams(teams: int, carriers: int, stages: int, tmp_path: Path) -> None:
    """Several chunks of channels and several tiles: stages are used again and again."""
    path = model(tmp_path, "Conv2d(40, 24, 3, padding=1)", (3, 40, 5, 34))
    with multiprocessors(1):
        agrees(path, pick=kept(by_teams(teams, carriers), stages=stages, octets=2), precision="tf32")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize("name", ["transposed", "transposed, dilated", "transposed in groups, three axes"])
def test_phases_of_the_last_axis_can_share_a_tile(name: str, precision: str, tmp_path: Path) -> None:
    with multiprocessors(4):  # as many as there are phases of the other axes: blocks get them in turn
        agrees(model(tmp_path, *CASES[name]), pick=kept(lambda c: c.w_phases > 1), precision=precision)


# Phases of h and d with as many places as the others, and with fewer; rows that do not fill a tile; several chunks.
LAPS = {
    "two axes": ("ConvTranspose2d(40, 20, 3, stride=2, padding=1, output_padding=1)", (2, 40, 5, 34)),
    "odd rows": ("ConvTranspose2d(24, 12, 4, stride=2, padding=1, output_padding=1)", (1, 24, 6, 35)),
    "three axes": ("ConvTranspose3d(8, 10, 3, stride=2)", (1, 8, 3, 4, 33)),
    "along h alone": ("ConvTranspose2d(16, 8, 3, stride=(2, 1))", (1, 16, 5, 33)),
    "without taps": ("ConvTranspose2d(8, 4, 2, stride=3, output_padding=2)", (1, 8, 5, 33)),
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("name", LAPS)
def test_phases_of_all_axes_can_share_inputs(name: str, rows: int, precision: str, tmp_path: Path) -> None:
    with multiprocessors(1):
        pick = kept(lambda c: c.turns > 1 and c.rows == rows)
        program = agrees(model(tmp_path, *LAPS[name]), pick=pick, precision=precision)
    assert "turns = 1," not in program.text


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("by_d", [False, True])
@pytest.mark.parametrize("name", LAPS)
def test_a_block_can_keep_the_weights_of_some_phases(name: str, by_d: bool, count: int, tmp_path: Path) -> None:
    """Of one of d and h, or of one of d and all of h; more shelves than multiprocessors, and some to spare."""

    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        shape = shape_of(kernel)
        sets = shape.y_step(0) if by_d else shape.y_step(0) * shape.y_step(1)
        turns = shape.y_step(0) * shape.y_step(1) // sets
        whole = kept(lambda c: c.w_phases == shape.y_step(2) and (c.turns > 1) == (turns > 1))(kernel, choices)
        assert isinstance(whole, Config)
        return replace(whole, turns=turns, sets=sets)

    with multiprocessors(count):
        program = agrees(model(tmp_path, *LAPS[name]), pick=pick, precision="tf32")
    assert by_d or "sets = 1," not in program.text


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize(("rows", "at_once"), [(2, 1), (4, 1), (4, 2)])
@pytest.mark.parametrize("name", ["plain", "strided", "along d", "abreast"])
def test_rows_can_be_taken_in_laps(name: str, rows: int, at_once: int, precision: str, tmp_path: Path) -> None:
    conv, shape = {
        "plain": ("Conv2d(24, 20, 3, padding=1)", (2, 24, 7, 34)),
        "strided": ("Conv2d(16, 9, 3, stride=(2, 1))", (2, 16, 13, 35)),
        "along d": ("Conv3d(8, 6, (3, 1, 3))", (1, 8, 7, 1, 35)),
        "abreast": ("Conv2d(16, 77, 3, padding=1)", (1, 16, 5, 33)),
    }[name]
    together = 2 if name == "abreast" else 1

    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        flat = kept(lambda c: (c.rows, c.abreast) == (at_once, together))(kernel, choices)
        assert isinstance(flat, Config)
        axis = "tile_h" if shape_of(kernel).most(1) > 1 else "tile_d"
        tall = {axis: rows, "tile_n": flat.tile_w * rows}
        return replace(flat, **tall, lap_rows=at_once, stages=conv_mma.chunks(flat, shape_of(kernel)))

    with multiprocessors(2):
        program = agrees(model(tmp_path, conv, shape), pick=pick, precision=precision)
    assert f"lap_rows = {at_once}," in program.text


def test_an_infinity_is_seen_in_every_lap(tmp_path: Path) -> None:
    special = "torch.randn(1, 24, 4, 33).index_fill(1, torch.tensor([20]), float('inf'))"
    conv = "ConvTranspose2d(24, 6, 3, stride=2, padding=1, bias=False)"
    path = model(tmp_path, conv, (1, 24, 4, 33), "return self.conv(x)", special)
    agrees(path, pick=kept(lambda c: c.turns > 1 and c.rows == 2), precision="tf32")


def test_weights_that_are_not_finite_reach_their_channels_alone(tmp_path: Path) -> None:
    conv = "Conv2d(8, 20, 3)"
    for channel, value in ((3, "inf"), (17, "nan")):
        conv += f"\n        self.conv.weight.data[{channel}, 2, 0, 1] = float('{value}')"
    agrees(model(tmp_path, conv, (1, 8, 5, 34)), pick=kept(), precision="tf32")


@pytest.mark.parametrize("count", [1, 5])
def test_each_block_keeps_the_weights_of_64_channels(count: int, tmp_path: Path) -> None:
    """Three shelves on one multiprocessor and on five, of which two have nothing to do."""
    with multiprocessors(count):
        agrees(model(tmp_path, "Conv2d(8, 150, 3, padding=1)", (2, 8, 4, 34)), pick=kept(), precision="tf32")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize("name", ["whole", "some", "groups", "phases"])
def test_two_teams_abreast_have_128_channels_of_a_tile(name: str, precision: str, tmp_path: Path) -> None:
    """Of which the second may have few; several chunks, tiles and shelves."""
    conv, shape = {
        "whole": ("Conv2d(24, 128, 3, padding=1)", (2, 24, 5, 38)),
        "some": ("Conv2d(20, 77, 3)", (2, 20, 4, 36)),
        "groups": ("Conv1d(16, 256, 3, groups=2)", (3, 16, 61)),
        "phases": ("ConvTranspose2d(16, 70, 4, stride=2, padding=1)", (1, 16, 3, 34)),
    }[name]
    with multiprocessors(2):
        program = agrees(model(tmp_path, conv, shape), pick=kept(lambda c: c.abreast == 2), precision=precision)
    assert "abreast = 2," in program.text


# --- results


RUNS = {
    "fours": ((2, 8, 6, 32), 4),
    "fours across rows": ((2, 8, 6, 30), 4),
    "twos": ((2, 8, 5, 30), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_whole_rows_leave_as_one_run(name: str, tmp_path: Path) -> None:
    """At the lower edge a tile has fewer rows than it could."""
    x, vector = RUNS[name]
    path = model(tmp_path, "Conv2d(8, 20, 3, padding=1)", x)
    with multiprocessors(2):
        program = agrees(path, pick=kept(lambda c: c.tile_h == 2), precision="tf32")
    assert f"run_vector = {vector}," in program.text


# Rows that begin at any multiple of 4, 8 or 16 bytes, shorter and longer than a tile's, of all and of some channels.
SENT = {
    "of all channels": ("Conv2d(8, 64, 3, padding=1)", (2, 8, 5, 33)),
    "anywhere": ("Conv2d(8, 12, 3, padding=1)", (2, 8, 3, 39)),
    "of a few": ("Conv2d(8, 3, 3, padding=1)", (2, 8, 3, 3)),
    "in groups": ("Conv2d(16, 26, 3, groups=2)", (1, 16, 4, 37)),
    "three axes": ("Conv3d(8, 10, 3)", (1, 8, 5, 3, 35)),
    "one axis": ("Conv1d(16, 9, 3)", (2, 16, 77)),
    "phases": ("ConvTranspose2d(8, 12, 3, stride=2, padding=1)", (2, 8, 4, 19)),
    "phases, twos": ("ConvTranspose2d(8, 12, 4, stride=2, padding=1)", (1, 8, 3, 35)),
    "phases, fours": ("ConvTranspose2d(8, 20, 4, stride=2, padding=1)", (2, 8, 3, 38)),
}


@pytest.mark.slow
@pytest.mark.parametrize("slabs", [1, 2])
@pytest.mark.parametrize("name", SENT)
def test_the_copy_engine_takes_rows_that_begin_anywhere(name: str, slabs: int, tmp_path: Path) -> None:
    """Each warp has several tiles, so that its slabs are used again."""
    path = model(tmp_path, *SENT[name], "return torch.relu(self.conv(x) * 2)")
    with multiprocessors(1):
        program = agrees(path, pick=kept(lambda c: c.sent > 0, sent=slabs), precision="tf32")
    assert f"sent = {slabs}," in program.text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize("name", SENT)
def test_rows_of_any_tile_can_be_sent(name: str, precision: str, seed: int, tmp_path: Path) -> None:
    with multiprocessors(1 + seed % 2):
        agrees(model(tmp_path, *SENT[name]), pick=kept(lambda c: c.sent > 0, seed=seed), precision=precision)


def test_results_that_are_sent_may_be_part_of_another_and_see_their_image(tmp_path: Path) -> None:
    """Operands of a plane; results that lie between others, at no multiple of 16 bytes."""
    body = (
        "y = self.conv(x)\n        return torch.cat([y * x.mean((2, 3), keepdim=True)[:, :5], x[:, :3, 1:-1, 1:-1]], 1)"
    )
    path = model(tmp_path, "Conv2d(8, 5, 3)", (3, 8, 5, 41), body)
    with multiprocessors(2):
        program = agrees(path, pick=kept(lambda c: c.sent > 0), precision="tf32")
    assert "sent = 2," in program.text


def test_what_reads_places_of_its_own_is_not_sent(tmp_path: Path) -> None:
    path = model(tmp_path, "Conv2d(8, 8, 3, padding=1)", (2, 8, 5, 38), "return self.conv(x) + x")
    assert "sent = 0," in agrees(path, pick=kept(), precision="tf32").text


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("name", EPILOGUES)
def test_what_follows_is_in_the_same_kernel(name: str, rows: int, tmp_path: Path) -> None:
    path = model(tmp_path, "Conv2d(8, 8, 3, padding=1)", (2, 8, 5, 6), EPILOGUES[name])
    program = agrees(path, pick=kept(lambda c: c.rows == rows))
    assert [source.template for source in program.sources] == ["conv_sm90_kept"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_functions_of_rounded_products_take_few_instructions(size: float, tmp_path: Path) -> None:
    body = f"y = self.conv(x) * {size}\n        return torch.tanh(y) + torch.sigmoid(y) + F.silu(y) * F.mish(y), "
    body += "F.softplus(y), F.softplus(y, 2.0, 5.0), F.hardswish(y) + F.hardsigmoid(y), "
    body += "F.gelu(y), F.gelu(y, approximate='tanh')"
    path = model(tmp_path, "Conv2d(8, 8, 3, padding=1)", (2, 8, 5, 38), body)
    text = agrees(path, pick=kept(), precision="tf32").text
    assert all(f"kw::near_{name}(" in text for name in ("mish", "gelu_erf", "gelu_tanh"))
    assert "kw::near_" not in agrees(path, pick=kept()).text


@pytest.mark.slow
def test_channels_last_inputs_are_read_as_they_lie(tmp_path: Path) -> None:
    inputs = "torch.randn(2, 9, 6, 7).to(memory_format=torch.channels_last)"
    agrees(model(tmp_path, "Conv2d(9, 6, 3)", (2, 9, 6, 7), inputs=inputs), pick=kept())


@pytest.mark.slow
def test_results_may_lie_in_channels_last_order(tmp_path: Path) -> None:
    inputs = "torch.randn(2, 8, 5, 6).to(memory_format=torch.channels_last)"
    body = "return torch.cumsum(self.conv(x) + x, 1) * 2"
    agrees(model(tmp_path, "Conv2d(8, 8, 3, padding=1)", (2, 8, 5, 6), body, inputs), pick=kept())


@pytest.mark.slow
def test_results_may_be_parts_of_a_concatenation(tmp_path: Path) -> None:
    body = "y = self.conv(x)\n        return torch.stack([torch.relu(y), torch.tanh(y)], -1), torch.cat([y, y * 2], 1)"
    agrees(model(tmp_path, "Conv2d(4, 4, 3)", (1, 4, 6, 8), body), pick=kept())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_convolutions_are_summed_in_float32(dtype: str, tmp_path: Path) -> None:
    conv = f"Conv2d(9, 6, 3, bias=False, dtype=torch.{dtype})"
    inputs = f"torch.randn(2, 9, 6, 7).to(torch.{dtype})"
    agrees(model(tmp_path, conv, (2, 9, 6, 7), "return self.conv(x)", inputs), pick=kept())


# --- numbers of any kind


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["reference", "tf32"])
@pytest.mark.parametrize(("first", "last"), [(-5, 0), (0, -5)], ids=["growing", "shrinking"])
@pytest.mark.parametrize("size", [1e-30, 1e30], ids=["small", "large"])
def test_values_of_any_size_are_scaled_into_range(
    size: float, first: int, last: int, precision: str, tmp_path: Path
) -> None:
    """Channels differ by five orders of magnitude, so that later chunks may need another scale than the first."""
    conv, body = "Conv2d(40, 8, 3, bias=False)", "return self.conv(x) * 3"
    values = f"torch.randn(1, 40, 5, 8) * torch.logspace({first}, {last}, 40).view(40, 1, 1) * {size}"
    pick = kept(lambda c: c.octets == 2)
    agrees(model(tmp_path, conv, (1, 40, 5, 8), body, values), pick=pick, precision=precision)


@pytest.mark.parametrize("precision", ["reference", "tf32"])
def test_infinities_and_nans_come_out_where_pytorch_has_them(precision: str, tmp_path: Path) -> None:
    """Beside an Inf there are results that it does not reach: they are as accurate as without it."""
    special = "torch.randn(1, 9, 6, 40).index_put((torch.tensor([0, 0]), torch.tensor([3, 5]), torch.tensor([2, 4]), "
    special += "torch.tensor([2, 7])), torch.tensor([float('inf'), float('nan')]))"
    path = model(tmp_path, "Conv2d(9, 6, 3, bias=False)", (1, 9, 6, 40), "return self.conv(x)", special)
    agrees(path, pick=kept(), precision=precision)


def test_results_do_not_depend_on_who_is_first(tmp_path: Path) -> None:
    path = model(tmp_path, "Conv2d(24, 70, 3, padding=1)", (2, 24, 5, 36))
    found = []
    for backwards in (False, True):
        with multiprocessors(3), order(blocks_backwards=backwards, threads_backwards=backwards):
            found.append(emulated(path, pick=kept()))
    assert torch.equal(*found)


# --- windows that lie side by side

WINDOWS = {
    "largest": ("Conv2d(8, 70, 3)", (2, 8, 12, 38), "return F.max_pool2d(torch.tanh(self.conv(x)), 2)"),
    "mean, odd sizes": ("Conv2d(9, 16, 3, padding=1)", (3, 9, 7, 37), "return F.avg_pool2d(F.relu(self.conv(x)), 2)"),
    "of four": ("Conv2d(8, 64, 3)", (2, 8, 14, 42), "return torch.tanh(F.avg_pool2d(F.relu(self.conv(x)), 4))"),
    "after a transposed one": ("ConvTranspose2d(8, 66, 3)", (2, 8, 10, 30), "return F.max_pool2d(self.conv(x), 2)"),
}


@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_pooled_by_the_warp_that_has_them(name: str, precision: str, tmp_path: Path) -> None:
    with multiprocessors(3):
        program = agrees(model(tmp_path, *WINDOWS[name]), pick=kept(), precision=precision, reducing=True)
    assert [source.template for source in program.sources] == ["conv_sm90_kept"]


def test_windows_are_pooled_in_laps(tmp_path: Path) -> None:
    path = model(tmp_path, "Conv2d(8, 64, 3)", (2, 8, 14, 42), "return F.max_pool2d(self.conv(x), 2)")
    pick = kept(lambda c: c.rows == 4, lap_rows=2)
    assert "lap_rows = 2" in agrees(path, pick=pick, precision="tf32", reducing=True).text


# --- rows along the channels

CHANNELS = {
    "least": ("Conv2d(8, 60, 3)", (2, 8, 6, 38), "return self.conv(x).amin(1, keepdim=True).tanh()"),
    "of two teams": ("Conv2d(9, 128, 3, padding=1)", (2, 9, 5, 37), "return self.conv(x).amin(1)"),
    "softmax": ("Conv2d(8, 33, 3)", (2, 8, 6, 38), "return torch.softmax(self.conv(x), 1) * 2.0"),
    "softmax of two teams": ("Conv2d(8, 120, 3)", (1, 8, 5, 36), "return torch.softmax(self.conv(x), 1)"),
    "phases": (
        "ConvTranspose2d(8, 40, 4, stride=2, padding=1)",
        (1, 8, 3, 17),
        "return torch.logsumexp(self.conv(x), 1)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize("name", CHANNELS)
def test_channels_are_reduced_by_the_teams_that_have_them(name: str, precision: str, tmp_path: Path) -> None:
    with multiprocessors(2):
        program = agrees(model(tmp_path, *CHANNELS[name]), pick=kept(), precision=precision, reducing=True)
    assert [source.template for source in program.sources] == ["conv_sm90_kept"]
    assert ("abreast = 2" in program.text) == ("two teams" in name)


# Of every channel a result again, once all of its pixel is known: odd rows and even ones, channels that are no multiple
# of 8, several phases and rows, operands that differ from pixel to pixel, and pixels of which something is stored too.
EVERY_CHANNEL = {
    "softmax": ("Conv2d(8, 33, 3)", (2, 8, 6, 39), "return torch.sigmoid(torch.softmax(self.conv(x), 1) * 2.0)"),
    "phases": (
        "ConvTranspose2d(16, 64, 4, stride=2, padding=1, output_padding=1)",
        (1, 16, 5, 17),
        "return torch.sigmoid(torch.softmax(self.conv(x), 1) * 2.0 + self.conv.bias.view(-1, 1, 1))",
    ),
    "phases of two teams": (
        "ConvTranspose2d(8, 77, 4, stride=2, padding=1)",
        (1, 8, 3, 34),
        "return torch.softmax(self.conv(x), 1)",
    ),
    "phases of three axes": (
        "ConvTranspose3d(8, 20, 3, stride=2, padding=1, output_padding=1)",
        (1, 8, 2, 3, 20),
        "return F.softmax(self.conv(x), 1).sigmoid()",
    ),
    "phases, by three": (
        "ConvTranspose2d(8, 9, 3, stride=3)",
        (1, 8, 3, 12),
        "return F.log_softmax(self.conv(x), 1)",
    ),
    "normalised": (
        "Conv2d(8, 40, 3)",
        (2, 8, 6, 38),
        (
            "y = self.conv(x)\n        v, m = torch.var_mean(y, 1, keepdim=True, correction=0)\n"
            "        return torch.tanh((y - m) / (v + 1e-5).sqrt())"
        ),
    ),
    "by their size": (
        "Conv2d(8, 24, 3, padding=1)",
        (2, 8, 5, 37),
        "y = self.conv(x)\n        return y / y.square().mean(1, keepdim=True).add(1e-5).sqrt()",
    ),
    "operands of pixels": (
        "Conv2d(8, 8, 3, padding=1)",
        (2, 8, 5, 38),
        "return torch.softmax(self.conv(x) + x, 1) * x",
    ),
    "operands of pixels, odd rows": (
        "Conv2d(8, 8, 3, padding=1)",
        (2, 8, 5, 37),
        "return torch.softmax(self.conv(x) + x, 1) * x",
    ),
    "and their largest": (
        "Conv2d(8, 70, 3, padding=1)",
        (2, 8, 5, 37),
        "y = self.conv(x)\n        m = y.amax(1, keepdim=True)\n        return (y - m).exp(), m",
    ),
}


# Pairs have two sums for each, which for three phases together are too many.
BY_ROWS = [(name, "tf32") for name in EVERY_CHANNEL]
BY_ROWS += [(name, "reference") for name in EVERY_CHANNEL if name != "phases, by three"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision"), BY_ROWS)
def test_reduced_channels_are_stored_by_rows(name: str, precision: str, tmp_path: Path) -> None:
    with multiprocessors(2):
        pick = kept(lambda c: c.w_phases > 1 or "phases" not in name)
        program = agrees(model(tmp_path, *EVERY_CHANNEL[name]), pick=pick, precision=precision, reducing=True)
    assert [source.template for source in program.sources] == ["conv_sm90_kept"]
    assert "by_rows = true" in program.text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", EVERY_CHANNEL)
def test_any_tile_stores_reduced_channels(name: str, seed: int, tmp_path: Path) -> None:
    with multiprocessors(1 + seed):
        agrees(model(tmp_path, *EVERY_CHANNEL[name]), pick=kept(seed=seed), precision="tf32", reducing=True)


@pytest.mark.parametrize("value", ["inf", "nan", "-inf"])
def test_a_softmax_is_nan_where_pytorch_has_it(value: str, tmp_path: Path) -> None:
    special = f"torch.randn(1, 8, 4, 37).index_fill(3, torch.tensor([20]), float('{value}'))"
    conv = "ConvTranspose2d(8, 70, 3, stride=2, padding=1)"
    path = model(tmp_path, conv, (1, 8, 4, 37), "return torch.softmax(self.conv(x), 1)", special)
    agrees(path, pick=kept(lambda c: c.w_phases > 1), precision="tf32", reducing=True)


def test_a_softmax_does_not_depend_on_who_is_first(tmp_path: Path) -> None:
    conv, body = "ConvTranspose2d(8, 70, 4, stride=2, padding=1)", "return torch.softmax(self.conv(x), 1)"
    path = model(tmp_path, conv, (1, 8, 4, 35), body)
    found = []
    for backwards in (False, True):
        with multiprocessors(3), order(blocks_backwards=backwards, threads_backwards=backwards):
            found.append(emulated(path, pick=kept(), reducing=True))
    assert torch.equal(*found)


# --- rows along w

# Rows that fill a tile and that do not, odd ones, of channels that are no multiple of 8, of groups and several phases.
LINES = {
    "normalised": (
        (
            "ConvTranspose3d(8, 20, 4, stride=2, padding=1)\n        self.norm = nn.LayerNorm(40)\n"
            "        self.norm.weight.data.uniform_(0.5, 2)\n        self.norm.bias.data.uniform_(-1, 1)"
        ),
        (1, 8, 2, 3, 20),
        "return F.gelu(self.norm(self.conv(x))) * 2.0",
    ),
    "normalised, seen by others": (
        "ConvTranspose2d(8, 20, 3, stride=2, padding=1, output_padding=1)",
        (1, 8, 3, 20),
        "y = self.conv(x) + 1.0\n        v, m = torch.var_mean(y, -1, correction=0)\n        return y, m, v + 1.0",
    ),
    "normalised, odd rows": (
        "ConvTranspose2d(16, 70, 3, stride=2)",
        (2, 16, 4, 18),
        "return F.layer_norm(self.conv(x) + 0.5, (37,))",
    ),
    "softmax": ("Conv2d(9, 12, 3, padding=1)", (2, 9, 5, 38), "return torch.softmax(self.conv(x), -1)"),
    "softmax of other channels": ("Conv2d(8, 66, 3)", (1, 8, 5, 64), "return torch.softmax(self.conv(x), 3).sigmoid()"),
    "in groups": ("Conv2d(16, 26, 3, groups=2)", (1, 16, 4, 37), "return F.layer_norm(self.conv(x), (35,))"),
    "with an operand": (
        "Conv2d(8, 8, 3, padding=1)",
        (2, 8, 5, 36),
        "return torch.softmax(self.conv(x) + x, -1) * x",
    ),
    "and their largest": (
        "Conv2d(8, 9, 3, padding=1)",
        (2, 8, 5, 36),
        "y = self.conv(x)\n        m = y.amax(-1, keepdim=True)\n        return (y - m).exp(), m",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize("name", LINES)
def test_rows_along_w_are_reduced_by_the_warp_that_has_them(name: str, precision: str, tmp_path: Path) -> None:
    with multiprocessors(2):
        program = agrees(model(tmp_path, *LINES[name]), pick=kept(), precision=precision, reducing=True)
    assert [source.template for source in program.sources] == ["conv_sm90_kept"]
    assert "kw::conv_lines::Lined" in program.text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LINES)
def test_any_tile_that_has_whole_rows_reduces_them(name: str, seed: int, tmp_path: Path) -> None:
    with multiprocessors(1 + seed):
        agrees(model(tmp_path, *LINES[name]), pick=kept(seed=seed), precision="tf32", reducing=True)


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_row_along_w_is_nan_where_pytorch_has_it(value: str, tmp_path: Path) -> None:
    special = f"torch.randn(1, 8, 5, 17).index_fill(2, torch.tensor([2]), float('{value}'))"
    conv = "ConvTranspose2d(8, 20, 3, stride=2, padding=1)"
    path = model(tmp_path, conv, (1, 8, 5, 17), "return F.layer_norm(self.conv(x), (33,))", special)
    agrees(path, pick=kept(), precision="tf32", reducing=True)


# --- rows over space, in pieces

PIECES = {
    "mean": ("Conv2d(8, 70, 3)", (2, 8, 6, 38), "return F.relu(self.conv(x)).mean((2, 3))"),
    "instances": (
        "Conv2d(8, 128, 3)",
        (2, 8, 6, 38),
        "return F.instance_norm(self.conv(x)) / 2.0",
    ),
    "groups, odd rows": (
        "Conv2d(9, 24, 3, padding=1)",
        (2, 9, 5, 37),
        "return F.group_norm(F.gelu(self.conv(x)), 4)",
    ),
    "batch": (
        "Conv2d(8, 66, 3)",
        (3, 8, 5, 36),
        "return F.batch_norm(self.conv(x), None, None, training=True)",
    ),
    "phases": (
        "ConvTranspose2d(8, 40, 4, stride=2, padding=1)",
        (2, 8, 3, 17),
        "return F.batch_norm(torch.relu(self.conv(x)), None, None, training=True)",
    ),
    "three axes": (
        "ConvTranspose3d(8, 33, 3, stride=2, padding=1)",
        (2, 8, 2, 3, 9),
        "return F.relu(self.conv(x)).mean((2, 3, 4))",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize("name", PIECES)
def test_a_warp_leaves_what_it_knows_of_its_channels(name: str, precision: str, tmp_path: Path) -> None:
    with multiprocessors(2):
        program = agrees(model(tmp_path, *PIECES[name]), pick=kept(), precision=precision, reducing=True)
    assert "kw::conv_pieces::Kept" in program.text
    assert is_kept(program.text)


# --- all three


@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("case", [CHANNELS["phases"], PIECES["phases"]], ids=["channels", "pieces"])
def test_phases_in_turns_are_reduced_lap_by_lap(case: tuple[str, Shape, str], turns: int, tmp_path: Path) -> None:
    pick = kept(lambda c: c.turns == turns and c.w_phases == 2)
    agrees(model(tmp_path, *case), pick=pick, precision="tf32", reducing=True)


@pytest.mark.parametrize("body", ["F.max_pool2d(y, 2)", "torch.softmax(y, 1)", "y.amax((2, 3))"])
def test_tiles_with_infinities_are_reduced_plainly(body: str, tmp_path: Path) -> None:
    inputs = "torch.randn(2, 8, 12, 38).index_fill_(3, torch.tensor([9]), float('inf'))"
    path = model(tmp_path, "Conv2d(8, 70, 3)", (2, 8, 12, 38), f"y = self.conv(x); return {body}", inputs)
    agrees(path, pick=kept(), precision="tf32", reducing=True)
