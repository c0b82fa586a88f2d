"""The table of scalar functions: from a name to its meaning in torch, its spelling in C++ and the laws it obeys.

Operands all have one dtype, already cast; only the condition of `where` is bool. Attributes such as a negative slope
are ordinary operands. For float16 and bfloat16 PyTorch computes in float32 and rounds once: capture says so with casts
around a float32 function, so that attributes are not rounded to 16 bits.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from kernelwright.ir.dtypes import DType, Kind, bool_

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:

    class _OnFirstUse:
        """A module imported when one of its names is first asked for: reading the table must not import torch."""

        def __init__(self, module: str) -> None:
            self.module = module

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module(self.module), name)

    torch = _OnFirstUse("torch")
    F = _OnFirstUse("torch.nn.functional")

Value = float | int | bool
Kinds = frozenset[Kind]
# An element that depends on the dtype: its least value, its greatest, or the one with every bit set.
Bound = Literal["lowest", "highest", "ones"]
Elements = Mapping[Kind, Value | Bound]

NONE: Kinds = frozenset()
FLOAT: Kinds = frozenset({"float"})
INT: Kinds = frozenset({"int"})
BOOL: Kinds = frozenset({"bool"})
NUMBER = FLOAT | INT
BITS = INT | BOOL
ANY = FLOAT | INT | BOOL


@dataclass(frozen=True, slots=True, eq=False)
class Laws:
    """What may be relied on when rewriting, each law with the kinds it holds for.

    They hold bit for bit, for NaN, infinities and -0.0 too, up to two things PyTorch itself leaves open: a NaN's
    payload, and which of two zeros of unlike sign `minimum` and `maximum` (and what is made of them) give.
    """

    commutative: Kinds = NONE  # f(a, b) = f(b, a)
    associative: Kinds = NONE  # f(f(a, b), c) = f(a, f(b, c))
    idempotent: Kinds = NONE  # f(a, a) = a, or f(f(a, ...), ...) = f(a, ...) for one operand and its attributes
    involution: Kinds = NONE  # f(f(a)) = a
    odd: Kinds = NONE  # f(-a) = -f(a)
    even: Kinds = NONE  # f(-a) = f(a)
    # In the first operand, over the whole line with both infinities and NaN to NaN; to the last bit only where `exact`.
    monotone: Literal["up", "down"] | None = None
    identity: Elements = field(default_factory=dict)  # f(a, e) = f(e, a) = a
    right_identity: Elements = field(default_factory=dict)  # f(a, e) = a


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """One pointwise function: a row of the table."""

    name: str
    arity: int
    torch: Callable[..., Tensor]  # what it means, on tensors of one dtype that broadcast together
    cpp: str  # how it is spelled over values in registers; see `spell`
    accepts: Kinds = FLOAT
    result: Literal["same", "bool", "argument"] = "same"  # "argument": the Map node says
    exact: bool = False  # correctly rounded on every device, so equal bit for bit
    flops: int = 1  # rough cost of one element, a float32 add being 1
    laws: Laws = Laws()

    def spell(self, *operands: str) -> str:
        """The C++ expression on these operands (names or literals)."""
        assert len(operands) == self.arity, f"{self.name} takes {self.arity} operands, got {len(operands)}"
        if "(" in self.cpp:
            return self.cpp.format(*operands)
        return self.cpp.format(*(f"({x})" if x.startswith("-") else x for x in operands))

    def result_dtype(self, *operands: DType) -> DType:
        """The dtype of the result; the operands must be of a kind the function accepts."""
        assert self.result != "argument", f"the result dtype of {self.name} is an argument, not deduced"
        values = operands[1:] if self.name == "where" else operands
        for dtype in values:
            assert dtype.kind in self.accepts, f"{self.name} accepts {sorted(self.accepts)}, got {dtype}"
        return bool_ if self.result == "bool" else values[0]

    def identity(self, dtype: DType) -> Value | None:
        """The element e with f(a, e) = f(e, a) = a for every a of this dtype, or None if there is none."""
        return _element(self.laws.identity, dtype)

    def right_identity(self, dtype: DType) -> Value | None:
        """The element e with f(a, e) = a for every a of this dtype, or None if there is none."""
        return _element(self.laws.identity or self.laws.right_identity, dtype)

    @property
    def device_names(self) -> tuple[str, ...]:
        """The functions of the device headers that the spelling calls."""
        return tuple(re.findall(r"kw::(\w+)", self.cpp))


def spell_cast(operand: str, to: DType) -> str:
    """The C++ expression that turns a register value into a register value of `to`, rounded as if stored."""
    return SCALARS["cast"].cpp.format(operand, to=to.storage_cpp)


def _element(by_kind: Elements, dtype: DType) -> Value | None:
    match by_kind.get(dtype.kind):
        case "lowest":
            return dtype.lowest
        case "highest":
            return dtype.highest
        case "ones":
            return dtype.highest if dtype.kind == "bool" or dtype.lowest == 0 else -1
        case element:
            return element


def _wide(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A formula of several steps: in float32 for 16-bit operands and rounded once, as PyTorch's kernels do."""

    def meaning(*operands: Tensor) -> Tensor:
        dtype = operands[0].dtype
        if dtype not in (torch.float16, torch.bfloat16):
            return function(*operands)
        return function(*(x.float() for x in operands)).to(dtype)

    return meaning


