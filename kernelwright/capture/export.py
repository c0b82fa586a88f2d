"""A model and its inputs come in; its functional ATen program, by torch.export, goes out."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram

from kernelwright.errors import UnsupportedProblem
from kernelwright.load import Instance, Problem, at_home, instantiate

# The graph does not depend on values, so any seed will do.
SEED = 0


def export(problem: Problem) -> tuple[ExportedProgram, Instance]:
    """The program without in-place operators; high-level operators (linear, layer_norm, lstm) stay whole.

    First without memory for weights and inputs; a model that looks at values while it is built or called (`.item()`,
    constant tensors) is made for real.
    """
    with at_home(problem, "cpu"), quiet(), torch.no_grad():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                instance = instantiate(problem, SEED, "cpu")
                program = traced(instance)
        except Exception:  # noqa: BLE001  what fails without values may work with them, and else fails again below
            program = None
        if program is None or any(isinstance(c, FakeTensor) for c in lifted(program)):
            instance = instantiate(problem, SEED, "cpu")
            program = traced_or_refused(problem, instance)
    return program, instance


def traced(instance: Instance) -> ExportedProgram:
    register_plain_tensors(instance.model)
    program: ExportedProgram = torch.export.export(instance.model, instance.inputs, strict=False)
    functional: ExportedProgram = program.run_decompositions({})
    return functional


def register_plain_tensors(model: torch.nn.Module) -> None:
    """Tensors kept as plain attributes become buffers: torch.export follows changes to those alone.

    This model is ours and thrown away; in the user's, such a tensor stays the attribute it is, under the same path.
    """
    for module in model.modules():
        plain = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        for name, value in plain.items():
            delattr(module, name)
            module.register_buffer(name, value, persistent=False)


def traced_or_refused(problem: Problem, instance: Instance) -> ExportedProgram:
    try:
        return traced(instance)
    except Exception as error:  # torch.export raises whatever the model or the tracer raises
        first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UnsupportedProblem(
            f"forward() cannot be captured as one graph: {first_line.rstrip('.')}.",
            where=problem.path,
            cure="Write what depends on tensor values with torch.where, or leave this model as it is.",
        ) from error


def lifted(program: ExportedProgram) -> list[object]:
    """The tensors written as constants inside forward()."""
    return list(program.constants.values())


@contextmanager
def quiet() -> Iterator[None]:
    """torch.export warns about its own internals and prints the graphs it fails on; none of it is for our user."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
