"""Random models of maps and reductions: what is captured, and what is simplified, equals eager PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelwright.ir.nodes import Opaque, Reduce
from kernelwright.ir.text import graph_text
from kernelwright.simplify import simplify
from tests.unit.capture.eager import captured

CLOSE = {"float64": 1e-10, "float32": 2e-4}

# Maps that neither blow up nor cancel, so that a sum taken in another order stays close.
UNARY = (
    "torch.tanh({})",
    "torch.sigmoid({})",
    "F.relu({})",
    "{}.abs()",
    "{}.clamp(-1, 2)",
    "{} * 0.5",
    "-{}",
    "{} + 1",
)
BINARY = ("{} + {}", "{} - {}", "torch.maximum({}, {})", "torch.where({} > 0, {}, 0.5)")
OF_AXES = ("{}.sum({}{})", "{}.mean({}{})", "{}.amax({}{})", "{}.amin({}{})", "{}.logsumexp({}{})")
OF_AXES += ("({} ** 2).mean({}{})", "torch.linalg.vector_norm({}, 2, {}{})", "torch.var({}, {}{}, correction=0)")
SAME_SHAPE = ("F.softmax({}, {})", "F.log_softmax({}, {})", "{x} - {x}.mean({axis}, keepdim=True)")
EXPONENTIALS = "({x} - {x}.amax({axis}, keepdim=True)).exp()"
BY_HAND = (
    f"{EXPONENTIALS} / {EXPONENTIALS}.sum({{axis}}, keepdim=True)",
    "({x} - {x}.mean({axis}, keepdim=True)) * torch.rsqrt({x}.var({axis}, keepdim=True, correction=0) + 0.1)",
    "{x} * torch.rsqrt(({x} * {x}).mean({axis}, keepdim=True) + 0.1)",
    "F.normalize({x}, 2, {axis})",
)
NORMS = ("F.layer_norm({x}, {x}.shape[-1:])", "F.rms_norm({x}, {x}.shape[-1:])")

seeds = st.integers(0, 2**32)


@dataclass(frozen=True)
class Value:
    """A name in forward() and the shape it has."""

    name: str
    shape: tuple[int, ...]


class Recipe:
    """The lines of a random forward()."""

    def __init__(self, seed: int, dtype: str) -> None:
        self.rng = Random(seed)
        self.dtype = dtype
        shape = tuple(self.rng.choice((1, 2, 3, 5, 8)) for _ in range(self.rng.randint(2, 3)))
        self.values = [Value("x", shape), Value("y", shape[self.rng.randint(0, 1) :])]
        self.lines: list[str] = []
        for _ in range(self.rng.randint(3, 9)):
            self.add()

    def add(self) -> None:
        x = self.rng.choice(self.values)
        kind = self.rng.choice((self.unary, self.binary, self.reduced, self.reduced, self.row, self.viewed))
        text, shape = kind(x)
        self.values.append(Value(f"v{len(self.lines)}", shape))
        self.lines.append(f"v{len(self.lines)} = {text}")

    def unary(self, x: Value) -> tuple[str, tuple[int, ...]]:
        return self.rng.choice(UNARY).format(x.name), x.shape

    def binary(self, x: Value) -> tuple[str, tuple[int, ...]]:
        fitting = [v for v in self.values if broadcast(v.shape, x.shape) is not None]
        y = self.rng.choice(fitting)
        shape = broadcast(x.shape, y.shape)
        assert shape is not None
        return self.rng.choice(BINARY).format(x.name, y.name), shape

    def reduced(self, x: Value) -> tuple[str, tuple[int, ...]]:
        rank = len(x.shape)
        if rank == 0:
            return self.unary(x)
        axes = tuple(sorted(self.rng.sample(range(rank), self.rng.randint(1, rank))))
        keep = self.rng.random() < 0.5
        shape = tuple(1 if a in axes else e for a, e in enumerate(x.shape) if keep or a not in axes)
        named = tuple(a - rank if self.rng.random() < 0.3 else a for a in axes)
        return self.rng.choice(OF_AXES).format(x.name, named, ", keepdim=True" if keep else ""), shape

    def row(self, x: Value) -> tuple[str, tuple[int, ...]]:
        """Something of x's own shape that needs whole rows."""
        if not x.shape:
            return self.unary(x)
        form = self.rng.choice((*SAME_SHAPE, *BY_HAND, *NORMS))
        axis = self.rng.randrange(len(x.shape))
        return form.format(x.name, axis, x=x.name, axis=axis), x.shape

    def viewed(self, x: Value) -> tuple[str, tuple[int, ...]]:
        rank = len(x.shape)
        if rank < 2:
            return f"{x.name}.unsqueeze(0)", (1, *x.shape)
        if self.rng.random() < 0.5:
            return f"{x.name}.transpose(0, 1)", (x.shape[1], x.shape[0], *x.shape[2:])
        return f"{x.name}.flatten(0, 1)", (x.shape[0] * x.shape[1], *x.shape[2:])

    def source(self) -> str:
        ends = self.rng.sample([v.name for v in self.values[2:]], min(3, len(self.lines)))
        body = "".join(f"        {line}\n" for line in self.lines)
        returned = ", ".join(f"{e} * 1" for e in ends)
        inputs = ", ".join(f"torch.randn({v.shape}, dtype=torch.{self.dtype})" for v in self.values[:2])
        return (
            f"class Model(nn.Module):\n    def forward(self, x, y):\n{body}        return ({returned},)\n\n\n"
            f"def get_inputs():\n    return [{inputs}]\n"
        )


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return tuple(torch.broadcast_shapes(a, b))
    except RuntimeError:
        return None


def with_edges(x: torch.Tensor, rng: Random) -> torch.Tensor:
    """A few NaN, infinities and zeros of both signs among the numbers."""
    flat = x.clone().flatten()
    for _ in range(min(3, len(flat))):
        flat[rng.randrange(len(flat))] = rng.choice((float("nan"), float("inf"), -float("inf"), 0.0, -0.0))
    return flat.reshape(x.shape)


@pytest.mark.parametrize("dtype", CLOSE)
def test_captured_and_simplified_models_equal_eager(tmp_path: Path, dtype: str) -> None:
    reductions = 0

    @settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
    @given(seeds)
    def holds(seed: int) -> None:
        nonlocal reductions
        recipe = Recipe(seed, dtype)
        found = captured(tmp_path, recipe.source())
        assert not any(isinstance(n, Opaque) for n in found.graph.nodes()), recipe.source()
        simple = replace(found, graph=simplify(found.graph))
        reductions += sum(isinstance(n, Reduce) for n in simple.graph.nodes())
        for inputs in (found.inputs, tuple(with_edges(x, recipe.rng) for x in found.inputs)):
            expected = replace(found, inputs=inputs).eager()
            for form in (found, simple):
                ours = replace(form, inputs=inputs).interpreted()
                assert_same(expected, ours, CLOSE[dtype], f"{recipe.source()}\n{graph_text(form.graph)}")

    holds()
    assert reductions > 20


def assert_same(expected: list[torch.Tensor], ours: list[torch.Tensor], near: float, text: str) -> None:
    for want, got in zip(expected, ours, strict=True):
        assert (want.shape, want.dtype) == (got.shape, got.dtype), text
        finite = want[want.isfinite()]
        scale = 1 + (finite.abs().max().item() if len(finite) else 0)
        assert torch.allclose(got, want, rtol=near, atol=near * scale, equal_nan=True), f"{got}\n{want}\n{text}"
