"""Graphs as text: one line a node, constants where they are used, the same text for the same graph."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from kernelwright.ir.dtypes import float32, int64
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Contract,
    Conv,
    Gather,
    Graph,
    Input,
    Iota,
    Item,
    Map,
    Node,
    Opaque,
    Pad,
    Param,
    Permute,
    Reduce,
    Reshape,
    Scan,
    Slice,
    Symbol,
    Table,
    TensorType,
    Update,
    Windows,
)
from kernelwright.ir.text import TEXT, graph_text

X = Input("x", 0, (2, 3), float32, (3, 1))
BIAS = Param("fc.bias", (3,), float32, (1,))


def text(*outputs: Node, updates: tuple[Update, ...] = ()) -> str:
    return graph_text(Graph((X,), outputs, updates, 0))


def test_a_graph_reads_from_leaves_to_outputs() -> None:
    total = Map("add", (X, Broadcast(BIAS, (2, 3))))
    half = Map("mul", (total, Const(0.5, float32)))
    shown = text(half, Map("cast", (total,), int64), updates=(Update(BIAS, Map("neg", (BIAS,))),))
    assert shown == dedent(
        """\
        %0    = input x : float32[2, 3]
        %1    = param fc.bias : float32[3]
        %2    = broadcast(%1) : float32[2, 3]
        %3    = add(%0, %2) : float32[2, 3]
        %4    = mul(%3, 0.5) : float32[2, 3]
        %5    = cast(%3, int64) : int64[2, 3]
        %6    = neg(%1) : float32[3]
        fc.bias <- %6
        return %4, %5
        """
    )


def test_the_graph_in_the_documentation_is_printed_so() -> None:
    x, weight = Input("x", 0, (128, 512), float32, (512, 1)), Param("fc.weight", (256, 512), float32, (512, 1))
    bias = Broadcast(Param("fc.bias", (256,), float32, (1,)), (128, 256))
    linear = Map("add", (Contract(x, weight, "ay,zy->az"), bias))
    page = Path(__file__).parents[3] / "docs" / "ir.md"
    assert text(Map("mul", (Map("relu", (linear,)), Const(0.5, float32)))) in page.read_text()


def test_operators_of_pytorch_show_all_their_arguments() -> None:
    results = (TensorType((2,), float32), TensorType((2,), int64))
    top = Opaque("aten.max.dim", (X, 1), (("keepdim", False), ("how", (X, Symbol("torch.float32"), None))), results)
    assert "aten.max.dim(%0, 1, keepdim=False, how=[%0, torch.float32, None]) : 2 results" in text(Item(top, 1))
    assert "item(%1, 1) : int64[2]" in text(Item(top, 1))


def test_every_kind_of_node_has_a_line() -> None:
    image, kernel = Input("i", 0, (1, 2, 5, 5), float32, (0,) * 4), Param("k", (2, 2, 3, 3), float32, (0,) * 4)
    conv = Conv(image, kernel, (1, 1), (0, 0), (1, 1), 1, False, (0, 0))
    back = Conv(image, kernel, (2, 2), (0, 0), (1, 1), 1, True, (1, 1))
    views: tuple[Node, ...] = (Reshape(X, (6,)), Permute(X, (1, 0)), Slice(X, (0, 1), (1, 1), (2, 2)))
    views += (Pad(X, (0, 1), (0, 2), 0.5), Windows(X, (1,), (2,), (1,), (1,)), Iota(7))
    rows: tuple[Node, ...] = (Reduce("sum", X, (1,)), Scan("max", X, 0, reverse=True))
    others: tuple[Node, ...] = (Contract(X, X, "ij,kj->ik"), Table((1.0, 2.0), (2,), float32), *rows)
    picked = Gather(Windows(X, (1,), (2,), (1,), (1,)), (Table((0, 1, 0, 1), (2, 2), int64),))
    shown = text(conv, back, *views, *others, picked)
    for line in (
        "conv(%0, %1, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1) : float32[1, 2, 3, 3]",
        "conv_transpose(%0, %1, stride=(2, 2), padding=(0, 0), dilation=(1, 1), groups=1, output_padding=(1, 1))",
        "reshape(%4) : float32[6]",
        "permute(%4, (1, 0)) : float32[3, 2]",
        "slice(%4, start=(0, 1), step=(1, 1)) : float32[2, 2]",
        "contract(ij,kj->ik; %4, %4) : float32[2, 2]",
        "table(2 values) : float32[2]",
        "pad(%4, (0, 1), (0, 2), 0.5) : float32[2, 6]",
        "windows(%4, axes=(1,), window=(2,), stride=(1,), dilation=(1,)) : float32[2, 2, 2]",
        "iota(7) : int64[7]",
        "sum(%4, axes=(1,)) : float32[2, 1]",
        "gather(%9, %15) : float32[2, 2]",
        "running_max(%4, axis=0, reverse) : float32[2, 3]",
    ):
        assert line in shown
    leaves, views_ = {Input, Param, Table, Iota}, {Reshape, Permute, Broadcast, Slice, Pad, Windows}
    assert set(TEXT) == {*leaves, Map, Reduce, Scan, Contract, Conv, Gather, Opaque, Item, *views_}


def test_a_constant_returned_is_shown_by_its_value() -> None:
    assert text(Const(2.5, float32)) == "return 2.5\n"


def test_numbering_a_long_graph_takes_time_in_proportion() -> None:
    node: Node = X
    for _ in range(4000):
        node = Map("add", (node, Const(1.0, float32)))
    assert text(node).splitlines()[-1] == "return %4000"
