"""A model whose forward() is about to run comes in; what that run changed beside tensors goes out, by name.

A graph holds what forward() computes of tensors. A counter in Python, a list that grows, a seed that is set: that
happens while the graph is made, and never again. A file made of such a graph would be right in its first call alone.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from kernelwright.load.instantiate import generators_restored

__all__ = ["effects"]

PLAIN = (bool, int, float, complex, str, bytes, type(None))

# What nn.Module keeps for itself. Parameters, buffers and submodules are the tracer's to follow; the mode is ours.
INTERNAL = frozenset(vars(nn.Module())) - {"training"}

# How far attributes of attributes are followed.
DEPTH = 4

# No model sets this seed.
UNLIKELY_SEED = 0x5EED_0F_71AC1


@contextmanager
def effects(model: nn.Module) -> Iterator[list[str]]:
    """While this is open, each call of the model adds the names of what it changed to the list that is given."""
    found: list[str] = []
    before: dict[str, object] = {}

    def begin(*_: object) -> None:
        before.clear()
        before.update(snapshot(model))

    def end(*_: object) -> None:
        after = snapshot(model)
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        found.extend(name for name in names if name not in found)

    hooks = (model.register_forward_pre_hook(begin), model.register_forward_hook(end))
    try:
        with generators_restored(), seeding_noted(found):
            torch.manual_seed(UNLIKELY_SEED)
            yield found
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def seeding_noted(found: list[str]) -> Iterator[None]:
    """A seed inside torch.random.fork_rng leaves no trace in the generator: the call itself is noted."""
    set_seed: Callable[..., torch.Generator] = torch.manual_seed

    def noting(seed: int) -> torch.Generator:
        if seed != UNLIKELY_SEED and "torch.manual_seed" not in found:
            found.append("torch.manual_seed")
        return set_seed(seed)

    torch.manual_seed = noting
    try:
        yield
    finally:
        torch.manual_seed = set_seed


def snapshot(model: nn.Module) -> dict[str, object]:
    """What forward() could change, by the name that a reader of the file knows it by."""
    found: dict[str, object] = {"the random numbers of torch": torch_state()}
    found["the random numbers of Python"] = random.getstate()
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        found["the random numbers of NumPy"] = (kind, keys.tobytes(), *rest)
    for path, module in model.named_modules():
        prefix = f"self.{path}." if path else "self."
        found |= named(prefix, {name: value for name, value in vars(module).items() if is_watched(module, name)})
    file = sys.modules.get(type(model).__module__)
    for name, value in list(vars(file).items()) if file is not None else []:
        if not name.startswith("__"):
            found |= named("", {name: value})
        if isinstance(value, type) and file is not None and value.__module__ == file.__name__:
            found |= named(f"{name}.", vars(value))
    return found


def is_watched(module: nn.Module, name: str) -> bool:
    """What a library module keeps under a private name is a cache of its own."""
    of_library = type(module).__module__.startswith("torch.")
    return name not in INTERNAL and not (of_library and name.startswith("_"))


def torch_state() -> bytes:
    """Tensors that the graph draws are none of it: while it is made, they have no numbers."""
    with _disable_current_modes():
        return torch.default_generator.get_state().numpy().tobytes()


def named(prefix: str, values: Mapping[str, object]) -> dict[str, object]:
    return {f"{prefix}{name}": frozen(value, DEPTH) for name, value in values.items() if not name.startswith("__")}


class Same:
    """Equal to what wraps the same object. It keeps the object, so that no new one can take its address."""

    def __init__(self, kept: object) -> None:
        self.kept = kept

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.kept is other.kept

    def __hash__(self) -> int:
        return id(self.kept)


def frozen(value: Any, depth: int) -> object:
    """The value as it is now: plain values by what they are, containers by their items, the rest by identity."""
    if isinstance(value, PLAIN):
        return type(value), repr(value)
    if depth == 0 or isinstance(value, (torch.Tensor, nn.Module, ModuleType, type)):
        return Same(value)
    if isinstance(value, dict):
        return type(value), tuple((frozen(key, 1), frozen(item, depth - 1)) for key, item in list(value.items()))
    if isinstance(value, (list, tuple)):
        return type(value), tuple(frozen(item, depth - 1) for item in value)
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(frozen(item, 1) for item in value)
    if isinstance(value, FunctionType):
        return Same(value), frozen(value.__defaults__, depth - 1)
    own = getattr(value, "__dict__", None)
    return (Same(value), frozen(dict(own), depth - 1)) if isinstance(own, dict) else Same(value)
