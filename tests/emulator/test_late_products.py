"""16-bit products whose results leave while the next tile is multiplied, run on the host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from kernelwright.kernels import gemm_sm90_half
from kernelwright.kernels.choices import Choice
from kernelwright.load import Problem
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus, multiprocessors, order
from tests.emulator.run import Pick, agrees, program_of
from tests.emulator.test_product_surroundings import only, problem
from tests.emulator.test_products import BATCHED, HALF, LINEAR, Case

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

EPILOGUE = "F.gelu(y) + tile"


def late(tile_n: int) -> Pick:
    return only("gemm_sm90_half", late=True, tile_n=tile_n)


# body, m, n, k, type, columns of a tile. A pair of blocks has three to six tiles each: the first has nothing to store
# beside it, the last one nothing to multiply.
CASES = {
    "bias, gelu, residual": (EPILOGUE, 300, 520, 200, "float16", 256),
    "a k of more steps than pieces": (EPILOGUE, 260, 300, 64 * 18 + 8, "float16", 128),
    "a k of many steps, the widest tile": ("torch.relu(y) + tile", 140, 400, 64 * 35, "bfloat16", 256),
    "a k of one step": (EPILOGUE, 257, 600, 24, "bfloat16", 256),
    "an odd n": ("torch.relu(y) + tile", 259, 261, 104, "float16", 256),
    "an odd n of narrow tiles": (EPILOGUE, 259, 393, 104, "float16", 128),
    "vectors of two": (EPILOGUE, 300, 390, 72, "float16", 192),
    "operands of every kind": ("torch.sigmoid(y) * row + column - tile", 290, 264, 136, "bfloat16", 128),
    "nothing but a residual": ("y + tile", 270, 300, 136, "bfloat16", 256),
    "a residual before a function": ("torch.relu(tile + y) + row", 270, 300, 72, "float16", 256),
    "a residual twice": ("F.gelu(y) + tile + tile", 270, 300, 72, "float16", 256),
    "nothing but the product": ("y", 270, 300, 200, "float16", 256),
    "no bias": ("torch.tanh(x @ self.layer.weight.t()) * tile", 270, 300, 136, "float16", 256),
    "a result in float32": ("y.float() * row.float()", 270, 300, 72, "bfloat16", 192),
    "two results": ("(y, torch.relu(y) + tile)", 270, 300, 72, "float16", 256),
    "a mask": ("y.masked_fill(tile > 0, -1.0)", 270, 300, 72, "float16", 128),
    "one tile": (EPILOGUE, 130, 40, 72, "float16", 128),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results_that_leave_late_are_right(name: str) -> None:
    body, m, n, k, dtype, tile_n = CASES[name]
    with multiprocessors(2):
        program = agrees(problem(body, m, n, k, dtype), pick=late(tile_n))
    assert "kw::gemm_sm90_late::Late<" in program.text


def test_the_order_of_blocks_and_threads_does_not_matter() -> None:
    with multiprocessors(2), order(blocks_backwards=True, threads_backwards=True):
        agrees(problem(EPILOGUE, 300, 520, 200, "float16"), pick=late(256))


def test_more_blocks_than_tiles() -> None:
    with multiprocessors(132):
        agrees(problem(EPILOGUE, 300, 300, 136, "float16"), pick=late(128))


def test_batches() -> None:
    sizes = {"BATCH": 3, "M": 140, "N": 136, "K": 72, "A_TURNED": False, "B_TURNED": True, "DTYPE": HALF}
    case = Case("gemm_sm90_half", {"late": True, "tile_n": 128}, sizes, source=BATCHED)
    with multiprocessors(2):
        agrees(case.problem, pick=case.pick, **case.sizes)


def test_infinities_and_overflow_are_where_pytorch_has_them() -> None:
    case = Case("gemm_sm90_half", {"late": True}, {"M": 300, "N": 260, "K": 72, "DTYPE": HALF}, source=LINEAR)
    torch.manual_seed(3)
    x, residual = torch.randn(300, 72).half(), torch.randn(300, 260).half()
    x[3, 5], x[140, 2], x[299] = float("inf"), float("nan"), 60000.0
    with multiprocessors(2):
        agrees(case.problem, [x, residual], pick=case.pick, **case.sizes)


# A layer of three axes, so that a row has more than one coordinate, and operands that lie in all ways.
AROUND = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(72, 264).half()

    def forward(self, x, a, b):
        y = self.layer(x)
        return {body}


def get_inputs():
    return [torch.randn(3, 150, 72).half(), {a}, {b}]


def get_init_inputs():
    return []
"""
TILE, ROW, COLUMN = "torch.randn(3, 150, 264).half()", "torch.randn(3, 150, 1).half()", "torch.randn(3, 1, 264).half()"
OPERANDS = {
    "a mask and integers": (
        "torch.where(a, y, 0.5) + b.half()",
        f"{TILE} > 0",
        "torch.randint(9, (3, 150, 264)).int()",
    ),
    "a residual that lies across": ("F.gelu(y) + a.transpose(1, 2)", "torch.randn(3, 264, 150).half()", "1"),
    "operands for all batches": ("F.gelu(y) * a + b", "torch.randn(150, 264).half()", COLUMN),
    "a residual in float32": ("F.gelu(y).float() + a * b", TILE.replace(".half()", ""), ROW),
    "numbers of columns": ("y * torch.arange(264).half() + a", TILE, "1"),
}


def around(body: str, *operands: str) -> Problem:
    return Problem("around", AROUND.format(body=body, a=operands[0], b=operands[1]), Path("around.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERANDS)
def test_operands_of_all_kinds_are_loaded_ahead_or_where_they_are_used(name: str) -> None:
    with multiprocessors(2):
        agrees(around(*OPERANDS[name]), pick=late(256))


WIDE = TILE.replace(".half()", "")
NOT_LATE = {
    "rows that are reduced": (problem("F.gelu(y).sum(1)", 512, 512, 512, "float16"), True),
    "a matrix before the rounding": (
        problem("torch.addmm(tile, x, self.layer.weight.t())", 512, 512, 512, "float16"),
        False,
    ),
    "operands of eight bytes": (around("F.gelu(y).float() + a * b", WIDE, WIDE), False),
}


@pytest.mark.parametrize("name", NOT_LATE)
def test_where_sums_cannot_be_settled_or_operands_not_held_nothing_leaves_late(name: str) -> None:
    source, reducing = NOT_LATE[name]
    offered: list[Choice] = []

    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        offered.extend(choices)
        return choices[0]

    program_of(source, "h200", pick, reducing=reducing)
    half = [choice for choice in offered if isinstance(choice, gemm_sm90_half.Config)]
    assert half
    assert not any(choice.late for choice in half)
