"""Every template for products, run on the host at odd sizes with its epilogue, gives the product."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.kernels.choices import Choice
from kernelwright.load import Problem
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus, multiprocessors, order
from tests.emulator.run import Pick, agrees

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

LINEAR = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(K, N, dtype=DTYPE)
        self.scale = nn.Parameter(torch.randn(N, dtype=DTYPE))

    def forward(self, x, residual):
        return torch.relu(self.linear(x)) * self.scale + residual


DTYPE, M, N, K = torch.float32, 1, 1, 1


def get_inputs():
    return [torch.randn(M, K, dtype=DTYPE), torch.randn(M, N, dtype=DTYPE)]


def get_init_inputs():
    return []
"""

# Neither operand is a weight, so that W is packed in each call; A and B lie as the constants say.
BATCHED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        a = a.transpose(-1, -2) if A_TURNED else a
        b = b.transpose(-1, -2) if B_TURNED else b
        return torch.tanh(a @ b)


DTYPE, BATCH, M, N, K, A_TURNED, B_TURNED = torch.float32, 1, 1, 1, 1, False, False


def get_inputs():
    a = torch.randn(BATCH, *((K, M) if A_TURNED else (M, K)), dtype=DTYPE)
    b = torch.randn(BATCH, *((N, K) if B_TURNED else (K, N)), dtype=DTYPE)
    return [a * 0.2, b]


def get_init_inputs():
    return []
"""


class Named:
    """A value whose repr is its name in a problem file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def dtype(name: str) -> Named:
    return Named(f"torch.{name}")


@dataclass(frozen=True)
class Case:
    """A template, some members of its config, and the sizes of the problem that it runs."""

    template: str
    config: dict[str, Any]
    sizes: dict[str, Any]
    precision: str = "reference"
    device: str = "h200"
    source: str = field(default=LINEAR, repr=False)
    splits: int = 0  # parts of k, where others than the device would want

    @property
    def problem(self) -> Problem:
        return Problem("product", self.source, Path("product.py"))

    @property
    def pick(self) -> Pick:
        def fits(choice: Choice) -> bool:
            return all(getattr(choice, name, None) == value for name, value in self.config.items())

        def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
            of_template = [c for c in choices if type(c).__module__.rpartition(".")[2] == self.template]
            found = [c for c in of_template if fits(c)] if kernel.core is not None or of_template else list(choices)
            assert found, f"{self.template} with {self.config} is not among {choices}"
            return replace(found[0], splits=self.splits) if self.splits else found[0]  # type: ignore[arg-type]

        return pick


HALF, BFLOAT16 = dtype("float16"), dtype("bfloat16")

