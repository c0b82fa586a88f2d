"""Softmax and the norms as Reduces and Maps: one row an operator.

A norm computes in float32 for 16-bit floats and rounds once: y = (x - mean) * rsqrt(variance + eps) * weight + bias.
Where the weight belongs to a whole row, the factors are multiplied first, as that is done once a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from kernelwright.capture.call import Call, Translation, Value, cast, in_registers
from kernelwright.capture.rows import (
    axes_of,
    extent_over,
    formula,
    last_axes,
    mean_over,
    norm_over,
    over,
    result,
    result_of,
    variance_over,
    wide,
)
from kernelwright.ir.dtypes import DType
from kernelwright.ir.nodes import Map, Node, Reshape, Shape


def softmax(call: Call) -> Value:
    """exp(x - max) / sum(exp(x - max))"""
    x, axes = row(call)
    if x.dtype.kind != "float" or x.size == 0:
        return None
    raised = Map("exp", (formula("sub", x, over("max", x, axes)),))
    return cast(formula("div", raised, over("exponentials", x, axes)), call.type.dtype)


def log_softmax(call: Call) -> Value:
    """x - max - log(sum(exp(x - max))), the largest first: it may be far greater than the rest"""
    x, axes = row(call)
    if x.dtype.kind != "float" or x.size == 0:
        return None
    shifted = formula("sub", x, over("max", x, axes))
    return cast(formula("sub", shifted, Map("log", (over("exponentials", x, axes),))), call.type.dtype)


def safe_softmax(call: Call) -> Value:
    """Softmax that is zero where the whole row is -inf"""
    plain = softmax(call)
    if not isinstance(plain, Node):
        return None
    x, axes = row(call)
    masked = formula("eq", over("max", x, axes), -math.inf)
    return formula("where", masked, 0, plain)


def row(call: Call) -> tuple[Node, Shape]:
    x: Node = call["self"]
    return wide(x, call.type.dtype), axes_of(call["dim"], len(x.shape))


def compute_dtype(*operands: Node | None) -> DType:
    """What the operands of a norm are computed in: 16-bit inputs may have float32 weights."""
    dtypes = [o.dtype for o in operands if o is not None]
    return in_registers(max(dtypes, key=lambda dtype: dtype.itemsize))


def scaled(x: Node, weight: Node | None, bias: Node | None) -> Node:
    """x * weight + bias, either of which may be missing"""
    if weight is not None:
        x = formula("mul", x, cast(weight, x.dtype))
    if bias is not None:
        x = formula("add", x, cast(bias, x.dtype))
    return x


def inverse_deviation(variance: Node, eps: float) -> Node:
    return Map("rsqrt", (formula("add", variance, eps),))


def layer_norm(call: Call) -> Value:
    found = layer_normalised(call)
    return None if found is None else found[0]


def native_layer_norm(call: Call) -> Value:
    """The result, the means and the inverse deviations"""
    return layer_normalised(call)


def layer_normalised(call: Call) -> tuple[Node, ...] | None:
    """Over the last axes, with a weight and a bias for each element"""
    x, weight, bias = call["input"], call["weight"], call["bias"]
    if x.size == 0:
        return None
    x = cast(x, compute_dtype(x, weight, bias))
    axes = last_axes(len(call["normalized_shape"]), len(x.shape))
    mean = mean_over(x, axes)
    rstd = inverse_deviation(variance_over(x, axes), call["eps"])
    y = scaled(formula("mul", formula("sub", x, mean), rstd), weight, bias)
    values = (y, mean, rstd)[: len(call.results)]
    return tuple(result_of(v, t) for v, t in zip(values, call.results, strict=True) if t is not None)


def rms_norm(call: Call) -> Value:
    """x * rsqrt(mean(x ** 2) + eps) * weight; without an eps, the step of the dtype computed in"""
    x, weight, eps = call["input"], call["weight"], call["eps"]
    if x.size == 0:
        return None
    x = cast(x, in_registers(x.dtype))
    eps = torch.finfo(x.dtype.to_torch()).eps if eps is None else eps
    axes = last_axes(len(call["normalized_shape"]), len(x.shape))
    rstd = inverse_deviation(mean_over(Map("mul", (x, x)), axes), eps)
    y = formula("mul", x, rstd)
    if weight is not None:
        both = compute_dtype(y, weight)
        y = formula("mul", cast(y, both), cast(weight, both))
    return result(y, call)


def weight_norm(call: Call) -> Value:
    """v * (g / |v|), the norm over all axes but one"""
    v, g = (wide(call[name], call.type.dtype) for name in ("v", "g"))
    every = range(len(v.shape))
    kept = call["dim"] % len(v.shape) if call["dim"] != -1 else None
    length = norm_over(v, 2.0, tuple(axis for axis in every if axis != kept)) if v.size else None
    return None if length is None else result(formula("mul", v, formula("div", g, length)), call)


def group_norm(call: Call) -> Value:
    found = group_normalised(call, call["num_groups"])
    return None if found is None else found[0]


def native_group_norm(call: Call) -> Value:
    """The result, the means and the inverse deviations"""
    return group_normalised(call, call["group"])


def group_normalised(call: Call, groups: int) -> tuple[Node, ...] | None:
    """Over a group of channels and all of space: x as (batch, group, channel of the group, space...)"""
    x, weight, bias = call["input"], call["weight"], call["bias"]
    if x.size == 0:
        return None
    batch, channels, *space = x.shape
    split = (groups, channels // groups)
    column = (*split, *(1 for _ in space))
    x = Reshape(cast(x, compute_dtype(x, weight, bias)), (batch, *split, *space))
    axes = tuple(range(2, len(x.shape)))
    mean = mean_over(x, axes)
    rstd = inverse_deviation(variance_over(x, axes), call["eps"])
    parts = [None if p is None else Reshape(p, column) for p in (weight, bias)]
    y = scaled(formula("mul", formula("sub", x, mean), rstd), *parts)
    values = (y, mean, rstd)[: len(call.results)]
    return tuple(result_of(v, t) for v, t in zip(values, call.results, strict=True) if t is not None)


def instance_norm(call: Call) -> Value:
    """Each channel of each sample by itself, or by running statistics; those that it would update are PyTorch's"""
    x: Node = call["input"]
    if call["use_input_stats"] and call["running_mean"] is not None:
        return None  # it changes them without saying so
    if x.size == 0 or extent_over(x, space_of(x)) == 0:
        return None
    if not call["use_input_stats"]:
        found = by_running_statistics(call)
        return None if found is None else result(found, call)
    x = cast(x, compute_dtype(x, call["weight"], call["bias"]))
    mean = mean_over(x, space_of(x))
    rstd = inverse_deviation(variance_over(x, space_of(x)), call["eps"])
    return result(normalised_by_channel(call, x, mean, rstd), call)


