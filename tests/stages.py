"""The examples through every stage, each stage once a test run: capture takes half a second an example."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kernelwright.capture import capture
from kernelwright.device import resolve
from kernelwright.emit import emit
from kernelwright.generate import Program, default_choices, generate
from kernelwright.ir.nodes import Graph
from kernelwright.load import Problem, load
from kernelwright.plan import Plan, plan
from kernelwright.simplify import simplify

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = tuple(sorted(path.stem for path in EXAMPLES.glob("*.py")))


@cache
def problem_of(name: str) -> Problem:
    return load(EXAMPLES / f"{name}.py")


@cache
def captured(name: str) -> Graph:
    return capture(problem_of(name))


@cache
def simplified(name: str) -> Graph:
    return simplify(captured(name))


@cache
def planned(name: str) -> Plan:
    return plan(simplified(name))


@cache
def generated(name: str, device: str) -> Program:
    target = resolve(device)
    return generate(planned(name), default_choices(planned(name), target), target)


@cache
def emitted(name: str, device: str) -> str:
    return emit(generated(name, device), problem_of(name))
