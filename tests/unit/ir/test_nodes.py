"""Nodes: equal ones are one object, shapes and dtypes are inferred, and what does not fit cannot be built."""

from __future__ import annotations

import gc
import math

import pytest
import torch

from kernelwright.ir.dtypes import bool_, float16, float32, int64
from kernelwright.ir.interpret import evaluate
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Contract,
    Conv,
    Graph,
    Input,
    Interned,
    Item,
    Map,
    Node,
    Opaque,
    Param,
    Permute,
    Reshape,
    Slice,
    Symbol,
    Table,
    TensorType,
    Update,
    walk,
)

X = Input("x", 0, (2, 3), float32, (3, 1))
Y = Input("y", 1, (2, 3), float32, (3, 1))


def test_equal_nodes_are_one_object() -> None:
    assert Map("exp", (X,)) is Map("exp", (X,))
    assert Map("exp", (X,)) is not Map("exp", (Y,))
    assert Reshape(X, (6,)) is Reshape(X, (6,))
    assert Input("x", 0, (2, 3), float32, (3, 1)) is X
    assert Const(1.0, float32) is Const(1.0, float32)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Const(0.0, float32), Const(-0.0, float32)),
        (Const(1, int64), Const(True, bool_)),
        (Const(1, int64), Const(1.0, float32)),
        (Table((0.0,), (1,), float32), Table((-0.0,), (1,), float32)),
        (Const(1.0, float32), Const(1.0, float16)),
    ],
)
def test_constants_are_told_apart_by_type_and_bits(one: Node, other: Node) -> None:
    assert one is not other


def test_nan_is_one_constant() -> None:
    assert Const(math.nan, float32) is Const(math.nan, float32)


def test_nodes_that_nothing_refers_to_are_forgotten() -> None:
    gc.collect()
    before = len(Interned._known)
    node = Map("exp", (Map("sin", (Reshape(X, (3, 2)),)),))
    assert len(Interned._known) == before + 3
    del node
    gc.collect()
    assert len(Interned._known) == before


def test_a_map_has_the_shape_of_its_operands_that_have_one() -> None:
    half = Const(0.5, float32)
    assert Map("mul", (X, half)).shape == (2, 3)
    assert Map("mul", (half, X)).shape == (2, 3)
    assert Map("mul", (half, half)).shape == ()


def test_a_map_has_the_dtype_its_function_gives() -> None:
    mask = Map("lt", (X, Y))
    assert mask.dtype is bool_
    assert Map("where", (mask, X, Y)).dtype is float32
    assert Map("cast", (X,), int64).dtype is int64
    assert Map("neg", (X,)).dtype is float32


