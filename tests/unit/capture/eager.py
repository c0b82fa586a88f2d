"""A model's source comes in; its graph, and a comparison of what the graph gives with what the model gives, go out."""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kernelwright.capture import capture
from kernelwright.ir.interpret import interpret
from kernelwright.ir.nodes import (
    Contract,
    Conv,
    Detached,
    Fixed,
    Graph,
    Group,
    Map,
    Node,
    Opaque,
    Param,
    Structure,
    walk,
)
from kernelwright.ir.scalars import SCALARS
from kernelwright.load import instantiate, load
from tests.property.edge_values import difference

HEADER = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nfrom math import inf, nan\n\n"


@dataclass(frozen=True)
class Captured:
    """A captured model beside the model itself."""

    graph: Graph
    model: nn.Module
    inputs: tuple[Any, ...]

    @property
    def targets(self) -> list[str]:
        """The operators that were left to PyTorch."""
        return [n.target for n in self.graph.nodes() if isinstance(n, Opaque)]

    def interpreted(self) -> list[torch.Tensor]:
        state = {n.path: attrgetter(n.path)(self.model).detach() for n in self.graph.nodes() if isinstance(n, Param)}
        with torch.no_grad():
            return interpret(self.graph, self.inputs, state)

    def eager(self) -> list[torch.Tensor]:
        """The outputs, then the state that was updated, of a copy of the model on copies of the inputs."""
        model, inputs = copy.deepcopy((self.model, self.inputs))
        with torch.no_grad():
            outputs = [x for x in tree_leaves(model(*inputs)) if isinstance(x, torch.Tensor)]
        # One tensor that is returned twice is one output of the graph.
        first = dict(reversed(list(zip(places(self.graph.structure), outputs, strict=True))))
        outputs = [first[number] for number in range(len(self.graph.outputs))]
        targets = [u.target for u in self.graph.updates]
        after = [attrgetter(t.path)(model) if isinstance(t, Param) else inputs[t.position] for t in targets]
        return [x.detach() for x in (*outputs, *after)]

    def differences(self) -> list[str]:
        """One text for each result that differs. Exact functions must agree to the bit but for the signs of zeros."""
        roots: list[Node] = [*self.graph.outputs, *(u.value for u in self.graph.updates)]
        eager, ours = self.eager(), self.interpreted()
        assert len(eager) == len(ours) == len(roots)
        compared = [
            difference(e, o, allowed_ulps(r), zeros_have_signs=False)
            for e, o, r in zip(eager, ours, roots, strict=True)
        ]
        return [f"result {i}: {text}" for i, text in enumerate(compared) if text]


def allowed_ulps(root: Node) -> int:
    """Sums may be taken in another order; inexact functions may take another path through a vector's tail."""
    nodes = list(walk((root,)))
    if any(isinstance(n, (Contract, Conv, Opaque)) for n in nodes):
        return 64
    if not all(SCALARS[n.fn].exact for n in nodes if isinstance(n, Map)):
        return 4
    # PyTorch computes 16-bit floats in float32 and rounds again; some processors round once, in one case of thousands.
    return 1 if any(n.dtype.is_reduced_float for n in nodes) else 0


def write_problem(folder: Path, source: str) -> Path:
    path = folder / "problem.py"
    path.write_text(HEADER + textwrap.dedent(source))
    return path


def captured(folder: Path, source: str) -> Captured:
    """The model of a file that defines Model and get_inputs."""
    problem = load(write_problem(folder, source))
    instance = instantiate(problem, 1, "cpu")
    return Captured(capture(problem), instance.model, instance.inputs)


def captured_expressions(folder: Path, expressions: Sequence[str], **tensors: torch.Tensor) -> Captured:
    """One model that returns the value of each expression over the named tensors."""
    returned = "".join(f"\n            {e}," for e in expressions)
    source = f"""
class Model(nn.Module):
    def forward(self, {", ".join(tensors)}):
        return ({returned}
        )


def get_inputs():
    return [{", ".join(literal(x) for x in tensors.values())}]
"""
    return captured(folder, source)


def literal(x: torch.Tensor) -> str:
    """The tensor written down, strides and all."""
    values = f"torch.tensor({x.flatten().tolist()}, dtype={x.dtype}).reshape({tuple(x.shape)})"
    strided = f"torch.empty_strided({tuple(x.shape)}, {x.stride()}, dtype={x.dtype}).copy_({values})"
    return values if x.is_contiguous() else strided


def valid(expressions: Sequence[str], **tensors: torch.Tensor) -> list[str]:
    """The expressions that eager PyTorch accepts for these dtypes."""
    scope = {"torch": torch, "F": nn.functional, "nn": nn, "inf": inf, **tensors}
    return [e for e in expressions if accepts(e, scope)]


def accepts(expression: str, scope: dict[str, Any]) -> bool:
    try:
        eval(expression, dict(scope))
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    return True


def places(structure: Structure) -> list[Structure]:
    """The tensors that forward() returns, each as its place among the graph's outputs, or as an updated argument."""
    if isinstance(structure, Group):
        return [place for item in structure.items for place in places(item)]
    if isinstance(structure, Detached):
        return places(structure.of)
    return [] if isinstance(structure, Fixed) else [structure]
