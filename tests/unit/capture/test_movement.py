"""Data movement as torch.export gives it: every form has a form of ours, with PyTorch's bits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch

from kernelwright.capture import capture
from kernelwright.ir.interpret import interpret
from kernelwright.ir.nodes import Graph, Node, Opaque, walk
from kernelwright.load import Problem
from kernelwright.load.instantiate import instantiate
from kernelwright.plan import Library, Routes, plan
from kernelwright.plan.resampled import LINEAR
from kernelwright.plan.steps import Materialise
from kernelwright.simplify import simplify
from tests.movement import CASES, EXACT, SOURCE

PROBLEM = Problem("movement", SOURCE, Path("movement.py"))
NUMBERS = {name: number for number, name in enumerate(CASES)}

# A table is copied to the device; a concatenation that is reshaped before it is used is put together by PyTorch; and so
# is a product computed, unless it is routed to a kernel of ours.
LEFT = frozenset(("a_list", "roll_flat", "product_and_embedding"))


@cache
def captured() -> Graph:
    return capture(PROBLEM)


@cache
def simplified() -> Graph:
    return simplify(captured())


@cache
def results() -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """What PyTorch gives, what the captured graph means, and the simplified one."""
    instance = instantiate(PROBLEM, 0, "cpu")
    with torch.no_grad():
        wanted = list(instance.model(*instance.inputs))
    return wanted, interpret(captured(), instance.inputs, {}), interpret(simplified(), instance.inputs, {})


@pytest.mark.parametrize("name", CASES)
def test_the_graph_means_what_the_model_computes(name: str) -> None:
    wanted, *graphs = (every[NUMBERS[name]] for every in results())
    for got in graphs:
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        if name in EXACT:
            assert torch.equal(got, wanted)
        else:
            torch.testing.assert_close(got, wanted, rtol=2e-6, atol=8e-6)


def test_linear_resampling_is_left_to_pytorch_where_the_routes_say_so() -> None:
    graph = Graph(captured().inputs, (captured().outputs[NUMBERS["bilinear"]],), (), 0)
    calls = [step for step in plan(simplify(graph), Routes(resample=False)).steps if isinstance(step, Library)]
    assert [step.node.target for step in calls if isinstance(step.node, Opaque)] == ["aten.upsample_bilinear2d.vec"]


def calls_in(node: Node) -> list[str]:
    return [n.target for n in walk((node,)) if isinstance(n, Opaque)]


@pytest.mark.parametrize("name", CASES)
def test_nothing_of_it_is_left_to_pytorch(name: str) -> None:
    """But for concatenations, which kernels write part by part, and linear resampling, which is opened when it is
    planned: then no call is left."""
    output = simplified().outputs[NUMBERS[name]]
    assert set(calls_in(output)) <= {"aten.cat.default", *LINEAR}
    alone = plan(simplify(Graph(captured().inputs, (captured().outputs[NUMBERS[name]],), (), 0)))
    left = [step for step in alone.steps if isinstance(step, (Library, Materialise))]
    assert bool(left) == (name in LEFT)
