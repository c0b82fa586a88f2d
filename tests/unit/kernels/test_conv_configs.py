"""Configs of the convolution templates: those that are ranked fit, and what does not fit says why."""

from __future__ import annotations

import json
import math
import random
import statistics
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.conv_device import TIMED, conv_of, kernel_of, module_of, random_conv
from kernelwright.device import resolve
from kernelwright.generate.conv import shape_of
from kernelwright.generate.generate import ranked_choices
from kernelwright.ir.nodes import Graph, Input, Map, Shape
from kernelwright.kernels import conv_direct, conv_kept_sizes, conv_mma, conv_sm90, conv_sm90_kept, conv_sm90_ring
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.conv_shape import ConvShape
from kernelwright.kernels.gemm_shape import LAUNCH_US
from kernelwright.plan import Kernel, Routes, plan
from kernelwright.tune.tune import short_list

H200, A100, CPU = resolve("h200"), resolve("a100"), resolve("cpu")
TEMPLATES = {"wgmma": conv_sm90, "mma": conv_mma, "direct": conv_direct, "kept": conv_sm90_kept}


def timed_shape(name: str, precision: str) -> ConvShape:
    text, shape = TIMED[name]
    return shape_of(kernel_of(conv_of(module_of(text), shape), "conv_kernel", precision, with_epilogue=True))


def random_shape(seed: int) -> ConvShape:
    return shape_of(kernel_of(random_conv(random.Random(seed)), "conv_kernel", "ieee", with_epilogue=False))


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("seed", range(25))
def test_every_ranked_config_fits_and_the_cheapest_is_first(seed: int, template: ModuleType) -> None:
    shape = random_shape(seed)
    ranked = template.configs(shape, H200)
    costs = [template.cost_us(config, shape, H200) for config in ranked]
    assert [template.why_not(config, shape, H200) for config in ranked] == [None] * len(ranked)
    assert costs == sorted(costs)
    assert all(cost > template.floor_us(shape, H200) for cost in costs)


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
@pytest.mark.parametrize("name", TIMED)
def test_some_template_takes_every_shape_of_the_benchmark(name: str, precision: str) -> None:
    shape = timed_shape(name, precision)
    assert any(template.configs(shape, H200) for template in TEMPLATES.values())


def test_dense_convolutions_go_to_the_tensor_cores_and_depthwise_ones_do_not() -> None:
    for name in TIMED:
        shape = timed_shape(name, "tf32")
        cost = {t: m.cost_us(c[0], shape, H200) for t, m in TEMPLATES.items() if (c := m.configs(shape, H200))}
        fastest = min(cost, key=lambda t: cost[t])
        assert (fastest == "direct") == ("depthwise" in name), name


@pytest.mark.parametrize(("width", "stored"), [(514, 4), (512, 2), (513, 1)])
def test_threads_of_a_depthwise_convolution_are_as_wide_as_a_store(width: int, stored: int) -> None:
    """Wider ones would write every sector of the result in parts."""
    conv = conv_of(module_of("Conv2d(64, 64, 3, groups=64)"), (16, 64, 512, width))
    shape = shape_of(kernel_of(conv, "conv_kernel", "ieee", with_epilogue=False))
    best, *_ = conv_direct.configs(shape, H200)
    assert (best.staged, best.lanes, conv_direct.vector(best, shape)) == (False, stored, stored)


def test_inputs_that_many_outputs_read_go_through_shared_memory() -> None:
    best, *_ = conv_direct.configs(timed_shape("64->128 3x3", "ieee"), H200)
    assert best.staged


def test_wgmma_is_for_hopper_alone() -> None:
    shape = timed_shape("64->128 3x3", "tf32")
    (config, *_) = conv_sm90.configs(shape, H200)
    assert conv_sm90.configs(shape, A100) == ()
    assert "sm_90a" in (conv_sm90.why_not(config, shape, A100) or "")
    assert conv_mma.configs(shape, A100) != ()
    assert conv_mma.configs(shape, CPU) == ()


