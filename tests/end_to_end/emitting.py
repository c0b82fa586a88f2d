"""Model source comes in; the emitted file, imported, goes out, with ways to run it beside the original."""

from __future__ import annotations

import copy
import importlib.util
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from kernelwright.capture import capture
from kernelwright.device import resolve
from kernelwright.emit import emit
from kernelwright.generate import default_choices, generate
from kernelwright.load import Problem, load
from kernelwright.plan import plan
from kernelwright.simplify import simplify

HEADER = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def model_source(
    *forward: str,
    init: tuple[str, ...] = (),
    inputs: str = "torch.randn(4, 6)",
    takes: str = "self, x",
    above: str = "",
) -> str:
    """A model file of a few statements."""
    made = ["    def __init__(self):", "        super().__init__()", *(f"        {line}" for line in init), ""]
    return "\n".join(
        [
            above,
            "class Model(nn.Module):",
            *(made if init else []),
            f"    def forward({takes}):",
            *(f"        {line}" for line in forward),
            "",
            "",
            f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n",
        ]
    )


def emitted_text(problem: Problem, device: str = "cpu") -> str:
    """The whole compiler, without tuning."""
    target = resolve(device)
    made = plan(simplify(capture(problem)))
    return emit(generate(made, default_choices(made, target), target), problem)


def imported(path: Path) -> ModuleType:
    """The file as a module under a name of its own."""
    name = f"emitted_{path.stem}_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Emitted:
    """An emitted file: its module, how often its kernels ran, and its two models side by side."""

    def __init__(self, source: str, folder: Path, name: str) -> None:
        path = folder / f"{name}.py"
        path.write_text(HEADER + source)
        self.text = emitted_text(load(path))
        emitted = folder / f"{name}_emitted.py"
        emitted.write_text(self.text)
        self.module = imported(emitted)
        self.launches = 0
        name = "launch" if hasattr(self.module, "launch") and "launch_(" not in self.text else "launch_"
        if hasattr(self.module, name):
            self.count(name)

    def count(self, name: str) -> None:
        inner = getattr(self.module, name)

        def counting(*arguments: Any) -> None:
            self.launches += 1
            inner(*arguments)

        setattr(self.module, name, counting)

    def pair(self, *arguments: Any) -> tuple[nn.Module, nn.Module]:
        """Model and ModelNew from one seed."""
        arguments = arguments or tuple(self.module.get_init_inputs())
        torch.manual_seed(3)
        original = self.module.Model(*arguments)
        torch.manual_seed(3)
        return original, self.module.ModelNew(*arguments)

    def inputs(self) -> list[Any]:
        torch.manual_seed(5)
        made: list[Any] = self.module.get_inputs()
        return made

    def agree(self, original: nn.Module, new: nn.Module, *arguments: Any, **options: Any) -> bool:
        """Both give the same answer and end in the same state; says whether kernels ran."""
        first, second = twice(arguments), twice(arguments)
        before = self.launches
        torch.manual_seed(11)
        expected = original(*first, **options)
        torch.manual_seed(11)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = new(*second, **options)
        close(got, expected)
        close(list(second), list(first))
        close(list(new.state_dict().values()), list(original.state_dict().values()))
        return self.launches > before

    def check(self, change: Callable[[nn.Module], Any] | None = None, *arguments: Any) -> bool:
        """A fresh pair, both changed alike, on the usual inputs or on others."""
        original, new = self.pair()
        if change is not None:
            change(original), change(new)
        with torch.no_grad():
            return self.agree(original, new, *(arguments or self.inputs()))


def twice(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies that alias each other where the arguments do, at the same strides and offsets."""
    storages: dict[int, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if type(value) is not torch.Tensor or value.layout is not torch.strided or value.device.type == "meta":
            return copy.deepcopy(value)
        key = value.untyped_storage().data_ptr()
        if key not in storages:
            storages[key] = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage().clone())
        like = torch.empty(0, dtype=value.dtype)
        like.set_(storages[key].untyped_storage(), value.storage_offset(), value.shape, value.stride())
        return like.requires_grad_(value.requires_grad)

    return tuple(copied(value) for value in arguments)


def close(got: Any, expected: Any) -> None:
    """The same types, shapes and dtypes, and values to a few roundings; NaN where NaN is expected."""
    if isinstance(expected, torch.Tensor):
        assert type(got) is type(expected)
        torch.testing.assert_close(got, expected, equal_nan=True)
    elif isinstance(expected, (tuple, list)):
        assert type(got) is type(expected)
        for one, other in zip(got, expected, strict=True):
            close(one, other)
    else:
        assert got == expected