def space_of(x: Node) -> Shape:
    return tuple(range(2, len(x.shape)))


def per_channel(value: Node | None, x: Node) -> Node | None:
    """A vector with one number a channel, so that it spreads over x; in the dtype of x."""
    return None if value is None else Reshape(cast(value, x.dtype), (1, x.shape[1], *(1 for _ in space_of(x))))


def normalised_by_channel(call: Call, x: Node, mean: Node, rstd: Node) -> Node:
    """(x - mean) * (rstd * weight) + bias"""
    weight, bias = (per_channel(call[name], x) for name in ("weight", "bias"))
    scale = rstd if weight is None else formula("mul", rstd, weight)
    return scaled(formula("mul", formula("sub", x, mean), scale), None, bias)


def by_running_statistics(call: Call) -> Node | None:
    x: Node = call["input"]
    x = cast(x, compute_dtype(x, call["weight"], call["bias"], call["running_mean"]))
    mean, variance = (per_channel(call[name], x) for name in ("running_mean", "running_var"))
    if mean is None or variance is None:
        return None
    return normalised_by_channel(call, x, mean, inverse_deviation(variance, call["eps"]))


def batch_norm_in_eval(call: Call) -> Value:
    """By running statistics; the other results are empty"""
    found = None if call["input"].size == 0 else by_running_statistics(call)
    return None if found is None else (result(found, call), None, None)


def batch_norm(call: Call) -> Value:
    """Over the batch and space: the result, means, inverse deviations; and new running statistics, if there are such

    running * (1 - momentum) + momentum * statistic, the variance being the unbiased one.
    """
    x: Node = call["input"]
    axes = tuple(axis for axis in range(len(x.shape)) if axis != 1)
    if x.size == 0 or not call["training"] or len(x.shape) < 2:
        return None
    x = cast(x, compute_dtype(x, call["weight"], call["bias"]))
    mean = mean_over(x, axes)
    rstd = inverse_deviation(variance_over(x, axes), call["eps"])
    values = [normalised_by_channel(call, x, mean, rstd), mean, rstd]
    if call.arguments.get("running_mean") is not None:
        unbiased = variance_over(x, axes, correction=1)
        values += [moved_towards(call, name, value) for name, value in (("mean", mean), ("var", unbiased))]
    return tuple(result_of(v, t) for v, t in zip(values, call.results, strict=True) if t is not None)


def moved_towards(call: Call, name: str, statistic: Node) -> Node:
    running: Node = call[f"running_{name}"]
    kept = formula("mul", Reshape(cast(running, statistic.dtype), statistic.shape), 1 - call["momentum"])
    return formula("add", formula("mul", statistic, call["momentum"]), kept)


NORMALISATIONS: Mapping[str, Translation] = {
    **{f"aten.{name}": softmax for name in ("softmax.int", "_softmax", "special_softmax")},
    **{f"aten.{name}": log_softmax for name in ("log_softmax.int", "_log_softmax", "special_log_softmax")},
    "aten._safe_softmax": safe_softmax,
    "aten.layer_norm": layer_norm,
    "aten.native_layer_norm": native_layer_norm,
    "aten.rms_norm": rms_norm,
    "aten._weight_norm": weight_norm,
    "aten.group_norm": group_norm,
    "aten.native_group_norm": native_group_norm,
    "aten.instance_norm": instance_norm,
    "aten._native_batch_norm_legit_functional": batch_norm,
    "aten._native_batch_norm_legit_no_training": batch_norm_in_eval,
    "aten._native_batch_norm_legit.no_stats": batch_norm,
}
