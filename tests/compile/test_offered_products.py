"""Every tile that is offered for a float32 product on Hopper compiles to a kernel that keeps its sums in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.build.toolchain import has_cuda
from kernelwright.device import resolve
from kernelwright.kernels import gemm_sm90, gemm_sm90_bricks, gemm_sm90_turned
from kernelwright.kernels.gemm_shape import Gemm
from kernelwright.settings import read_settings
from tests.compile.test_gemm_headers import product, resources, turned

pytestmark = pytest.mark.skipif(not has_cuda(read_settings()), reason="no CUDA compiler")

# relu(x + bias[n]), for results that threads store and for those that the copy engine takes.
EPILOGUE = """
struct Epilogue {
    struct Args { float* c; const float* bias; int64_t pitch; };
    template <int N> struct alignas(4 * N) Values {
        float v[N];
        KW_DEVICE float operator[](int i) const { return v[i]; }
    };
    static constexpr int64_t rows = @rows@, columns = @columns@, pitch = columns;
    static float* result(const Args& args) { return args.c; }
    template <int N> KW_DEVICE static Values<N> values(const Args& args, const float (&x)[N], int64_t, int64_t n) {
        Values<N> y;
        for (int i = 0; i < N; i++) y.v[i] = fmaxf(x[i] + __ldg(args.bias + n + i), 0.f);
        return y;
    }
    template <int N> KW_DEVICE static void store(const Args& args, const float (&x)[N], int64_t m, int64_t n) {
        *(Values<N>*)(args.c + m * args.pitch + n) = values<N>(args, x, m, n);
    }
};
"""
SIZES = ((4100, 4100), (60, 4100), (4100, 60))  # all of a tile, few rows, few columns
# Of k: sums are promoted every 32, or every 64; or there is but one chunk.
LENGTHS = (96, *(pytest.param(k, marks=pytest.mark.slow) for k in (32, 1024)))


def of_weights(m: int, n: int, k: int) -> Gemm:
    return replace(product(m, n, k), sendable=True)


def of_activations(m: int, n: int, k: int) -> Gemm:
    return replace(turned(m, n, k, 1), sendable=True)


TEMPLATES = {
    "gemm_sm90": (gemm_sm90, of_weights),
    "gemm_sm90, panels": (gemm_sm90, of_activations),
    "gemm_sm90_bricks": (gemm_sm90_bricks, of_activations),
    "gemm_sm90_turned": (gemm_sm90_turned, of_activations),
}


def kinds(template: ModuleType, gemm: Gemm) -> Sequence[gemm_sm90.Config]:
    """The first of each tile, of each way results leave, and of each way its operand is packed."""
    first: dict[object, gemm_sm90.Config] = {}
    for config in template.configs(gemm, resolve("h200")):
        kind = config.tile_m, config.tile_n, config.promote, config.splits > 1, config.sent, config.is_beside
        first.setdefault(kind, config)
    return tuple(first.values())


@pytest.mark.parametrize("k", LENGTHS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_no_tile_that_is_offered_leaves_registers(name: str, k: int, tmp_path: Path) -> None:
    template, gemm_of = TEMPLATES[name]
    offered = [(config, gemm_of(m, n, k)) for m, n in SIZES for config in kinds(template, gemm_of(m, n, k))]
    assert len({(config.tile_m, config.tile_n, config.sent) for config, _ in offered}) >= 4
    parts = ['#include "gemm_sm90_beside.cuh"\n']
    for number, (config, gemm) in enumerate(offered):
        rows, columns = str(gemm.m * gemm.batches), str(gemm.n)
        parts.append(
            EPILOGUE.replace("Epilogue", f"Epilogue{number}").replace("@rows@", rows).replace("@columns@", columns)
        )
        parts.append(template.entry(f"gemm_{number}", config, gemm, f"Epilogue{number}"))
    found = resources(tmp_path, template.HEADER, "".join(parts), "")
    assert len([kernel for kernel in found if "multiply_kernel" in kernel.name]) >= len(offered)
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []
