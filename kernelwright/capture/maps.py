"""ATen's pointwise operators as Maps: one row an operator, saying which scalar function it is and on what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from kernelwright.capture.call import Call, Translation, Value, cast, constant, in_registers, pointwise, spread, whole
from kernelwright.ir.dtypes import DType, bool_, by_name, from_torch
from kernelwright.ir.nodes import Map, Node, Reshape, Slice, TensorType


def of(fn: str, *names: str) -> Translation:
    """fn of the named arguments, computed in the dtype of the result."""
    return lambda call: pointwise(fn, tuple(call[n] for n in names), call.type, call.type.dtype)


def comparing(fn: str, *names: str) -> Translation:
    """fn of the named arguments, computed in the dtype they promote to; the result is bool."""

    def translation(call: Call) -> Value:
        operands = tuple(call[n] for n in names)
        return pointwise(fn, operands, call.type, promoted(operands))

    return translation


def promoted(operands: tuple[Any, ...]) -> DType:
    """The dtype PyTorch computes in, by its own rules: ranks and Python numbers count less than tensors."""
    stand_ins = [
        torch.empty((1,) * min(len(o.shape), 1), dtype=o.dtype.to_torch()) if isinstance(o, Node) else o
        for o in operands
    ]
    dtype = torch.result_type(stand_ins[0], stand_ins[1]) if len(stand_ins) > 1 else stand_ins[0].dtype
    return from_torch(dtype)


def summed(fn: str) -> Translation:
    """self + alpha * other, or self - alpha * other"""

    def translation(call: Call) -> Value:
        other = multiplied(call["other"], call["alpha"], call.type.dtype)
        return pointwise(fn, (call["self"], other), call.type, call.type.dtype)

    return translation


def subtracted_from(call: Call) -> Value:
    """other - alpha * self"""
    self = multiplied(call["self"], call["alpha"], call.type.dtype)
    return pointwise("sub", (call["other"], self), call.type, call.type.dtype)


def multiplied(operand: Any, factor: float, dtype: DType) -> Any:
    """alpha * operand, rounded to `dtype` once when the sum around it is; alpha is 1 nearly always"""
    if factor == 1 or not isinstance(operand, Node):
        return operand if factor == 1 else operand * factor
    wide = in_registers(dtype)
    return Map("mul", (cast(cast(operand, dtype), wide), constant(factor, wide)))


def divided(call: Call) -> Value:
    """div with its rounding mode; true division of integers is division of floats."""
    mode = call.arguments.get("rounding_mode")
    fn = {None: "div", "floor": "floor_divide", "trunc": "trunc_divide"}[mode]
    return pointwise(fn, (call["self"], call["other"]), call.type, call.type.dtype)


def clamped(call: Call) -> Value:
    """min(max(x, low), high); either bound may be missing"""
    result: Any = call["self"]
    for fn, bound in (("maximum", call.arguments.get("min")), ("minimum", call.arguments.get("max"))):
        if bound is not None:
            result = pointwise(fn, (result, bound), call.type, call.type.dtype)
            if result is None:
                return None
    return cast(result, call.type.dtype) if isinstance(result, Node) else None


def gelu(call: Call) -> Value:
    fn = "gelu_tanh" if call["approximate"] == "tanh" else "gelu_erf"
    return pointwise(fn, (call["self"],), call.type, call.type.dtype)


def selected(call: Call) -> Value:
    """where(condition, self, other)"""
    condition = cast(call["condition"], bool_)
    return pointwise("where", (condition, call["self"], call["other"]), call.type, call.type.dtype)


def masked_fill(call: Call) -> Value:
    return pointwise("where", (call["mask"], call["value"], call["self"]), call.type, call.type.dtype)


def logical(fn: str, *names: str) -> Translation:
    """fn of truth values: any number counts as true where it is not zero"""
    return lambda call: pointwise(fn, tuple(cast(call[n], bool_) for n in names), call.type, bool_)


def bitwise(fn: str, *names: str) -> Translation:
    """On bool, PyTorch's bit operators are the logical ones."""

    def translation(call: Call) -> Value:
        logical_name = fn.replace("bitwise", "logical") if call.type.dtype is bool_ else fn
        return pointwise(logical_name, tuple(call[n] for n in names), call.type, call.type.dtype)

    return translation


