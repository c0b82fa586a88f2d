"""The rewrite engine: rules run from leaves to outputs until none fires, and see how often a node is used."""

from __future__ import annotations

from collections import Counter

import pytest

from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import Const, Graph, Input, Map, Node, Param, Update
from kernelwright.ir.rewrite import count_uses, rewrite

X = Input("x", 0, (2,), float32, (1,))


def fn(name: str, *args: Node) -> Map:
    return Map(name, args)


def graph(*outputs: Node, updates: tuple[Update, ...] = ()) -> Graph:
    return Graph((X,), outputs, updates, 0)


def drop_double_negation(n: Node) -> Node | None:
    match n:
        case Map("neg", (Map("neg", (x,)),)):
            return x
    return None


def exp_for_sin(n: Node) -> Node | None:
    match n:
        case Map("sin", (x,)):
            return Map("exp", (x,))
    return None


def test_rules_are_applied_until_none_fires() -> None:
    node: Node = X
    for _ in range(7):
        node = fn("neg", node)
    assert rewrite(graph(node), [drop_double_negation]).outputs == (fn("neg", X),)


def test_what_one_rule_makes_another_rule_sees() -> None:
    def fold(n: Node) -> Node | None:
        return fn("abs", X) if n is fn("cos", fn("exp", X)) else None

    assert rewrite(graph(fn("cos", fn("sin", X))), [fold, exp_for_sin]).outputs == (fn("abs", X),)


def test_outputs_and_updates_are_rewritten_alike() -> None:
    state = Param("s", (2,), float32, (1,))
    result = rewrite(graph(fn("sin", X), updates=(Update(state, fn("sin", state)),)), [exp_for_sin])
    assert result.outputs == (fn("exp", X),)
    assert result.updates == (Update(state, fn("exp", state)),)


def test_a_graph_that_no_rule_changes_is_returned_equal() -> None:
    unchanged = graph(fn("cos", X))
    assert rewrite(unchanged, [exp_for_sin]) == unchanged


def test_a_rule_may_ask_how_often_a_node_is_used() -> None:
    def sin_used_once(n: Node, uses: Counter[Node]) -> Node | None:
        match n:
            case Map("neg", (Map("sin", (x,)) as inner,)) if uses[inner] == 1:
                return fn("cos", x)
        return None

    s = fn("sin", X)
    assert rewrite(graph(fn("neg", s)), [], [sin_used_once]).outputs == (fn("cos", X),)
    assert rewrite(graph(fn("neg", s), s), [], [sin_used_once]).outputs == (fn("neg", s), s)


def test_uses_are_counted_over_operands_outputs_and_updates() -> None:
    state = Param("s", (2,), float32, (1,))
    e = fn("exp", X)
    counted = count_uses(graph(fn("mul", e, e), e, updates=(Update(state, e),)))
    assert counted[e] == 4
    assert counted[X] == 1


def test_rules_that_undo_each_other_are_reported() -> None:
    def sin_for_exp(n: Node) -> Node | None:
        match n:
            case Map("exp", (x,)):
                return Map("sin", (x,))
        return None

    with pytest.raises(RuntimeError, match="do not settle"):
        rewrite(graph(fn("exp", X)), [exp_for_sin, sin_for_exp])


def test_a_shared_node_stays_shared() -> None:
    s = fn("sin", X)
    (result,) = rewrite(graph(fn("add", s, fn("mul", s, Const(2.0, float32)))), [exp_for_sin]).outputs
    e = fn("exp", X)
    assert result is fn("add", e, fn("mul", e, Const(2.0, float32)))
