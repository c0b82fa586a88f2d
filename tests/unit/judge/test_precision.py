"""Reduced precision is a claim that needs evidence: an error of the right size is not enough."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelwright.judge.correctness import Trial, Tried, arguments_of, passes
from kernelwright.judge.criterion import score
from kernelwright.judge.families import FAMILIES
from kernelwright.judge.modes import rounded
from kernelwright.judge.oracle import Oracle
from kernelwright.judge.precision import reduced_precision
from kernelwright.judge.reference import copied_state, open_reference
from kernelwright.load import Problem

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n"
MEAN = "    def forward(self, a, b):\n        return torch.mean((a - b) ** 2)\n"
PRODUCT = "    def forward(self, a, b):\n        return a @ b\n"
TWO = "    def forward(self, a, b):\n        return torch.relu(a @ b) @ b\n"
OVER_NORM = "    def forward(self, a, b):\n        return (a @ b) / torch.norm(a @ b)\n"
INPUTS = "def get_inputs():\n    return [torch.rand({0}, {1}), torch.rand({0}, {1})]\n"

Compute = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def named(forward: str, sizes: tuple[int, int], compute: Compute, seed: int, families: int = 5) -> str:
    """What the judge calls a candidate that computes so, after trials of some families."""
    source = HEAD + forward + INPUTS.format(*sizes)
    reference = open_reference(Problem("small", source, Path("small.py")), torch.device("cpu"))
    model = reference.construct(1)
    oracle, state = Oracle(reference, model, "reference", draws=2), copied_state(model)
    tried = []
    for number, family in enumerate(FAMILIES[:families]):
        trial = Trial(family, 100 * seed + number, True)
        args = arguments_of(trial, reference)
        yards = oracle.truth(state, [args], 0).calls[0]
        answer = compute(*args)
        tried.append(Tried(trial, state, 0, args, yards, [score(answer, yards[0])], (answer,)))
    assert not all(map(passes, tried)), "the candidate passes"
    return reduced_precision(tried, oracle)


def half(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    rows = a.shape[0] // 2
    return torch.mean((a[:rows] - b[:rows]) ** 2)


@pytest.mark.parametrize("seed", range(12))
def test_half_of_the_data_is_never_called_reduced_precision(seed: int):
    assert named(MEAN, (128, 65), half, seed) == ""
    assert named(MEAN, (128, 65), half, seed, families=1) == ""


@pytest.mark.parametrize("precision", ["tf32", "tf32 cut off", "fp16", "bf16", "bf16 cut off"])
def test_rounded_operands_of_a_product_are_named(precision: str):
    compute = lambda a, b: rounded(a, precision) @ rounded(b, precision)
    assert named(PRODUCT, (64, 64), compute, 1) in (precision.split()[0], *(["tf32"] if precision == "fp16" else []))


def cut_off(x: torch.Tensor) -> torch.Tensor:
    """To float32, towards zero."""
    nearest = x.float()
    return torch.where(nearest.double().abs() > x.abs(), torch.nextafter(nearest, torch.zeros(())), nearest)


@pytest.mark.parametrize("lost", [0.0, 6e-5])
@pytest.mark.parametrize("seed", range(3))
def test_tf32_is_named_where_sums_are_cut_off_too(seed: int, lost: float):
    """As a tensor core adds up: of products of one sign it loses about as much as TF32 rounds; `lost`, and more."""

    def compute(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = rounded(a, "tf32").double(), rounded(b, "tf32").double()
        total = torch.zeros(a.shape[0], b.shape[1])
        for k in range(0, a.shape[1], 4):
            total = cut_off(total.double() + a[:, k : k + 4] @ b[k : k + 4])
        return (total.double() * (1 - lost)).float()

    assert named(PRODUCT, (256, 256), compute, seed) == "tf32"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_product_in_a_narrow_type_is_named_even_where_it_overflows(dtype: torch.dtype):
    compute = lambda a, b: (a.to(dtype) @ b.to(dtype)).float()
    found = named(PRODUCT, (96, 96), compute, 2, families=len(FAMILIES))
    assert found == {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]


def test_one_of_two_products_in_a_lower_precision_is_named():
    compute = lambda a, b: torch.relu(rounded(a, "bf16") @ rounded(b, "bf16")) @ b
    assert named(TWO, (64, 64), compute, 3) == "bf16"


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_rounded_product_is_named_where_a_norm_divides_it(precision: str):
    def compute(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product = rounded(a, precision) @ rounded(b, precision)
        return product / torch.norm(product)

    assert named(OVER_NORM, (64, 64), compute, 7) == precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_mean_over_narrow_inputs_is_named(dtype: torch.dtype):
    compute = lambda a, b: torch.mean((a.to(dtype).float() - b.to(dtype).float()) ** 2)
    assert named(MEAN, (128, 65), compute, 4, families=len(FAMILIES)) in ("tf32", "fp16", "bf16")


@pytest.mark.parametrize("factor", [1 - 2e-5, 1 - 2e-4, 1 - 5e-4, 1 + 5e-4, 1 - 2e-3, 1 + 1e-2])
@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_factor_is_not_called_reduced_precision(factor: float, seed: int):
    assert named(PRODUCT, (64, 64), lambda a, b: (a @ b) * factor, seed, families=len(FAMILIES)) == ""


@pytest.mark.parametrize("relative", [1e-5, 1e-4, 1e-3])
def test_noise_of_the_right_size_is_not_called_reduced_precision(relative: float):
    def noisy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        right = a @ b
        return right + relative * right.square().mean().sqrt() * torch.randn_like(right)

    assert named(PRODUCT, (64, 64), noisy, 5) == ""


def test_a_missing_product_is_not_called_reduced_precision():
    assert named(PRODUCT, (64, 64), lambda a, b: a[:, :-1] @ b[:-1], 6) == ""


@pytest.mark.parametrize("seed", range(4))
def test_one_nan_in_a_right_answer_is_not_called_reduced_precision(seed: int):
    def with_nan(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a @ b).index_put((torch.tensor(seed), torch.tensor(3)), torch.tensor(float("nan")))

    assert named(PRODUCT, (32, 32), with_nan, seed, families=1) == ""