def converted(call: Call) -> Value:
    """to(dtype), wherever to: there is one device"""
    dtype = call.arguments.get("dtype")
    to = call.type.dtype if dtype is None else by_name(str(dtype).removeprefix("torch."))
    x: Node = call["self"]
    return copied(call) if x.dtype is to and "copy" in call.target else cast(x, to)


def copied(call: Call) -> Value:
    """A tensor of its own with the same values"""
    x: Node = call["self"] if "self" in call.arguments else call["src"]
    return Map("identity", (x,))


def filled(value: str | float) -> Translation:
    """A tensor of one number: given, or the argument of that name"""

    def translation(call: Call) -> Value:
        number = call[value] if isinstance(value, str) else value
        if isinstance(number, Node) or call.type.dtype.kind == "complex":
            return None
        return whole(constant(number, call.type.dtype), call.type.shape)

    return translation


def combined(product: str) -> Translation:
    """self + value * tensor1 (times or over) tensor2"""

    def translation(call: Call) -> Value:
        dtype = call.type.dtype
        wide = TensorType(call.type.shape, in_registers(dtype))
        factors = tuple(cast(call[name], dtype) for name in ("tensor1", "tensor2"))
        inner = pointwise(product, factors, wide, wide.dtype)
        if inner is not None and call["value"] != 1:
            inner = pointwise("mul", (inner, call["value"]), wide, wide.dtype)
        return None if inner is None else pointwise("add", (cast(call["self"], dtype), inner), call.type, wide.dtype)

    return translation


def elu(call: Call) -> Value:
    operands = (call["self"], call["alpha"], call["scale"], call["input_scale"])
    return pointwise("elu", operands, call.type, call.type.dtype)


def prelu(call: Call) -> Value:
    """where(x > 0, x, weight[channel] * x)"""
    x, weight = call["self"], call["weight"]
    rank = len(call.type.shape)
    if weight.size > 1:
        weight = Reshape(weight, (weight.size, *(1,) * (rank - 2)))
    else:
        weight = Reshape(weight, ())
    product = pointwise("mul", (weight, x), call.type, call.type.dtype)
    positive = Map("gt", (x, constant(0, x.dtype)))
    return pointwise("where", (positive, x, product), call.type, call.type.dtype)


def glu(call: Call) -> Value:
    """first half * sigmoid(second half)"""
    x: Node = call["self"]
    axis = call["dim"] % len(x.shape)
    half = x.shape[axis] // 2
    shape = tuple(half if i == axis else extent for i, extent in enumerate(x.shape))
    starts = tuple(half if i == axis else 0 for i in range(len(x.shape)))
    first = Slice(x, (0,) * len(shape), (1,) * len(shape), shape)
    wide = TensorType(shape, in_registers(call.type.dtype))
    second = pointwise("sigmoid", (Slice(x, starts, (1,) * len(shape), shape),), wide, wide.dtype)
    return pointwise("mul", (first, second), call.type, wide.dtype)


def nan_to_num(call: Call) -> Value:
    dtype = call.type.dtype
    if dtype.kind != "float":
        return None
    largest = torch.finfo(dtype.to_torch()).max
    given = (call["nan"], call["posinf"], call["neginf"])
    nan, high, low = (d if g is None else g for g, d in zip(given, (0.0, largest, -largest), strict=True))
    return pointwise("nan_to_num", (call["self"], nan, high, low), call.type, dtype)


def signed_like(call: Call) -> Value:
    """|self| with the sign of other, a zero's or a NaN's too"""
    dtype = call.type.dtype
    if dtype.kind != "float":
        return None
    size = pointwise("abs", (call["self"],), call.type, dtype)
    negated = pointwise("neg", (size,), call.type, dtype)
    sign = pointwise("signbit", (call["other"],), TensorType(call.type.shape, bool_), dtype)
    return pointwise("where", (sign, negated, size), call.type, dtype)