def test_one_product_is_not_enough_where_tf32_is_not_allowed() -> None:
    shape = timed_shape("64->128 3x3", "ieee")
    assert {config.products for config in conv_mma.configs(shape, H200)} == {3}
    rounded = replace(conv_mma.configs(shape, H200)[0], products=1)
    assert "11 bits" in (conv_mma.why_not(rounded, shape, H200) or "")


def test_a_weight_that_is_computed_in_forward_takes_a_launch_that_packs_it() -> None:
    kept = timed_shape("64->128 3x3", "ieee")
    shape = replace(kept, constant=False)
    assert conv_direct.configs(shape, H200) != ()
    for template in (conv_mma, conv_sm90, conv_sm90_kept):
        (config, *_) = template.configs(shape, H200)
        assert template.cost_us(config, shape, H200) == pytest.approx(template.cost_us(config, kept, H200) + LAUNCH_US)


@pytest.mark.parametrize(
    ("channels", "width", "fold"), [(3, 11, 2), (1, 3, 4), (1, 7, 8), (4, 1, 1), (8, 3, 1), (5, 3, 1)]
)
def test_taps_fill_the_octets_of_few_channels(channels: int, width: int, fold: int) -> None:
    conv = conv_of(module_of(f"Conv2d({channels}, 16, (3, {width}))"), (2, channels, 32, 32))
    shape = shape_of(kernel_of(conv, "conv_kernel", "tf32", with_epilogue=False))
    assert conv_mma.folding(shape) == fold


def test_a_pointwise_convolution_is_one_long_row() -> None:
    shape = timed_shape("1x1 64->128", "tf32")
    assert shape.x_space == shape.y_space == (1, 1, 512 * 512)


def test_phases_of_a_transposed_convolution_read_their_inputs_in_ascending_order() -> None:
    shape = timed_shape("transposed 3-d /2", "tf32")
    assert len(shape.phases) == 8
    assert all(axis.x_step >= 0 for phase in shape.phases for axis in phase.axes)


def test_a_strided_transposed_convolution_stores_neighbours_where_its_phases_are_together() -> None:
    shape = timed_shape("transposed 3-d /2", "tf32")
    config = next(c for c in conv_mma.configs(shape, H200) if c.w_phases == 2)
    assert shape.y_space[2] % 2 == 1
    assert conv_mma.vector(config, shape) == 1
    even = replace(shape, y_space=(63, 127, 256), vector=4)
    assert conv_mma.vector(config, even) == 4


# --- weights that stay


RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
MEASURED = [RESULTS / f"2026-11-16-conv-{which}-h200.jsonl" for which in ("kept", "sent")]
LATEST = "fd9834e"  # the commit of the second file: the first one with results that are sent, and teams abreast
# What the second run says of configs that are left; those it timed beside them, "further", were slower and are gone.
USUAL = ", near=False, stored=8"


def measured() -> dict[tuple[str, str, str], dict[Choice, float]]:
    """Microseconds on an H200 of every config, by the convolution, its precision and the commit that was run."""
    configs = {"mma": conv_mma.Config, "ring": conv_sm90_ring.Config, "kept": conv_sm90_kept.Config}
    found: dict[tuple[str, str, str], dict[Choice, float]] = {}
    for row in (json.loads(line) for path in MEASURED for line in path.read_text().splitlines()):
        if row["phase"] == "config" and row["template"] in configs:
            config = eval(row["config"].replace(USUAL, ""), {"Config": configs[row["template"]]})
            found.setdefault((row["name"], row["precision"], row["commit"]), {})[config] = row["us"]
    return found


def timed_kernel(name: str, precision: str) -> Kernel:
    text, x = TIMED[name]
    return kernel_of(conv_of(module_of(text), x), "conv_kernel", precision, with_epilogue=True)


