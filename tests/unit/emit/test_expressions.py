"""Nodes as Python: every expression, evaluated, is what the interpreter says the node is."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.emit.expressions import PUBLIC, Expressions, matmul_form, python, slices
from kernelwright.ir.dtypes import float32
from kernelwright.ir.interpret import evaluate, resolve_operator
from kernelwright.ir.nodes import Broadcast, Const, Contract, Conv, Input, Node, Reshape, Slice, Table
from kernelwright.plan import Buffer, Library
from kernelwright.plan.steps import contiguous
from tests.property.random_graphs import Builder


def leaf(name: str, shape: tuple[int, ...]) -> Input:
    return Input(name, 0, shape, float32, contiguous(shape))


def written(node: Node, *leaves: Input) -> str:
    places: dict[Node, Buffer] = {x: Buffer(x.name, x.shape, x.dtype, x.strides, x) for x in leaves}
    return Expressions(places, "torch.device('cpu')").of(node)


def called(node: Node, bias: Node | None, *leaves: Input) -> str:
    places: dict[Node, Buffer] = {x: Buffer(x.name, x.shape, x.dtype, x.strides, x) for x in leaves}
    return Expressions(places, "torch.device('cpu')").call(Library(node, bias, (None,)))


def run(text: str, **tensors: torch.Tensor) -> torch.Tensor:
    result = eval(text, {"torch": torch, "F": F, **tensors})
    assert isinstance(result, torch.Tensor)
    return result


@given(data=st.data())
def test_a_chain_of_views_is_written_as_it_is_meant(data: st.DataObject) -> None:
    builder = Builder(data.draw)
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4)))
    x = leaf("x", shape)
    node: Node = x
    for _ in range(data.draw(st.integers(1, 5))):
        node = builder.seen_otherwise(node)
    tensor = torch.randn(shape)
    assert torch.equal(run(written(node, x), x=tensor), evaluate([node], {x: tensor})[node])


@pytest.mark.parametrize(
    "node",
    [
        Const(float("inf"), float32),
        Const(-0.0, float32),
        Broadcast(Const(float("nan"), float32), (2, 3)),
        Table((1.0, float("-inf"), 2.0), (3,), float32),
        Table((1.0, 2.0), (2, 1), float32),
        Reshape(Table((1.0, 2.0), (2,), float32), (1, 2)),
        Slice(Table((1.0, 2.0, 3.0), (3,), float32), (1,), (1,), (0,)),
    ],
    ids=lambda node: type(node).__name__,
)
def test_constants_are_written_with_their_values_and_dtypes(node: Node) -> None:
    expected = evaluate([node], {})[node]
    got = run(written(node))
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert torch.equal(torch.signbit(got), torch.signbit(expected))
    assert torch.allclose(got, expected, rtol=0, atol=0, equal_nan=True)


def equations() -> list[str]:
    """Products of up to two batch axes in every order of the operands' last axes."""
    found = []
    for batch in ("", "b", "bc"):
        for a, w, swapped in itertools.product(("xk", "kx"), ("kz", "zk"), (False, True)):
            found.append(f"{batch}{a},{batch}{w}->{batch}{'zx' if swapped else 'xz'}")
    return [*found, "bxk,zk->bxz", "xk,bkz->bxz", "k,k->", "xk,k->x", "bxk,bk->bx", "x,z->xz", "bxk,bzk->xbz"]


@pytest.mark.parametrize("equation", equations())
def test_every_product_is_written_as_a_call_that_gives_it(equation: str) -> None:
    extents = {"b": 2, "c": 3, "x": 4, "k": 5, "z": 6}
    a, b = equation.split("->")[0].split(",")
    x = leaf("x", tuple(extents[label] for label in a))
    w = Input("w", 1, tuple(extents[label] for label in b), float32, contiguous(tuple(extents[label] for label in b)))
    node = Contract(x, w, equation)
    tensors = {"x": torch.randn(x.shape), "w": torch.randn(w.shape)}
    expected = torch.einsum(equation, tensors["x"], tensors["w"])
    torch.testing.assert_close(run(called(node, None, x, w), **tensors), expected)


def test_a_layer_is_written_as_a_layer() -> None:
    x, w, bias = leaf("x", (4, 5)), leaf("w", (6, 5)), leaf("bias", (6,))
    assert called(Contract(x, w, "xk,zk->xz"), bias, x, w, bias) == "F.linear(x, w, bias)"


def test_a_product_is_written_as_matmul_where_it_is_one() -> None:
    assert matmul_form("xk", "kz", "xz") == ("", "")
    assert matmul_form("bkx", "bzk", "bxz") == (".mT", ".mT")
    assert matmul_form("bxk", "bzk", "xbz") == (None, None)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_convolution_is_written_with_what_is_not_usual(rank: int, transposed: bool) -> None:
    space = (9,) * rank
    x, w = leaf("x", (2, 4, *space)), leaf("w", (4, 2, *(3,) * rank))
    groups = 1 if transposed else 2
    node = Conv(x, w, (2,) * rank, (1,) * rank, (1,) * rank, groups, transposed, (1 if transposed else 0,) * rank)
    tensors = {"x": torch.randn(x.shape), "w": torch.randn(w.shape)}
    text = called(node, None, x, w)
    got = run(text, **tensors)
    assert tuple(got.shape) == node.shape
    torch.testing.assert_close(got, evaluate([node], {x: tensors["x"], w: tensors["w"]})[node])
    assert "dilation" not in text


@pytest.mark.parametrize("target", PUBLIC)
def test_every_operator_with_a_public_name_exists_under_both(target: str) -> None:
    module, _, name = PUBLIC[target].rpartition(".")
    scope = {"torch": torch, "F": F, "torch.linalg": torch.linalg}[module]
    assert callable(getattr(scope, name))
    assert callable(resolve_operator(target))


def test_slices_are_as_short_as_they_can_be() -> None:
    assert slices((0, 0, 0), (1, 1, 1), (4, 5, 6), (4, 5, 6)) == ":"
    assert slices((0, 2), (1, 1), (4, 3), (4, 5)) == ":, 2:"
    assert slices((1, 0), (1, 2), (2, 3), (4, 5)) == "1:3, ::2"
    assert slices((0,), (1,), (0,), (4,)) == ":0"


@given(st.floats() | st.integers() | st.booleans() | st.none() | st.text(max_size=5))
def test_a_constant_is_read_back_as_it_was(value: object) -> None:
    again = eval(python(value))
    assert type(again) is type(value)
    assert again == value or value != value
    assert str(again) == str(value)


def test_a_matrix_times_a_batch_is_a_plain_matmul() -> None:
    """einsum would give the same numbers in another order of memory."""
    a, b = leaf("a", (5, 6)), leaf("b", (2, 6, 3))
    text = called(Contract(a, b, "xy,ayz->axz"), None, a, b)
    assert text == "torch.matmul(a, b)"
    assert run(text, a=torch.randn(5, 6), b=torch.randn(2, 6, 3)).is_contiguous()
