"""Pointwise operators: the captured graph gives what the model gives, for every row of the table and many dtypes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.ir.dtypes import DTYPES, DType, bool_, int64
from kernelwright.ir.nodes import Map, Opaque, walk
from kernelwright.simplify import simplify
from tests.property.edge_values import edge_values
from tests.unit.capture.eager import Captured, captured_expressions, valid

UNARY = (
    *(f"torch.{f}(x)" for f in ("neg", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p")),
    *(f"torch.{f}(x)" for f in ("sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")),
    *(f"torch.{f}(x)" for f in ("tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "erfinv", "floor")),
    *(f"torch.{f}(x)" for f in ("ceil", "trunc", "frac", "round", "abs", "sign", "square", "relu", "selu")),
    *(f"F.{f}(x)" for f in ("relu6", "silu", "mish", "hardsigmoid", "hardswish", "softsign", "tanhshrink")),
    *(f"F.{f}(x)" for f in ("logsigmoid", "gelu", "elu", "celu", "softplus", "hardtanh", "hardshrink")),
    *("F.gelu(x, approximate='tanh')", "F.elu(x, 0.5)", "F.celu(x, 0.7)", "F.softplus(x, 2.0, 5.0)"),
    *("F.hardtanh(x, -0.3, 0.7)", "F.leaky_relu(x)", "F.leaky_relu(x, 0.3)", "F.threshold(x, 0.5, -1.0)"),
    *("F.hardshrink(x, 0.7)", "F.softshrink(x, 0.4)", "F.prelu(x, x.new_full((1,), 0.25))"),
    *("torch.isnan(x)", "torch.isinf(x)", "torch.isfinite(x)", "torch.signbit(x)", "torch.logical_not(x)", "~x"),
    *("torch.nan_to_num(x)", "torch.nan_to_num(x, 1.0, 2.0)", "torch.nan_to_num(x, neginf=-3.0)"),
    *("torch.sgn(x)", "torch.deg2rad(x)", "torch.rad2deg(x)", "torch.logit(x)", "torch.logit(x, 0.1)", "torch.sinc(x)"),
    *("x.diff()", "x.diff(dim=0, n=2)", "torch.outer(x[0], x[-1])"),
    *("x.clone()", "x.detach() + 0", "x.contiguous().neg()", "torch.positive(x)"),
)

WITH_NUMBERS = (
    *("x + 1", "x + 0.5", "1 + x", "x - 2", "2 - x", "0.5 - x", "x * 2", "x * 0.1", "x / 3", "x / 0.5", "3 / x"),
    *("x + True", "x * False", "torch.add(x, 2, alpha=3)", "torch.sub(x, 2, alpha=3)", "torch.rsub(x, 5, alpha=2)"),
    *("torch.sub(x, 0.5, alpha=0.1)", "x // 2", "x // 2.5", "x % 3", "x % 2.5", "torch.fmod(x, 3)"),
    *("torch.div(x, 3, rounding_mode='floor')", "torch.div(x, 3, rounding_mode='trunc')", "torch.floor_divide(x, 3)"),
    *("x ** 2", "x ** 3", "x ** 0.5", "x ** -0.5", "x ** -1", "x ** 1", "x ** 0", "x ** 2.5", "x ** -2", "2 ** x"),
    *("torch.copysign(x, -1)", "5 % x", "torch.float_power(x, 2)", "torch.float_power(x, 0.5)"),
    *(f"x {op} 1" for op in ("==", "!=", "<", "<=", ">", ">=")),
    *("x > 0.5", "x == True", "1 < x"),
    *("torch.clamp(x, 0, 1)", "torch.clamp(x, min=1)", "torch.clamp(x, max=2)", "torch.clamp(x, -0.5, 0.5)"),
    *("x.clamp_min(0.3)", "x.clamp_max(2)", "torch.clamp(x, 3, 1)"),
    *("x & 3", "x | 1", "x ^ 5", "x << 1", "x >> 1", "3 & x"),
    *("x.masked_fill(x > 1, 0)", "x.masked_fill(x > 1, 0.5)", "torch.where(x > 1, x, 0)", "torch.where(x > 1, 2.5, x)"),
    *("torch.where(x > 0, 1.0, -1.0)", "torch.where(x > 0, 1, 2)", "torch.lerp(x, x + 1, 0.25)"),
)

BINARY = (
    *("x + y", "x - y", "x * y", "x / y", "y - x"),
    *("x // y", "x % y", "torch.fmod(x, y)"),
    *("torch.div(x, y, rounding_mode='floor')", "torch.div(x, y, rounding_mode='trunc')"),
    *(f"torch.{f}(x, y)" for f in ("minimum", "maximum", "fmin", "fmax", "atan2", "hypot", "logaddexp", "xlogy")),
    *("torch.copysign(x, y)", "torch.heaviside(x, y)", "torch.float_power(x, y)"),
    *("torch.max(x, y)", "torch.min(x, y)", "torch.pow(x, y)", "x ** y"),
    *(f"torch.{f}(x, y)" for f in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(f"torch.logical_{f}(x, y)" for f in ("and", "or", "xor")),
    *("x & y", "x | y", "x ^ y", "torch.bitwise_and(x, y)", "torch.bitwise_or(x, y)", "torch.bitwise_xor(x, y)"),
    *("torch.bitwise_left_shift(x, y)", "torch.bitwise_right_shift(x, y)"),
    *("torch.where(x > 0, x, y)", "x.masked_fill(y > 0, 0)", "torch.clamp(x, y)", "torch.clamp(x, max=y)"),
    *("torch.clamp(x, y, y + 1)", "torch.addcmul(x, y, x)", "torch.addcdiv(x, y, x)"),
    *("torch.lerp(x, y, 0.3)", "torch.lerp(x, y, x)", "x.type_as(y)", "x.to(y)", "x.masked_fill(x > y, y[0, 0])"),
)

# PyTorch may fuse or reorder these steps, on one device so and on another so.
SEVERAL_STEPS = (
    *(
        "torch.add(x, y, alpha=2)",
        "torch.sub(x, y, alpha=3)",
        "torch.add(x, y, alpha=0.3)",
        "torch.rsub(x, y, alpha=2)",
    ),
    *("torch.addcmul(x, y, x, value=0.3)", "torch.addcmul(x, y, x, value=2)", "torch.addcdiv(x, y, x, value=0.1)"),
)

PAIRS = (
    *(("float32", "float32"), ("float16", "float16"), ("int64", "int64"), ("uint8", "int8")),
    *(("bool", "float32"), ("int64", "float16")),
)
# What PyTorch runs because the table of scalar functions has it for floats only, or not in this form.
LEFT_TO_PYTORCH = {
    "aten.round.decimals",
    "aten.sgn",
    "aten.pow.Tensor_Tensor",
    "aten.pow.Tensor_Scalar",
    "aten.pow.Scalar",
}


# torch.export refuses to shift truth values. In 16 bits PyTorch on a CPU computes the root of -inf as a power, and the
# gelu of inf, which it has as NaN in float32, as inf.
UNSETTLED = {
    "bool": ("x << 1", "x >> 1"),
    "float16": ("x ** 0.5", "x ** -0.5", "F.gelu(x)"),
    "bfloat16": ("x ** 0.5", "x ** -0.5", "F.gelu(x)"),
}


def operand(dtype: DType, *, shift: int = 0) -> torch.Tensor:
    values = edge_values(dtype)
    index = (torch.arange(32) + shift) % len(values)
    return values[index].reshape(4, 8)


def nonzero(x: torch.Tensor) -> torch.Tensor:
    """Integers are not divided by zero, nor shifted by more than they have bits, nor raised to huge powers."""
    return x if x.is_floating_point() or x.dtype is torch.bool else x.abs().clamp(1, 5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("family", [UNARY, WITH_NUMBERS], ids=["functions", "numbers"])
def test_operators_on_one_tensor_give_what_pytorch_gives(tmp_path: Path, family: tuple[str, ...], dtype: str) -> None:
    x = operand(DTYPES[dtype])
    expressions = valid(family, x=x)
    check(tmp_path, [e for e in expressions if e not in UNSETTLED.get(dtype, ())], x=x)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_operators_on_two_tensors_promote_as_pytorch_does(tmp_path: Path, first: str, second: str) -> None:
    x, y = operand(DTYPES[first]), nonzero(operand(DTYPES[second], shift=5))
    check(tmp_path, valid(BINARY, x=x, y=y), x=x, y=y)


@pytest.mark.parametrize(("first", "second"), [("float32", "float32"), ("bfloat16", "bfloat16"), ("float16", "int64")])
def test_operators_of_several_steps_give_what_pytorch_gives(tmp_path: Path, first: str, second: str) -> None:
    x, y = (torch.linspace(0.5, 9, 32).to(DTYPES[d].to_torch()) for d in (first, second))
    expressions = valid(SEVERAL_STEPS, x=x, y=y.flip(0))
    found = captured_expressions(tmp_path, expressions, x=x, y=y.flip(0))
    assert found.targets == []
    for expression, eager, ours in zip(expressions, found.eager(), found.interpreted(), strict=True):
        lost = 64 * torch.finfo(eager.dtype).eps if eager.is_floating_point() else 0  # where the steps cancel out
        torch.testing.assert_close(eager, ours, rtol=lost, atol=lost, msg=lambda text, e=expression: f"{e}: {text}")


@pytest.mark.parametrize("dtype", ["float16", "int64"])
def test_a_tensor_without_axes_counts_less_than_one_with_axes(tmp_path: Path, dtype: str) -> None:
    x, y = operand(DTYPES[dtype]), torch.tensor(2.5, dtype=torch.float64)
    some = ("x + y", "y - x", "x * y", "x / y", "x < y", "torch.maximum(x, y)", "torch.where(x > 0, x, y)", "x ** y")
    check(tmp_path, valid(some, x=x, y=y), x=x, y=y)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_shapes_broadcast_as_in_pytorch(tmp_path: Path, dtype: str) -> None:
    x = operand(DTYPES[dtype]).reshape(2, 1, 16)
    y = operand(DTYPES[dtype], shift=3)[:3, :1]
    some = (
        "x + y",
        "x * y[0]",
        "torch.where(x > y, x, y)",
        "torch.maximum(y, x)",
        "x - y.reshape(1, 3, 1)",
        "y / 2 + x",
    )
    check(tmp_path, some, x=x, y=y)


@pytest.mark.parametrize("source", ["float64", "float16", "uint8"])
def test_casts_between_all_dtypes_round_as_pytorch_does(tmp_path: Path, source: str) -> None:
    x = operand(DTYPES[source])
    to = [d for d in DTYPES if "complex" not in d]
    if x.is_floating_point():  # a float that does not fit into an integer is undefined
        x = x.nan_to_num(2.5, 3.0, 1.0).clamp(0, 100)
    expressions = [f"x.to(torch.{d})" for d in to] + ["x.float().half()", "x.bool().to(torch.int32)", "x.double() + 1"]
    check(tmp_path, [*expressions, "x.float() * 0.1", "x.to(torch.float16) + x.to(torch.bfloat16)"], x=x)


def test_tensors_made_of_one_number(tmp_path: Path) -> None:
    x = operand(DTYPES["float32"])
    expressions = (
        *("torch.zeros(2, 3)", "torch.ones(3, dtype=torch.int64)", "torch.full((2, 2), 0.5)", "torch.zeros_like(x)"),
        *("torch.ones_like(x)", "torch.full_like(x, 3)", "torch.full_like(x, True, dtype=torch.bool)"),
        *("x.new_zeros(3)", "x.new_ones((2, 2))", "x.new_full((3,), 7)", "torch.full((), 2.0) * x"),
        *("torch.full((3,), 0.1).double()", "torch.scalar_tensor(0.1).double() + x.double()", "torch.zeros(0, 3)"),
    )
    check(tmp_path, expressions, x=x)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_glu_and_prelu_split_and_spread_along_the_right_axis(tmp_path: Path, dtype: str) -> None:
    x = operand(DTYPES[dtype])
    w = torch.linspace(-1, 1, 8).to(x.dtype)
    expressions = (
        "F.glu(x)",
        "F.glu(x, 0)",
        "F.glu(x, -1)",
        "F.prelu(x, w)",
        "F.prelu(x.reshape(2, 8, 2), w)",
        "F.prelu(x, w[:1])",
    )
    check(tmp_path, expressions, x=x, w=w)


def test_numbers_keep_all_their_digits_beside_16_bit_tensors(tmp_path: Path) -> None:
    x = operand(DTYPES["bfloat16"])
    check(
        tmp_path, ("x * 0.1", "x + 0.3", "F.leaky_relu(x, 0.01)", "F.hardtanh(x, -0.1, 0.1)", "x / 3", "x > 0.1"), x=x
    )


def test_complex_numbers_are_left_to_pytorch_on_the_way_in_and_out(tmp_path: Path) -> None:
    x = torch.tensor([1.5 - 2j, 0.5j])
    found = captured_expressions(tmp_path, ["x.abs()", "x * 2 + 1", "x.real", "torch.view_as_real(x)", "x == 1"], x=x)
    eager, ours = found.eager(), found.interpreted()
    assert all(torch.equal(a, b) for a, b in zip(eager, ours, strict=True))
    assert not any(isinstance(n, Map) for n in found.graph.nodes())


def test_a_number_too_large_for_an_integer_loses_its_upper_bits(tmp_path: Path) -> None:
    expressions = ("x < 300", "x == 172", "x + 200", "x * 1000", "x // 300", "x ^ 300", "x.to(torch.uint8) >= -1")
    found = captured_expressions(tmp_path, expressions, x=torch.tensor([-128, -84, 1, 44, 127], dtype=torch.int8))
    simple = Captured(simplify(found.graph), found.model, found.inputs)
    assert simple.differences() == []


def test_rounding_to_digits_is_left_to_pytorch(tmp_path: Path) -> None:
    found = captured_expressions(tmp_path, ["torch.round(x, decimals=2)"], x=torch.tensor([1.234, -5.678]))
    assert found.targets == ["aten.round.decimals"]
    assert found.differences() == []


def check(folder: Path, expressions: list[str] | tuple[str, ...], **tensors: torch.Tensor) -> None:
    found = captured_expressions(folder, expressions, **tensors)
    wrong = [f"{expressions[int(text.split(':')[0].split()[1])]}: {text}" for text in found.differences()]
    assert not wrong, "\n".join(wrong)
    left = {n.target for n in walk(found.graph.outputs) if isinstance(n, Opaque)}
    assert {t.removesuffix(".default") for t in left} <= LEFT_TO_PYTORCH | unsupported(tensors), left


def unsupported(tensors: dict[str, torch.Tensor]) -> set[str]:
    """Functions of floats that PyTorch also has for integers."""
    dtypes = {DTYPES[str(t.dtype).removeprefix("torch.")] for t in tensors.values()}
    rows = {"aten.fmin", "aten.fmax", "aten.nan_to_num", "aten.floor", "aten.ceil", "aten.trunc", "aten.round"}
    rows |= {
        "aten.sign",
        "aten.leaky_relu",
        "aten.isnan",
        "aten.isinf",
        "aten.isfinite",
        "aten.signbit",
        "aten.square",
        "aten.neg",
    }
    return rows if dtypes <= {d for d in DTYPES.values() if d.kind in ("int", "bool")} | {bool_, int64} else set()
