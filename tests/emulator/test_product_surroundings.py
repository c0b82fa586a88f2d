"""What may stand around a product, in emitted files run on the host: operands of every kind, casts, more results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.kernels.choices import Choice
from kernelwright.load import Problem, instantiate, problem_of
from kernelwright.plan import Kernel
from tests.emulator.build import g_plus_plus, multiprocessors
from tests.emulator.run import Pick, agrees, emulation_of

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear({k}, {n}).to(torch.{dtype})
        self.other = nn.Linear({n}, {k}).to(torch.{dtype})

    def forward(self, x, row, column, tile):
        y = self.layer(x)
        return {body}


def get_inputs():
    sizes = ({m}, {k}), ({m}, 1), ({n},), ({m}, {n})
    return [torch.randn(size).to(torch.{dtype}) for size in sizes]


def get_init_inputs():
    return []
"""


def problem(body: str, m: int, n: int, k: int, dtype: str = "float32") -> Problem:
    return Problem("surroundings", MODEL.format(body=body, m=m, n=n, k=k, dtype=dtype), Path("surroundings.py"))


def only(template: str, **members: object) -> Pick:
    """Of the template with such a config; pointwise kernels as the model likes."""

    def wanted(choice: Choice) -> bool:
        mine = type(choice).__module__.rpartition(".")[2] == template
        return mine and all(getattr(choice, name) == value for name, value in members.items())

    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        found = [choice for choice in choices if kernel.core is None or wanted(choice)]
        assert found, f"no {template} with {members} among {choices}"
        return found[0]

    return pick


SM90, HALF, OWN = only("gemm_sm90"), only("gemm_sm90_half"), only("gemm_sm90_half", own_tiles=True, cluster=1)

CASES: dict[str, tuple[Problem, Pick]] = {
    "row, column and tile": (problem("torch.sigmoid(y) * row + column - tile", 20, 36, 40), SM90),
    "a result in float16": (problem("torch.tanh(y).half()", 9, 70, 33), SM90),
    "two results": (problem("(torch.relu(y), y * 2 + tile)", 12, 20, 64), SM90),
    "a mask": (problem("y.masked_fill(tile > 0, -1.0)", 12, 24, 32), SM90),
    "a part of a concatenation": (problem("torch.cat([torch.relu(y), tile[:, :7]], -1)", 12, 20, 40), SM90),
    "results between others": (problem("torch.stack([torch.relu(y), tile], -1)", 12, 20, 40), SM90),
    "two layers": (problem("self.other(torch.relu(y)) + x", 12, 40, 36), SM90),
    "mish and a division": (problem("F.mish(y) / 3 + tile", 10, 12, 40), SM90),
    "float16, bias, gelu, residual": (problem("F.gelu(y) + tile", 33, 40, 72, "float16"), HALF),
    "bfloat16 to float32": (problem("y.float() * row.float()", 20, 24, 40, "bfloat16"), HALF),
    "a tile for each warpgroup": (problem("F.gelu(y) + tile", 140, 136, 400, "float16"), OWN),
    "a tile for each warpgroup, in pairs": (
        problem("torch.relu(y) + tile", 300, 100, 400, "bfloat16"),
        only("gemm_sm90_half", own_tiles=True, cluster=2),
    ),
    "float16, a weight that lies the other way": (
        problem("F.gelu(tile @ self.layer.weight) + x", 40, 36, 44, "float16"),
        HALF,
    ),
    "float16, k of 37": (problem("F.gelu(y) + tile", 33, 40, 37, "float16"), HALF),
    "bfloat16, both turned": (problem("torch.relu(x.t() @ tile) * 2", 45, 20, 40, "bfloat16"), HALF),
    "few rows": (problem("torch.relu(y) * row + tile", 3, 37, 100), only("gemm_skinny")),
    "few rows of float16": (problem("F.gelu(y) + tile", 2, 24, 64, "float16"), only("gemm_skinny")),
    "CUDA cores": (problem("torch.relu(y) * row + column", 20, 18, 9), only("gemm_simt")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_stands_around_a_product_is_computed_with_it(name: str) -> None:
    source, pick = CASES[name]
    with multiprocessors(2):
        agrees(source, pick=pick)


def test_scaled_float16_takes_the_same_epilogues() -> None:
    source = problem("F.gelu(y) * row + tile", 130, 44, 61)
    agrees(source, pick=only("gemm_sm90_f16x1", own_tiles=True), precision="tf32")


IMAGES = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 4, 5, 3).to(memory_format=torch.channels_last))

    def forward(self, x):
        y = torch.tanh(x)
        return x @ x.transpose(2, 3), y @ self.weight, torch.relu(y @ y.transpose(2, 3))


