"""The table of scalar functions: what a row means is PyTorch's own function, and its laws hold at every edge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kernelwright.ir.dtypes import DTYPES, DType, Kind, bfloat16, bool_, float16, float32, float64, int8, int32, uint8
from kernelwright.ir.scalars import SCALARS, Scalar, spell_cast
from kernelwright.kernels.device import parts

ROWS = tuple(SCALARS.values())
TESTED = (float32, float64, int32, int8, uint8, bool_)
# Which of two zeros comes out is open in PyTorch: on one machine it differs with the length of the tensor.
OPEN_ZERO = ("minimum", "maximum", "fmin", "fmax", "hardtanh", "relu6")
INF, NAN = math.inf, math.nan


def edges(dtype: DType) -> Tensor:
    kind = dtype.to_torch()
    if dtype.kind == "bool":
        return torch.tensor([False, True])
    if dtype.kind == "int":
        low, high = int(dtype.lowest), int(dtype.highest)
        return torch.tensor(
            sorted({0, 1, 2, 3, 7, low, low + 1, high, high - 1} | ({-1, -2} if low else set())), dtype=kind
        )
    info = torch.finfo(kind)
    positive = (0.0, info.smallest_normal / 2, info.smallest_normal, 1e-3, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 50.0)
    some = (*positive, 1 / info.eps, 1 / info.eps + 1, info.max, INF)
    return torch.tensor([*(-x for x in reversed(some)), *some, NAN], dtype=kind)


def alike(row: Scalar, a: Tensor, b: Tensor) -> bool:
    """The same numbers, NaN like NaN, and zeros of the same sign."""
    equal = (a == b) | ((a != a) & (b != b))
    if a.is_floating_point() and row.name not in OPEN_ZERO:
        equal &= (a.signbit() == b.signbit()) | (a != a)
    return bool(equal.all())


def attributes(row: Scalar, dtype: DType) -> list[Tensor]:
    """Plausible values of the operands after the first, for laws about the first alone."""
    values = {"hardtanh": (0, 2)}.get(row.name, ())
    assert len(values) == row.arity - 1, f"say what the attributes of {row.name} are"
    return [torch.tensor(value, dtype=dtype.to_torch()) for value in values]


def lawful(law: Callable[[Scalar], frozenset[Kind]]) -> list[object]:
    cases = [(row, dtype) for row in ROWS for dtype in TESTED if dtype.kind in law(row)]
    return [pytest.param(row, dtype, id=f"{row.name}-{dtype}") for row, dtype in cases]


# --- the table


def test_every_row_is_filed_under_its_name() -> None:
    assert all(name == row.name for name, row in SCALARS.items())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_laws_are_stated_only_for_kinds_that_are_accepted(row: Scalar) -> None:
    laws = row.laws
    symmetries = laws.commutative | laws.associative | laws.idempotent | laws.involution | laws.odd | laws.even
    assert symmetries | laws.identity.keys() | laws.right_identity.keys() <= row.accepts
    if laws.commutative or laws.associative or laws.identity:
        assert row.arity == 2
    if laws.involution or laws.odd or laws.even:
        assert row.arity == 1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_spelling_uses_every_operand_and_only_functions_that_exist(row: Scalar) -> None:
    assert all(f"{{{i}}}" in row.cpp for i in range(row.arity))
    for provided in ({name for part in parts(target) for name in part.provides} for target in ("cuda", "cpu")):
        assert set(row.device_names) <= provided


@pytest.mark.parametrize("row", [row for row in ROWS if row.name != "cast"], ids=lambda row: row.name)
def test_the_meaning_keeps_the_dtype_it_is_given(row: Scalar) -> None:
    for dtype in DTYPES.values():
        if dtype.kind in row.accepts:
            operands = [torch.ones(3, dtype=dtype.to_torch()) for _ in range(row.arity)]
            if row.name == "where":
                operands[0] = operands[0].bool()
            kinds = [bool_ if row.name == "where" and i == 0 else dtype for i in range(row.arity)]
            assert row.torch(*operands).dtype == row.result_dtype(*kinds).to_torch()
            constants = [x[0] for x in operands]
            assert row.torch(*constants).shape == ()


def test_negative_literals_are_bracketed_only_where_signs_could_run_together() -> None:
    assert SCALARS["neg"].spell("-1.0f") == "-(-1.0f)"
    assert SCALARS["sub"].spell("t0", "-1.0f") == "t0 - (-1.0f)"
    assert SCALARS["neg"].spell("t0") == "-t0"
    assert SCALARS["maximum"].spell("t0", "-1.0f") == "kw::maximum(t0, -1.0f)"


def test_casts_are_spelled_with_the_type_in_memory() -> None:
    assert spell_cast("t0", float16) == "kw::cast<kw::half>(t0)"
    assert spell_cast("t0", int32) == "kw::cast<int32_t>(t0)"


def test_a_kind_that_is_not_accepted_is_refused() -> None:
    with pytest.raises(AssertionError, match="exp accepts"):
        SCALARS["exp"].result_dtype(int32)
    assert SCALARS["lt"].result_dtype(int32, int32) is bool_
    assert SCALARS["where"].result_dtype(bool_, int8, int8) is int8


# --- meanings that are formulas here and functions there


def attribute(value: float, dtype: torch.dtype) -> Tensor:
    return torch.tensor(value, dtype=dtype)


FORMULAS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[float, ...]]] = {
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.25), (0.25,)),
    "elu": (lambda x: torch.ops.aten.elu(x, 1.5, 2.0, 0.5), (1.5, 2.0, 0.5)),
    "celu": (lambda x: F.celu(x, 2.0), (2.0,)),
    "softplus": (lambda x: F.softplus(x, 2.0, 20.0), (2.0, 20.0)),
    "hardtanh": (lambda x: F.hardtanh(x, -0.5, 2.0), (-0.5, 2.0)),
    "hardshrink": (lambda x: F.hardshrink(x, 0.5), (0.5,)),
    "softshrink": (lambda x: F.softshrink(x, 0.5), (0.5,)),
    "threshold": (lambda x: F.threshold(x, 0.5, 3.0), (0.5, 3.0)),
    "nan_to_num": (lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0), (1.0, 2.0, 3.0)),
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
def test_formulas_with_attributes_are_pytorchs_functions(name: str, dtype: DType) -> None:
    function, values = FORMULAS[name]
    kind = dtype.to_torch()
    x = torch.cat([edges(dtype), torch.linspace(-30, 30, 601).to(kind)])
    ours = SCALARS[name].torch(x, *(attribute(value, kind) for value in values))
    torch.testing.assert_close(ours, function(x), rtol=4 * torch.finfo(kind).eps, atol=0.0, equal_nan=True)


# --- laws


@pytest.mark.parametrize(("row", "dtype"), lawful(lambda row: row.laws.commutative))
def test_commutative_rows_do_not_mind_the_order(row: Scalar, dtype: DType) -> None:
    x = edges(dtype)
    assert alike(row, row.torch(x[:, None], x[None, :]), row.torch(x[None, :], x[:, None]))


@pytest.mark.parametrize(("row", "dtype"), lawful(lambda row: row.laws.associative))
def test_associative_rows_do_not_mind_the_brackets(row: Scalar, dtype: DType) -> None:
    x = edges(dtype)
    a, b, c = x[:, None, None], x[None, :, None], x[None, None, :]
    assert alike(row, row.torch(row.torch(a, b), c), row.torch(a, row.torch(b, c)))


@pytest.mark.parametrize(("row", "dtype"), lawful(lambda row: row.laws.idempotent))
def test_idempotent_rows_change_nothing_the_second_time(row: Scalar, dtype: DType) -> None:
    x = edges(dtype)
    if row.arity == 2:
        assert alike(row, row.torch(x, x), x)
    else:
        rest = attributes(row, dtype)
        once = row.torch(x, *rest)
        assert alike(row, row.torch(once, *rest), once)


@pytest.mark.parametrize(("row", "dtype"), lawful(lambda row: row.laws.involution))
def test_involutions_undo_themselves(row: Scalar, dtype: DType) -> None:
    x = edges(dtype)
    assert alike(row, row.torch(row.torch(x)), x)


@pytest.mark.parametrize(("row", "dtype"), lawful(lambda row: row.laws.odd))
def test_odd_rows_carry_the_sign_through(row: Scalar, dtype: DType) -> None:
    x = edges(dtype)
    assert alike(row, row.torch(-x), -row.torch(x))


@pytest.mark.parametrize(("row", "dtype"), lawful(lambda row: row.laws.even))
def test_even_rows_drop_the_sign(row: Scalar, dtype: DType) -> None:
    x = edges(dtype)
    if dtype is uint8:
        pytest.skip("an unsigned integer has no negative")
    assert alike(row, row.torch(-x), row.torch(x))


def kinds_with_identity(row: Scalar) -> frozenset[Kind]:
    return frozenset((*row.laws.identity, *row.laws.right_identity))


@pytest.mark.parametrize(("row", "dtype"), lawful(kinds_with_identity))
def test_identity_elements_leave_everything_as_it_is(row: Scalar, dtype: DType) -> None:
    x = edges(dtype)
    right, both = row.right_identity(dtype), row.identity(dtype)
    assert right is not None
    assert alike(row, row.torch(x, torch.full_like(x, right)), x)
    if both is not None:
        assert alike(row, row.torch(torch.full_like(x, both), x), x)


def test_the_identity_of_addition_is_minus_zero() -> None:
    assert str(SCALARS["add"].identity(float32)) == "-0.0"
    assert SCALARS["add"].identity(int32) == 0
    assert SCALARS["maximum"].identity(uint8) == 0
    assert SCALARS["minimum"].identity(int8) == 127
    assert SCALARS["bitwise_and"].identity(uint8) == 255
    assert SCALARS["bitwise_and"].identity(int8) == -1
    assert SCALARS["exp"].identity(float32) is None


MONOTONE = [row for row in ROWS if row.laws.monotone]


@pytest.mark.parametrize("row", MONOTONE, ids=lambda row: row.name)
def test_monotone_rows_keep_or_turn_the_order_and_let_nan_through(row: Scalar) -> None:
    for dtype in TESTED:
        if dtype.kind not in row.accepts or (row.name == "neg" and dtype is not float32 and dtype is not float64):
            continue  # minus the least integer is itself
        x = edges(dtype)
        ordered = x[x == x]
        rest = [torch.tensor(2, dtype=x.dtype)] if row.arity == 2 else attributes(row, dtype) if row.arity > 2 else []
        y = row.torch(ordered, *rest)
        turned = y.flip(0) if row.laws.monotone == "down" else y
        assert all(a <= b for a, b in itertools.pairwise(turned.tolist())), y
        if dtype.kind == "float":
            assert row.torch(torch.tensor(NAN, dtype=x.dtype), *rest).isnan()
