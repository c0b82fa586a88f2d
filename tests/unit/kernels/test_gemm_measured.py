"""The cost models against what an H200 measured: they rank the configs as the clock did, and are off by little.

Times in us from benchmarks/results/2026-11-15-gemm-h200.jsonl, without the three that its note declares void; of what
is packed by panels from 2026-11-15-gemm-bars-h200.jsonl, as bricks from 2026-11-16-gemm-ways-h200.jsonl.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from kernelwright.device import resolve
from kernelwright.kernels import gemm_sm90, gemm_sm90_bricks, gemm_sm90_half
from kernelwright.kernels.gemm_shape import Gemm, Operand

H200 = resolve("h200")
Config, Bricks, Half = gemm_sm90.Config, gemm_sm90_bricks.Config, gemm_sm90_half.Config


def product(
    m: int, n: int, k: int, dtype: str = "float32", batches: int = 1, constant: bool = True, vector: int = 4
) -> Gemm:
    a = Operand(dtype, k, 1, m * k if batches > 1 else 0, constant=False)
    w = Operand(dtype, k, 1, n * k if batches > 1 else 0, constant=constant)
    return Gemm(m, n, k, batches, a, w, vector, (4 if dtype == "float32" else 2) * batches * m * n)


def side_by_side(m: int, n: int, k: int, batches: int = 1) -> Gemm:
    """The second operand as `a @ b` has it, packed in each call."""
    a = Operand("float32", k, 1, m * k if batches > 1 else 0, constant=False)
    w = Operand("float32", 1, n, n * k if batches > 1 else 0, constant=False)
    return Gemm(m, n, k, batches, a, w, 4, 4 * batches * m * n)


# tile_n, promote, splits, vector: us
FLOAT32 = {
    "the linear layer": (
        product(1024, 8192, 8192),
        {Config(256, 64, 1, 4): 573.3, Config(192, 64, 1, 4): 680.2, Config(128, 64, 1, 4): 674.2},
    ),
    "packed each time": (product(1024, 8192, 8192, constant=False), {Config(256, 64, 1, 4): 747.8}),
    "64 rows": (product(64, 8192, 8192), {Config(256, 64, 4, 4): 96.3, Config(256, 64, 8, 4): 101.6}),
    "16 rows": (product(16, 8192, 8192), {Config(256, 64, 4, 4): 92.6}),
    "1 row": (product(1, 8192, 8192), {Config(256, 64, 4, 4): 91.3}),
    "4096^3": (product(4096, 4096, 4096), {Config(256, 64, 1, 4): 583.3}),
    "8192^3": (product(8192, 8192, 8192), {Config(256, 64, 1, 4): 4671.5, Config(192, 64, 1, 4): 5572.6}),
    "odd": (product(2949, 2949, 2949, vector=1), {Config(192, 64, 1, 1): 326.1, Config(256, 64, 1, 1): 389.8}),
    "odd, packed each time": (
        product(2949, 2949, 2949, vector=1, constant=False),
        {Config(192, 64, 1, 1): 349.2},
    ),
    "long k": (product(256, 256, 524288), {Config(256, 64, 66, 4): 330.0, Config(128, 64, 33, 4): 383.5}),
    "k = 32": (product(4096, 4096, 32), {Config(256, 32, 1, 4): 33.5}),
    "k = 64": (product(4096, 4096, 64), {Config(256, 32, 1, 4): 38.7}),
    "k = 128": (product(4096, 4096, 128), {Config(256, 32, 1, 4): 47.7}),
    "k = 256": (product(4096, 4096, 256), {Config(256, 64, 1, 4): 62.7}),
    "512^3": (product(512, 512, 512), {Config(128, 64, 8, 4): 13.5, Config(128, 64, 1, 4): 16.6}),
    "16 batches": (product(1024, 1024, 1024, batches=16), {Config(256, 64, 1, 4): 167.3}),
    "16 batches, packed": (product(1024, 1024, 1024, batches=16, constant=False), {Config(256, 64, 1, 4): 209.4}),
}
# The same, packed by panels.
PANELS = {
    "4096^3, panels": (side_by_side(4096, 4096, 4096), {Config(256, 64, 1, 4): 639.5}),
    "16 batches, panels": (side_by_side(1024, 1024, 1024, 16), {Config(256, 64, 1, 4): 212.0}),
    "8 batches, panels": (side_by_side(2048, 2048, 2048, 8), {Config(256, 64, 1, 4): 686.0}),
    "128 batches, panels": (side_by_side(512, 2048, 1024, 128), {Config(256, 64, 1, 4): 1810.2}),
    "long k, panels": (side_by_side(256, 256, 524288), {Config(256, 64, 66, 4): 806.3}),
}
BRICKS = {
    "16 batches, bricks": (side_by_side(1024, 1024, 1024, 16), {Bricks(256, 64, 1, 4): 210.7}),
    "long k, bricks": (side_by_side(256, 256, 524288), {Bricks(256, 64, 66, 4): 595.8}),
}
# tile_n, cluster, vector: us
HALF = {
    "float16 8192^3": (
        product(8192, 8192, 8192, "float16"),
        {Half(256, 2, 4): 1405.1, Half(256, 1, 4): 1476.0, Half(192, 2, 4): 1452.7, Half(128, 1, 4): 1874.3},
    ),
    "float16 4096^3": (
        product(4096, 4096, 4096, "float16"),
        {Half(256, 2, 4): 194.6, Half(256, 1, 4): 195.6, Half(192, 2, 4): 219.1, Half(128, 1, 4): 211.0},
    ),
    "float16 1024 rows": (
        product(1024, 8192, 8192, "float16"),
        {Half(256, 2, 4): 182.3, Half(256, 1, 4): 185.3, Half(192, 2, 4): 204.5, Half(128, 1, 4): 225.1},
    ),
    "float16 512 rows": (
        product(512, 4096, 4096, "float16"),
        {Half(128, 1, 4): 33.7, Half(192, 2, 4): 40.2, Half(256, 1, 4): 49.7, Half(256, 2, 4): 50.3},
    ),
    "bfloat16 8192^3": (
        product(8192, 8192, 8192, "bfloat16"),
        {Half(256, 2, 4): 1349.5, Half(128, 2, 4): 1490.4},
    ),
    "bfloat16 4096^3": (product(4096, 4096, 4096, "bfloat16"), {Half(256, 2, 4): 188.3, Half(128, 2, 4): 189.7}),
    "bfloat16 512 rows": (product(512, 4096, 4096, "bfloat16"), {Half(128, 2, 4): 30.2, Half(256, 2, 4): 48.7}),
}
ROWS: dict[str, tuple[ModuleType, Gemm, dict[Any, float]]] = {
    **{name: (gemm_sm90, *row) for name, row in (FLOAT32 | PANELS).items()},
    **{name: (gemm_sm90_bricks, *row) for name, row in BRICKS.items()},
    **{name: (gemm_sm90_half, *row) for name, row in HALF.items()},
}


@pytest.mark.parametrize("name", ROWS)
def test_the_best_config_of_those_measured_comes_before_the_others(name: str) -> None:
    template, gemm, measured = ROWS[name]
    offered = [config for config in template.configs(gemm, H200) if config in measured]
    assert len(offered) == len(measured)
    assert offered[0] == min(measured, key=lambda config: measured[config])


@pytest.mark.parametrize("name", ROWS)
def test_the_best_config_is_first_unless_no_clock_has_seen_the_first(name: str) -> None:
    template, gemm, measured = ROWS[name]
    first = template.configs(gemm, H200)[0]
    assert first in measured or first in not_measured(template, gemm)


def not_measured(template: ModuleType, gemm: Gemm) -> list[Any]:
    """Tiles of 64 rows are younger than the measurements, and pairs of 128 columns were built for bfloat16 alone."""
    if template is gemm_sm90:
        return [config for config in gemm_sm90.configs(gemm, H200) if config.tile_m == 64]
    return [Half(128, 2, 4)] if gemm.a.dtype == "float16" else []


@pytest.mark.parametrize("name", ROWS)
def test_the_expected_time_of_the_best_config_is_the_measured_one(name: str) -> None:
    template, gemm, measured = ROWS[name]
    best = min(measured, key=lambda config: measured[config])
    assert template.cost_us(best, gemm, H200) == pytest.approx(measured[best], rel=0.12)
