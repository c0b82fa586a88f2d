"""Operands along two other axes than the results', as CUDA on the host: odd sizes, every width, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from kernelwright.kernels.choices import Choice
from kernelwright.kernels.pointwise import BrickConfig
from kernelwright.load import Problem
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus, order
from tests.emulator.run import agrees, emulated

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of the emulator is slow: bricks for a few thousand elements too."""
    monkeypatch.setattr("kernelwright.generate.grid.LARGE", 1)


def problem(forward: str, inputs: dict[str, str]) -> Problem:
    """A model of one expression, and its inputs by name."""
    lines = [
        "import torch",
        "from torch import nn",
        "class Model(nn.Module):",
        f"    def forward(self, {', '.join(inputs)}):",
        f"        return {forward}",
        "def get_inputs():",
        f"    return [{', '.join(inputs.values())}]",
        "def get_init_inputs():",
        "    return []",
    ]
    return Problem("bricks", "\n".join(lines) + "\n", Path("bricks.py"))


def smallest_tiles(_: Kernel, choices: Sequence[Choice]) -> Choice:
    """The widest vectors in bricks of few elements: a thread more is slow, and shows nothing new."""
    bricks = [c for c in choices if isinstance(c, BrickConfig)]
    assert bricks, "the kernel does not walk in bricks"
    return min(bricks, key=lambda c: (-c.lanes, c.size, c.threads))


PLAIN = "torch.relu(x + y.permute(0, 3, 1, 2)) * z.transpose(2, 3)"


def three(b: int, c: int, h: int, w: int, made: str = "torch.randn({})") -> dict[str, str]:
    shapes = {"x": (b, c, h, w), "y": (b, h, w, c), "z": (b, c, w, h)}
    return {name: made.format(", ".join(map(str, shape))) for name, shape in shapes.items()}


BYTES = "torch.randint(0, 100, ({}), dtype=torch.int8)"
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "odd sizes": (PLAIN, three(2, 9, 11, 37)),
    "sizes that fill bricks": (PLAIN, three(1, 16, 8, 64)),
    "halves, of which vectors fill bricks": (PLAIN, three(1, 24, 16, 40, "torch.randn({}).half()")),
    "doubles": (PLAIN, three(1, 10, 18, 34, "torch.randn({}).double()")),
    "bytes": ("x + y.permute(0, 3, 1, 2) - z.transpose(2, 3)", three(1, 16, 32, 48, BYTES)),
    "other widths, and two results": (
        "(torch.where(z.transpose(2, 3), x.float(), y.permute(0, 3, 1, 2)), z.transpose(2, 3) ^ (x > 0))",
        {
            "x": "torch.randn(2, 12, 20, 36).half()",
            "y": "torch.randn(2, 20, 36, 12).double()",
            "z": "torch.rand(2, 12, 36, 20) > 0.5",
        },
    ),
    "operands that repeat, and one that is read twice": (
        "x * y.permute(0, 3, 1, 2) + x.transpose(2, 3) * c.view(9, 1, 1) + h.view(12, 1) + w + y.permute(0, 3, 2, 1)",
        {
            "x": "torch.randn(2, 9, 12, 12)",
            "y": "torch.randn(2, 12, 12, 9)",
            "c": "torch.randn(9)",
            "h": "torch.randn(12)",
            "w": "torch.randn(12)",
        },
    ),
    "parts of operands": (
        "x[:, 1:10] + y.permute(0, 3, 1, 2)[:, 2:11, :, 4:] * z.transpose(2, 3)[:, 1:, 3:, :36]",
        {"x": "torch.randn(2, 12, 9, 36)", "y": "torch.randn(2, 9, 40, 12)", "z": "torch.randn(2, 10, 40, 12)"},
    ),
    "a third axis": (
        "x + a.permute(0, 4, 1, 2, 3) + b.permute(0, 1, 4, 2, 3) + c.transpose(3, 4)",
        {
            "x": "torch.randn(2, 8, 9, 10, 12)",
            "a": "torch.randn(2, 9, 10, 12, 8)",
            "b": "torch.randn(2, 8, 10, 12, 9)",
            "c": "torch.randn(2, 8, 9, 12, 10)",
        },
    ),
}


# How many neighbours the widest operand leaves in 16 bytes, where sizes and starts allow it.
LANES = {
    "odd sizes": 1,
    "sizes that fill bricks": 4,
    "halves, of which vectors fill bricks": 8,
    "doubles": 2,
    "bytes": 16,
    "other widths, and two results": 2,
}


@pytest.mark.parametrize("case", CASES)
def test_operands_along_two_other_axes_give_what_pytorch_gives(case: str) -> None:
    program = agrees(problem(*CASES[case]), pick=smallest_tiles)
    choices = [source.choice for source in program.sources]
    assert all(isinstance(c, BrickConfig) and c.lanes == LANES.get(case, c.lanes) for c in choices)


def test_operands_off_alignment_are_taken_one_by_one() -> None:
    """Vectors were planned for, and the memory that came starts between two of them."""
    shapes = ((1, 8, 12, 20), (1, 12, 20, 8), (1, 8, 20, 12))
    x, y, z = (torch.randn(1 + 8 * 12 * 20)[1:].view(shape) for shape in shapes)
    got = emulated(problem(PLAIN, three(1, 8, 12, 20)), [x, y, z], pick=smallest_tiles)
    assert torch.equal(got, torch.relu(x + y.permute(0, 3, 1, 2)) * z.transpose(2, 3))


def test_the_order_of_blocks_and_threads_does_not_matter() -> None:
    with order(blocks_backwards=True, threads_backwards=True):
        agrees(problem(PLAIN, three(2, 9, 11, 37)), pick=smallest_tiles)
        agrees(problem(PLAIN, three(1, 16, 12, 36)), pick=smallest_tiles)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["layers", "levels", "columns"])
@pytest.mark.parametrize("sign", [1, -1])
def test_every_shape_of_brick_gives_the_same(side: str, sign: int) -> None:
    """The longest and the shortest edge of each kind, in vectors and one by one."""
    for lanes in (4, 1):

        def extreme(_: Kernel, choices: Sequence[Choice], lanes: int = lanes) -> Choice:
            few = [c for c in choices if isinstance(c, BrickConfig) and c.lanes == lanes and c.size <= 8192]
            return min(few, key=lambda c: (sign * getattr(c, side), -c.size))

        agrees(problem(PLAIN, three(1, 20, 36, 68)), pick=extreme)