def stepped(call: Call) -> Value:
    """0 below zero, 1 above it, `values` at it; 0 of what is no number"""
    x, dtype = call["self"], call.type.dtype
    truth = TensorType(call.type.shape, bool_)
    above = pointwise("gt", (x, 0), truth, dtype)
    at_zero = pointwise("eq", (x, 0), truth, dtype)
    return pointwise("where", (at_zero, call["values"], above), call.type, dtype)


def logit(call: Call) -> Value:
    """log(x / (1 - x)), of x between eps and 1 - eps if there is one"""
    wide = TensorType(call.type.shape, in_registers(call.type.dtype))
    x: Any = pointwise("identity", (call["self"],), wide, wide.dtype)
    if wide.dtype.kind != "float" or x is None:
        return None
    if call["eps"] is not None:
        low = constant(call["eps"], wide.dtype)
        high = Map("sub", (constant(1, wide.dtype), low))
        x = pointwise("minimum", (pointwise("maximum", (x, low), wide, wide.dtype), high), wide, wide.dtype)
    rest = pointwise("sub", (1, x), wide, wide.dtype)
    odds = pointwise("div", (x, rest), wide, wide.dtype)
    return pointwise("log", (odds,), call.type, wide.dtype)


def turned_by(factor: float) -> Translation:
    """An angle in other units"""
    return lambda call: pointwise("mul", (call["self"], factor), call.type, call.type.dtype)


def normalised_sine(call: Call) -> Value:
    """sin(pi * x) / (pi * x), 1 at zero"""
    wide = TensorType(call.type.shape, in_registers(call.type.dtype))
    angle = pointwise("mul", (call["self"], math.pi), wide, wide.dtype)
    sine = pointwise("sin", (angle,), wide, wide.dtype)
    ratio = pointwise("div", (sine, angle), wide, wide.dtype)
    zero = pointwise("eq", (call["self"], 0), TensorType(call.type.shape, bool_), call["self"].dtype)
    return pointwise("where", (zero, 1, ratio), call.type, wide.dtype)


def subtracted_neighbours(call: Call) -> Value:
    """Each element along an axis less the one before it, n times; of truth values, whether they differ"""
    x: Node = call["self"]
    if call["prepend"] is not None or call["append"] is not None or not call["n"] or 0 in call.type.shape:
        return None
    axis = call["dim"] % len(x.shape)
    fn = "logical_xor" if x.dtype is bool_ else "sub"
    for _ in range(call["n"]):
        shape = tuple(e - 1 if i == axis else e for i, e in enumerate(x.shape))
        steps = (1,) * len(shape)
        later = Slice(x, tuple(int(i == axis) for i in range(len(shape))), steps, shape)
        earlier = Slice(x, (0,) * len(shape), steps, shape)
        difference = pointwise(fn, (later, earlier), TensorType(shape, x.dtype), x.dtype)
        assert difference is not None
        x = difference
    return x


def outer(call: Call) -> Value:
    """self[i] * vec2[j]"""
    column = Reshape(call["self"], (*call["self"].shape, 1))
    return pointwise("mul", (column, call["vec2"]), call.type, call.type.dtype)


def lerped(call: Call) -> Value:
    return pointwise("lerp", (call["self"], call["end"], call["weight"]), call.type, call.type.dtype)


def raised(call: Call) -> Value:
    """A number as exponent; PyTorch takes 0.5 and -0.5 for roots, which differ from powers at -0.0 and -inf"""
    root = {0.5: "sqrt", -0.5: "rsqrt"}.get(call["exponent"])
    if root is not None and call.type.dtype.kind == "float":
        return pointwise(root, (call["self"],), call.type, call.type.dtype)
    return pointwise("pow", (call["self"], call["exponent"]), call.type, call.type.dtype)


def rounded(call: Call) -> Value:
    """round to whole numbers; other digits are PyTorch's own"""
    if call.arguments.get("decimals", 0):
        return None
    return pointwise("round", (call["self"],), call.type, call.type.dtype)