CASES = {
    # gemm_simt: IEEE float32 on the CUDA cores
    "simt, 64 x 64, short sums": Case("gemm_simt", {"tile_m": 64, "blocked": True}, {"M": 70, "N": 68, "K": 21}),
    "simt, 128 x 128": Case("gemm_simt", {"tile_m": 128}, {"M": 131, "N": 30, "K": 140}),
    "simt, float16": Case("gemm_simt", {"tile_m": 64}, {"M": 33, "N": 13, "K": 24, "DTYPE": HALF}),
    "simt, turned": Case(
        "gemm_simt",
        {"tile_m": 64},
        {"BATCH": 3, "M": 20, "N": 17, "K": 9, "A_TURNED": True, "B_TURNED": True},
        source=BATCHED,
    ),
    # gemm_skinny: few rows or columns
    "skinny, one row": Case("gemm_skinny", {"few": 1}, {"M": 1, "N": 37, "K": 260}),
    "skinny, seven rows": Case("gemm_skinny", {"few": 8}, {"M": 7, "N": 33, "K": 61}),
    "skinny, few columns": Case("gemm_skinny", {"few_is_a": False}, {"M": 65, "N": 3, "K": 132}),
    # gemm_sm80: pairs of float16 by mma
    "sm80, 64 x 64": Case("gemm_sm80", {"tile_m": 64, "tile_n": 64}, {"M": 70, "N": 45, "K": 101}),
    "sm80, 128 x 128": Case("gemm_sm80", {"tile_m": 128, "tile_n": 128}, {"M": 130, "N": 132, "K": 68}, device="a100"),
    "sm80, batches": Case(
        "gemm_sm80", {"tile_m": 64}, {"BATCH": 2, "M": 20, "N": 17, "K": 70, "A_TURNED": True}, source=BATCHED
    ),
    # gemm_sm90: pairs of float16 by wgmma
    "sm90, 64 columns": Case("gemm_sm90", {"tile_n": 64}, {"M": 133, "N": 36, "K": 100}),
    "sm90, widest tile": Case("gemm_sm90", {"tile_n": 256, "tile_m": 128}, {"M": 130, "N": 260, "K": 260}),
    "sm90, 192 columns, odd": Case("gemm_sm90", {"tile_n": 192}, {"M": 9, "N": 199, "K": 101}),
    "sm90, 64 rows": Case("gemm_sm90", {"tile_m": 64, "tile_n": 256}, {"M": 37, "N": 131, "K": 300}),
    "sm90, in parts": Case("gemm_sm90", {"tile_n": 128}, {"M": 34, "N": 30, "K": 300}, splits=3),
    "sm90, batches": Case(
        "gemm_sm90", {"tile_m": 128}, {"BATCH": 2, "M": 20, "N": 17, "K": 70, "A_TURNED": True}, source=BATCHED
    ),
    "sm90, panels": Case(
        "gemm_sm90", {"tile_n": 128, "splits": 1}, {"BATCH": 2, "M": 20, "N": 44, "K": 1100}, source=BATCHED
    ),
    "sm90, panels in parts": Case(
        "gemm_sm90", {"tile_m": 64, "tile_n": 128}, {"M": 20, "N": 37, "K": 1700}, splits=5, source=BATCHED
    ),
    # gemm_sm90_half: 16-bit floats by wgmma
    "half, pairs of blocks": Case(
        "gemm_sm90_half", {"cluster": 2, "late": False}, {"M": 300, "N": 136, "K": 200, "DTYPE": HALF}
    ),
    "half, late": Case("gemm_sm90_half", {"tile_n": 256, "late": True}, {"M": 300, "N": 520, "K": 200, "DTYPE": HALF}),
    "half, bfloat16": Case("gemm_sm90_half", {"tile_n": 64}, {"M": 65, "N": 41, "K": 72, "DTYPE": BFLOAT16}),
    "half, widest tile": Case("gemm_sm90_half", {"tile_n": 256}, {"M": 20, "N": 250, "K": 64, "DTYPE": HALF}),
    # gemm_sm90_f16x1: float32 at the accuracy of TF32
    "tf32": Case("gemm_sm90_f16x1", {"cluster": 1}, {"M": 30, "N": 41, "K": 61}, precision="tf32"),
    "tf32, pairs of blocks": Case("gemm_sm90_f16x1", {"cluster": 2}, {"M": 260, "N": 44, "K": 140}, precision="tf32"),
    "tf32, batches": Case(
        "gemm_sm90_f16x1", {}, {"BATCH": 2, "M": 20, "N": 17, "K": 70}, precision="tf32", source=BATCHED
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_product_is_right(name: str) -> None:
    """With two multiprocessors, so that the blocks of kernels that stay go from tile to tile."""
    case = CASES[name]
    with multiprocessors(2):
        agrees(case.problem, pick=case.pick, precision=case.precision, device=case.device, **case.sizes)


@pytest.mark.parametrize("name", ["simt, 64 x 64, short sums", "sm80, 64 x 64", "sm90, 64 rows", "sm90, in parts"])
def test_infinities_and_nans_are_where_pytorch_has_them(name: str) -> None:
    case = CASES[name]
    torch.manual_seed(1)
    x, residual = torch.randn(case.sizes["M"], case.sizes["K"]), torch.randn(case.sizes["M"], case.sizes["N"])
    x[3, 5], x[7, 2], x[8, 8] = float("inf"), float("nan"), 3e38
    agrees(case.problem, [x, residual], pick=case.pick, **case.sizes)


@pytest.mark.parametrize("name", ["simt, turned", "sm80, 64 x 64", "sm90, 64 columns", "half, pairs of blocks"])
def test_the_order_of_blocks_and_threads_does_not_matter(name: str) -> None:
    case = CASES[name]
    with multiprocessors(2), order(blocks_backwards=True, threads_backwards=True):
        agrees(case.problem, pick=case.pick, precision=case.precision, device=case.device, **case.sizes)


@pytest.mark.parametrize("name", ["sm90, panels", "sm90, panels in parts"])
def test_panels_of_any_magnitude_are_summed_in_one_scale(name: str) -> None:
    """Panels of 512: of zeros, far smaller and far larger than others, and with special values."""
    case = CASES[name]
    sizes = {"BATCH": 1, **case.sizes}
    torch.manual_seed(2)
    a = torch.randn(sizes["BATCH"], sizes["M"], sizes["K"])
    b = torch.randn(sizes["BATCH"], sizes["K"], sizes["N"])
    a[:, :, 512:1024] *= 1e-12
    b[:, :512] *= 1e-3
    b[:, 512:1024] *= 1e12
    b[:, :512, 3] = 0
    b[:, 512:, 4] = 0
    b[:, :, 5] *= torch.where(torch.arange(sizes["K"]) < 512, 1e25, 1e-30)
    agrees(case.problem, [a * 1e-2, b], pick=case.pick, **sizes)
    b[0, 700, 7], b[0, 20, 8], b[0, 1025, 9] = float("inf"), float("nan"), -3e38
    a[0, 0, 1025] = 1e10
    agrees(case.problem, [a, b], pick=case.pick, **sizes)


# --- random sizes

MANY = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third, self.fourth = (nn.Linear(k, n) for _, n, k in SIZES)

    def forward(self, a, b, c, d):
        turned = self.third(c.transpose(0, 1))
        return torch.relu(self.first(a)), self.second(b) * 2, torch.sigmoid(turned), self.fourth(d) + d[:, :1]


SIZES = ((1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1))


def get_inputs():
    (a, _, i), (b, _, j), (c, _, k), (d, _, n) = SIZES
    return [torch.randn(a, i), torch.randn(b, j), torch.randn(k, c), torch.randn(d, n)]


def get_init_inputs():
    return []
"""

RANDOM_PROGRAMS = 2


def test_products_of_random_sizes_are_right(cases: float) -> None:
    """Four a program, each by any config of any template that can run it."""
    for seed in range(max(1, int(RANDOM_PROGRAMS * cases))):
        drawn = random.Random(seed)
        sizes = tuple(
            tuple(drawn.choice((drawn.randint(1, 40), drawn.randint(1, 150))) for _ in "mnk") for _ in range(4)
        )

        def pick(kernel: Kernel, choices: Sequence[Choice], drawn: random.Random = drawn) -> Choice:
            return drawn.choice(list(choices))

        with multiprocessors(drawn.choice((1, 2, 132))), order(threads_backwards=drawn.random() < 0.5):
            agrees(Problem("products", MANY, Path("products.py")), pick=pick, SIZES=sizes)