@pytest.mark.parametrize(("name", "precision", "commit"), [key for key in measured() if key[2] != LATEST])
def test_the_template_that_was_fastest_on_an_h200_is_chosen(name: str, precision: str, commit: str) -> None:
    """And where its config was measured, it took at most 1.02 times as long as the best."""
    times = measured()[name, precision, commit]
    best = min(times, key=lambda config: times[config])
    chosen = ranked_choices(timed_kernel(name, precision), H200)[0]
    assert type(chosen) is type(best)
    assert times.get(chosen, 0.0) <= 1.02 * times[best]


@pytest.mark.parametrize(("name", "precision", "commit"), [key for key in measured() if key[2] == LATEST])
def test_of_weights_that_stay_a_config_about_as_fast_as_the_fastest_is_first(
    name: str, precision: str, commit: str
) -> None:
    """Other templates were not run beside them; who sends results, and who carries for whom, is told apart. There
    were no laps yet, and no pairs in tiles of 256 columns."""
    times = measured()[name, precision, commit]
    ranked = conv_sm90_kept.configs_as_asked(timed_shape(name, precision), H200)
    first = next(c for c in ranked if c.laps == 1 and (c.products, c.tile_n) != (3, 256))
    assert times[first] <= 1.04 * min(times.values())


# But for few channels, whose fastest config, pairs in tiles of 256 columns, came later.
LAST = {(name, precision): times for (name, precision, _), times in measured().items() if "few channels" not in name}


@pytest.mark.parametrize(("name", "precision"), LAST)
def test_a_config_that_was_about_the_fastest_is_on_the_tuners_list(name: str, precision: str) -> None:
    """In the last run of a convolution, which had what the model then preferred."""
    times = LAST[name, precision]
    listed = short_list(timed_kernel(name, precision), H200)
    assert min(times.get(config, math.inf) for config in listed) <= 1.03 * min(times.values())


def test_three_products_are_taken_where_they_are_nearly_free() -> None:
    """Few channels, all of whose k is one sum, and results that take longer. Not where products count."""
    names = ("few channels 8->64", "64->128 3x3")
    few, many = (conv_sm90_kept.configs(timed_shape(name, "tf32"), H200) for name in names)
    assert {c.products for c in few} == {3}
    assert (few[0].tile_n, few[0].teams) == (256, 2)
    assert {c.products for c in many} == {1}


def priced(sent: bool, abreast: int, latest: bool) -> list[float]:
    """Logarithms of the price over the time, of configs of one kind."""
    return [
        math.log(conv_sm90_kept.cost_us(config, timed_shape(name, precision), H200) / us)
        for (name, precision, commit), times in measured().items()
        for config, us in times.items()
        if isinstance(config, conv_sm90_kept.Config)
        and (config.sent > 0, config.abreast, commit == LATEST) == (sent, abreast, latest)
    ]


@pytest.mark.parametrize(
    ("sent", "abreast", "latest", "count", "mean", "deviation"),
    [
        (False, 1, False, 51 + 18, 0.03, 0.11),
        (False, 1, True, 35, 0.07, 0.11),
        (False, 2, True, 12, 0.06, 0.11),
        (True, 1, True, 35, 0.15, 0.13),
        (True, 2, True, 12, 0.11, 0.13),
    ],
)
def test_prices_of_weights_that_stay_are_those_that_were_measured(
    sent: bool, abreast: int, latest: bool, count: int, mean: float, deviation: float
) -> None:
    found = priced(sent, abreast, latest)
    assert len(found) == count
    assert abs(statistics.mean(found)) < mean
    assert statistics.stdev(found) < deviation


def test_rows_of_a_plane_leave_as_one_run_where_tiles_have_them_whole() -> None:
    shape = timed_shape("few channels 8->64", "tf32")
    runs = {(c.tile_w, c.rows): conv_kept_sizes.run_vector(c, shape) for c in conv_sm90_kept.candidates(shape, H200)}
    assert runs[128, 2] == 4  # 252 floats, although a row of 126 begins at 8 bytes
    assert runs[128, 1] == runs[64, 2] == 0


