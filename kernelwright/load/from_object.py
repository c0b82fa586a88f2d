"""A live nn.Module with its inputs, or an imported module, comes in; the `Problem` file it stands for goes out."""

from __future__ import annotations

import copy
import inspect
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from kernelwright.errors import UsageError
from kernelwright.load.instantiate import generators_restored, instantiate
from kernelwright.load.problem import Problem, load

# What a class written in a notebook may rely on besides itself.
USUAL_IMPORTS = """\
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
"""


def problem_of(model: ModuleType | nn.Module, inputs: Sequence[Any] | None) -> Problem:
    """The problem file of an imported module, or the one that describes a live model and example inputs."""
    if isinstance(model, ModuleType):
        if getattr(model, "__file__", None) is None:
            raise UsageError(f"module {model.__name__} has no file.", cure="Give the path of the model's file.")
        return load(Path(str(model.__file__)))
    if inputs is None:
        raise UsageError(
            "a model needs example inputs to be optimized for.",
            where="optimize(model)",
            cure="Call optimize(model, inputs=[x, ...]) with what forward() takes.",
        )
    return described(model, inputs)


def described(model: nn.Module, inputs: Sequence[Any]) -> Problem:
    """The source of the model's class, and get_inputs() and get_init_inputs() that give the like of what is here."""
    kind = type(model)
    source = class_source(kind)
    alias = "" if kind.__name__ == "Model" else f"\n\nModel = {kind.__name__}\n"
    made = ", ".join(argument_text(value) for value in inputs)
    inputs_text = f"\n\ndef get_inputs():\n    return [{made}]\n"
    functions = f"{inputs_text}\n\ndef get_init_inputs():\n    return {init_text(model)}\n"
    path = Path(inspect.getsourcefile(kind) or f"{kind.__name__}.py")
    return Problem(kind.__name__, source + alias + functions, path)


def argument_text(value: Any) -> str:
    """Python that makes the like of one argument of forward(), item by item if it is a list."""
    if isinstance(value, (list, tuple)):
        items = "".join(f"{argument_text(item)}, " for item in value)
        return f"[{items}]" if isinstance(value, list) else f"({items})"
    return f"float({str(value)!r})" if isinstance(value, float) else input_text(value)


def class_source(kind: type) -> str:
    """The whole file the class is in, or in a notebook the class itself."""
    module = sys.modules.get(kind.__module__)
    try:
        if module is not None and getattr(module, "__file__", None) and kind.__module__ != "__main__":
            return inspect.getsource(module)
        return USUAL_IMPORTS + "\n\n" + textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError) as error:
        raise UsageError(
            f"the source of class {kind.__name__} cannot be found.",
            where="optimize(model)",
            cure="Put the class in a file and give its path.",
        ) from error


def input_text(value: Any) -> str:
    """Python that makes a random tensor of the same kind, in the same order of memory, or the same scalar."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    if value.layout is torch.strided and not value.is_contiguous():
        places = 1 + sum((n - 1) * stride for n, stride in zip(value.shape, value.stride(), strict=True))
        return f"({flat_text(value, (places,))}).as_strided({tuple(value.shape)}, {value.stride()})"
    return flat_text(value, tuple(value.shape))


def flat_text(value: torch.Tensor, shape: tuple[int, ...]) -> str:
    """A contiguous one of this shape."""
    if value.dtype.is_floating_point:
        return f"torch.randn({shape}).to({value.dtype})"
    if value.dtype.is_complex:
        return f"torch.randn({shape}, dtype={value.dtype})"
    if value.dtype == torch.bool:
        return f"torch.rand({shape}) < 0.5"
    low, high = (min(int(value.min()), 0), max(int(value.max()) + 1, 1)) if value.numel() else (0, 1)
    return f"torch.randint({low}, {high}, {shape}, dtype={value.dtype})"


def init_text(model: nn.Module) -> str:
    """The constructor's arguments: each read back from the attribute of its name, where there is one."""
    values: dict[str, Any] = {}
    for name, parameter in inspect.signature(type(model).__init__).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = getattr(model, name, parameter.default)
        if value is parameter.empty or not isinstance(value, (bool, int, float, str, tuple, list, type(None))):
            raise UsageError(
                f"the constructor argument {name!r} of {type(model).__name__} cannot be read back from the model.",
                where="optimize(model)",
                cure=f"Keep it as self.{name}, or write a file with get_init_inputs() and give its path.",
            )
        values[name] = value
    refuse_another(model, values)
    return f"[[], {values!r}]" if values else "[]"


def refuse_another(model: nn.Module, values: dict[str, Any]) -> None:
    """An attribute may be called like an argument and be something else: then these values make another model."""
    with generators_restored():
        made = type(model)(**copy.deepcopy(values))
    if description(made) != description(model):
        raise UsageError(
            f"{type(model).__name__} made of the attributes that are called like its arguments is another model.",
            where="optimize(model)",
            cure="Write a file with get_init_inputs() and give its path.",
        )


def description(model: nn.Module) -> list[object]:
    """Every part with its class, its plain attributes and the shapes of its state."""
    plain = (int, float, str)  # the mode is a bool, and the caller's to choose
    parts = [
        (path, type(part).__name__, sorted((k, repr(v)) for k, v in vars(part).items() if type(v) in plain))
        for path, part in model.named_modules()
    ]
    return [*parts, *((name, tuple(x.shape), x.dtype) for name, x in model.state_dict().items())]


def candidate_module(problem: Problem, source: str, device: str) -> nn.Module:
    """ModelNew of an emitted source, with the weights that the problem's own Model gets for seed 0."""
    renamed = Problem(f"{problem.name}_new", f"{source}\n\nModel = ModelNew\n", problem.path)
    return instantiate(renamed, 0, device).model
