"""An output keeps its own memory: simplifying never hands the caller a view of something it did not share before."""

from __future__ import annotations

from kernelwright.ir.dtypes import bool_, float32, int64
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
    Permute,
    Reshape,
    Table,
    TensorType,
    Update,
)
from kernelwright.simplify import simplify

X = Input("x", 0, (2, 3), float32, (3, 1))
W = Param("w", (2, 3), float32, (3, 1))


def copy(x: Node) -> Map:
    return Map("identity", (x,))


def simplified(*outputs: Node) -> tuple[Node, ...]:
    return simplify(Graph((X,), outputs, (), 0)).outputs


def test_a_copy_of_an_input_or_a_parameter_stays_a_copy() -> None:
    assert simplified(copy(X)) == (copy(X),)
    assert simplified(copy(W)) == (copy(W),)
    assert simplified(copy(copy(X))) == (copy(X),)


def test_a_copy_of_a_view_of_an_input_stays_a_copy() -> None:
    assert simplified(copy(Permute(X, (1, 0)))) == (copy(Permute(X, (1, 0))),)
    assert simplified(Reshape(copy(X), (6,))) == (copy(Reshape(X, (6,))),)


def test_an_input_returned_as_it_is_stays_the_input() -> None:
    assert simplified(X) == (X,)
    assert simplified(Permute(Permute(X, (1, 0)), (1, 0))) == (X,)


def test_what_was_computed_and_turns_out_to_be_an_input_becomes_a_copy() -> None:
    one, zero = Const(1.0, float32), Const(-0.0, float32)
    assert simplified(Map("mul", (X, one))) == (copy(X),)
    assert simplified(Reshape(Map("add", (X, zero)), (6,))) == (copy(Reshape(X, (6,))),)


def test_a_copy_of_something_computed_is_not_needed() -> None:
    assert simplified(copy(Map("exp", (X,)))) == (Map("exp", (X,)),)


def test_two_outputs_that_turn_out_equal_stay_two_tensors() -> None:
    e = Map("exp", (X,))
    assert simplified(e, copy(e)) == (e, copy(e))
    assert simplified(e, Map("mul", (e, Const(1.0, float32)))) == (e, copy(e))
    assert simplified(e, Reshape(copy(e), (6,))) == (e, copy(Reshape(e, (6,))))


def test_two_outputs_that_were_views_of_one_tensor_stay_so() -> None:
    e = Map("exp", (X,))
    assert simplified(e, Reshape(e, (6,))) == (e, Reshape(e, (6,)))


def test_an_output_that_was_written_out_in_full_is_not_returned_as_a_repeating_view() -> None:
    row = Param("row", (3,), float32, (1,))
    spread = Map("exp", (Broadcast(row, (2, 3)),))
    assert simplified(spread) == (copy(Broadcast(Map("exp", (row,)), (2, 3))),)
    assert simplified(Broadcast(row, (2, 3))) == (Broadcast(row, (2, 3)),)


def test_an_output_of_constants_alone_is_written_to_memory() -> None:
    zeros = Broadcast(Const(0.0, float32), (2, 3))
    assert simplified(zeros) == (copy(zeros),)
    assert simplified(Const(1, int64)) == (copy(Const(1, int64)),)
    table = Table((1, 2), (2,), int64)
    assert simplified(copy(table)) == (copy(table),)
    false = Map("where", (Const(False, bool_), Const(1, int64), Const(2, int64)))
    assert simplified(false) == (copy(Const(2, int64)),)


def test_an_operator_of_pytorch_that_returns_a_view_of_its_operand_counts_as_a_view() -> None:
    diagonal = Opaque("aten.diagonal.default", (copy(X),), (), (TensorType((2,), float32),))
    bare = Opaque("aten.diagonal.default", (X,), (), (TensorType((2,), float32),))
    assert simplified(diagonal) == (copy(bare),)
    assert simplified(bare) == (bare,)
    unbound = Opaque("aten.unbind.int", (copy(X),), (), (TensorType((3,), float32),) * 2)
    assert all(isinstance(n, Map) for n in simplified(Item(unbound, 0), Item(unbound, 1)))


def test_an_operator_that_makes_its_result_needs_no_copy() -> None:
    total = Opaque("aten.cumsum.default", (copy(X), 0), (), (TensorType((2, 3), float32),))
    assert simplified(total) == (Opaque("aten.cumsum.default", (X, 0), (), (TensorType((2, 3), float32),)),)


def test_updated_values_need_no_memory_of_their_own() -> None:
    state = Param("state", (2, 3), float32, (3, 1))
    graph = Graph((X,), (copy(X),), (Update(state, copy(X)),), 0)
    simple = simplify(graph)
    assert simple.updates == (Update(state, X),)
    assert simple.outputs == (copy(X),)
