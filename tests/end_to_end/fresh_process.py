"""Emitted files come in as arguments; each is imported and run, and a line of JSON says how it went.

It runs by itself, in a process that knows nothing of kernelwright: an emitted file needs PyTorch and a compiler.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

# An ulp more or less before a sort changes places of neighbours, and their weights.
LOOSE = {"sort_between": 0.01}


def main(paths: list[str]) -> None:
    for path in map(Path, paths):
        print(json.dumps({"name": path.stem, **checked(path)}), flush=True)
    assert not any(name.partition(".")[0] == "kernelwright" for name in sys.modules)


def checked(path: Path) -> dict[str, object]:
    module = imported(path)
    ran = counted(module)
    torch.manual_seed(0)
    original = module.Model(*module.get_init_inputs())
    torch.manual_seed(0)
    new = module.ModelNew(*module.get_init_inputs())
    torch.manual_seed(1)
    inputs = module.get_inputs()
    wrong = {}
    few = smaller(inputs)
    cases = {"as planned": (same, inputs), "smaller batch": (same, few), "strided": (same, strided(inputs))}
    cases["double"] = (nn.Module.double, [x.double() if is_float(x) else x for x in few])
    launches = {}
    for case, (change, arguments) in cases.items():
        before = len(ran)
        outcomes = [outcome(change(copy.deepcopy(model)), copy.deepcopy(arguments)) for model in (original, new)]
        launches[case] = len(ran) - before
        allowed = LOOSE.get(path.stem, 0.0) if case == "as planned" else 0.0
        wrong[case] = difference(outcomes[1], outcomes[0], allowed)
    return {"launches": launches, "wrong": {case: text for case, text in wrong.items() if text}}


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def counted(module: ModuleType) -> list[str]:
    """The entries that are called from now on."""
    ran: list[str] = []
    inner = module.launch

    def launch(entry: str, *tensors: torch.Tensor) -> None:
        ran.append(entry)
        inner(entry, *tensors)

    module.launch = launch  # type: ignore[attr-defined]
    return ran


def same(model: nn.Module) -> nn.Module:
    return model


def is_float(x: object) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype == torch.float32


def smaller(inputs: list[Any]) -> list[Any]:
    """A little of what lies along the first axis, in every tensor that has the whole of it."""
    batch = max(x.shape[0] for x in inputs if isinstance(x, torch.Tensor) and x.dim())
    whole = [isinstance(x, torch.Tensor) and x.dim() > 0 and x.shape[0] == batch for x in inputs]
    return [x[: min(8, batch // 2)].contiguous() if part else x for x, part in zip(inputs, whole, strict=True)]


def strided(inputs: list[Any]) -> list[Any]:
    """The same values with the axes in another order of memory."""
    turned = [x for x in inputs if isinstance(x, torch.Tensor) and x.dim() > 1]
    return [x.transpose(0, -1).contiguous().transpose(0, -1) if any(x is t for t in turned) else x for x in inputs]


def outcome(model: nn.Module, arguments: list[Any]) -> Any:
    """What the model returns and the state it ends in, or the kind of its error."""
    torch.manual_seed(2)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = model(*arguments)
        except RuntimeError as error:
            return type(error).__name__
    return [result, list(model.state_dict().values())]


def difference(got: Any, expected: Any, allowed: float) -> str:
    """What is not the same; `allowed` is the part of all elements that may be anything."""
    if isinstance(expected, (list, tuple)) and isinstance(got, (list, tuple)) and len(got) == len(expected):
        return "".join(difference(a, b, allowed) for a, b in zip(got, expected, strict=True))
    if not isinstance(expected, torch.Tensor):
        return "" if got == expected else f"{got!r} instead of {expected!r}. "
    if not isinstance(got, torch.Tensor) or (got.shape, got.dtype) != (expected.shape, expected.dtype):
        return f"{type(got).__name__} of another shape or dtype. "
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-10}.get(expected.dtype, 1e-5)
    far = ~torch.isclose(got.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
    return "" if far.double().mean() <= allowed else f"{int(far.sum())} of {far.numel()} elements differ. "


if __name__ == "__main__":
    main(sys.argv[1:])
