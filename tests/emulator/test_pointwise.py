"""Pointwise kernels as CUDA, run on the host: random graphs in every dtype, every config, operands off alignment."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernelwright.device import resolve
from kernelwright.generate import generate
from kernelwright.generate.generate import program_text, ranked_choices
from kernelwright.ir.nodes import Graph
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.pointwise import BrickConfig, Config, TileConfig
from kernelwright.load import Problem
from kernelwright.plan import Kernel, plan
from kernelwright.simplify import simplify
from tests.emulator.build import Library, g_plus_plus, library_of
from tests.emulator.run import agrees, poisoned, torch_with_a_gpu
from tests.property.random_graphs import Case, graphs
from tests.property.test_fusion import Run
from tests.stages import EXAMPLES

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

H200 = resolve("h200")
BATCHES = 3
GRAPHS_A_BATCH = 10
FEW_THREADS = 128  # a thread of the emulator is slow, and more of them show nothing new


class CudaRun(Run):
    """One graph of a batch, generated for a GPU; `draw` says which of its configs each kernel takes."""

    @staticmethod
    def drawn(number: int, graph: Graph, draw: int) -> CudaRun:
        made = plan(graph)
        named = [replace(s, name=f"g{number}_{s.name}") if isinstance(s, Kernel) else s for s in made.steps]
        made = replace(made, steps=tuple(named))
        choices = {kernel.name: any_choice(draw, kernel) for kernel in made.kernels}
        program = generate(made, choices, H200)
        launches = program.launches
        steps = [replace(s, entry=f"g{number}_{s.entry}") if s in launches else s for s in program.steps]
        return CudaRun(number, graph, replace(program, steps=tuple(steps)))

    def forward(self, library: Library | None) -> Callable[..., tuple[torch.Tensor, ...]]:  # type: ignore[override]
        """The emitted forward(), its results in memory that is poisoned first."""

        def launch(entry: str, *tensors: torch.Tensor) -> None:
            assert library is not None
            assert library.call(entry, *tensors, ctypes.c_int(0), None) == 0

        scope = {"torch": torch_with_a_gpu(), "F": torch.nn.functional, "launch": launch}
        exec(self.forward_text, scope)
        made = scope["forward"]
        assert callable(made)
        return made


def any_choice(draw: int, kernel: Kernel) -> Choice:
    """Any of the configs, however little promising."""
    choices = ranked_choices(kernel, H200)
    few = [c for c in choices if isinstance(c, (Config, TileConfig, BrickConfig)) and c.threads <= FEW_THREADS]
    return (few or choices)[draw % len(few or choices)]


def test_random_graphs_give_what_the_interpreter_gives(cases: float) -> None:
    batches = st.lists(st.tuples(graphs(), st.integers(0, 10_000), st.booleans()), min_size=GRAPHS_A_BATCH)

    # A failing batch names its graph; to shrink it would compile for minutes.
    @settings(max_examples=max(1, int(BATCHES * cases)), phases=[Phase.generate])
    @given(batches)
    def holds(batch: list[tuple[Case, int, bool]]) -> None:
        runs = [
            CudaRun.drawn(number, simplify(case.graph) if simplified else case.graph, draw)
            for number, (case, draw, simplified) in enumerate(batch[:GRAPHS_A_BATCH])
        ]
        launches = [launch for run in runs for launch in run.program.launches]
        library = library_of(program_text(launches, "cuda")) if launches else None
        for run in runs:
            run.check(library)  # type: ignore[arg-type]

    holds()


# --- every config

WALKS: dict[str, tuple[str, dict[str, Any]]] = {
    "rows": ("geglu", {"ROWS": 3, "HIDDEN": 24}),
    "one row with a rest": ("relu", {"ROWS": 7, "COLUMNS": 33}),
    "flat": ("half_activations", {"ROWS": 5, "FEATURES": 33}),
    "tiles": ("turned", {"ROWS": 260, "COLUMNS": 300}),
    "bricks": ("permuted_operands", {"BATCH": 2, "CHANNELS": 32, "HEIGHT": 32, "WIDTH": 36}),
}

# One operand that lies along another axis than the result.
TURNED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y.T)

ROWS, COLUMNS = 4096, 4096

def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS, ROWS)]

def get_init_inputs():
    return []
"""


@pytest.mark.slow
@pytest.mark.parametrize("walk", WALKS)
def test_every_config_gives_the_same(walk: str) -> None:
    """The widest and the narrowest vectors, one in flight and many, and the smallest and the largest tile."""
    name, sizes = WALKS[walk]
    tried: list[Choice] = []

    def extreme(key: Callable[[Choice], object], _: Kernel, choices: list[Choice]) -> Choice:
        tried.append(min((c for c in choices if c.threads <= 256), key=key))  # type: ignore[union-attr, arg-type]
        return tried[-1]

    source = Problem(name, TURNED, Path("turned.py")) if walk == "tiles" else EXAMPLES / f"{name}.py"
    sides = ["lanes", "levels" if walk in ("tiles", "bricks") else "vectors"]
    for side in sides:
        for sign in (1, -1):
            agrees(
                source,
                pick=lambda k, c, side=side, sign=sign: extreme(lambda x: sign * getattr(x, side), k, list(c)),  # type: ignore[misc]
                **sizes,
            )
    assert len(set(tried)) > 1


# --- operands that do not start at a whole vector

SHIFTED = """
#include "pointwise.cuh"
struct Body {
    static constexpr int64_t rows = 3, columns = 40;
    using Index = int64_t;
    struct Args { const float* x; float* y; };
    template <int N> struct Operands { kw::Vec<float, N> x; };
    template <int N> static Operands<N> load(const Args& args, Index row, Index column) {
        return {kw::load<N>(args.x + row * 40 + column)};
    }
    template <int N> static void store(const Args& args, Index row, Index column, const Operands<N>& given) {
        kw::Vec<float, N> y;
        for (int i = 0; i < N; i++) y[i] = given.x[i] + 1;
        kw::store<N>(args.y + row * 40 + column, y);
    }
};
extern "C" int run(const float* x, float* y) { return kw::pointwise<Body, 4, 2, 32>({x, y}, nullptr); }
"""


@pytest.mark.parametrize(("x_at", "y_at"), [(0, 0), (1, 0), (0, 2), (3, 3)])
def test_operands_off_alignment_are_taken_one_by_one(x_at: int, y_at: int) -> None:
    x, y = torch.randn(124)[x_at : x_at + 120], poisoned(124)[y_at : y_at + 120]
    assert library_of(SHIFTED).call("run", x, y) == 0
    assert torch.equal(y, x + 1)