def _elu(x: Tensor, alpha: Tensor, scale: Tensor, input_scale: Tensor) -> Tensor:
    return torch.where(x <= 0, torch.expm1(x * input_scale) * (alpha * scale), x * scale)


def _softplus(x: Tensor, beta: Tensor, threshold: Tensor) -> Tensor:
    return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta)


def _softshrink(x: Tensor, bound: Tensor) -> Tensor:
    return torch.where(x > bound, x - bound, torch.where(x < -bound, x + bound, x * 0))


def _nan_to_num(x: Tensor, nan: Tensor, posinf: Tensor, neginf: Tensor) -> Tensor:
    finite_or_nan = torch.where(torch.isposinf(x), posinf, torch.where(torch.isneginf(x), neginf, x))
    return torch.where(torch.isnan(x), nan, finite_or_nan)


# fmt: off
_ROWS = (
    # --- data movement
    Scalar("identity", 1, lambda x: x, "{0}", ANY, exact=True, flops=0,
           laws=Laws(idempotent=ANY, monotone="up", odd=NUMBER)),
    # The Map node gives the dtype: torch(x, dtype) here, and {to} in the spelling is its storage type.
    Scalar("cast", 1, lambda x, dtype: x.to(dtype), "kw::cast<{to}>({0})", ANY, "argument", exact=True),
    Scalar("where", 3, lambda c, a, b: torch.where(c, a, b), "{0} ? {1} : {2}", ANY, exact=True),
    # --- arithmetic
    Scalar("add", 2, lambda a, b: torch.add(a, b), "{0} + {1}", ANY, exact=True,
           laws=Laws(commutative=ANY, associative=BITS, identity={"float": -0.0, "int": 0, "bool": False})),
    Scalar("sub", 2, lambda a, b: torch.sub(a, b), "{0} - {1}", NUMBER, exact=True,
           laws=Laws(right_identity={"float": 0.0, "int": 0})),
    Scalar("mul", 2, lambda a, b: torch.mul(a, b), "{0} * {1}", ANY, exact=True,
           laws=Laws(commutative=ANY, associative=BITS, identity={"float": 1.0, "int": 1, "bool": True})),
    Scalar("div", 2, lambda a, b: torch.div(a, b), "{0} / {1}", exact=True, flops=8,
           laws=Laws(right_identity={"float": 1.0})),
    Scalar("floor_divide", 2, lambda a, b: torch.floor_divide(a, b), "kw::floor_divide({0}, {1})", NUMBER, flops=20),
    Scalar("trunc_divide", 2, lambda a, b: torch.div(a, b, rounding_mode="trunc"), "kw::trunc_divide({0}, {1})", NUMBER,
           exact=True, flops=9),
    Scalar("remainder", 2, lambda a, b: torch.remainder(a, b), "kw::remainder({0}, {1})", NUMBER, flops=20),
    Scalar("fmod", 2, lambda a, b: torch.fmod(a, b), "kw::fmod({0}, {1})", NUMBER, exact=True, flops=20),
    Scalar("neg", 1, lambda x: torch.neg(x), "-{0}", NUMBER, exact=True,
           laws=Laws(involution=NUMBER, odd=NUMBER, monotone="down")),
    Scalar("abs", 1, lambda x: torch.abs(x), "kw::abs({0})", NUMBER, exact=True,
           laws=Laws(idempotent=NUMBER, even=NUMBER)),
    Scalar("sign", 1, lambda x: torch.sign(x), "kw::sign({0})", NUMBER, exact=True, flops=2,
           laws=Laws(idempotent=NUMBER)),
    Scalar("reciprocal", 1, lambda x: torch.reciprocal(x), "kw::reciprocal({0})", exact=True, flops=8,
           laws=Laws(odd=FLOAT)),
    Scalar("lerp", 3, lambda a, b, weight: torch.lerp(a, b, weight), "kw::lerp({0}, {1}, {2})", flops=6),
    # --- order
    Scalar("minimum", 2, lambda a, b: torch.minimum(a, b), "kw::minimum({0}, {1})", ANY, exact=True,
           laws=Laws(commutative=ANY, associative=ANY, idempotent=ANY, monotone="up",
                     identity={"float": "highest", "int": "highest", "bool": "highest"})),
    Scalar("maximum", 2, lambda a, b: torch.maximum(a, b), "kw::maximum({0}, {1})", ANY, exact=True,
           laws=Laws(commutative=ANY, associative=ANY, idempotent=ANY, monotone="up",
                     identity={"float": "lowest", "int": "lowest", "bool": "lowest"})),
    Scalar("fmin", 2, lambda a, b: torch.fmin(a, b), "kw::fmin({0}, {1})", exact=True,
           laws=Laws(commutative=FLOAT, associative=FLOAT, idempotent=FLOAT, identity={"float": float("nan")})),
    Scalar("fmax", 2, lambda a, b: torch.fmax(a, b), "kw::fmax({0}, {1})", exact=True,
           laws=Laws(commutative=FLOAT, associative=FLOAT, idempotent=FLOAT, identity={"float": float("nan")})),
    Scalar("eq", 2, lambda a, b: torch.eq(a, b), "{0} == {1}", ANY, "bool", exact=True, laws=Laws(commutative=ANY)),
    Scalar("ne", 2, lambda a, b: torch.ne(a, b), "{0} != {1}", ANY, "bool", exact=True, laws=Laws(commutative=ANY)),
    Scalar("lt", 2, lambda a, b: torch.lt(a, b), "{0} < {1}", ANY, "bool", exact=True),
    Scalar("le", 2, lambda a, b: torch.le(a, b), "{0} <= {1}", ANY, "bool", exact=True),
    Scalar("gt", 2, lambda a, b: torch.gt(a, b), "{0} > {1}", ANY, "bool", exact=True),
    Scalar("ge", 2, lambda a, b: torch.ge(a, b), "{0} >= {1}", ANY, "bool", exact=True),
    # --- logic and bits
    Scalar("logical_and", 2, lambda a, b: torch.logical_and(a, b), "({0} != 0) & ({1} != 0)", ANY, "bool", exact=True,
           laws=Laws(commutative=ANY, associative=BOOL, idempotent=BOOL, identity={"bool": True})),
    Scalar("logical_or", 2, lambda a, b: torch.logical_or(a, b), "({0} != 0) | ({1} != 0)", ANY, "bool", exact=True,
           laws=Laws(commutative=ANY, associative=BOOL, idempotent=BOOL, identity={"bool": False})),
    Scalar("logical_xor", 2, lambda a, b: torch.logical_xor(a, b), "({0} != 0) ^ ({1} != 0)", ANY, "bool", exact=True,
           laws=Laws(commutative=ANY, associative=BOOL, identity={"bool": False})),
    Scalar("logical_not", 1, lambda x: torch.logical_not(x), "{0} == 0", ANY, "bool", exact=True,
           laws=Laws(involution=BOOL)),
    Scalar("bitwise_and", 2, lambda a, b: torch.bitwise_and(a, b), "{0} & {1}", BITS, exact=True,
           laws=Laws(commutative=BITS, associative=BITS, idempotent=BITS, identity={"int": "ones", "bool": "ones"})),
    Scalar("bitwise_or", 2, lambda a, b: torch.bitwise_or(a, b), "{0} | {1}", BITS, exact=True,
           laws=Laws(commutative=BITS, associative=BITS, idempotent=BITS, identity={"int": 0, "bool": False})),
    Scalar("bitwise_xor", 2, lambda a, b: torch.bitwise_xor(a, b), "{0} ^ {1}", BITS, exact=True,
           laws=Laws(commutative=BITS, associative=BITS, identity={"int": 0, "bool": False})),
    Scalar("bitwise_not", 1, lambda x: torch.bitwise_not(x), "kw::bitwise_not({0})", BITS, exact=True,
           laws=Laws(involution=BITS)),
    Scalar("shift_left", 2, lambda a, b: torch.bitwise_left_shift(a, b), "kw::shift_left({0}, {1})", INT, exact=True,
           laws=Laws(right_identity={"int": 0})),
    Scalar("shift_right", 2, lambda a, b: torch.bitwise_right_shift(a, b), "kw::shift_right({0}, {1})", INT, exact=True,
           laws=Laws(right_identity={"int": 0})),
    # --- classes of floats
    Scalar("isnan", 1, lambda x: torch.isnan(x), "kw::isnan({0})", FLOAT, "bool", exact=True, laws=Laws(even=FLOAT)),
    Scalar("isinf", 1, lambda x: torch.isinf(x), "kw::isinf({0})", FLOAT, "bool", exact=True, laws=Laws(even=FLOAT)),
    Scalar("isfinite", 1, lambda x: torch.isfinite(x), "kw::isfinite({0})", FLOAT, "bool", exact=True,
           laws=Laws(even=FLOAT)),
    Scalar("signbit", 1, lambda x: torch.signbit(x), "kw::signbit({0})", NUMBER, "bool", exact=True),
    Scalar("nan_to_num", 4, _nan_to_num, "kw::nan_to_num({0}, {1}, {2}, {3})", exact=True, flops=4),
    # --- rounding
    Scalar("floor", 1, lambda x: torch.floor(x), "kw::floor({0})", exact=True,
           laws=Laws(idempotent=FLOAT, monotone="up")),
    Scalar("ceil", 1, lambda x: torch.ceil(x), "kw::ceil({0})", exact=True, laws=Laws(idempotent=FLOAT, monotone="up")),
    Scalar("round", 1, lambda x: torch.round(x), "kw::round({0})", exact=True,
           laws=Laws(idempotent=FLOAT, odd=FLOAT, monotone="up")),
    Scalar("trunc", 1, lambda x: torch.trunc(x), "kw::trunc({0})", exact=True,
           laws=Laws(idempotent=FLOAT, odd=FLOAT, monotone="up")),
    Scalar("frac", 1, lambda x: torch.frac(x), "kw::frac({0})", exact=True, flops=2),
    # --- powers, exponentials and logarithms
    Scalar("sqrt", 1, lambda x: torch.sqrt(x), "kw::sqrt({0})", exact=True, flops=8),
    Scalar("rsqrt", 1, lambda x: torch.rsqrt(x), "kw::rsqrt({0})", flops=10),
    Scalar("pow", 2, lambda a, b: torch.pow(a, b), "kw::pow({0}, {1})", NUMBER, flops=60,
           laws=Laws(right_identity={"float": 1.0, "int": 1})),
    Scalar("hypot", 2, lambda a, b: torch.hypot(a, b), "kw::hypot({0}, {1})", flops=20, laws=Laws(commutative=FLOAT)),
    Scalar("exp", 1, lambda x: torch.exp(x), "kw::exp({0})", flops=12, laws=Laws(monotone="up")),
    Scalar("exp2", 1, lambda x: torch.exp2(x), "kw::exp2({0})", flops=12, laws=Laws(monotone="up")),
    Scalar("expm1", 1, lambda x: torch.expm1(x), "kw::expm1({0})", flops=16, laws=Laws(monotone="up")),
    Scalar("log", 1, lambda x: torch.log(x), "kw::log({0})", flops=16),
    Scalar("log2", 1, lambda x: torch.log2(x), "kw::log2({0})", flops=16),
    Scalar("log10", 1, lambda x: torch.log10(x), "kw::log10({0})", flops=16),
    Scalar("log1p", 1, lambda x: torch.log1p(x), "kw::log1p({0})", flops=20),
    Scalar("log_add_exp", 2, lambda a, b: torch.logaddexp(a, b), "kw::log_add_exp({0}, {1})", flops=36,
           laws=Laws(commutative=FLOAT)),
    Scalar("xlogy", 2, lambda a, b: torch.xlogy(a, b), "kw::xlogy({0}, {1})", flops=18),
    # --- trigonometric and hyperbolic
    Scalar("sin", 1, lambda x: torch.sin(x), "kw::sin({0})", flops=20, laws=Laws(odd=FLOAT)),
    Scalar("cos", 1, lambda x: torch.cos(x), "kw::cos({0})", flops=20, laws=Laws(even=FLOAT)),
    Scalar("tan", 1, lambda x: torch.tan(x), "kw::tan({0})", flops=30, laws=Laws(odd=FLOAT)),
    Scalar("asin", 1, lambda x: torch.asin(x), "kw::asin({0})", flops=20, laws=Laws(odd=FLOAT)),
    Scalar("acos", 1, lambda x: torch.acos(x), "kw::acos({0})", flops=20),
    Scalar("atan", 1, lambda x: torch.atan(x), "kw::atan({0})", flops=20, laws=Laws(odd=FLOAT, monotone="up")),
    Scalar("atan2", 2, lambda a, b: torch.atan2(a, b), "kw::atan2({0}, {1})", flops=30),
    Scalar("sinh", 1, lambda x: torch.sinh(x), "kw::sinh({0})", flops=24, laws=Laws(odd=FLOAT, monotone="up")),
    Scalar("cosh", 1, lambda x: torch.cosh(x), "kw::cosh({0})", flops=24, laws=Laws(even=FLOAT)),
    Scalar("tanh", 1, lambda x: torch.tanh(x), "kw::tanh({0})", flops=20, laws=Laws(odd=FLOAT, monotone="up")),
    Scalar("asinh", 1, lambda x: torch.asinh(x), "kw::asinh({0})", flops=30, laws=Laws(odd=FLOAT, monotone="up")),
    Scalar("acosh", 1, lambda x: torch.acosh(x), "kw::acosh({0})", flops=30),
    Scalar("atanh", 1, lambda x: torch.atanh(x), "kw::atanh({0})", flops=30, laws=Laws(odd=FLOAT)),
    # --- error function
    Scalar("erf", 1, lambda x: torch.erf(x), "kw::erf({0})", flops=20, laws=Laws(odd=FLOAT, monotone="up")),
    Scalar("erfc", 1, lambda x: torch.erfc(x), "kw::erfc({0})", flops=30, laws=Laws(monotone="down")),
    Scalar("erfinv", 1, lambda x: torch.erfinv(x), "kw::erfinv({0})", flops=60, laws=Laws(odd=FLOAT)),
    # --- activations made of comparisons
    Scalar("relu", 1, lambda x: torch.relu(x), "kw::relu({0})", NUMBER, exact=True,
           laws=Laws(idempotent=NUMBER, monotone="up")),
    Scalar("relu6", 1, lambda x: F.relu6(x), "kw::relu6({0})", NUMBER, exact=True, flops=2,
           laws=Laws(idempotent=NUMBER, monotone="up")),
    Scalar("hardtanh", 3, lambda x, lo, hi: torch.minimum(torch.maximum(x, lo), hi), "kw::hardtanh({0}, {1}, {2})",
           NUMBER, exact=True, flops=2, laws=Laws(idempotent=NUMBER, monotone="up")),
    Scalar("leaky_relu", 2, lambda x, slope: torch.where(x > 0, x, x * slope), "kw::leaky_relu({0}, {1})", exact=True,
           flops=2),
    Scalar("threshold", 3, lambda x, bound, value: torch.where(x <= bound, value, x), "kw::threshold({0}, {1}, {2})",
           NUMBER, exact=True),
    Scalar("hardsigmoid", 1, lambda x: F.hardsigmoid(x), "kw::hardsigmoid({0})", flops=11, laws=Laws(monotone="up")),
    Scalar("hardswish", 1, lambda x: F.hardswish(x), "kw::hardswish({0})", flops=12),
    Scalar("hardshrink", 2, lambda x, bound: torch.where((x >= -bound) & (x <= bound), 0, x),
           "kw::hardshrink({0}, {1})", exact=True, flops=3),
    Scalar("softshrink", 2, _softshrink, "kw::softshrink({0}, {1})", exact=True, flops=4),
    Scalar("softsign", 1, lambda x: F.softsign(x), "kw::softsign({0})", flops=10, laws=Laws(odd=FLOAT)),
    # --- activations made of exponentials
    Scalar("sigmoid", 1, lambda x: torch.sigmoid(x), "kw::sigmoid({0})", flops=24, laws=Laws(monotone="up")),
    Scalar("logsigmoid", 1, lambda x: F.logsigmoid(x), "kw::logsigmoid({0})", flops=36, laws=Laws(monotone="up")),
    Scalar("silu", 1, lambda x: F.silu(x), "kw::silu({0})", flops=25),
    Scalar("mish", 1, lambda x: F.mish(x), "kw::mish({0})", flops=30),
    Scalar("softplus", 3, _wide(_softplus), "kw::softplus({0}, {1}, {2})", flops=50),
    Scalar("elu", 4, _wide(_elu), "kw::elu({0}, {1}, {2}, {3})", flops=22),
    Scalar("selu", 1, lambda x: F.selu(x), "kw::selu({0})", flops=20, laws=Laws(monotone="up")),
    Scalar("celu", 2, _wide(lambda x, alpha: torch.where(x <= 0, torch.expm1(x / alpha) * alpha, x)),
           "kw::celu({0}, {1})", flops=30),
    Scalar("gelu_erf", 1, lambda x: F.gelu(x), "kw::gelu_erf({0})", flops=25),
    Scalar("gelu_tanh", 1, lambda x: F.gelu(x, approximate="tanh"), "kw::gelu_tanh({0})", flops=28),
    Scalar("tanhshrink", 1, lambda x: F.tanhshrink(x), "kw::tanhshrink({0})", flops=21),
)
# fmt: on

SCALARS: Mapping[str, Scalar] = MappingProxyType({row.name: row for row in _ROWS})
