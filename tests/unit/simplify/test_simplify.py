"""What `simplify` does to whole graphs: dead code, common subexpressions, random draws, long chains, nice results."""

from __future__ import annotations

import pytest

from kernelwright.ir.dtypes import float16, float32
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Graph,
    Input,
    Item,
    Map,
    Node,
    Opaque,
    Param,
    TensorType,
    Update,
    bool_,
)
from kernelwright.simplify import simplify

X = Input("x", 0, (4, 6), float32, (6, 1))
Y = Input("y", 1, (4, 6), float32, (6, 1))
FLOAT = TensorType((4, 6), float32)
MASK = TensorType((4, 6), bool_)


def fn(name: str, *args: Node) -> Map:
    return Map(name, args)


def number(value: float) -> Const:
    return Const(value, float32)


def simplified(*outputs: Node) -> tuple[Node, ...]:
    return simplify(Graph((X, Y), outputs, (), 0)).outputs


def dropout(x: Node, serial: int) -> Node:
    return Item(Opaque("aten.native_dropout.default", (x, 0.5, True), (), (FLOAT, MASK), serial), 0)


def test_equal_subexpressions_are_one_node_without_any_rule() -> None:
    assert fn("exp", X) is fn("exp", X)
    total = fn("add", fn("exp", X), fn("mul", fn("exp", fn("mul", X, number(1.0))), number(3.0)))
    (simple,) = simplified(total)
    assert [n.fn for n in Graph((X,), (simple,), (), 0).nodes() if isinstance(n, Map)] == ["exp", "mul", "add"]


def test_what_no_output_depends_on_is_not_in_the_graph() -> None:
    dead = Param("dead", (4, 6), float32, (6, 1))
    chosen = fn("where", Const(True, bool_), fn("exp", X), fn("sin", dead))
    graph = simplify(Graph((X,), (chosen,), (), 0))
    assert graph.outputs == (fn("exp", X),)
    assert dead not in graph.nodes()


def test_an_input_that_is_no_longer_read_is_still_an_argument() -> None:
    graph = simplify(Graph((X, Y), (fn("where", Const(True, bool_), fn("exp", X), Y),), (), 0))
    assert graph.inputs == (X, Y)


def test_two_random_draws_of_the_same_never_become_one() -> None:
    (simple,) = simplified(fn("add", dropout(X, 1), dropout(X, 2)))
    draws = [n for n in Graph((X,), (simple,), (), 0).nodes() if isinstance(n, Opaque)]
    assert [n.serial for n in draws] == [1, 2]


def test_random_draws_keep_their_order() -> None:
    late_first = fn("sub", fn("exp", dropout(Y, 9)), dropout(fn("mul", X, number(1.0)), 2))
    before = Graph((X, Y), (late_first,), (), 0)
    after = simplify(before)
    for graph in (before, after):
        assert [n.serial for n in graph.nodes() if isinstance(n, Opaque)] == [2, 9]
    assert dropout(X, 2) in after.nodes()


def test_a_rule_that_would_drop_a_random_draw_does_not_fire() -> None:
    drawn = dropout(X, 3)
    for output in (
        fn("where", Const(True, bool_), fn("exp", X), drawn),
        fn("where", fn("gt", drawn, number(0.0)), fn("exp", X), fn("exp", X)),
        fn("pow", drawn, number(0.0)),
        fn("where", fn("gt", X, Y), fn("where", fn("gt", X, Y), X, drawn), Y),
    ):
        assert drawn in simplify(Graph((X, Y), (output,), (), 0)).nodes()


def test_a_chain_deeper_than_pythons_stack_is_simplified() -> None:
    node: Node = X
    for _ in range(3000):
        node = fn("exp", node)
    assert simplified(fn("mul", node, number(1.0))) == (node,)


def test_the_text_book_chains_come_out_short() -> None:
    half = fn("div", X, number(2.0))
    assert simplified(fn("mul", half, number(8.0))) == (fn("mul", X, number(4.0)),)
    assert simplified(fn("relu", fn("sigmoid", X))) == (fn("sigmoid", X),)
    assert simplified(fn("maximum", fn("minimum", X, number(3.0)), number(-3.0))) == (
        fn("hardtanh", X, number(-3.0), number(3.0)),
    )
    assert simplified(fn("minimum", fn("maximum", fn("tanh", X), number(-1.0)), number(1.0))) == (fn("tanh", X),)
    assert simplified(fn("leaky_relu", fn("relu", X), number(0.01))) == (fn("relu", X),)
    assert simplified(fn("add", fn("mul", X, number(0.5)), X)) == (fn("mul", X, number(1.5)),)
    assert simplified(fn("pow", X, number(2.0))) == (fn("mul", X, X),)
    clamped = fn(
        "hardtanh", fn("mul", fn("hardtanh", X, number(0.0), number(1.0)), number(2.0)), number(0.0), number(1.0)
    )
    assert simplified(fn("div", clamped, number(2.0))) == (fn("hardtanh", X, number(0.0), number(0.5)),)
    gate = fn("hardtanh", fn("div", fn("add", fn("relu", X), number(3.0)), number(6.0)), number(0.0), number(1.0))
    assert simplified(gate) == (
        fn("minimum", fn("div", fn("add", fn("relu", X), number(3.0)), number(6.0)), number(1.0)),
    )


def test_a_product_that_is_used_elsewhere_is_not_computed_twice() -> None:
    product = fn("mul", X, number(2.0))
    total = fn("add", fn("relu", product), fn("exp", product))
    assert simplified(total) == (total,)
    assert simplified(fn("relu", product)) == (fn("mul", fn("relu", X), number(2.0)),)


def test_in_16_bits_a_function_that_goes_takes_its_casts_along() -> None:
    half = Input("h", 0, (3,), float16, (1,))
    once = Map("cast", (fn("mul", Map("cast", (half,), float32), number(1.0)),), float16)
    assert simplified(fn("neg", once)) == (fn("neg", half),)


def test_rounding_to_16_bits_between_two_functions_stays() -> None:
    narrow = Map("cast", (fn("exp", X),), float16)
    chain = fn("sin", Map("cast", (narrow,), float32))
    assert simplified(chain) == (chain,)


def test_updates_are_simplified_too() -> None:
    steps = Param("steps", (), float32, ())
    graph = Graph((X,), (fn("exp", X),), (Update(steps, fn("add", fn("mul", steps, number(1.0)), number(1.0))),), 0)
    assert simplify(graph).updates == (Update(steps, fn("add", steps, number(1.0))),)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2)])
def test_empty_tensors_are_simplified_like_others(shape: tuple[int, ...]) -> None:
    empty = Input("e", 0, shape, float32, (1,) * len(shape))
    chain = fn("exp", fn("add", empty, Broadcast(number(2.0), shape)))
    assert simplified(chain) == (fn("exp", fn("add", empty, number(2.0))),)
