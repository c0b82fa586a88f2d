"""A model comes in; the plain attributes that its graph may have baked in go out."""

from __future__ import annotations

from torch import nn

from kernelwright.ir.nodes import Setting

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
    return is_plain(value) and name not in TOLD_BY_SHAPES and name != "training" and not name.startswith("_")


def is_plain(value: object) -> bool:
    """A number, a string, None, or a tuple, list or dict of such."""
    if isinstance(value, dict):
        return all(is_plain(item) for item in (*value.keys(), *value.values()))
    return isinstance(value, PLAIN) or (isinstance(value, (tuple, list)) and all(is_plain(item) for item in value))
