"""Each GEMM template says which configs fit, why the others do not, what they cost, and writes its C++ entry."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.device import resolve
from kernelwright.kernels import (
    gemm_simt,
    gemm_skinny,
    gemm_sm80,
    gemm_sm90,
    gemm_sm90_bricks,
    gemm_sm90_f16x1,
    gemm_sm90_half,
    gemm_sm90_turned,
    gemm_small,
)
from kernelwright.kernels.gemm_shape import Gemm, Operand, bytes_moved, rows_are_readable

H200, A100 = resolve("h200"), resolve("a100")
TEMPLATES = (
    *(gemm_sm90, gemm_sm90_bricks, gemm_sm90_turned, gemm_sm80),
    *(gemm_simt, gemm_skinny, gemm_sm90_half, gemm_sm90_f16x1),
)


def product(m: int, n: int, k: int, dtype: str = "float32", batches: int = 1, constant: bool = True) -> Gemm:
    a = Operand(dtype, k, 1, m * k if batches > 1 else 0, constant=False)
    w = Operand(dtype, k, 1, n * k if batches > 1 else 0, constant=constant)
    return Gemm(m, n, k, batches, a, w, 4, 4 * batches * m * n)


LINEAR = product(1024, 8192, 8192)


def test_the_large_linear_layer_gets_the_widest_tile_and_its_measured_time() -> None:
    best = gemm_sm90.configs(LINEAR, H200)[0]
    assert best == gemm_sm90.Config(tile_n=256, promote=64, splits=1, vector=4)
    assert gemm_sm90.cost_us(best, LINEAR, H200) == pytest.approx(560, rel=0.05)  # measured
    assert gemm_sm90.floor_us(LINEAR, H200) == pytest.approx(522, rel=0.01)


def test_short_k_promotes_more_often() -> None:
    assert {config.promote for config in gemm_sm90.configs(product(4096, 4096, 128), H200)} == {32}
    assert {config.promote for config in gemm_sm90.configs(product(4096, 4096, 256), H200)} == {64}


def test_few_tiles_and_long_k_are_split() -> None:
    gemm = product(256, 256, 524288)
    best = gemm_sm90.configs(gemm, H200)[0]
    assert best.splits * gemm_sm90.tile_count(gemm, best.tile_m, best.tile_n) == H200.multiprocessors


def test_odd_sizes_prefer_the_tile_that_fills_whole_rounds() -> None:
    assert gemm_sm90.configs(product(2949, 2949, 2949), H200)[0].tile_n == 192


@pytest.mark.parametrize(
    ("gemm", "reason"),
    [
        (product(64, 64, 16), "less accurate"),
        (product(64, 64, 64, "float16"), "stand for float32"),
        (replace(product(64, 64, 64, batches=2), a=Operand("float32", 64, 1, 0, False)), "same A"),
        (replace(product(64, 63, 64), vector=1), "cannot store 4 neighbours"),
    ],
)
def test_a_product_that_float16_pairs_cannot_do_is_refused_in_words(gemm: Gemm, reason: str) -> None:
    said = gemm_sm90.why_not(gemm_sm90.Config(256, 64, 1, 4), gemm, H200)
    assert said is not None
    assert reason in said


def test_hopper_templates_are_refused_on_other_gpus() -> None:
    assert "sm_90a" in str(gemm_sm90.why_not(gemm_sm90.Config(256, 64, 1, 4), LINEAR, A100))
    assert gemm_sm90.configs(LINEAR, A100) == ()
    assert gemm_simt.configs(LINEAR, A100) != ()


def test_pairs_pay_on_a_datacentre_gpu_and_not_on_one_with_slow_tensor_cores() -> None:
    for name, pairs_are_faster in (("a100", True), ("h100", True), ("rtx3090", False), ("rtx4090", False)):
        device = resolve(name)
        pairs = min(gemm_sm80.cost_us(config, LINEAR, device) for config in gemm_sm80.configs(LINEAR, device))
        plain = min(gemm_simt.cost_us(config, LINEAR, device) for config in gemm_simt.configs(LINEAR, device))
        assert (pairs < plain) == pairs_are_faster, name


def test_what_is_made_before_a_product_of_pairs_is_the_same_on_ampere_and_hopper() -> None:
    odd = product(130, 131, 2949, constant=False)
    ampere = gemm_sm80.entry("g", gemm_sm80.Config(64, 64, 1), odd, "E")
    hopper = gemm_sm90.entry("g", gemm_sm90.Config(192, 64, 1, 1), odd, "E")
    made = [line for line in ampere.splitlines() if "kw::split::" in line or "operands = {" in line]
    assert len(made) == 3
    assert all(line.replace("gemm_sm80", "gemm_sm90") in hopper for line in made)
    assert gemm_sm80.packed_bytes(odd) == gemm_sm90.packed_bytes(odd)
    assert gemm_sm80.workspace_bytes(gemm_sm80.Config(64, 64, 1), odd) == gemm_sm90.workspace_bytes(
        gemm_sm90.Config(192, 64, 1, 1), odd
    )


def test_tf32_accuracy_costs_one_product_and_a_pass_over_the_activations() -> None:
    best = gemm_sm90_f16x1.configs(LINEAR, H200)[0]
    assert gemm_sm90_f16x1.cost_us(best, LINEAR, H200) < 1.2 * gemm_sm90_f16x1.floor_us(LINEAR, H200)
    assert gemm_sm90_f16x1.packed_bytes(LINEAR) < 0.51 * gemm_sm90.packed_bytes(LINEAR)
    odd = replace(product(100, 100, 61, constant=False), a=Operand("float32", 1, 100, 0, False), vector=1)
    entry = gemm_sm90_f16x1.entry("g", gemm_sm90_f16x1.configs(odd, H200)[0], odd, "E")
    assert "operands = {a, 1, 100, 0, rows, 100, 100, 61, 1, 1}" in entry
    assert "g_pack" not in entry


def test_one_row_runs_at_the_speed_of_memory() -> None:
    gemm = product(1, 8192, 8192)
    best = gemm_skinny.configs(gemm, H200)[0]
    assert best.k_warps == 8
    assert gemm_skinny.cost_us(best, gemm, H200) == pytest.approx(72.5, rel=0.1)  # measured
    assert gemm_skinny.configs(product(17, 8192, 8192), H200) == ()


@pytest.mark.parametrize("rows", [5, 16, 64])
def test_few_rows_get_half_high_tiles_that_fill_the_gpu(rows: int) -> None:
    gemm = product(rows, 8192, 8192)
    best = gemm_sm90.configs(gemm, H200)[0]
    assert best.tile_m == 64
    assert 120 <= best.splits * gemm_sm90.tile_count(gemm, best.tile_m, best.tile_n) <= H200.multiprocessors
    assert gemm_sm90.cost_us(best, gemm, H200) < 1.3 * gemm_sm90.floor_us(gemm, H200)


def test_few_columns_get_narrow_tiles() -> None:
    assert gemm_sm90.configs(product(8192, 8, 8192), H200)[0].tile_n == 64


def test_few_columns_are_read_as_few_rows_of_w() -> None:
    best = gemm_skinny.configs(product(8192, 3, 4096), H200)[0]
    assert (best.few, best.few_is_a) == (4, False)


def test_rows_that_are_not_aligned_are_copied_first() -> None:
    odd = product(128, 128, 2949)
    assert not rows_are_readable(odd.a)
    assert gemm_sm90.a_is_copied(odd)
    assert gemm_sm90.workspace_bytes(gemm_sm90.Config(192, 64, 1, 1), odd) == 4 * 128 * 2976
    assert "kw::split::pad_" in gemm_sm90.entry("g", gemm_sm90.Config(192, 64, 1, 1), odd, "E")
    assert "kw::split::pad_" not in gemm_sm90.entry("g", gemm_sm90.Config(256, 64, 1, 4), LINEAR, "E")


def test_weights_are_packed_ahead_and_activations_each_time() -> None:
    config = gemm_sm90.Config(256, 64, 1, 4)
    ahead = gemm_sm90.entry("g", config, LINEAR, "E")
    each_time = gemm_sm90.entry("g", config, product(1024, 8192, 8192, constant=False), "E")
    assert 'extern "C" int g_pack(' in ahead
    assert "g_pack" not in each_time
    assert "pairs, stream)" in each_time
    assert gemm_sm90.workspace_bytes(config, LINEAR) == 0
    assert gemm_sm90.workspace_bytes(config, product(1024, 8192, 8192, constant=False)) >= 4 * 8192 * 8192


def test_a_transposed_operand_changes_only_how_it_is_loaded() -> None:
    transposed = replace(LINEAR, w=Operand("float32", 1, 8192, 0, constant=True))
    assert "w, 1, 8192, 0, 8192, 8192, 1," in gemm_sm90.entry("g", gemm_sm90.Config(256, 64, 1, 4), transposed, "E")
    simt = gemm_simt.entry("g", gemm_simt.configs(transposed, H200)[0], transposed, "E")
    assert "a_along_k = true" in simt
    assert "w_along_k = false" in simt


@pytest.mark.parametrize(
    ("a", "width"),
    [
        (Operand("float32", 8192, 1, 0, False), 4),
        (Operand("float32", 1, 1024, 0, False), 4),
        (Operand("float32", 8193, 1, 0, False), 1),
        (Operand("float32", 8192, 1, 0, False, aligned=False), 1),
        (Operand("float32", 16384, 2, 0, False), 1),
    ],
)
def test_the_cuda_core_kernel_loads_four_at_once_where_lines_are_aligned(a: Operand, width: int) -> None:
    config = gemm_simt.Config(128, 128, 8, False, 4)
    assert f"a_width = {width};" in gemm_simt.entry("g", config, replace(LINEAR, a=a), "E")


def test_a_long_epilogue_in_16_bits_wants_a_tile_for_each_warpgroup() -> None:
    gelu = replace(product(4096, 4096, 4096, "float16"), epilogue_flops=30)
    assert gemm_sm90_half.configs(gelu, H200)[0].own_tiles
    said = gemm_sm90_half.why_not(gemm_sm90_half.Config(256, 2, 4, own_tiles=True), gelu, H200)
    assert "the sums of 256 columns" in str(said)


def test_results_leave_late_where_sums_are_rounded_first() -> None:
    gelu = replace(product(4096, 4096, 4096, "float16"), epilogue_flops=30)
    settled = replace(gelu, settles=True)
    first = gemm_sm90_half.configs(settled, H200)[0]
    assert (first.tile_n, first.cluster, first.late) == (256, 2, True)
    # Ways that were measured stay among the first three, which the tuner measures.
    assert any(not config.late for config in gemm_sm90_half.configs(settled, H200)[:3])
    assert not any(config.late for config in gemm_sm90_half.configs(gelu, H200))
    assert "rounded to 16 bits" in str(gemm_sm90_half.why_not(first, gelu, H200))
    assert "in pairs of blocks" in str(gemm_sm90_half.why_not(replace(first, cluster=1), settled, H200))
    assert "one tile high" in str(gemm_sm90_half.why_not(first, replace(settled, m=100), H200))


def test_results_that_leave_late_gain_nothing_from_the_last_tile() -> None:
    one_round = replace(product(512, 4096, 4096, "float16"), epilogue_flops=30, settles=True)
    assert not gemm_sm90_half.configs(one_round, H200)[0].late


CPU = resolve("cpu")


@pytest.mark.parametrize(
    ("gemm", "walks"),
    [
        (product(1, 512, 512), {True}),
        (replace(product(4, 512, 512), w=Operand("float32", 1, 512, 0, constant=False)), {False}),
        (replace(product(512, 4, 512), w=Operand("float32", 1, 4, 0, constant=False)), {True}),
        (product(9, 512, 512), set()),
        (product(4, 512, 512, "float16"), set()),
    ],
    ids=["linear", "row-major right side", "few columns", "too many rows", "16 bits"],
)
def test_the_cpu_takes_few_rows_in_the_order_they_lie(gemm: Gemm, walks: set[bool]) -> None:
    assert {config.along_k for config in gemm_small.configs(gemm, CPU)} == walks
    assert gemm_small.configs(gemm, H200) == ()


def test_the_cpu_says_why_a_config_does_not_fit() -> None:
    across = gemm_small.why_not(gemm_small.Config(1, True, False, 128), product(1, 64, 64), CPU)
    crowded = gemm_small.why_not(gemm_small.Config(8, True, True, 8), product(8, 64, 64), CPU)
    assert "not neighbours in memory" in str(across)
    assert "8 x 8 sums do not fit" in str(crowded)


SIZES = st.integers(1, 5000)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.__name__.split(".")[-1])
@given(
    m=SIZES,
    n=SIZES,
    k=SIZES,
    batches=st.integers(1, 9),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    vector=st.sampled_from([1, 2, 4]),
)
def test_every_config_offered_fits_and_costs_no_less_than_the_floor(
    template: ModuleType, m: int, n: int, k: int, batches: int, dtype: str, vector: int
) -> None:
    gemm = replace(product(m, n, k, dtype, batches), vector=vector)
    offered = template.configs(gemm, H200)
    costs = [template.cost_us(config, gemm, H200) for config in offered]
    assert all(template.why_not(config, gemm, H200) is None for config in offered)
    assert costs == sorted(costs)
    packed_ahead = 2 * gemm.w_batches * n * k if template is gemm_sm90_f16x1 else 0
    assert all(cost >= (bytes_moved(gemm) - packed_ahead) / H200.copy_gbps / 1e3 for cost in costs)
    for config in offered[:1]:
        entry = template.entry("gemm_7", config, gemm, "Epilogue_7")
        assert entry.count("{") == entry.count("}")
        assert "gemm_7_Config, Epilogue_7>" in entry


@given(m=SIZES, n=SIZES, k=SIZES)
def test_some_template_takes_every_float32_product(m: int, n: int, k: int) -> None:
    assert gemm_simt.configs(product(m, n, k), H200)