def test_a_chain_as_long_as_any_knows_its_shape_at_once() -> None:
    node: Node = X
    for _ in range(5000):
        node = Map("exp", (node,))
    assert (node.shape, node.dtype) == ((2, 3), float32)
    assert len(list(walk((node,)))) == 5001


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Map("add", (X,)), "takes 2 operands"),
        (lambda: Map("add", (X, Permute(Y, (1, 0)))), "Broadcast them first"),
        (lambda: Map("add", (X, Const(1, int64))), "cast them first"),
        (lambda: Map("exp", (X,), float32), "cast alone"),
        (lambda: Reshape(X, (5,)), "cannot take the shape"),
        (lambda: Permute(X, (0, 0)), "does not permute"),
        (lambda: Broadcast(X, (2, 4)), "does not broadcast"),
        (lambda: Slice(X, (0, 2), (1, 1), (2, 2)), "slice outside"),
        (lambda: Contract(X, Y, "ij,jk->ik"), "extents differ"),
        (lambda: Contract(X, Y, "ijk,jk->i"), "does not fit"),
        (lambda: Contract(X, Y, "ij,ij->k"), "result index"),
        (lambda: Contract(X, Map("cast", (Y,), float16), "ij,kj->ik"), "one dtype"),
    ],
)
def test_what_does_not_fit_cannot_be_built(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(AssertionError, match=message):
        build()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("geometry", [((1, 1), (0, 0), (1, 1)), ((2, 3), (1, 2), (1, 1)), ((1, 2), (2, 0), (2, 3))])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_infers_the_shape_that_pytorch_gives(
    geometry: tuple[tuple[int, int], ...], groups: int, transposed: bool
) -> None:
    stride, padding, dilation = geometry
    x = Input("x", 0, (2, 4, 11, 13), float32, (0,) * 4)
    weight = Param("w", (4, 6 // groups, 3, 2) if transposed else (6, 4 // groups, 3, 2), float32, (0,) * 4)
    extra = (0, 1) if transposed and stride[1] > 1 else (0, 0)
    node = Conv(x, weight, stride, padding, dilation, groups, transposed, extra)
    value = evaluate([node], {x: torch.zeros(x.shape), weight: torch.zeros(weight.shape)})[node]
    assert node.shape == tuple(value.shape)


def test_a_contraction_has_the_extents_of_its_result_labels() -> None:
    node = Contract(X, Y, "ij,kj->ki")
    assert node.shape == (2, 2)
    assert node.labels == ("ij", "kj", "ki")


def test_rebuilding_puts_other_operands_into_the_same_operation() -> None:
    options = (("dim", 1), ("out", (Y, None)))
    opaque = Opaque("aten.op.default", (X, (Y, 2), Symbol("torch.float32")), options, (TensorType((2,), float32),) * 2)
    assert opaque.operands == (X, Y, Y)
    e = Map("exp", (X,))
    rebuilt = opaque.rebuild((e, X, e))
    assert isinstance(rebuilt, Opaque)
    assert rebuilt.args == (e, (X, 2), Symbol("torch.float32"))
    assert rebuilt.kwargs == (("dim", 1), ("out", (e, None)))
    assert Item(opaque, 1).rebuild((rebuilt,)) is Item(rebuilt, 1)
    for node in (Map("add", (X, Y)), Contract(X, Y, "ij,kj->ik"), Permute(X, (1, 0)), Slice(X, (0, 0), (1, 1), (1, 1))):
        assert node.rebuild(node.operands) is node


def test_a_graph_lists_every_node_once_with_operands_first() -> None:
    e = Map("exp", (X,))
    graph = Graph((X, Y), (Map("add", (e, Map("mul", (e, Y)))),), (), 0)
    nodes = graph.nodes()
    assert len(nodes) == len(set(nodes)) == 5
    assert all(nodes.index(operand) < nodes.index(n) for n in nodes for operand in n.operands)


def test_a_graph_computes_random_draws_first_and_in_their_order() -> None:
    draws = [Opaque("aten.rand_like.default", (X,), (), (TensorType((2, 3), float32),), serial) for serial in (4, 9)]
    graph = Graph((X,), (Map("sub", (draws[1], draws[0])),), (), 0)
    assert [n for n in graph.nodes() if isinstance(n, Opaque)] == draws


def test_updated_values_are_computed_though_no_output_needs_them() -> None:
    state = Param("state", (2, 3), float32, (3, 1))
    graph = Graph((X,), (X,), (Update(state, Map("add", (state, X))),), 0)
    assert state in graph.nodes()


def test_a_result_that_is_no_tensor_cannot_be_taken() -> None:
    opaque = Opaque("aten.op.default", (X,), (), (TensorType((2,), float32), None))
    assert Item(opaque, 0).shape == (2,)
    with pytest.raises(AssertionError, match="not a tensor"):
        _ = Item(opaque, 1).shape


def test_sizes_are_counted_in_elements_and_bytes() -> None:
    assert (X.size, X.nbytes) == (6, 24)
    assert (Const(1.0, float32).size, Map("cast", (X,), float16).nbytes) == (1, 12)