def test_rows_of_a_tile_are_as_wide_as_wastes_least() -> None:
    widths = conv_sm90_kept.widths(514)
    assert 88 in widths
    assert all(w % 8 == 0 and 32 <= w <= 256 for w in widths)


def test_weights_that_do_not_fit_say_so() -> None:
    shape = timed_shape("few channels 8->64", "tf32")
    (config, *_) = conv_sm90_kept.configs_as_asked(shape, H200)
    assert "of shared memory" in (conv_sm90_kept.why_not(config, replace(shape, channels=800), H200) or "")
    assert conv_sm90_kept.configs(shape, A100) == ()


def test_few_channels_need_no_sum_outside_of_the_tensor_cores() -> None:
    """72 of k: pairs have one accumulator, and so the same tiles as one product."""
    shape = timed_shape("few channels 8->64", "ieee")
    (config, *_) = conv_sm90_kept.configs(shape, H200)
    assert conv_kept_sizes.sums_once(config, shape)
    assert "every 80 of k" in conv_sm90_kept.arithmetic(config, shape)


def test_results_leave_by_the_copy_engine_where_all_that_follows_is_the_same_for_a_row() -> None:
    """A bias is; what has a value for every place is not. And where threads would store one result at a time."""
    for width in (63, 64):
        conv = conv_of(module_of("Conv2d(8, 8, 3, padding=1)"), (4, 8, 64, width))
        x = conv.x
        assert isinstance(x, Input)
        for follows, sendable in ((conv, True), (Map("add", (conv, x)), False)):
            routes = Routes(frozenset({conv}), frozenset(), "tf32")
            (kernel,) = plan(Graph((x,), (follows,), (), 0), routes).kernels
            shape = shape_of(kernel)
            ways = {config.sent > 0 for config in conv_sm90_kept.configs(shape, H200)}
            assert shape.sendable == sendable
            assert ways == {False, sendable and width == 63}


def test_results_of_even_rows_are_sent_only_where_phases_are_together() -> None:
    sent = {name for name in TIMED for c in conv_sm90_kept.configs(timed_shape(name, "tf32"), H200) if c.sent}
    assert all("/2" in name or timed_shape(name, "tf32").y_space[2] % 2 for name in sent)
    assert "transposed 64->64 /2" in sent
    shape = timed_shape("few channels 8->64", "tf32")
    (config, *_) = conv_sm90_kept.configs(shape, H200)
    assert "odd or of phases" in (conv_sm90_kept.why_not(replace(config, sent=2), shape, H200) or "")


def test_teams_abreast_carry_inputs_of_128_channels_once() -> None:
    shape = timed_shape("64->128 3x3", "tf32")
    (best, *_) = (c for c in conv_sm90_kept.configs(shape, H200) if c.abreast == 2)
    alone = next(c for c in conv_sm90_kept.configs(shape, H200) if c.abreast == 1)
    assert conv_kept_sizes.shelves(best, shape) == 1
    assert conv_kept_sizes.shelves(alone, shape) == 2
    assert conv_sm90_kept.cost_us(best, shape, H200) < conv_sm90_kept.cost_us(alone, shape, H200)
    assert all(c.abreast == 1 for c in conv_sm90_kept.configs(timed_shape("few channels 8->64", "tf32"), H200))


def test_phases_of_all_axes_share_inputs_that_are_carried_once() -> None:
    shape = timed_shape("transposed 64->64 /2", "tf32")
    best = conv_sm90_kept.configs(shape, H200)[0]
    alone = next(c for c in conv_sm90_kept.configs(shape, H200) if c.turns == 1)
    assert best.turns == len(shape.phases) // best.w_phases == 2
    assert best.stages >= conv_mma.chunks(best, shape)
    carried = [conv_mma.grid(c, shape) * conv_mma.elements_of(c, shape) for c in (best, alone)]
    assert carried[0] < 0.6 * carried[1]
    short = replace(best, stages=conv_mma.chunks(best, shape) - 1)
    assert "until its last lap" in (conv_sm90_kept.why_not(short, shape, H200) or "")