SAME_NAME = (
    *("neg", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin"),
    *("cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid"),
    *("erf", "erfc", "erfinv", "floor", "ceil", "trunc", "frac", "relu", "relu6", "selu", "silu", "mish"),
    *("hardsigmoid", "hardswish", "abs", "sign"),
)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

# Second names that PyTorch has for the same operators.
ALIASES: Mapping[str, str] = {
    "multiply.Tensor": "mul.Tensor",
    "multiply.Scalar": "mul.Scalar",
    "divide.Tensor": "div.Tensor",
    "divide.Scalar": "div.Scalar",
    "divide.Tensor_mode": "div.Tensor_mode",
    "divide.Scalar_mode": "div.Scalar_mode",
    "true_divide.Tensor": "div.Tensor",
    "true_divide.Scalar": "div.Scalar",
    "subtract.Tensor": "sub.Tensor",
    "subtract.Scalar": "sub.Scalar",
    "absolute": "abs",
    "negative": "neg",
    **{f"greater.{form}": f"gt.{form}" for form in ("Tensor", "Scalar")},
    **{f"greater_equal.{form}": f"ge.{form}" for form in ("Tensor", "Scalar")},
    **{f"less.{form}": f"lt.{form}" for form in ("Tensor", "Scalar")},
    **{f"less_equal.{form}": f"le.{form}" for form in ("Tensor", "Scalar")},
    **{f"not_equal.{form}": f"ne.{form}" for form in ("Tensor", "Scalar")},
    "sgn": "sign",
    "float_power.Tensor_Tensor": "pow.Tensor_Tensor",
    "float_power.Tensor_Scalar": "pow.Tensor_Scalar",
    "float_power.Scalar": "pow.Scalar",
    "clip": "clamp",
    "clip.Tensor": "clamp.Tensor",
    "fix": "trunc",
    "arctan2": "atan2",
    "special_expit": "sigmoid",
    **{f"arc{fn}": f"a{fn}" for fn in ("cos", "sin", "tan", "cosh", "sinh", "tanh")},
    **{f"special_{fn}": fn for fn in ("erf", "erfc", "erfinv", "expm1", "exp2", "log1p", "round")},
    "special_xlogy": "xlogy.Tensor",
    "special_logit": "logit",
    "special_sinc": "sinc",
}


ROWS: Mapping[str, Translation] = {
    **{f"aten.{name}": of(name, "self") for name in SAME_NAME},
    **{f"aten.{fn}.{form}": comparing(fn, "self", "other") for fn in COMPARISONS for form in ("Tensor", "Scalar")},
    **{f"aten.{fn}": comparing(fn, "self") for fn in ("isnan", "isinf", "isfinite", "signbit")},
    **{f"aten.{fn}.{form}": summed(fn) for fn in ("add", "sub") for form in ("Tensor", "Scalar")},
    **{f"aten.rsub.{form}": subtracted_from for form in ("Tensor", "Scalar")},
    **{f"aten.mul.{form}": of("mul", "self", "other") for form in ("Tensor", "Scalar")},
    **{f"aten.div.{form}": divided for form in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
    **{f"aten.floor_divide{form}": of("floor_divide", "self", "other") for form in ("", ".Scalar")},
    **{f"aten.{fn}.{form}": of(fn, "self", "other") for fn in ("remainder", "fmod") for form in ("Tensor", "Scalar")},
    **{f"aten.{fn}": of(fn, "self", "other") for fn in ("minimum", "maximum", "fmin", "fmax", "atan2", "hypot")},
    "aten.remainder.Scalar_Tensor": of("remainder", "self", "other"),
    "aten.max.other": of("maximum", "self", "other"),
    "aten.min.other": of("minimum", "self", "other"),
    "aten.logaddexp": of("log_add_exp", "self", "other"),
    "aten.xlogy.Tensor": of("xlogy", "self", "other"),
    "aten.pow.Tensor_Tensor": of("pow", "self", "exponent"),
    "aten.pow.Tensor_Scalar": raised,
    "aten.pow.Scalar": of("pow", "self", "exponent"),
    "aten.square": of("mul", "self", "self"),
    "aten.round": rounded,
    "aten.clamp": clamped,
    "aten.clamp.Tensor": clamped,
    **{f"aten.clamp_{bound}{form}": clamped for bound in ("min", "max") for form in ("", ".Tensor")},
    "aten.hardtanh": of("hardtanh", "self", "min_val", "max_val"),
    "aten.leaky_relu": of("leaky_relu", "self", "negative_slope"),
    "aten.elu": elu,
    "aten.celu": of("celu", "self", "alpha"),
    "aten.gelu": gelu,
    "aten.softplus": of("softplus", "self", "beta", "threshold"),
    "aten.log_sigmoid": of("logsigmoid", "self"),
    "aten.threshold": of("threshold", "self", "threshold", "value"),
    "aten.hardshrink": of("hardshrink", "self", "lambd"),
    "aten.softshrink": of("softshrink", "self", "lambd"),
    "aten.prelu": prelu,
    "aten._prelu_kernel": prelu,
    "aten.glu": glu,
    "aten.where.self": selected,
    "aten.where.ScalarSelf": selected,
    "aten.where.ScalarOther": selected,
    "aten.where.Scalar": selected,
    "aten.masked_fill.Scalar": masked_fill,
    "aten.masked_fill.Tensor": masked_fill,
    "aten.addcmul": combined("mul"),
    "aten.addcdiv": combined("div"),
    "aten.lerp.Scalar": lerped,
    "aten.lerp.Tensor": lerped,
    "aten.nan_to_num": nan_to_num,
    **{f"aten.copysign.{form}": signed_like for form in ("Tensor", "Scalar")},
    "aten.heaviside": stepped,
    "aten.logit": logit,
    "aten.sinc": normalised_sine,
    "aten.deg2rad": turned_by(math.pi / 180),
    "aten.rad2deg": turned_by(180 / math.pi),
    "aten.diff": subtracted_neighbours,
    **{f"aten.{name}": outer for name in ("outer", "ger")},
    "aten.logical_not": logical("logical_not", "self"),
    **{f"aten.logical_{fn}": logical(f"logical_{fn}", "self", "other") for fn in ("and", "or", "xor")},
    "aten.bitwise_not": bitwise("bitwise_not", "self"),
    **{
        f"aten.bitwise_{fn}.{form}": bitwise(f"bitwise_{fn}", "self", "other")
        for fn in ("and", "or", "xor")
        for form in ("Tensor", "Scalar")
    },
    **{
        f"aten.bitwise_{way}_shift.{form}": of(f"shift_{way}", "self", "other")
        for way in ("left", "right")
        for form in ("Tensor", "Tensor_Scalar")
    },
    **{
        f"aten.__{way[0]}shift__.{form}": of(f"shift_{way}", "self", "other")
        for way in ("left", "right")
        for form in ("Tensor", "Scalar")
    },
    **{
        f"aten.__{op}__.{form}": bitwise(f"bitwise_{fn}", "self", "other")
        for op, fn in (("and", "and"), ("or", "or"), ("xor", "xor"))
        for form in ("Tensor", "Scalar")
    },
    **{f"aten.to.{form}": converted for form in ("dtype", "dtype_layout", "device", "other", "prim_Device")},
    "aten._to_copy": converted,
    "aten.type_as": converted,
    "aten.clone": copied,
    "aten.lift_fresh_copy": copied,
    "aten.copy": lambda call: cast(spread(call["src"], call.type.shape), call.type.dtype),
    "aten.fill.Scalar": filled("value"),
    "aten.fill.Tensor": lambda call: whole(cast(call["value"], call.type.dtype), call.type.shape),
    "aten.full": filled("fill_value"),
    "aten.full_like": filled("fill_value"),
    "aten.new_full": filled("fill_value"),
    "aten.scalar_tensor": filled("s"),
    **{f"aten.{name}": filled(0) for name in ("zeros", "zeros_like", "new_zeros")},
    **{f"aten.{name}": filled(1) for name in ("ones", "ones_like", "new_ones")},
}

MAPS: Mapping[str, Translation] = {**ROWS, **{f"aten.{alias}": ROWS[f"aten.{name}"] for alias, name in ALIASES.items()}}
