"""Nested arguments and outputs come in; a JSON template and the flat list of their tensors go out, and back.

Templates are lists whose first element names the kind: `["(", ["T", 0], ["=", 2]]` is `(first tensor, 2)`. Loaded in
both processes; imports only torch.

The walks are no nested functions: one that calls itself is a cycle, and the tensors it has seen, gigabytes at times,
would stay until the garbage collector comes by.
"""

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["Template", "dtype_named", "flatten_arguments", "flatten_output", "unflatten", "unknown_type"]

Template = list[Any]


def flatten_arguments(value: Any) -> tuple[Template, list[torch.Tensor]]:
    """Tensors are taken out; everything else stays in the template as it is."""
    tensors: list[torch.Tensor] = []
    return _argument(value, tensors), tensors


def _argument(value: Any, tensors: list[torch.Tensor]) -> Template:
    match value:
        case torch.Tensor():
            tensors.append(value)
            return ["T", len(tensors) - 1]
        case None | bool() | int() | float() | str():
            return ["=", value]
        case complex():
            return ["complex", value.real, value.imag]
        case torch.dtype():
            return ["dtype", str(value).removeprefix("torch.")]
        case torch.device():
            return ["device", str(value)]
        case tuple():
            return ["(", *(_argument(item, tensors) for item in value)]
        case list():
            return ["[", *(_argument(item, tensors) for item in value)]
        case dict():
            return ["{", *([_argument(key, tensors), _argument(item, tensors)] for key, item in value.items())]
    raise TypeError(f"a {type(value).__name__} cannot be handed to another process")


def flatten_output(value: Any) -> tuple[Template, list[torch.Tensor | float]]:
    """Tensors and numbers are taken out: both are results. The template keeps the structure and the numbers' types."""
    leaves: list[torch.Tensor | float] = []
    return _result(value, leaves), leaves


def _result(value: Any, leaves: list[torch.Tensor | float]) -> Template:
    match value:
        case torch.Tensor():
            leaves.append(value)
            return ["T", len(leaves) - 1]
        case None | str():
            return ["=", value]
        case bool() | int() | float():
            leaves.append(value)
            return ["N", type(value).__name__]
        case complex():
            leaves += [value.real, value.imag]
            return ["N", "complex"]
        case tuple():  # torch.return_types.max and other named tuples are tuples
            return ["(", *(_result(item, leaves) for item in value)]
        case list():
            return ["[", *(_result(item, leaves) for item in value)]
        case dict():
            # Two dictionaries are equal whatever the order of their keys.
            items = sorted(((str(key), item) for key, item in value.items()), key=_first)
            return ["{", *([key, _result(item, leaves)] for key, item in items)]
    return ["?", type(value).__name__]


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]


def unknown_type(template: Template) -> str:
    """The type of something in an output that nobody can compare; "" if there is none."""
    kind, *rest = template
    if kind == "?":
        return str(rest[0])
    parts = [part[1] for part in rest] if kind == "{" else rest if kind in "([" else []
    return next(filter(None, map(unknown_type, parts)), "")


def as_real(x: torch.Tensor) -> torch.Tensor:
    """A complex tensor as its real and imaginary parts: numbers like others, with roundings of their own."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def unflatten(template: Template, tensors: Sequence[torch.Tensor]) -> Any:
    """The inverse of `flatten_arguments`."""
    kind, *rest = template
    match kind:
        case "T":
            return tensors[rest[0]]
        case "=":
            return rest[0]
        case "complex":
            return complex(*rest)
        case "dtype":
            return dtype_named(rest[0])
        case "device":
            return torch.device(rest[0])
        case "(":
            return tuple(unflatten(item, tensors) for item in rest)
        case "[":
            return [unflatten(item, tensors) for item in rest]
        case "{":
            return {unflatten(key, tensors): unflatten(item, tensors) for key, item in rest}
    raise ValueError(f"unknown kind {kind!r} in a template")


def dtype_named(name: str) -> torch.dtype:
    """`float32` -> torch.float32"""
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch.{name} is no dtype")
    return dtype
