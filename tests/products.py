"""Models with one product each, from a line of forward() to the program that would run it on a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernelwright.capture import capture
from kernelwright.device import resolve
from kernelwright.generate import Program, default_choices, generate
from kernelwright.ir.nodes import Graph
from kernelwright.load import load
from kernelwright.plan import plan
from kernelwright.settings import read_settings
from kernelwright.simplify import simplify
from kernelwright.tune.routes import choose_routes

MODEL = """\
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]
"""


def graph_of(folder: Path, body: str, inputs: tuple[str, ...], layer: str) -> Graph:
    """`return body` captured and simplified; inputs are x0, x1, ..."""
    file = folder / "problem.py"
    names = ", ".join(f"x{i}" for i in range(len(inputs)))
    file.write_text(MODEL.format(layer=layer, names=names, body=body, inputs=", ".join(inputs)))
    return simplify(capture(load(file)))


def program_of(
    folder: Path,
    body: str,
    inputs: tuple[str, ...],
    layer: str,
    device: str,
    precision: str = "reference",
    strict_weights: bool = False,
) -> Program:
    """What the cost model makes of it for a device that is not here."""
    target = replace(resolve(device), present=False)
    graph = graph_of(folder, body, inputs, layer)
    planned = plan(graph, choose_routes(graph, target, 0.0, read_settings(), precision, strict_weights))
    return generate(planned, default_choices(planned, target), target)
