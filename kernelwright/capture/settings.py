"""A model comes in; the plain attributes that its graph may have baked in go out."""

from __future__ import annotations

import re

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kernelwright.ir.nodes import Looks, Setting

# Constants of library modules that the shape of a parameter already tells, or that change no result.
TOLD_BY_SHAPES = frozenset(
    (
        *("in_features", "out_features", "in_channels", "out_channels", "num_features", "num_embeddings"),
        *("embedding_dim", "inplace", "normalized_shape", "input_size", "hidden_size", "num_channels"),
        *("embed_dim",),
    )
)

# Library modules that do the same in train and in eval mode. For anything else the mode is part of what is assumed.
MODELESS = (
    *(nn.Linear, nn.Bilinear, nn.Identity, nn.Embedding, nn.Flatten, nn.Unflatten),
    *(nn.LayerNorm, nn.GroupNorm, nn.RMSNorm),
    *(nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict),
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Softsign),
    *(nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Sigmoid, nn.Tanh, nn.LogSigmoid, nn.Tanhshrink, nn.Threshold),
    *(nn.Softmax, nn.LogSoftmax, nn.PReLU, nn.GLU, nn.Hardshrink, nn.Softshrink),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.Upsample, nn.PixelShuffle),
)

PLAIN = (bool, int, float, str, type(None))

# What nn.Module keeps for itself.
INTERNAL = frozenset(vars(nn.Module()))

# Texts longer than this are not compared in every call.
LONGEST_LOOKS = 400


def settings_of(model: nn.Module, source: str) -> tuple[Setting, ...]:
    """Every plain attribute of the user's own modules, the constants of library modules, the mode where it matters, and
    of which class each part is; of a part that stands in two places, the second says where the first is."""
    first: dict[nn.Module, str] = {}
    found: list[Setting] = []
    for path, module in model.named_modules(remove_duplicate=False):
        if module in first:
            found.append(Setting(path, "class", first[module]))
            continue
        first[module] = path
        found += module_settings(path, module, source)
    return tuple(found)


def module_settings(path: str, module: nn.Module, source: str) -> list[Setting]:
    library = type(module).__module__.startswith("torch.")
    kept = vars(module) if library else {**class_attributes(type(module)), **vars(module)}
    names = list(getattr(module, "__constants__", ())) if library else list(kept)
    found = [Setting(path, n, kept[n]) for n in names if is_setting(n, kept.get(n, vars))]
    if not library:
        found += [
            Setting(path, n, Looks(text)) for n, x in vars(module).items() if (text := looks_of(n, x)) is not None
        ]
    if path:  # the model itself is Model, or our ModelNew
        found.append(Setting(path, "class", type(module).__name__))
    if type(module) not in MODELESS if library else "training" in source:
        found.append(Setting(path, "training", module.training))
    return found


def class_attributes(kind: type) -> dict[str, object]:
    """What the user's own classes define, as an instance sees it."""
    own = [base for base in reversed(kind.__mro__) if not base.__module__.startswith(("torch.", "builtins"))]
    return {name: value for base in own for name, value in vars(base).items()}


def is_setting(name: str, value: object) -> bool:
    return is_plain(value) and name not in TOLD_BY_SHAPES and is_users(name)


def is_users(name: str) -> bool:
    """Whether the user gave the attribute its name, and not nn.Module or Python."""
    return name not in INTERNAL and not name.startswith("__")


def is_plain(value: object) -> bool:
    """A number, a string, None, or a tuple, list or dict of such; nothing that only behaves like one."""
    if type(value) is dict:
        return all(is_plain(item) for item in (*value.keys(), *value.values()))
    return type(value) in PLAIN or (type(value) in (tuple, list) and all(is_plain(item) for item in value))  # type: ignore[attr-defined]


def looks_of(name: str, value: object) -> str | None:
    """How an attribute looks that is no plain value: a function, an enum, an object of settings. None if it is not to
    be told so: state, or more than one would compare in every call."""
    if (
        is_plain(value)
        or not is_users(name)
        or any(isinstance(x, (torch.Tensor, nn.Module)) for x in tree_leaves(value))
    ):
        return None
    text = looks(value)
    return text if len(text) <= LONGEST_LOOKS else None


def looks(value: object) -> str:
    """How an object looks, wherever in memory it is. The emitted file has the same function."""
    shown = vars(value) if type(value).__repr__ is object.__repr__ and hasattr(value, "__dict__") else value
    return re.sub(r" at 0x\w+", "", getattr(value, "__qualname__", None) or repr(shown))