def test_one_warpgroup_carries_for_teams_abreast_only_where_a_tile_has_one_chunk() -> None:
    for name in ("1-d 64->128", "16->128 3x3", "64->128 3x3"):
        shape = timed_shape(name, "tf32")
        found = [c for c in conv_sm90_kept.configs(shape, H200) if c.abreast == 2]
        assert found
        assert all(c.carriers == 2 or conv_mma.chunks(c, shape) == 1 for c in found)


# --- weights that stream


def streaming_shape(text: str, x: Shape, precision: str = "tf32") -> ConvShape:
    return shape_of(kernel_of(conv_of(module_of(text), x), "conv_kernel", precision, with_epilogue=True))


MANY_TAPS = ("ConvTranspose2d(64, 128, 5, padding=1)", (512, 64, 32, 32))


def test_weights_stream_where_they_do_not_fit() -> None:
    shape = streaming_shape(*MANY_TAPS)
    configs = conv_sm90_kept.configs(shape, H200)
    assert configs[0].streamed
    assert conv_sm90_kept.cost_us(configs[0], shape, H200) < conv_sm90.cost_us(
        conv_sm90.configs(shape, H200)[0], shape, H200
    )


def test_weights_that_fit_stay_unless_that_costs_much_more() -> None:
    for name in TIMED:
        shape = timed_shape(name, "tf32")
        configs = conv_sm90_kept.configs(shape, H200)
        prices = {
            streams: [conv_sm90_kept.cost_us(c, shape, H200) for c in configs if (c.streamed > 0) == streams]
            for streams in (False, True)
        }
        if prices[False] and prices[True]:
            assert prices[True][0] * conv_sm90_kept.WORTH_STREAMING < prices[False][0]


def test_rows_without_seams_share_the_zeros_between_them() -> None:
    """Of 32 inputs 34 outputs: 3 zeros on the left of each row, and 3 on the right, of which the next row has some."""
    shape = streaming_shape(*MANY_TAPS)
    (best, *_) = conv_sm90_kept.configs(shape, H200)
    assert best.seamless
    assert conv_kept_sizes.seamless_width(best, shape) == 35
    assert best.tile_w == 36
    narrow = replace(best, tile_w=34, tile_n=math.ceil(34 * best.tile_h / 16) * 16)
    assert "some of the next row" in (conv_sm90_kept.why_not(narrow, shape, H200) or "")
    inside = streaming_shape("Conv2d(64, 128, 5)", (4, 64, 40, 40))
    config = next(c for c in conv_sm90_kept.streams(inside, H200) if c.seamless)
    assert conv_kept_sizes.seamless_width(config, inside) == 40


def test_what_cannot_stream_says_why() -> None:
    shape = streaming_shape(*MANY_TAPS)
    (best, *_) = conv_sm90_kept.configs(shape, H200)
    pairs = replace(best, products=3)
    assert "twice the weights" in (conv_sm90_kept.why_not_streamed(pairs, shape) or "")
    assert conv_sm90_kept.configs(streaming_shape(*MANY_TAPS, "ieee"), H200) == ()
    alone = replace(best, abreast=1)
    assert "the same tile" in (conv_sm90_kept.why_not_streamed(alone, shape) or "")
    crowded = replace(best, streamed=64, octets=8)
    assert "its ring of weights" in (conv_sm90_kept.why_not(crowded, shape, H200) or "")
    assert list(conv_sm90_kept.streams(streaming_shape("Conv2d(64, 64, 5)", (4, 64, 40, 40)), H200)) == []
