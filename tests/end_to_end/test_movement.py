"""Data movement through the whole compiler, on the CPU: PyTorch's bits, and no element from outside of a tensor."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.load import load
from kernelwright.load.instantiate import instantiate
from tests.end_to_end.emitting import emitted_text, imported
from tests.movement import CASES, EXACT, OUTSIDE, SOURCE


def emitted_model(
    source: str, folder: Path, name: str
) -> tuple[torch.nn.Module, torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The original, the emitted model, and inputs for both."""
    path = folder / f"{name}.py"
    path.write_text(source)
    problem = load(path)
    emitted = folder / f"{name}_emitted.py"
    emitted.write_text(emitted_text(problem))
    instance = instantiate(problem, 5, "cpu")
    return instance.model, imported(emitted).ModelNew(), instance.inputs


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """By case, what the original gives and what the kernels give."""
    original, model, inputs = emitted_model(SOURCE, tmp_path_factory.mktemp("movement"), "movement")
    with torch.no_grad():
        return dict(zip(CASES, zip(original(*inputs), model(*inputs), strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("error:ModelNew runs the original")
def test_the_kernels_move_what_pytorch_moves(name: str, outputs: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> None:
    wanted, got = outputs[name]
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if name in EXACT:
        assert torch.equal(got, wanted)
    else:
        torch.testing.assert_close(got, wanted, rtol=2e-6, atol=8e-6)


def test_an_index_past_the_end_picks_nothing(tmp_path: Path) -> None:
    """NaN; of integers the least value, of booleans False. `x[i]` counts from the end, an embedding does not."""
    _, model, (x, y, image, _, j, k) = emitted_model(OUTSIDE, tmp_path, "outside")
    i = torch.tensor([2**40, -1, -7])
    with torch.no_grad():
        rows, embedded, numbers, signs, columns = model(x, y, image, i, j, k)
    assert torch.equal(rows[1], x[-1] + 1)
    assert torch.equal(numbers[1], j[-1])
    assert torch.equal(signs[1], x[-1] > 0)
    for outside in (rows[0], rows[2], *embedded, columns[:, 0]):
        assert outside.isnan().all()
    assert (numbers[[0, 2]] == torch.iinfo(torch.int64).min).all()
    assert not signs[[0, 2]].any()
    assert torch.equal(columns[:, 1:], x.half()[:, i[1:]])
