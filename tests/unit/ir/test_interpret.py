"""The interpreter defines what a graph means: each kind of node against plain torch."""

from __future__ import annotations

import pytest
import torch

from kernelwright.ir import nodes
from kernelwright.ir.dtypes import float16, float32, int64
from kernelwright.ir.interpret import MEANING, evaluate, interpret, resolve_symbol
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Contract,
    Conv,
    Graph,
    Input,
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
)
from kernelwright.ir.scalars import SCALARS

X = Input("x", 0, (3, 4), float32, (4, 1))
W = Param("block.weight", (5, 4), float32, (4, 1))
x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
w = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
ROW = TensorType((3,), float32)


def value(node: Node) -> torch.Tensor:
    result: torch.Tensor = evaluate([node], {X: x, W: w})[node]
    return result


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (Const(0.1, float32), torch.tensor(0.1)),
        (Table((1, 2, 3, 4), (2, 2), int64), torch.tensor([[1, 2], [3, 4]])),
        (Map("mul", (X, Const(2.0, float32))), x * 2),
        (Map("cast", (X,), float16), x.half()),
        (Contract(X, W, "ij,kj->ki"), w @ x.t()),
        (Reshape(X, (2, 6)), x.reshape(2, 6)),
        (Reshape(Permute(X, (1, 0)), (12,)), x.t().reshape(12)),
        (Permute(X, (1, 0)), x.t()),
        (Broadcast(X, (2, 3, 4)), x.expand(2, 3, 4)),
        (Slice(X, (1, 0), (1, 2), (2, 2)), x[1:, ::2]),
        (Slice(X, (2, 3), (-1, -3), (3, 2)), x.flip(0)[:, [3, 0]]),
        (Slice(X, (0, 0), (1, 1), (0, 4)), x[:0]),
        (Opaque("aten.cumsum.default", (X, 1), (), (TensorType((3, 4), float32),)), x.cumsum(1)),
        (Opaque("aten.sum.default", (X,), (("dtype", Symbol("torch.float64")),), (ROW,)), x.double().sum()),
        (Opaque("aten.cat.default", ((X, X), 0), (), (ROW,)), torch.cat([x, x])),
        (Item(Opaque("aten.max.dim", (X, 1), (), (ROW, TensorType((3,), int64))), 1), x.max(1).indices),
    ],
)
def test_a_node_means_what_torch_computes(node: Node, expected: torch.Tensor) -> None:
    result = value(node)
    assert result.dtype == expected.dtype
    torch.testing.assert_close(result, expected)


def test_a_convolution_means_torchs_convolution_without_a_bias() -> None:
    image, weight = Input("image", 0, (1, 2, 5, 6), float32, (0,) * 4), Param("w", (4, 2, 3, 3), float32, (0,) * 4)
    values = {image: torch.randn(1, 2, 5, 6), weight: torch.randn(4, 2, 3, 3)}
    node = Conv(image, weight, (2, 1), (1, 0), (1, 1), 1, False, (0, 0))
    expected = torch.nn.functional.conv2d(values[image], values[weight], stride=(2, 1), padding=(1, 0))
    torch.testing.assert_close(evaluate([node], values)[node], expected)


def test_inputs_go_by_position_and_state_by_path_and_updates_follow_the_outputs() -> None:
    other = Input("y", 2, (3, 4), float32, (4, 1))
    graph = Graph((X, other), (Map("sub", (X, other)),), (Update(W, Map("neg", (W,))),), 0)
    result = interpret(graph, [x, torch.empty(0), x * 3], {"block.weight": w})
    torch.testing.assert_close(result, [x - x * 3, -w])


def test_every_kind_of_node_but_the_leaves_has_a_meaning() -> None:
    kinds = {kind for kind in vars(nodes).values() if isinstance(kind, type) and issubclass(kind, Node)}
    assert kinds - set(MEANING) == {Input, Param, Node, nodes.View}


@pytest.mark.parametrize("name", [name for name in SCALARS if name != "cast"])
def test_every_scalar_function_runs_on_tensors_beside_scalars(name: str) -> None:
    row = SCALARS[name]
    tensor: Node = X
    if "float" not in row.accepts:
        tensor = Map("cast", (X,), int64)
    number = Const(1.0, float32) if "float" in row.accepts else Const(1, int64)
    args: tuple[Node, ...] = (tensor, *(number,) * (row.arity - 1))
    if name == "where":
        args = (Map("lt", (X, number)), tensor, number)
    node = Map(name, args)
    result = value(node)
    assert (tuple(result.shape), result.dtype) == (node.shape, node.dtype.to_torch())


def test_the_symbol_device_means_where_the_inputs_are() -> None:
    assert resolve_symbol(Symbol("device")) is None
    assert resolve_symbol(Symbol("torch.float16")) is torch.float16
    assert resolve_symbol(Symbol("torch.strided")) is torch.strided


def test_a_chain_deeper_than_pythons_stack_is_evaluated() -> None:
    node: Node = X
    for _ in range(5000):
        node = Map("neg", (node,))
    torch.testing.assert_close(value(node), x)