def get_inputs():
    return [torch.randn(2, 4, 6, 5).to(memory_format=torch.channels_last)]


def get_init_inputs():
    return []
"""


def test_batches_of_images_and_channels_that_lie_channels_last_are_multiplied() -> None:
    """No one step leads from each to the next: inputs, weights and results of kernels are copied first."""
    agrees(Problem("images", IMAGES, Path("images.py")))


OTHERWISE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y, image):
        return torch.relu(x @ y[0, 0]), torch.relu(x @ y), torch.relu(image.flatten(1) @ image.flatten(1).t())


def get_inputs():
    image = torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last)
    return [torch.randn(3, 4, 5, 7).transpose(0, 1), torch.randn(4, 3, 7, 6), image]
"""


def test_inputs_whose_axes_lie_in_another_order_are_copied_for_a_product() -> None:
    agrees(Problem("otherwise", OTHERWISE, Path("otherwise.py")))


class ProductsOfRepeatedElements(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        column, row = x[:, :1].expand(19, 37), y[:1].expand(37, 20)
        return torch.relu(column @ y), torch.relu(x @ row), torch.tanh(column @ row)


@pytest.mark.parametrize("device", ["h200", "a100"])
def test_what_is_repeated_along_k_is_multiplied_as_often(device: str) -> None:
    agrees(ProductsOfRepeatedElements(), [torch.randn(19, 37), torch.randn(37, 20)], device=device)


class ProductsOfPartsOfAWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(61, 90))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        w = self.weight
        whole, part = torch.relu(F.linear(x, w)), torch.relu(F.linear(x, w[3:41]))
        inner, turned = torch.relu(F.linear(x[:, :72], w[5:, 9:81])), torch.tanh(F.linear(x, w.flip(0)))
        return whole, part, inner, turned


@pytest.mark.parametrize(("device", "template"), [("h200", "gemm_sm90"), ("a100", "gemm_sm80")])
def test_a_weight_is_packed_from_where_the_part_of_it_begins(device: str, template: str) -> None:
    agrees(ProductsOfPartsOfAWeight(), [torch.randn(20, 90)], pick=only(template), device=device)


class EqualLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(40, 40) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def test_layers_that_share_one_text_keep_a_packed_weight_each() -> None:
    made = problem_of(EqualLayers(), [torch.randn(20, 40)])
    emulation = emulation_of(made, pick=SM90)
    assert emulation.library is not None
    assert any(source.twin_of for source in emulation.program.sources)
    given = instantiate(made, 3, "cpu")
    first, second = (emulation(given.model, *given.inputs) for _ in range(2))
    torch.testing.assert_close(first, second)
    assert sum(entry.endswith("_pack") for entry in emulation.library.calls) == 4


class ProductOfATriangle(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.tril(x) @ y, torch.relu(x @ torch.triu(y))


def test_an_operand_that_is_computed_of_its_own_places_needs_no_memory_for_them() -> None:
    program = agrees(ProductOfATriangle(), [torch.randn(20, 24), torch.randn(24, 28)], fed=True)
    assert all(source.kernel.core is not None and source.kernel.core.prologues for source in program.sources)


class NamedLikeVariables(nn.Module):
    def forward(
        self, x: torch.Tensor, w: torch.Tensor, guard: torch.Tensor, error: torch.Tensor, problem: torch.Tensor
    ) -> torch.Tensor:
        return torch.relu(x @ w + guard) * error - problem


def test_operands_may_have_the_names_that_launching_code_uses() -> None:
    agrees(NamedLikeVariables(), [torch.randn(20, 40), torch.randn(40, 12), *(torch.randn(12) for _ in range(3))])
